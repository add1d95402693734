"""Raw columns: handle missing values and categories before the numbers are transformed.

`RawColumns` wraps the transform of the numbers. Its output, in the order of the raw columns:

    a number    transformed; a missing value (NaN) is replaced by a typical value of the column in training. If the
                column had missing values in training, an indicator follows, with mean 0 and deviation 1.
    a category  the place of the value in a table: 0 for rare and unseen values, 1 for a missing one, then the others

A raw category is a code: its number in the vocabulary of the log, `UNSEEN` for values that are not in it, NaN for
missing values. Networks learn a vector for each place (`networks.documents`).

`from_spec` builds any transform from plain data. A spec can only name the classes listed in `KINDS`, so loading runs no
code. `describe_columns` says in words what a transform does to each column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unskew.data.transforms import (
    Chain,
    Clip,
    HeavyTailLog,
    Identity,
    MinMax,
    PerQueryMinMax,
    Reciprocal,
    SignedLog,
    Spec,
    Standard,
    Transform,
)

UNSEEN = -1.0  # the code of a value that the vocabulary does not have
RARE_PLACE, MISSING_PLACE = 0, 1
N_SPECIAL = 2


class RawColumns(Transform):
    """Numbers, indicators of missing values, and places of categories."""

    kind = "raw_columns"
    numbers: Tensor  # [numbers] columns
    fill: Tensor  # [numbers]
    flagged: Tensor  # [indicators] which of the numbers
    flag_mean: Tensor  # [indicators] share of missing values in training
    flag_scale: Tensor  # [indicators]
    category_columns: Tensor  # [categories] columns
    first_entry: Tensor  # [categories] start of the entries of each category in `places`
    places: Tensor  # [sum of (codes + 2)] place of code -1, 0, 1, …, and of a missing value
    order: Tensor  # [output columns] numbers, indicators and categories, in the order of the raw columns

    def __init__(
        self, inner: Transform, n_features: int, n_flags: int = 0, codes: Sequence[int] = (), sizes: Sequence[int] = ()
    ):
        """
        Args:
            n_features: number of raw columns.
            n_flags: number of indicators of missing values.
            codes: number of codes of each category.
            sizes: number of places of each category.
        """
        super().__init__()
        n_numbers = n_features - len(codes)
        self.inner = inner
        self.per_query = inner.per_query
        self.n_features = n_features
        self.codes = tuple(codes)
        self.sizes = tuple(sizes)
        for name, size, dtype in (
            ("numbers", n_numbers, torch.int64),
            ("fill", n_numbers, torch.float32),
            ("flagged", n_flags, torch.int64),
            ("flag_mean", n_flags, torch.float32),
            ("flag_scale", n_flags, torch.float32),
            ("category_columns", len(self.codes), torch.int64),
            ("first_entry", len(self.codes), torch.int64),
            ("places", sum(self.codes) + 2 * len(self.codes), torch.int64),
            ("order", n_features + n_flags, torch.int64),
        ):
            self.register_buffer(name, torch.zeros(size, dtype=dtype))

    def change(self, features: Tensor, mask: Tensor) -> Tensor:
        numbers = features[..., self.numbers] if self.codes else features
        missing = numbers.isnan()
        parts = [self.inner.change(torch.where(missing, self.fill, numbers), mask)]
        if len(self.flagged):
            parts.append((missing[..., self.flagged].to(features.dtype) - self.flag_mean) * self.flag_scale)
        if self.codes:
            parts.append(self._places(features[..., self.category_columns]).to(features.dtype))
        return torch.cat(parts, -1)[..., self.order] if len(parts) > 1 else parts[0]

    def _places(self, codes: Tensor) -> Tensor:
        last = self.first_entry.new_tensor(self.codes)
        known = torch.where(codes.isnan(), last.to(codes.dtype), codes.clamp(min=UNSEEN))
        entry = torch.minimum(known.long(), last) + 1  # 0 for UNSEEN, the last one for a missing value
        return self.places[self.first_entry + entry]

    def width(self, n_features: int) -> int:
        n_numbers = n_features - len(self.codes)
        return self.inner.width(n_numbers) + len(self.flagged) + len(self.codes)

    def fitted_on(self) -> int | None:
        return self.n_features

    def sources(self) -> Tensor:
        """The raw column of each output column."""
        return torch.cat([self.numbers, self.numbers[self.flagged], self.category_columns])[self.order]

    def categories(self) -> tuple[tuple[int, int], ...]:
        """The output columns that hold categories, and the number of places of each."""
        first = self.n_features - len(self.codes) + len(self.flagged)
        columns = [int((self.order == first + number).nonzero()) for number in range(len(self.codes))]
        return tuple(zip(columns, self.sizes, strict=True))

    def seen_missing(self) -> Tensor:
        """Which raw columns had missing values in training, `[features]`."""
        seen = torch.zeros(self.n_features, dtype=torch.bool)
        seen[self.numbers[self.flagged]] = True
        ends = self.first_entry + self.first_entry.new_tensor(self.codes) + 1
        seen[self.category_columns] = self.places[ends] == MISSING_PLACE
        return seen

    def spec(self) -> Spec:
        return {
            "kind": self.kind,
            "inner": self.inner.spec(),
            "n_features": self.n_features,
            "n_flags": len(self.flagged),
            "codes": list(self.codes),
            "sizes": list(self.sizes),
        }


def numbers_alone(transform: Transform) -> Transform:
    """The transform of the numbers, if the output has only numbers; otherwise the transform itself."""
    alone = isinstance(transform, RawColumns) and not transform.codes and not len(transform.flagged)
    return transform.inner if isinstance(transform, RawColumns) and alone else transform


def missing_in_training(transform: nn.Module) -> list[int] | None:
    """Raw columns that had missing values in training; None: the transform does not know."""
    return transform.seen_missing().nonzero().squeeze(-1).tolist() if isinstance(transform, RawColumns) else None


KINDS: dict[str, Callable[..., Transform]] = {
    kind.kind: kind for kind in (Identity, SignedLog, Clip, Reciprocal, PerQueryMinMax, Standard, MinMax, HeavyTailLog)
}
AROUND = (Chain.kind, RawColumns.kind)


def from_spec(spec: Spec) -> Transform:
    """The transform that gave this spec, before its `state_dict` is loaded."""
    settings = dict(spec)
    kind = settings.pop("kind", None)
    if kind == Chain.kind:
        return Chain([from_spec(step) for step in settings["steps"]])
    if kind == RawColumns.kind:
        return RawColumns(from_spec(settings.pop("inner")), **settings)
    if kind not in KINDS:
        raise ValueError(f"unknown kind of feature transform '{kind}': choose from {', '.join([*KINDS, *AROUND])}")
    return KINDS[kind](**settings)


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
        (became, str(len(members)), ", ".join(members[:MOST_NAMES]) + (", …" if len(members) > MOST_NAMES else ""))
        for became, members in names.items()
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
