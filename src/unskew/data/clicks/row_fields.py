"""Row fields: every column of a log, declared once.

Building, checking, storing, selecting, joining, weighting, digests, batches and tables loop over `FIELDS`. A column
that a log may have is declared here and read where its values come from; then all of these know it.
"""
# ruff: noqa: RUF009  # columns are declared by functions

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.data.checks import PROBABLE, ROUNDING

# A place is a document in a list: [lists, docs], 0 in padding. A bias column has one value per list or per place.
Level = Literal["query", "document", "version", "list", "place", "list or place"]
Merge = Literal["same", "sum", "mean", "harmonic mean", "earliest"]


@dataclass(frozen=True, eq=False)
class Patterns:
    """Distinct click patterns of lists, sorted by list."""

    lists: NDArray[np.int64]  # [patterns], row of the log's lists
    clicks: NDArray[np.float32]  # [patterns, docs], of one session
    sessions: NDArray  # [patterns], number of sessions with this pattern


@dataclass(frozen=True, eq=False)
class BiasColumn:
    """Something besides position that may change examination: a device, a result type, a numeric context."""

    values: NDArray  # [lists] or [lists, docs]; numbers of levels, or float32
    levels: tuple[str, ...] | None = None  # names of the levels; None: the values are numbers

    def per_document(self, n_docs: int) -> NDArray:
        """Values as `[lists, docs]`."""
        return self.values if self.values.ndim == 2 else np.repeat(self.values[:, None], n_docs, axis=1)

    def select(self, lists: NDArray) -> BiasColumn:
        """The column of these lists."""
        return replace(self, values=self.values[lists])


@dataclass(frozen=True)
class Field:
    """What to know of a column of a log in order to handle it."""

    per: Level
    of: Level | None = None  # its values are numbers of these
    merge: Merge = "same"  # over the showings of a list; the same: other values make another list
    stored: str | None = None  # its column in the table of lists, or the beginning of its columns
    column: str | None = None  # its column in a table with one row per impression, if it has another name there
    entry: str | None = None  # of `log.json`, which says whether a log has it; None: every log has it
    new: bool = False  # logs without it do not have the entry
    time: bool = False  # microseconds since 1970
    batched: bool = False  # methods get it, as the attribute of `ClickedLists` with its name
    allowed: Callable[[NDArray], NDArray] | None = None  # the values of impressions that may occur
    rule: str = ""  # the same in words
    holes: bool = False  # it may be empty
    name: str = ""

    @property
    def in_lists(self) -> bool:
        """Whether it belongs to lists, rather than to what is shown in them."""
        return self.per in ("list", "place", "list or place")


def _column(per: Level, **about: Any) -> Any:
    """A column that is None unless given."""
    return field(default=None, metadata={"column": Field(per, **about)})


def _needed(per: Level, **about: Any) -> Any:
    """A column that must be given."""
    return field(metadata={"column": Field(per, **about)})


def _columns(per: Level, **about: Any) -> Any:
    """Several columns by name."""
    return field(default_factory=dict, metadata={"column": Field(per, **about)})


def _at_least_0(values: NDArray) -> NDArray:
    return np.isfinite(values) & (values >= 0)


