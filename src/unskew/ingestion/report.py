"""What was left out of a log and why: every reason is counted, reported, and an error with `--strict`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unskew.display import Screen


@dataclass(frozen=True)
class Reason:
    """Why something is left out, what is counted, and what the user can do about it."""

    text: str
    unit: str
    advice: str


REASONS: dict[str, Reason] = {
    "unreadable": Reason(
        "lines that cannot be read", "lines", "repair them, or pass the encoding of the file with --encoding"
    ),
    "where": Reason("rows for which --where is false or unknown", "rows", "change the condition"),
    "uneven_page": Reason(
        "result pages whose lists differ in length", "pages", "log one value per shown document in each list"
    ),
    "no_session": Reason("rows without a session", "rows", "fill the column, or choose another with --session"),
    "no_query": Reason("rows without a query", "rows", "fill the column, or choose another with --query"),
    "no_document": Reason("rows without a document", "rows", "fill the column, or choose another with --document"),
    "bad_position": Reason(
        "rows whose position is not a whole number from the first position on",
        "rows",
        "choose another column with --position, or set the index of the first position with --first-position",
    ),
    "beyond": Reason("impressions below the last position of --n-positions", "rows", "raise --n-positions"),
    "bad_click": Reason(
        "rows whose click is neither yes nor no", "rows", "write 0 and 1, or choose another column with --click"
    ),
    "bad_look": Reason(
        "rows whose recorded examination is not a number of 0 or more",
        "rows",
        "write 0 or 1, or seconds; leave it empty if nothing was recorded",
    ),
    "bad_probability": Reason(
        "rows whose display probability is not above 0 and at most 1",
        "rows",
        "pass the probability that the document is shown at its position, not a score or a logarithm; leave it empty "
        "if nothing was recorded",
    ),
    "bad_time": Reason("rows without a readable time", "rows", "write ISO times or numbers since 1970, or --time none"),
    "bad_number": Reason(
        "rows without a finite number as policy score or bias value", "rows", "fill the column, or leave it out"
    ),
    "capped": Reason("rows of sessions beyond the maximum per user", "rows", "raise N in --user COLUMN=N"),
    "two_users": Reason(
        "rows of sessions with two users",
        "rows",
        "give every session of every user an id of its own, or leave out --user",
    ),
    "lone_click": Reason(
        "clicks without an impression", "clicks", "log the impression too, with the same session, query and document"
    ),
    "lone_look": Reason(
        "recorded examination of documents that were not shown",
        "looks",
        "log the impression too, with the same session, query and document",
    ),
    "lone_event": Reason(
        "graded events without an impression", "events", "log the impression too, with the same session and document"
    ),
    "early_click": Reason(
        "clicks that come before their impression", "clicks", "check the clocks, or ignore times with --time none"
    ),
    "late_event": Reason("events later than the window after their impression", "events", "widen --window"),
    "no_key": Reason("feature rows without a document or query", "rows", "fill the id columns of the feature table"),
    "no_features": Reason(
        "impressions of documents that have no features",
        "rows",
        "add the documents to the feature table, and write ids the same way in both tables",
    ),
    "duplicate": Reason("duplicate impressions", "rows", "log each impression once"),
    "shown_again": Reason(
        "documents shown a second time lower in their list", "rows", "show each document once per list"
    ),
    "shared_position": Reason(
        "impressions in lists with two documents at one position",
        "rows",
        "pass a column with --session that distinguishes one showing of a query from the next",
    ),
    "conflict": Reason(
        "documents with more than one row in the feature table: one row is kept",
        "documents",
        "keep one row per query and document, or put the features into the event table",
    ),
}


def left_out(dropped: Mapping[str, int], examples: Mapping[str, str], others: Mapping[str, int]) -> list[Screen]:
    """What is left out of a log, by reason, and events that are neither impressions nor clicks."""
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in others.items())
    notes = [f"{sum(others.values()):,} events are neither impressions nor clicks: {kinds}"] if others else []
    if not dropped:
        return [Screen("\n".join([*notes, "Nothing is left out."]))]
    rows = [(REASONS[key].text, examples.get(key, ""), f"{count:,}") for key, count in dropped.items()]
    return [Screen("Left out", ("what", "the first", "count"), rows, notes, left=2)]


ASKED_FOR = {"where", "beyond", "capped", "late_event"}  # the user set the limit, so it may leave out most of a log


@dataclass
class Dropped:
    """Counts by reason; in strict mode the first one is an error."""

    strict: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)  # sentences about what was merged

    def add(self, reason: str, count: float, example: str = "") -> None:
        """Add to the count of a reason; the example says where the first one is."""
        if not count:
            return
        if self.strict:
            raise ValueError(self._message(reason, round(count), example, "--strict leaves nothing out"))
        self.counts[reason] = self.counts.get(reason, 0) + round(count)
        if example:
            self.examples.setdefault(reason, example)

    def merge(self, counts: Mapping[str, int], examples: Mapping[str, str]) -> None:
        """Add counts from elsewhere."""
        for reason, count in counts.items():
            self.add(reason, count, examples.get(reason, ""))

    def refuse_if_most(
        self, reasons: Iterable[str], total: float, unit: str, counts: Mapping[str, int] | None = None
    ) -> None:
        """Refuse to drop more than half of the rows: then a column is wrong, not a row.

        `counts` are counts in this unit, for a reason that also counts something else.
        """
        counts = self.counts if counts is None else counts
        lost = {reason: counts.get(reason, 0) for reason in reasons if reason not in ASKED_FOR}
        if lost and sum(lost.values()) * 2 > total:
            worst = max(lost, key=lambda reason: lost[reason])
            note = f"more than half of {total:,.0f} {unit} would be left out"
            raise ValueError(self._message(worst, lost[worst], self.examples.get(worst, ""), note))

    def in_order(self) -> dict[str, int]:
        """Counts in the order of `REASONS`."""
        return {key: self.counts[key] for key in REASONS if key in self.counts}

    def _message(self, reason: str, count: int, example: str, note: str) -> str:
        entry = REASONS[reason]
        where = f" ({example})" if example else ""
        return f"{count:,} {entry.text}{where}; {note}: {entry.advice}"


@dataclass(frozen=True)
class Ingested:
    """The report of an ingestion; `dropped` counts what was left out, by reason."""

    rows: int
    impressions: int
    sessions: int
    clicks: int
    lists: int
    queries: int
    documents: int
    versions: int  # versions of documents, whose features may change from showing to showing
    features: int
    shards: int
    dropped: Mapping[str, int]
    examples: Mapping[str, str]  # where the first one of each reason is
    other_events: int = 0  # neither impressions nor clicks
    other_kinds: Mapping[str, int] = field(default_factory=dict)  # the same by kind
    unused: Sequence[str] = ()  # columns that are neither a role nor a feature
    about_columns: Sequence[str] = ()  # sentences about outcomes and scores
    missing: Mapping[str, int] = field(default_factory=dict)  # number of documents in which each feature is missing
    with_gaps: int = 0  # sessions whose list has an empty position above its last document
    recorded: int | None = None  # sessions with recorded examination; None: no column was named
    without_probability: int | None = None  # impressions without a display probability; None: no column was named

    @property
    def remarks(self) -> list[str]:
        """Further notes for the user, as sentences."""
        notes = []
        if not self.clicks:
            others = "; pass the event type of clicks with --click-event" if self.other_events else ""
            notes.append(f"There are no clicks: nothing can be learned from this log{others}.")
        if self.impressions == self.sessions:
            notes.append(
                "Every list has one document, but rankers learn by comparing the documents of a list. Check the "
                "session column."
            )
        elif self.with_gaps:
            share = self.with_gaps / max(self.sessions, 1)
            notes.append(
                f"{self.with_gaps:,} sessions ({share:.0%}) have empty positions above their last document, because "
                "rows were filtered, left out or never logged. The other documents keep their positions."
            )
        if not self.features:
            notes.append(
                "There are no features: click models learn from ids alone (train --method ubm), other methods need "
                "features. The log keeps which documents were clicked together, as with --joint."
            )
        if self.recorded is not None:
            share = self.recorded / max(self.sessions, 1)
            notes.append(
                f"Examination is recorded in {self.recorded:,} sessions ({share:.0%}); unskew diagnose checks it."
            )
        if self.without_probability:
            notes.append(
                f"{self.without_probability:,} of {self.impressions:,} impressions have no display probability: they "
                "are kept, but estimators that need it leave them out."
            )
        notes += self.about_columns
        if self.versions > self.documents:
            notes.append(
                f"Features change: {self.documents:,} documents were shown in {self.versions:,} versions. Positions "
                "are compared within a version."
            )
        if self.missing:
            shares = (f"{name} in {count:,} documents" for name, count in self.missing.items())
            notes.append(f"Missing values, which stay missing (NaN) in the log: {', '.join(shares)}.")
        if self.unused:
            notes.append(f"Unused columns: {', '.join(self.unused)}.")
        return notes

    def to_json(self) -> dict[str, Any]:
        """As one JSON document."""
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(self).items()} | {
            "remarks": self.remarks
        }
