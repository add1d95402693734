"""Settings of training: everything that is not the method's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

import torch

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    # With an accumulator of 0 the first steps are learning_rate * sign(gradient), and every method suffers.
    "adagrad": lambda groups, lr, decay: torch.optim.Adagrad(
        groups, lr=lr, weight_decay=decay, initial_accumulator_value=0.1
    ),
    "adam": lambda groups, lr, decay: torch.optim.Adam(groups, lr=lr, weight_decay=decay),
    "adamw": lambda groups, lr, decay: torch.optim.AdamW(groups, lr=lr, weight_decay=decay),
    "sgd": lambda groups, lr, decay: torch.optim.SGD(groups, lr=lr, weight_decay=decay),
}


@dataclass(frozen=True)
class Settings:
    """How to train."""

    steps: int = 1_000  # over all stages
    batch_size: int = 128  # lists: smaller batches learn as much a step, in half the time
    optimizer: str = "adagrad"
    learning_rate: float = 0.1
    weight_decay: float = 0.001  # without it rankers over-fit small logs
    max_gradient_norm: float | None = 5.0  # of each network by itself
    metric: str = "ndcg@10"  # on judged validation lists
    validate_every: int = 100  # steps
    patience: int | None = None  # validations without improvement before a stage ends early
    average: float | None = (
        None  # share of a stage's steps to average over, see `averaging`; None: 0.2, or 0 if validated
    )
    seed: int = 0
    device: str = "auto"  # "cuda" where there is one, else "cpu"

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"unknown optimizer '{self.optimizer}', known: {', '.join(OPTIMIZERS)}")
        for name in ("steps", "batch_size", "validate_every", "patience"):
            value = getattr(self, name)
            if name == "patience" and value is None:
                continue
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be a whole number from 1, got {value!r}")
            object.__setattr__(self, name, int(value))  # numpy's numbers cannot be written as JSON
        if not isinstance(self.learning_rate, Real) or not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate must be a number above 0, got {self.learning_rate!r}")
        if not isinstance(self.weight_decay, Real) or not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"weight_decay must be a number from 0, got {self.weight_decay!r}")
        if self.max_gradient_norm is not None:
            if not isinstance(self.max_gradient_norm, Real) or not self.max_gradient_norm > 0:
                raise ValueError(f"max_gradient_norm must be a number above 0, or none, got {self.max_gradient_norm!r}")
            object.__setattr__(self, "max_gradient_norm", float(self.max_gradient_norm))
        if self.average is not None:
            if not isinstance(self.average, Real) or not 0 <= self.average <= 1:
                raise ValueError(f"average must be a share of the steps from 0 to 1, or none, got {self.average!r}")
            object.__setattr__(self, "average", float(self.average))
        if not isinstance(self.seed, Integral):
            raise ValueError(f"seed must be a whole number, got {self.seed!r}")
        object.__setattr__(self, "seed", int(self.seed))
        object.__setattr__(self, "learning_rate", float(self.learning_rate))
        object.__setattr__(self, "weight_decay", float(self.weight_decay))

    def new_optimizer(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        return OPTIMIZERS[self.optimizer](groups, self.learning_rate, self.weight_decay)

    def torch_device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            return torch.empty(0, device=self.device).device
        except (RuntimeError, AssertionError, TypeError) as error:
            raise ValueError(f"device '{self.device}' is not here: use device=auto or device=cpu") from error

    def to_json(self) -> dict[str, Any]:
        """All settings; an average that is left to training is left out, as in files from before there was one."""
        return {name: value for name, value in asdict(self).items() if name != "average" or value is not None}
