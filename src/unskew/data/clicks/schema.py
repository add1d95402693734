"""The schema shared by all shards of a log, determined while they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.impressions import BiasColumn
from unskew.data.clicks.row_fields import FIELDS


class LogSchema:
    """Features, bias columns and kind of a log; new shards may add names of levels."""

    NEEDED: ClassVar = (  # entries of every log, since the first release
        *("features", "categories", "context", "bias", "interventions", "events"),
        *("policy_scores", "first_shown", "periods", "seen", "joint", "graded"),
    )

    def __init__(self, log: ClickLog):
        self._fixed = _fixed(log)
        self._levels: dict[str, list[str] | None] = {name: _names(column) for name, column in log.bias.items()}
        self._interventions = None if log.interventions is None else _names(log.interventions)

    def admit(self, log: ClickLog, number: int) -> ClickLog:
        """The log with levels numbered as in earlier shards; a log with another schema is refused."""
        for name, value in _fixed(log).items():
            if value != self._fixed.get(name, False):
                raise ValueError(
                    f"shard {number}: {name} is {value}, but {self._fixed.get(name, False)} in shard 0: build all "
                    "shards with the same settings"
                )
        interventions = log.interventions
        if interventions is not None:
            interventions = _renumber(interventions, self._interventions)
        bias = {name: _renumber(column, self._levels[name]) for name, column in log.bias.items()}
        return replace(log, bias=bias, interventions=interventions)

    def about(self) -> dict[str, Any]:
        """Entries of `log.json`."""
        return {**self._fixed, "bias": self._levels, "interventions": self._interventions}


def _fixed(log: ClickLog) -> dict[str, Any]:
    has = {
        entry.entry: getattr(log, entry.name) is not None
        for entry in FIELDS
        if entry.entry is not None and (getattr(log, entry.name) is not None or not entry.new)
    }
    return {
        "features": list(log.feature_names) or log.n_features,
        "categories": {name: list(names) for name, names in log.categories.items()},
        "context": list(log.context_names),
        "bias": {name: "numbers" if column.levels is None else "levels" for name, column in log.bias.items()},
        **has,
        "events": list(log.events),
        "joint": log.joint,
        "graded": log.graded,
        "grades": dict(log.grades),
        "shuffled": dict(log.shuffled),
    }


def _names(column: BiasColumn) -> list[str] | None:
    return None if column.levels is None else list(column.levels)


def _renumber(column: BiasColumn, known: list[str] | None) -> BiasColumn:
    """The column with the numbers of the known levels; new levels are added."""
    if known is None or column.levels is None or _starts_with(known, column.levels):
        return column
    known.extend(level for level in column.levels if level not in known)
    numbers = np.array([known.index(level) for level in column.levels])
    return BiasColumn(numbers[column.values], tuple(known))


def _starts_with(known: Sequence[str], levels: Sequence[str]) -> bool:
    return list(known[: len(levels)]) == list(levels)
