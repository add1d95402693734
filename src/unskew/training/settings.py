"""Settings of training: everything that does not belong to the method."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any, get_type_hints

import torch

from unskew.data.clicks.batches import TOGETHER
from unskew.options import Count, Limits, NotNegative, Positive, Share, check

ShareOfSteps = Annotated[float, Limits(0, 1, words="a share of the steps from 0 to 1")]
RESTART_AVERAGE = 0.5  # share of the steps of a warm start to average over
LISTS, MOST_LISTS, SESSIONS = 128, 1_024, 1_024  # of a batch, see `usual_batch`
SETTLED = 400  # steps after which learning rate and weight decay relax
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
    # A larger eps than torch's: some gradients are 0 but for rounding, as that of a constant added to all scores.
    "adamw": partial(torch.optim.AdamW, eps=1e-6),
    "sgd": torch.optim.SGD,
}
# Learning rate, weight decay and schedule of an optimizer, where none are given. Only AdamW's decay is independent of
# the gradient: it bounds the weights, however many clicks a session has.
USUAL: dict[str, tuple[float, float, str]] = {
    "adamw": (0.005, 3.0, "relaxing"),
    "adagrad": (0.1, 0.001, "constant"),
    "adam": (0.003, 0.001, "constant"),
    "sgd": (0.1, 0.001, "constant"),
}


def _cosine(step: int, n_steps: int | None) -> tuple[float, float]:
    if n_steps is None:
        raise ValueError("schedule=cosine falls to 0 at the last step: say how many there are, with steps=")
    return (1 + math.cos(math.pi * step / max(1, n_steps))) / 2, 1.0


def _relaxing(step: int, n_steps: int | None) -> tuple[float, float]:  # noqa: ARG001
    left = min(1.0, SETTLED / max(1, step))
    return math.sqrt(left), left


# Shares of learning rate and of weight decay, by the step of a stage after warm-up and the number of its steps.
SCHEDULES: dict[str, Callable[[int, int | None], tuple[float, float]]] = {
    "constant": lambda step, n_steps: (1.0, 1.0),  # noqa: ARG005
    "cosine": _cosine,
    # The longer training runs, the more freely it fits; held-out clicks say when that is too free.
    "relaxing": _relaxing,
}


def usual_batch(n_lists: int, n_sessions: float, n_queries: int, together: int = TOGETHER) -> int:
    """Lists of a batch: those of 128 queries, or as many as have 1,024 sessions, at most 2,048.

    Lists of a query stay together, and few queries or few clicks say little about a gradient.

    >>> usual_batch(3_000, 3_000 * 128, 3_000), usual_batch(24_000, 24_000 * 16, 3_000)
    (128, 1024)
    >>> usual_batch(20_000, 80_000, 20_000), usual_batch(20_000, 20_000, 20_000)
    (256, 1024)
    """
    of_queries = LISTS * min(together, n_lists / max(1, n_queries))
    of_sessions = min(MOST_LISTS, SESSIONS * n_lists / max(1, n_sessions))
    return math.ceil(min(2 * MOST_LISTS, max(LISTS, of_queries, of_sessions)))


@dataclass(frozen=True)
class Settings:
    """How to train."""

    steps: Count | None = None  # over all stages; None: until held-out clicks are predicted no better, see `ending`
    batch_size: Count | None = None  # lists per batch; None: 128 or more, see `usual_batch`
    together: Count = TOGETHER  # lists of a query that stay together in a batch; 1: each list is shuffled separately
    lanes: Count = 1  # number of shards of a streamed log that a batch takes lists from; processes share them
    optimizer: str = "adamw"
    learning_rate: Positive | None = None  # None: that of the optimizer, see `USUAL`; .005 for adamw
    feature_rate: Positive | None = None  # factor of it for layers that see features; None: 1, less beyond 128 features
    schedule: str | None = None  # "constant", "cosine" (to 0 at the end of a stage), or "relaxing", that of adamw
    warm_up: Annotated[int, Limits(0)] = 20  # steps at the start of each stage in which the learning rate rises from 0
    weight_decay: NotNegative | None = None  # None: that of the optimizer; 3 for adamw, falling
    max_gradient_norm: Positive | None = 5.0  # of each network separately
    metric: str = "ndcg@10"  # on judged validation lists
    validate_every: Count | None = None  # steps; None: in growing intervals, see `ending`
    patience: Count | None = None  # validations without improvement before a stage ends early
    average: ShareOfSteps | None = None  # share of the steps so far to average over, see `optimizing`; None: 0.2
    grade: dict[str, float] | None = None  # weight of each event type, including click; None: those of the log
    sum_grades: bool = False  # add the weights of all events on an impression; otherwise the strongest counts
    restart: Share = 0.3  # share of the learning rate for training that starts from another model
    seed: int = 0
    device: str = "auto"  # "cuda" if available, otherwise "cpu"

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"unknown optimizer '{self.optimizer}': choose from {', '.join(OPTIMIZERS)}")
        rate, decay, schedule = USUAL[self.optimizer]
        for name, usual in (("learning_rate", rate), ("weight_decay", decay), ("schedule", schedule)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, usual)
        if self.schedule not in SCHEDULES:
            raise ValueError(f"unknown schedule '{self.schedule}': choose from {', '.join(SCHEDULES)}")
        for name, kind in get_type_hints(type(self), include_extras=True).items():
            value = check(getattr(self, name), kind, name)
            object.__setattr__(self, name, float(value) if name in NUMBERS and value is not None else value)

    def restarted(self) -> Settings:
        """Settings of a warm start: slower, so that a new optimizer does not undo what was learned, and averaged."""
        average = RESTART_AVERAGE if self.average is None else self.average
        return replace(self, learning_rate=self.rate * self.restart, average=average)

    @property
    def lists(self) -> int:
        """Lists per batch, where the log says nothing else."""
        return LISTS if self.batch_size is None else self.batch_size

    @property
    def rate(self) -> float:
        """The learning rate."""
        assert self.learning_rate is not None
        return self.learning_rate

    def new_optimizer(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        """An optimizer of these parameters; on a CPU it updates all of them in one call."""
        groups = [{**group, "params": list(group["params"])} for group in groups]
        on_cpu = all(entry.device.type == "cpu" for group in groups for entry in group["params"])
        return OPTIMIZERS[self.optimizer](
            groups, lr=self.rate, weight_decay=self.weight_decay, fused=True if on_cpu else None
        )

    def set_rates(self, optimizer: torch.optim.Optimizer, step: int, n_steps: int | None) -> None:
        """Learning rates and weight decay of this step of a stage, by schedule and warm-up.

        Args:
            n_steps: of the stage; None: until nothing more is learned.
        """
        assert self.schedule is not None
        if self.schedule == "constant" and not self.warm_up:
            return
        warm_up = self.warm_up if n_steps is None else min(self.warm_up, n_steps // 4)
        rise = min(1.0, (step + 1) / (warm_up + 1))
        remaining = None if n_steps is None else n_steps - warm_up
        rate, decay = SCHEDULES[self.schedule](max(0, step - warm_up), remaining)
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * rise * rate
            group["weight_decay"] = group.setdefault("initial_decay", group["weight_decay"]) * decay

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