@dataclass(frozen=True, eq=False, kw_only=True)
class RowFields:
    """The columns of a log, in the order in which they are stored."""

    # [versions, features]; NaN = missing, a category is its number in `categories`
    features: NDArray[np.float32] = _needed("version")
    version_documents: NDArray[np.int64] = _column("version", of="document")  # default: 0, 1, …
    document_queries: NDArray[np.int64] = _column("document", of="query")
    query_ids: NDArray = _column("query")
    document_ids: NDArray = _column("document")
    codes: NDArray[np.int64] | None = _column(
        "document"
    )  # [documents, 3], numbers in a vocabulary: `Vocabulary.encode`

    versions: NDArray[np.int32] = _needed("place", of="version", stored="versions")  # rows of `features`
    mask: NDArray[np.bool_] = _needed("place")  # False = padding
    positions: NDArray[np.int16] = _column("place", stored="positions", column="position")  # default: 0, 1, 2, …
    clicks: NDArray = _needed("place", merge="sum", stored="clicks")  # over all sessions of the list
    sessions: NDArray = _needed("list", merge="sum", stored="sessions")  # how often the list was shown
    policy_scores: NDArray[np.float32] | None = _column(
        "place",
        merge="mean",  # the scores of a stochastic policy vary between sessions
        stored="policy_scores",
        column="policy_score",
        entry="policy_scores",
        batched=True,
        allowed=np.isfinite,
        rule="scores must be finite",
    )
    # of being shown there; NaN: not recorded
    display_probabilities: NDArray[np.float32] | None = _column(
        "place",
        merge="harmonic mean",  # its inverse is the mean inverse-propensity weight of an impression
        stored="display_probabilities",
        column="display_probability",
        entry="display_probabilities",
        allowed=lambda values: np.isnan(values) | ((values > 0) & (values <= 1 + ROUNDING)),
        rule=PROBABLE,
        holes=True,
    )
    # per list, the intervention that changed it; the first level is "none"
    interventions: BiasColumn | None = _column("list", stored="intervention", entry="interventions")
    first_shown: NDArray[np.int64] | None = _column(
        "list", merge="earliest", stored="first_shown", entry="first_shown", time=True
    )
    periods: NDArray[np.int64] | None = _column("list", stored="period", entry="periods", time=True)  # their start
    # sessions in which examination of the document was recorded
    seen: NDArray | None = _column(
        "place",
        merge="sum",
        stored="seen",
        entry="seen",
        batched=True,
        allowed=lambda values: np.isnan(values) | (values >= 0),
        rule="examination must be 0, 1 or a number of seconds",
        holes=True,
    )
    # sessions that recorded examination
    seen_sessions: NDArray | None = _column("list", merge="sum", stored="seen_sessions", entry="seen", batched=True)
    # seconds that users spent on the document, over all sessions of the list
    dwell: NDArray | None = _column(
        "place",
        merge="sum",
        stored="dwell",
        entry="dwell",
        new=True,
        allowed=lambda values: np.isnan(values) | _at_least_0(values),
        rule="dwell must be a number of seconds, 0 or more; leave it empty for 0",
        holes=True,
    )
    # kind of feedback -> counts
    events: Mapping[str, NDArray] = _columns(
        "place", merge="sum", stored="events.", allowed=_at_least_0, rule="events must be 0 or more"
    )
    # [lists, context]: features of the user, session or moment; default: none
    context: NDArray[np.float32] = _column("list", stored="context.")
    bias: Mapping[str, BiasColumn] = _columns("list or place", stored="bias.")


FIELDS = tuple(replace(entry.metadata["column"], name=entry.name) for entry in fields(RowFields))


class Column(NamedTuple):
    """One array of a log."""

    field: Field
    key: str  # its name among several, such as the kind of event
    values: NDArray
    levels: tuple[str, ...] | None

    def __str__(self) -> str:
        name = "bias column" if self.field.name == "bias" else self.field.name
        return f"{name} '{self.key}'" if self.key else name


def columns_of(row_fields: RowFields) -> Iterator[Column]:
    """Every array that a log has."""
    for entry in FIELDS:
        value = getattr(row_fields, entry.name)
        for key, each in value.items() if isinstance(value, Mapping) else [("", value)]:
            if isinstance(each, BiasColumn):
                yield Column(entry, key, each.values, each.levels)
            elif each is not None:
                yield Column(entry, key, each, None)


def in_tables(log: Any) -> Iterator[tuple[str, Column]]:
    """Every array of the table of lists, with its name there."""
    for each in columns_of(log):
        stored = each.field.stored
        if each.field.name == "context":
            for number, name in enumerate(log.context_names):
                yield f"{stored}{name}", each._replace(key=name, values=each.values[:, number])
        elif stored is not None:
            yield f"{stored}{each.key}", each


def joined_fields(
    parts: Sequence[Mapping[str, Any]], join: Callable[[Field, list[NDArray]], NDArray]
) -> dict[str, Any]:
    """The arrays of each column, joined; a column that some parts lack is None. Levels are those of the first part."""

    def of(entry: Field, values: list[Any]) -> Any:
        if any(value is None for value in values):
            return None
        if isinstance(values[0], Mapping):
            return {key: of(entry, [value[key] for value in values]) for key in values[0]}
        if isinstance(values[0], BiasColumn):
            return replace(values[0], values=join(entry, [value.values for value in values]))
        return join(entry, values)

    return {entry.name: of(entry, [part[entry.name] for part in parts]) for entry in FIELDS if entry.name in parts[0]}


def changed_fields(part: Mapping[str, Any], change: Callable[[Field, NDArray], NDArray]) -> dict[str, Any]:
    """The columns with every array changed."""
    return joined_fields([part], lambda entry, values: change(entry, values[0]))
