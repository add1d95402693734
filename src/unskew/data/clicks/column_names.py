"""Names of the columns of an impression table: one record, which ingestion extends to event tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class ImpressionColumns:
    """What each column of a table with one row per impression holds; None: it is not there."""

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
    display_probability: str | None = None  # to be at this position, under the ranker that drew the list
    intervention: str | None = None
    seen: str | None = None  # whether, or for how many seconds, the document was looked at
    bias: Sequence[str] = ()
    context: Sequence[str] = ()  # features of user, session or moment, the same for all documents of an impression
    features: Sequence[str] | None = None  # None: every numeric column that is not named otherwise

    @property
    def roles(self) -> dict[str, str]:
        """The columns of which there is one, by role."""
        return {role: getattr(self, role) for role in self.single if getattr(self, role) is not None}

    @property
    def named(self) -> list[str]:
        """All columns but the features."""
        return [*self.roles.values(), *self.bias, *self.context]
