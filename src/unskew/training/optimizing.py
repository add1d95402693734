"""The optimizer of a stage: which parameters learn how fast, which decay, and which are clipped together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from unskew.methods.method import Method, Stage
from unskew.networks.documents import FeatureLayer
from unskew.networks.tables import decays
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
