"""Warm starts: copy yesterday's weights and curves to a model of today's log.

A network works only with the feature transform that it was trained with, so the transform is copied too. Columns are
matched by name. If today's lists are longer, the curve continues at its last value; a new level of a bias column, or a
new bias column, starts at the average curve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.clicks.storage import Log
from unskew.data.transformed import feature_names
from unskew.methods import Method
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Network, Problem
from unskew.training.model import Model
from unskew.training.recipe import Recipe

Levels = Mapping[str, tuple[str, ...] | None]


def start_recipe(recipe: Recipe, start: Model) -> Recipe:
    """The recipe with the estimates of the start, and its network unless another is asked for.

    A start whose weights do not fit the recipe is refused.
    """
    if recipe.network == Network():
        recipe = replace(recipe, network=start.recipe.network)
    for what, wanted, had in (
        ("method", recipe.method, start.recipe.method),
        ("transform", recipe.transform, start.recipe.transform),
        ("network", recipe.network.to_json(), start.recipe.network.to_json()),
    ):
        if wanted != had:
            raise ValueError(
                f"the model to start from has {what} {had}, the recipe {wanted}: keep the model's {what}, or train "
                "without a start"
            )
    if start.others:
        raise ValueError(
            f"the model to start from is an average of rankers ({start.name}): start from one of its methods, or train "
            "without a start"
        )
    if start.vocabulary is not None:
        raise ValueError(
            f"this {start.recipe.method} model knows documents by their ids, which change from log to log: train "
            "without a start, or start from a model that uses features only"
        )
    carried = {name: start.recipe.hyper_parameters.get(name) for name in recipe.method_class.estimated}
    hyper = {**{name: value for name, value in carried.items() if value is not None}, **recipe.hyper_parameters}
    return replace(recipe, hyper_parameters=hyper)


def check_columns(start: Model, log: Log) -> None:
    """Refuse a log with other features, or without a bias column of the model; columns are matched by name."""
    names = feature_names(log)
    if start.feature_names and names:
        missing = [name for name in start.feature_names if name not in names]
        new = [name for name in names if name not in start.feature_names]
        if missing or new:
            lacks = f"lacks {', '.join(missing)}" if missing else ""
            has = f"has {', '.join(new)}, which the model never saw" if new else ""
            raise ValueError(
                f"the log {' and '.join(part for part in (lacks, has) if part)}: give it the features of the model, or "
                "train without a start"
            )
    elif log.n_inputs != start.n_features:
        raise ValueError(
            f"the log has {log.n_inputs} features, the model to start from {start.n_features}: train without a start"
        )
    gone = [name for name in start.problem.bias if name not in log.levels]
    if gone:
        raise ValueError(f"the log lacks the bias column '{gone[0]}' of the model: ingest it with --bias {gone[0]}")


def joined_levels(start: Model, log: Log) -> dict[str, tuple[str, ...] | None]:
    """Bias columns of the model and the log, with the model's levels first and new ones after them."""
    found: dict[str, tuple[str, ...] | None] = {}
    for name, levels in log.levels.items():
        known = start.problem.bias.get(name, ()) if levels is not None else None
        if (levels is None) != (start.problem.bias.get(name, levels) is None):
            kinds = ("numbers", "levels") if levels is None else ("levels", "numbers")
            raise ValueError(f"bias column '{name}' holds {kinds[0]} in the log, but {kinds[1]} in the model")
        found[name] = (
            None if levels is None else (*(known or ()), *(level for level in levels if level not in (known or ())))
        )
    return found


def as_model_sees(log: ClickLog, start: Model, bias: Levels) -> ClickLog:
    """The log with columns in the model's order, and with categories and levels numbered as in the model."""
    log = replace(log, bias={name: _recoded(column, bias[name]) for name, column in log.bias.items()})
    names, wanted = log.input_names, start.feature_names
    if not names or not wanted:
        return log
    own, context = wanted[: log.n_features], wanted[log.n_features :]
    if set(own) != set(names[: log.n_features]):
        moved = sorted(set(own) ^ set(names[: log.n_features]))[0]
        raise ValueError(f"'{moved}' is a feature on one side and context on the other: ingest it as the model has it")

    def ordered(values: NDArray, have: tuple[str, ...], order: tuple[str, ...]) -> NDArray[np.float32]:
        columns = [_renumbered(values[:, have.index(name)], name, log.categories, start.categories) for name in order]
        return np.stack(columns, axis=1).astype(np.float32) if columns else np.zeros((len(values), 0), np.float32)

    return replace(
        log,
        features=ordered(log.features, names[: log.n_features], own),
        context=ordered(log.context, names[log.n_features :], context),
        feature_names=own if log.feature_names else (),
        context_names=context,
        categories={},
    )


