"""Column names of an impression table; ingestion extends them to event tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class ImpressionColumns:
    """The column for each role in a table with one row per impression; None: there is no such column."""

    single: ClassVar[tuple[str, ...]] = (
        *("session", "query", "document", "position", "click"),
        *("time", "policy_score", "display_probability", "intervention", "seen"),
    )
    session: str | None = None
    query: str | None = None
    document: str | None = None
    position: str | None = None
    click: str | None = None
    time: str | None = None
    policy_score: str | None = None
    display_probability: str | None = None  # of being shown at this position, under the ranker that drew the list
    intervention: str | None = None
    seen: str | None = None  # recorded examination: 0 or 1, or seconds
    bias: Sequence[str] = ()
    context: Sequence[str] = ()  # features of user, session or moment, the same for all documents of a result page
    features: Sequence[str] | None = None  # None: every numeric column without another role

    @property
    def roles(self) -> dict[str, str]:
        """Columns by role, for roles with a single column."""
        return {role: getattr(self, role) for role in self.single if getattr(self, role) is not None}

    @property
    def named(self) -> list[str]:
        """All columns but the features."""
        return [*self.roles.values(), *self.bias, *self.context]


@dataclass(frozen=True)
class TableColumns(ImpressionColumns):
    """The options of `ClickLog.from_table`, which documents them."""

    single: ClassVar[tuple[str, ...]] = (*ImpressionColumns.single, "dwell")
    dwell: str | None = None
    session: str = "session"
    query: str = "query"
    document: str = "document"
    position: str = "position"
    click: str = "click"
    sessions: str | None = None
    weight: str | None = None
    events: Sequence[str] = ()
    period: str | None = None
    first_position: int = 0
    graded: bool = False
    joint: bool = True

    def __post_init__(self) -> None:
        if self.sessions is not None and self.weight is not None:
            raise ValueError("pass sessions (clicks are counts) or weight (one session per list), not both")

    @property
    def counts(self) -> list[str]:
        """Columns with numbers of sessions and events."""
        return [*self.events, *(name for name in (self.sessions, self.weight) if name is not None)]
