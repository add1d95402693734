"""A click log as an event table: one row per impression, as a search engine would have logged it.

This is the reverse of `unskew ingest`, which turns the table into the same log again. Positions count from 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.files import check_place, new_file
from unskew.data.inputs import LogOrPlace, Place, as_log
from unskew.display import OnScreen, Screen

SESSIONS_AT_ONCE = 50_000
START = np.datetime64("2024-01-01T00:00:00", "us")  # for logs without times
SECONDS_A_SESSION = 10


@dataclass(frozen=True, repr=False)
class EventFiles(OnScreen):
    """The files of an event table."""

    events: Path
    impressions: int
    features: Path | None = None
    documents: int | None = None

    def to_json(self) -> dict[str, Any]:
        return vars(self)

    def screen(self) -> Screen:
        beside = "" if self.features is None else f"; features of {self.documents:,} documents in {self.features}"
        return Screen(f"{self.impressions:,} impressions in {self.events}{beside}")


def events(
    log: LogOrPlace, out: Place, *, features: Place | None = None, seed: int = 0, overwrite: bool = False
) -> EventFiles:
    """Write a click log as an event table, one row per impression, which `ingest` can read.

    Args:
        out: parquet file for the events.
        features: parquet file for document features.
        seed: for the order of sessions, which a log of counts does not store.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> unskew.events(log, "events.parquet").impressions == int(log.by_position()[0].sum())
    True
    """
    places = [Path(place) for place in (out, features) if place is not None]
    for place in places:
        check_place(place, overwrite=overwrite)
    clicks = as_log(log)
    n_rows = write_event_table(clicks, places[0], np.random.default_rng(seed))
    if features is None:
        return EventFiles(places[0], n_rows)
    table = feature_table(clicks)
    with new_file(places[1]) as scratch:
        pq.write_table(table, scratch, compression="zstd")
    return EventFiles(places[0], n_rows, places[1], table.num_rows)


def write_event_table(log: ClickLog, path: str | Path, rng: np.random.Generator) -> int:
    """Write one row per impression as parquet, and return the number of rows.

    Columns: session_id, query, document, position, clicked, timestamp and, if the log has them, policy_score,
    display_probability, intervention and the bias columns. Sessions are in order of time.
    """
    tables = event_tables(log, rng)
    first = next(tables, None)
    if first is None:
        raise ValueError("the log has no sessions: there are no events to write")
    n_rows = 0
    with new_file(path) as scratch, pq.ParquetWriter(scratch, first.schema, compression="zstd") as writer:
        for table in chain([first], tables):
            writer.write_table(table)
            n_rows += table.num_rows
    return n_rows


def event_tables(log: ClickLog, rng: np.random.Generator) -> Iterator[pa.Table]:
    """The event table in parts of many sessions each, one row per impression."""
    lists, clicks = single_sessions(log, rng)
    order = rng.permutation(len(lists))  # a log of counts does not store the order of sessions
    for start in range(0, len(order), SESSIONS_AT_ONCE):
        chosen = order[start : start + SESSIONS_AT_ONCE]
        yield _table(log, lists[chosen], clicks[chosen], np.arange(start, start + len(chosen)))


def feature_table(log: ClickLog) -> pa.Table:
    """One row per document: query, document and one column per feature."""
    if log.features_change:
        raise ValueError(
            "features of this log change between showings and are in the event table: leave out --features"
        )
    columns = {"query": _ids(log.query_ids[log.document_queries]), "document": _ids(log.document_ids)}
    return pa.table(
        columns | {name: pa.array(log.features[:, number]) for number, name in enumerate(log.named_features)}
    )


def single_sessions(log: ClickLog, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The list of each session and its clicks, `[sessions, docs]`.

    A log that is not joint stores only how often each document was clicked: the sessions with the clicks are drawn at
    random.
    """
    if log.graded:
        raise ValueError("the log holds graded feedback, such as dwell times; an event table can hold only clicks")
    counts = log.sessions if log.patterns is None else log.patterns.sessions
    whole = counts.astype(np.int64)
    if not np.array_equal(whole, counts):
        raise ValueError("sessions of the log have weights; in an event table every session counts once")
    if log.patterns is not None:
        return np.repeat(log.patterns.lists, whole), np.repeat(log.patterns.clicks > 0, whole, axis=0)
    lists = np.repeat(np.arange(log.n_lists), whole)
    clicks = np.zeros((len(lists), log.n_docs), dtype=bool)
    first = np.cumsum(whole) - whole
    place = np.arange(len(lists)) - first[lists]
    for column in range(log.n_docs):
        shuffled = np.lexsort((rng.random(len(lists)), lists))  # a random order within each list
        clicks[shuffled, column] = place < log.clicks[lists, column]
    return lists, clicks


def _table(log: ClickLog, lists: NDArray, clicks: NDArray[np.bool_], sessions: NDArray[np.int64]) -> pa.Table:
    part = log.select(lists)
    sizes = part.mask.sum(1)
    made_up = START.astype(np.int64) + sessions * SECONDS_A_SESSION * 10**6
    times = np.repeat(made_up if part.first_shown is None else part.first_shown, sizes)
    shown = part.to_table(features=log.features_change or bool(log.context_names))
    columns = {
        "session_id": pa.array(np.repeat(sessions, sizes)),
        "query": shown["query"],
        "document": shown["document"],
        "position": pa.array(part.positions[part.mask] + 1),
        "clicked": pa.array(clicks[part.mask].astype(np.int8)),
        "timestamp": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
    }
    optional = [name for name in ("policy_score", "display_probability", "intervention") if name in shown.column_names]
    of_showing = [*(log.feature_names if log.features_change else ()), *log.context_names]
    columns |= {name: shown[name] for name in (*optional, *of_showing)}
    for name in log.bias:
        if name in columns:
            raise ValueError(f"the table already has another column '{name}': rename the bias column")
        columns[name] = shown[name]
    texts = {name: column for name, column in columns.items() if pa.types.is_dictionary(column.type)}
    return pa.table(columns | {name: column.cast(pa.string()) for name, column in texts.items()})


def _ids(ids: NDArray) -> pa.Array:
    return pa.array(ids) if ids.dtype.kind in "iu" else pa.array(ids, pa.string())