def carry_over(start: Model, method: Method, problem: Problem) -> dict[str, Any]:
    """Copy what the start has learned into a new method; returns what was extended."""
    state = {name: tensor.clone() for name, tensor in start.method.state_dict().items()}
    extended: list[str] = []
    for name, module in method.named_modules():
        if isinstance(module, PositionObservation):
            _extend(state, f"{name}." if name else "", module, start.problem, problem, extended)
    for name, tensor in method.state_dict().items():
        if name not in state or state[name].shape != tensor.shape:
            had = "nothing" if name not in state else list(state[name].shape)
            raise ValueError(
                f"'{name}' has shape {list(tensor.shape)} on this log, but {had} in the model to start from (positions "
                f"{start.problem.n_positions} then, {problem.n_positions} now): train without a start"
            )
    method.load_state_dict({name: state[name] for name in method.state_dict()})
    before = start.trained_on.get("started_from") or {}
    logs = [log["digest"] for log in [start.trained_on.get("log")] if log] + before.get("logs", [])  # the latest first
    about = {"method": start.recipe.method, "steps": _steps(start), "extended": extended}
    return {**about, "model": start.digest, "logs": logs}


def _extend(
    state: dict[str, torch.Tensor],
    prefix: str,
    module: PositionObservation,
    before: Problem,
    now: Problem,
    extended: list[str],
) -> None:
    """Enlarge tables of positions and levels: new positions copy the last one, new levels the average."""
    n_positions = len(module.logits)
    had_levels = [name for name, levels in before.bias.items() if levels is not None]
    had_slopes = [name for name, levels in before.bias.items() if levels is None]
    old = {
        **{f"levels:{name}": state.pop(f"{prefix}levels.{number}") for number, name in enumerate(had_levels)},
        **{f"slopes:{name}": state.pop(f"{prefix}slopes.{number}") for number, name in enumerate(had_slopes)},
    }

    def longer(values: torch.Tensor) -> torch.Tensor:
        rest = max(0, n_positions - values.shape[-1])
        return torch.cat([values, values[..., -1:].expand(*values.shape[:-1], rest)], dim=-1)

    if len(state[f"{prefix}logits"]) < n_positions:
        extended.append(f"positions {before.n_positions + 1} to {now.n_positions}")
    state[f"{prefix}logits"] = longer(state[f"{prefix}logits"])
    for number, (name, table) in enumerate(zip(module.level_columns, module.levels, strict=True)):
        new = torch.zeros_like(table)
        if f"levels:{name}" in old:
            known = longer(old[f"levels:{name}"])
            new[:] = known.mean(0)
            new[: len(known)] = known
        state[f"{prefix}levels.{number}"] = new
        fresh = (now.bias[name] or ())[len(before.bias.get(name) or ()) :]
        extended += [f"{name}={level}" for level in fresh]
    for number, name in enumerate(module.slope_columns):
        slope = module.slopes[number]
        state[f"{prefix}slopes.{number}"] = longer(old.get(f"slopes:{name}", torch.zeros_like(slope)))


def _steps(start: Model) -> int:
    return int(start.history.rows[-1]["step"]) if start.history.rows else 0


def _recoded(column: BiasColumn, levels: tuple[str, ...] | None) -> BiasColumn:
    if column.levels is None or levels is None or column.levels == levels:
        return column
    numbers = np.array([levels.index(level) for level in column.levels], dtype=column.values.dtype)
    return BiasColumn(numbers[column.values], levels)


def _renumbered(
    values: NDArray, name: str, have: Mapping[str, tuple[str, ...]], want: Mapping[str, tuple[str, ...]]
) -> NDArray:
    """Codes of a category as the model numbers them; -1 for values that it never saw."""
    if (name in have) != (name in want):
        kinds = ("text", "numbers") if name in have else ("numbers", "text")
        raise ValueError(f"feature '{name}' is {kinds[0]} in the log, but {kinds[1]} in the model")
    if name not in have or have[name] == want[name]:
        return values
    places = {value: number for number, value in enumerate(want[name])}
    table = np.array([places.get(value, -1) for value in have[name]] or [-1], dtype=np.float32)
    missing = np.isnan(values)
    return np.where(missing, np.nan, table[np.where(missing, 0, values).astype(np.int64)])
