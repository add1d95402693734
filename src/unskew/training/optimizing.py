r"""The optimizer of a stage, and the average of its states.

Which parameters learn how fast, which decay, and which are clipped together. At a constant learning rate the parameters
fluctuate around the optimum, each state in another direction; their average is closer to it, so it is what validation
sees and what is served. The mean is exponential, $\bar w \leftarrow \bar w + (w - \bar w) / \max(1, s n)$ after $n$
steps, with the share $s$ of them as its horizon: it forgets the beginning of training, however long that is. Buffers,
such as running estimates, are already averages and are copied.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unskew.methods.method import Method, Stage
from unskew.networks.documents import FeatureLayer
from unskew.networks.observation import decays
from unskew.training.settings import Settings


@dataclass(frozen=True)
class StageOptimizer:
    """An optimizer of what a stage trains."""

    optimizer: torch.optim.Optimizer
    networks: list[list[nn.Parameter]]  # the gradients of each are clipped separately
    settings: Settings

    @classmethod
    def of(cls, method: Method, stage: Stage, settings: Settings) -> StageOptimizer:
        """The optimizer of a stage; everything else is frozen."""
        groups: list[dict[str, Any]] = []
        networks: list[list[nn.Parameter]] = []
        trained: set[int] = set()
        for module, factor in stage.trains.items():
            if not 0 <= factor < math.inf:
                raise ValueError(f"stage '{stage.name}' has a learning-rate factor of {factor}: it must be 0 or more")
            own = {id(entry): entry for entry in module.parameters() if id(entry) not in trained}
            groups += _groups(module, own, settings.rate * factor, settings.feature_rate)
            networks += _networks(module, own, split=module is method)
            trained.update(own)
        for entry in method.parameters():
            entry.requires_grad_(id(entry) in trained)
        return cls(settings.new_optimizer(groups), networks, settings)

    def step(self, number: int, n_steps: int | None) -> None:
        """Update the parameters, in this step of a stage, from 0."""
        self.settings.set_rates(self.optimizer, number, n_steps)
        self.optimizer.step()

    def clip(self) -> None:
        """Scale the gradients of every network down to the largest norm allowed."""
        if self.settings.max_gradient_norm is not None:
            for parameters in self.networks:
                _clip(parameters, self.settings.max_gradient_norm)


def _groups(
    module: nn.Module, own: dict[int, nn.Parameter], rate: float, feature_rate: float | None
) -> list[dict[str, Any]]:
    """Parameters that learn and decay alike; those that decay first."""
    kinds: dict[tuple[bool, float], list[nn.Parameter]] = {}
    places = {id(entry): part for part in module.modules() for entry in part.parameters(recurse=False)}
    for number, entry in own.items():
        part, slower = places[number], 1.0
        if isinstance(part, FeatureLayer) and entry is part.weight:
            slower = part.rate if feature_rate is None else feature_rate
        kinds.setdefault((decays(part, entry), slower), []).append(entry)
    return [
        {"params": alike, "lr": rate * slower, **({} if decay else {"weight_decay": 0.0})}
        for (decay, slower), alike in sorted(kinds.items(), key=lambda kind: not kind[0][0])
    ]


def _networks(module: nn.Module, own: dict[int, nn.Parameter], *, split: bool) -> list[list[nn.Parameter]]:
    """Parameters to clip together: all of a module, or those of each of its parts."""
    if not split:
        return [list(own.values())]
    parts = [list(module.parameters(recurse=False)), *(list(child.parameters()) for child in module.children())]
    kept = [[entry for entry in part if id(entry) in own] for part in parts]
    return [part for part in kept if part]


def _clip(parameters: list[nn.Parameter], most: float) -> None:
    """Scale the gradients of a network down to this norm; those below it are left alone."""
    norm = nn.utils.get_total_norm([entry.grad for entry in parameters if entry.grad is not None], foreach=True)
    if norm.device.type != "cpu" or not norm + 1e-6 <= most:  # a GPU would have to be waited for
        nn.utils.clip_grads_with_norm_(parameters, most, norm, foreach=True)


AVERAGED = 0.2  # share of the steps of a stage to average over


class AveragedMethod:
    """A copy of the trained method with averaged parameters.

    Args:
        method: the method to average; it must keep its parameters, as an optimizer does.
        share: share of the steps so far over which parameters are averaged.
    """

    def __init__(self, method: Method, share: float):
        self.method = deepcopy(method).eval()
        self._share = share
        self._steps = 0
        self._parameters = [list(each.parameters()) for each in (self.method, method)]
        self._trained = method if next(method.buffers(), None) is not None else None  # the source of buffers

    @torch.no_grad()
    def update(self) -> None:
        """Include the parameters after a step in the average."""
        self._steps += 1
        torch._foreach_lerp_(*self._parameters, 1 / max(1.0, self._share * self._steps))  # type: ignore[call-overload]
        if self._trained is not None:
            for mine, current in zip(self.method.buffers(), self._trained.buffers(), strict=True):
                mine.copy_(current)

    def state(self) -> dict[str, Tensor]:
        """The state needed to resume."""
        return {"n_averaged": torch.tensor(self._steps), **self.method.state_dict(prefix="module.")}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._steps = int(state["n_averaged"])
        kept = {name.removeprefix("module."): value for name, value in state.items() if name.startswith("module.")}
        self.method.load_state_dict(kept)
