"""Logs: `ingest`, `preview_ingest`, `events` and `shop`; and the catalogue of data sets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import read_log
from unskew.data.files import check_folder, check_place, new_file
from unskew.data.inputs import LogOrPlace, Place, as_file, as_log
from unskew.data.judged.catalogue import ListingRow, listing
from unskew.data.public_logs.forms import CLICKS
from unskew.display import Displayed, OnScreen, Screen
from unskew.ingestion import run
from unskew.ingestion.columns import Columns
from unskew.ingestion.event_table import feature_table, write_event_table
from unskew.ingestion.preview import Preview, preview
from unskew.ingestion.report import REASONS, Ingested, left_out
from unskew.ingestion.settings import Tables, settings
from unskew.reporting.terminal import Follow, cell, counting_progress, followed
from unskew.simulation.shop_log import TRUTH, Shop, make_shop, write_shop


@dataclass(frozen=True, eq=False, repr=False)
class Ingestion(Displayed):
    """An ingested log, and what was left out."""

    report: Ingested
    out: Path | None  # folder of the log; None: it is in memory only
    kept: ClickLog | None = None

    @cached_property
    def log(self) -> ClickLog:
        """The log, read from its folder on first use."""
        if self.kept is not None:
            return self.kept
        assert self.out is not None
        return read_log(self.out)

    def to_table(self) -> pa.Table:
        """What was left out: one row per reason."""
        dropped, examples = self.report.dropped, self.report.examples
        return pa.table(
            {
                "reason": pa.array(list(dropped), pa.string()),
                "text": pa.array([REASONS[key].text for key in dropped], pa.string()),
                "example": pa.array([examples.get(key, "") for key in dropped], pa.string()),
                "count": pa.array(list(dropped.values()), pa.int64()),
            }
        )

    def to_json(self) -> dict[str, Any]:
        return self.report.to_json()

    def screen(self) -> Screen:
        done = self.report
        title = (
            f"{done.sessions:,} sessions of {done.queries:,} queries in {done.lists:,} lists "
            f"({done.sessions / max(done.lists, 1):,.1f} sessions per list), {done.clicks:,} clicks, "
            f"{done.documents:,} documents, {done.features} features"
        )
        return Screen(title, notes=done.remarks, more=left_out(done.dropped, done.examples, done.other_kinds))


def ingest(
    events: Any,
    out: Place | None = None,
    *,
    features: Any = None,
    queries: Any = None,
    clicks: Any = None,
    columns: Columns | Mapping[str, Any] | Place | None = None,
    overwrite: bool = False,
    progress: Follow = True,
    **options: Any,
) -> Ingestion:
    """Turn event tables into a click log. Rows that cannot be used are counted and reported.

    `ClickLog.from_table` takes a clean table in memory; `ingest` takes any table of any size and reports what it did.
    `preview_ingest` reads and checks without writing.

    Args:
        events: a table (pandas, polars, pyarrow, Ibis), or a path: parquet, CSV or JSON lines (file, folder or glob),
            a DuckDB file, or a database URL.
        out: folder for the log; None: keep the log in memory.
        features: a second table with features, by query and document.
        queries: the query table of User Behavior Insights.
        clicks: a table of clicks, if the events contain only impressions.
        columns: column names by role, or a TOML file with them; you can also pass single ones as options.
        progress: False for no bar, or a function that receives the number of finished and of all rows.
        options: `form` says what the events are (`impressions`, `events`, `ubi`, or a public log: see
            `unskew.data.public_logs.forms`); names of columns by role (`session="sid"`, `feature=["f_*"]`), and how
            the log is made (`n_positions=10`, `joint=True`, …): the fields of `Columns`, `Options` and `Tables` in
            `unskew.ingestion`.

    >>> events = {"session": [1, 1, 2, 2], "query": list("aabb"), "document": [1, 2, 3, 4], "position": [1, 2, 1, 2]}
    >>> table = pa.table(events | {"click": [0, 1, 1, 0], "price": [2.0, 1.0, 3.0, 4.0]})
    >>> ingest(table, progress=False).log
    ClickLog(2 sessions in 2 counted lists, 2 clicks, 4 documents, 1 features, 2 positions)
    """
    events, features, options = _of_form(events, features, options)
    tables, chosen, how = settings(columns, options)
    if out is None and how.keep_users:
        raise ValueError("a log in memory keeps no users: pass out, a folder for the log")
    with (
        _tables(events, features, queries, clicks, **tables) as places,
        followed(progress, counting_progress, "ingest", "rows: read, count, write") as report,
        tempfile.TemporaryDirectory(prefix="unskew-") as scratch,
    ):
        target = Path(scratch) / "log" if out is None else Path(out)
        done = run.ingest_tables(places, target, chosen, how, overwrite=overwrite, progress=report)
        return Ingestion(done, None if out is None else target, read_log(target) if out is None else None)


def preview_ingest(
    events: Any,
    *,
    features: Any = None,
    queries: Any = None,
    clicks: Any = None,
    columns: Columns | Mapping[str, Any] | Place | None = None,
    **options: Any,
) -> Preview:
    """What `ingest` would read: columns with their roles, the first rows, and counts. Nothing is written.

    >>> import pyarrow as pa
    >>> import unskew
    >>> rows = {"session": [1, 1], "query": ["q", "q"], "document": ["a", "b"], "pos": [1, 2], "click": [0, 1]}
    >>> found = unskew.preview_ingest(pa.table(rows | {"price": [1.0, 2.0]}))
    >>> [column for role, column, _ in found.roles if role == "position"], list(found.features)
    (['pos'], ['price'])
    """
    events, features, options = _of_form(events, features, options)
    tables, chosen, how = settings(columns, options)
    with _tables(events, features, queries, clicks, **tables) as places:
        return preview(places, chosen, how)


@contextmanager
def _tables(events: Any, features: Any, queries: Any, clicks: Any, **names: Any) -> Iterator[Tables]:
    """Places of the tables; tables in memory become temporary files."""
    with (
        as_file(events) as shown,
        as_file(features) as described,
        as_file(queries) as asked,
        as_file(clicks) as clicked,
    ):
        yield Tables(shown, described, asked, clicks=clicked, **names)


def shop(out: Place | None = None, *, sessions: int = 5_000, seed: int = 0, overwrite: bool = False) -> Shop:
    """Simulate the messy event table of a shop, with judged queries, for `ingest`.

    Args:
        out: folder for the tables and the truth; None: keep them in memory.
        sessions: number of searches, with 12 impressions each on average.

    >>> shop(sessions=50).events.num_rows > 50
    True
    """
    if out is not None:
        check_folder(Path(out), TRUTH, overwrite=overwrite)
    made = make_shop(sessions, seed)
    if out is not None:
        write_shop(made, out, overwrite=overwrite)
    return made


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


def _of_form(events: Any, features: Any, options: Mapping[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """The tables of a log with its own format, and the roles of its columns; anything else unchanged."""
    form = options.get("form")
    if form not in CLICKS:
        return events, features, dict(options)
    if features is not None:
        raise ValueError(f"a {form} log has its own features: leave out the table of features")
    log = CLICKS[form](Path(events))
    named = {name: value for name, value in options.items() if value and name != "form"}
    return log.events, log.features, {**log.columns, **named}


@dataclass(frozen=True, repr=False)
class DataSets(Displayed):
    """The catalogue of data sets, and which are available here."""

    rows: tuple[ListingRow, ...]

    def to_json(self) -> list[dict[str, Any]]:
        return [row._asdict() for row in self.rows]

    def to_table(self) -> pa.Table:
        """One row per data set."""
        return pa.Table.from_pylist(self.to_json())

    def screen(self) -> Screen:
        columns = ListingRow._fields
        return Screen("Data sets", columns, [[cell(value) for value in row] for row in self.rows])


def data_sets() -> DataSets:
    """List the data sets of the catalogue, and which are available here; `load` reads one.

    >>> import unskew
    >>> "world:tiny" in unskew.data_sets().to_table()["name"].to_pylist()
    True
    """
    return DataSets(tuple(listing()))
