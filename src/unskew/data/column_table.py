"""A readable table of the transform of each raw column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from unskew.data.raw_columns import MISSING_PLACE, N_SPECIAL, RawColumns
from unskew.data.transforms import (
    Chain,
    Clip,
    HeavyTailLog,
    Identity,
    MinMax,
    PerQueryMinMax,
    Reciprocal,
    SignedLog,
    Standard,
    Transform,
)

CONSTANT = "constant in training, so 0"
MOST_NAMES = 6


@dataclass(frozen=True)
class Column:
    """A raw column and its transform in words."""

    name: str
    became: str


def describe_columns(transform: Transform, names: Sequence[str] = ()) -> list[Column]:
    """The transform of each raw column, in order; empty for a transform that was not fitted on columns."""
    if not isinstance(transform, RawColumns):
        return []
    texts = {int(column): _number(transform, place) for place, column in enumerate(transform.numbers)}
    texts |= {int(column): _category(transform, place) for place, column in enumerate(transform.category_columns)}
    named = names or [f"number {column}" for column in range(transform.n_features)]
    return [Column(named[column], texts[column]) for column in sorted(texts)]


def grouped(columns: Sequence[Column]) -> list[tuple[str, str, str]]:
    """Rows of a table: a transform, its number of columns, and the names of the first few."""
    names: dict[str, list[str]] = {}
    for column in columns:
        names.setdefault(column.became, []).append(column.name)
    return [
        (became, str(len(found)), ", ".join(found[:MOST_NAMES]) + (", …" if len(found) > MOST_NAMES else ""))
        for became, found in names.items()
    ]


def _number(transform: RawColumns, place: int) -> str:
    inner = transform.inner
    steps = list(inner.steps) if isinstance(inner, Chain) else [inner]
    texts = [DESCRIPTIONS[type(step)](step, place) for step in steps]
    if CONSTANT in texts:
        return CONSTANT
    text = ", ".join(entry for entry in texts if entry) or "unchanged"
    flag = (transform.flagged == place).nonzero()
    if len(flag):
        text += f"; missing in {float(transform.flag_mean[flag[0, 0]]):.0%}: imputed, with an indicator"
    return text


def _category(transform: RawColumns, place: int) -> str:
    first = int(transform.first_entry[place])
    codes, own = transform.codes[place], transform.sizes[place] - N_SPECIAL
    missing = transform.places[first + codes + 1] == MISSING_PLACE
    return f"category: a vector for each of {own} values, one for {codes - own} rare and all new ones" + (
        ", one for missing values" if missing else ""
    )


DESCRIPTIONS: dict[type[nn.Module], Callable[..., str]] = {
    Identity: lambda _, __: "",
    SignedLog: lambda _, __: "logarithm",
    HeavyTailLog: lambda step, place: "logarithm" if step.heavy[place] else "",
    Standard: lambda step, place: "standardized" if step.inverse_deviation[place] else CONSTANT,
    MinMax: lambda step, place: "-1 to 1" if step.inverse_radius[place] else CONSTANT,
    Clip: lambda step, _: f"clipped to ±{step.bound:g}",
    Reciprocal: lambda step, _: f"1 / ({step.constant:g} + x), 0 if missing",
    PerQueryMinMax: lambda _, __: "0 to 1 among the documents of the query",
}
