"""Settings of training: everything that is not the method's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any

import torch

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    # With an accumulator of 0 the first steps are learning_rate * sign(gradient), and every method suffers.
    "adagrad": partial(torch.optim.Adagrad, initial_accumulator_value=0.1),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}
# Share of the learning rate by the share of a stage that is done, after warm-up.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
}


@dataclass(frozen=True)
class Settings:
    """How to train."""

    steps: int = 1_000  # over all stages
    batch_size: int = 128  # lists: smaller batches learn as much a step, in half the time
    optimizer: str = "adagrad"
    learning_rate: float = 0.1
    schedule: str = "constant"  # or "cosine": the learning rate falls to 0 at the end of each stage
    warm_up: int = 0  # steps at the start of each stage in which the learning rate rises from 0
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
        if self.schedule not in SCHEDULES:
            raise ValueError(f"unknown schedule '{self.schedule}', known: {', '.join(SCHEDULES)}")
        for name in ("steps", "batch_size", "validate_every", "patience", "warm_up"):
            value, least = getattr(self, name), int(name != "warm_up")
            if name == "patience" and value is None:
                continue
            if not isinstance(value, Integral) or value < least:
                raise ValueError(f"{name} must be a whole number from {least}, got {value!r}")
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
        """An optimizer of these parameters; on a CPU all of them are updated in one call."""
        groups = [{**group, "params": list(group["params"])} for group in groups]
        on_cpu = all(entry.device.type == "cpu" for group in groups for entry in group["params"])
        return OPTIMIZERS[self.optimizer](
            groups, lr=self.learning_rate, weight_decay=self.weight_decay, fused=True if on_cpu else None
        )

    def set_rates(self, optimizer: torch.optim.Optimizer, step: int, n_steps: int) -> None:
        """Learning rates of this step of a stage, by schedule and warm-up."""
        if self.schedule == "constant" and not self.warm_up:
            return
        rise = min(1.0, (step + 1) / (self.warm_up + 1))
        done = max(0, step - self.warm_up) / max(1, n_steps - self.warm_up)
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * rise * SCHEDULES[self.schedule](done)

    def torch_device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            return torch.empty(0, device=self.device).device
        except (RuntimeError, AssertionError, TypeError) as error:
            raise ValueError(f"device '{self.device}' is not here: use device=auto or device=cpu") from error

    def to_json(self) -> dict[str, Any]:
        """All settings; those that older files do not know are left out where they change nothing."""
        usual = {"average": None, "schedule": "constant", "warm_up": 0}
        return {name: value for name, value in asdict(self).items() if name not in usual or value != usual[name]}
