"""Settings of training: everything that does not belong to the method."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any, get_type_hints

import torch

from unskew.data.clicks.batches import TOGETHER
from unskew.options import Limits, check

Count = Annotated[int, Limits(1)]
Positive = Annotated[float, Limits(above=0)]
Share = Annotated[float, Limits(above=0, most=1, words="a share above 0 and at most 1")]
ShareOfSteps = Annotated[float, Limits(0, 1, words="a share of the steps from 0 to 1")]
RESTART_AVERAGE = 0.5  # share of the steps of a warm start to average over, if there is no validation
MOST_STEPS, MOST_PASSES = 1_000, 50  # by default; more passes over a small log learn its clicks by heart
NUMBERS = ("learning_rate", "weight_decay", "max_gradient_norm", "average", "restart", "feature_rate")  # kept as floats
# Settings that are not written if they have these values, which are the defaults of 0.2: never change them.
LEFT_OUT: dict[str, Any] = {
    "together": 16,
    "lanes": 1,
    "average": None,
    "schedule": "constant",
    "warm_up": 0,
    "feature_rate": None,
    "grade": None,
    "sum_grades": False,
    "restart": 0.3,
}

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    # With an accumulator of 0 the first steps are learning_rate * sign(gradient), which hurts every method.
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


def usual_steps(per_pass: int | None = None) -> int:
    """Steps where none are asked for: 1,000, but at most 50 passes over the log.

    Args:
        per_pass: batches of one pass over the log; None: it has no end, or validation chooses when to stop.

    >>> usual_steps(24), usual_steps(2)
    (1000, 100)
    """
    return MOST_STEPS if per_pass is None else min(MOST_STEPS, MOST_PASSES * per_pass)


@dataclass(frozen=True)
class Settings:
    """How to train."""

    steps: Count | None = None  # over all stages; None: 1,000, or fewer on a small log, see `usual_steps`
    batch_size: Count = 128  # lists per batch; larger batches learned no more per step, in twice the time
    together: Count = TOGETHER  # lists of a query that stay together in a batch; 1: each list is shuffled separately
    lanes: Count = 1  # number of shards of a streamed log that a batch takes lists from; processes share them
    optimizer: str = "adagrad"
    learning_rate: Positive = 0.1
    feature_rate: Positive | None = None  # factor of it for layers that see features; None: 1, less beyond 128 features
    schedule: str = "constant"  # or "cosine": the learning rate falls to 0 at the end of each stage
    warm_up: Annotated[int, Limits(0)] = 0  # steps at the start of each stage in which the learning rate rises from 0
    weight_decay: Annotated[float, Limits(0)] = 0.001  # without it rankers overfit small logs
    max_gradient_norm: Positive | None = 5.0  # of each network separately
    metric: str = "ndcg@10"  # on judged validation lists
    validate_every: Count = 100  # steps
    patience: Count | None = None  # validations without improvement before a stage ends early
    average: ShareOfSteps | None = (
        None  # share of a stage's steps to average over, see `averaging`; None: 0.2, or 0 if validated
    )
    grade: dict[str, float] | None = None  # weight of each event type, including click; None: those of the log
    sum_grades: bool = False  # add the weights of all events on an impression; otherwise the strongest counts
    restart: Share = 0.3  # share of the learning rate for training that starts from another model
    seed: int = 0
    device: str = "auto"  # "cuda" if available, otherwise "cpu"

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"unknown optimizer '{self.optimizer}': choose from {', '.join(OPTIMIZERS)}")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"unknown schedule '{self.schedule}': choose from {', '.join(SCHEDULES)}")
        for name, kind in get_type_hints(type(self), include_extras=True).items():
            value = check(getattr(self, name), kind, name)
            object.__setattr__(self, name, float(value) if name in NUMBERS and value is not None else value)

    def restarted(self, *, validated: bool) -> Settings:
        """Settings of a warm start: slower, so that a new optimizer does not undo what was learned, and averaged."""
        average = RESTART_AVERAGE if self.average is None and not validated else self.average
        return replace(self, learning_rate=self.learning_rate * self.restart, average=average)

    def new_optimizer(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        """An optimizer of these parameters; on a CPU it updates all of them in one call."""
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
            raise ValueError(f"device '{self.device}' is not available: use device=auto or device=cpu") from error

    def to_json(self) -> dict[str, Any]:
        """All settings; those that files of 0.1 do not have are left out at `LEFT_OUT`."""
        return {name: value for name, value in asdict(self).items() if name not in LEFT_OUT or value != LEFT_OUT[name]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """The settings of a saved model or a stored definition, whatever the defaults are now."""
        return cls(**{**LEFT_OUT, **data})
