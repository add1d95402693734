"""Open the input tables with an engine, and read their rows as usable impressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import ibis.expr.types as ir

from unskew.data.columns import check_period
from unskew.data.files import scratch_folder
from unskew.ingestion.categories import category_remarks, few_values, find_categories, number_categories, split_sets
from unskew.ingestion.columns import (
    NOTHING,
    Columns,
    complete,
    csv_types,
    feature_columns,
    is_date,
    paths,
    unused_columns,
)
from unskew.ingestion.engines import DuckEngine, Engine, SparkEngine
from unskew.ingestion.events import (
    add_clicks,
    count_others,
    merge_events,
    shown_by_queries,
    split_bulk,
    with_queries,
    within_window,
)
from unskew.ingestion.feature_tables import (
    VALID_FROM,
    as_shown,
    feature_rows,
    same_keys,
    with_keys,
)
from unskew.ingestion.impressions import (
    OTHER,
    Shape,
    Vocabularies,
    common_rows,
    find_first_position,
    reasons,
    usable_rows,
)
from unskew.ingestion.interruption import interruptible
from unskew.ingestion.outcomes import look_at_features
from unskew.ingestion.pages import one_position, refuse_restarts
from unskew.ingestion.raw_table import LeftOut, plain_values, prepared
from unskew.ingestion.report import Dropped
from unskew.ingestion.schema import KEYS, key_columns
from unskew.ingestion.settings import Options, Tables
from unskew.ingestion.sources import find_source
from unskew.ingestion.users import users_read


@dataclass(frozen=True)
class Listed:
    """A table as it is, and the roles of its columns."""

    table: ir.Table
    name: str
    roles: Mapping[str, str]  # by column


@dataclass(frozen=True)
class Features:
    """A second table, in the common form, with the names of its features."""

    rows: ir.Table
    names: list[str]
    name: str
    categories: Vocabularies
    remarks: list[str]
    unused: list[str]
    listed: Listed


@dataclass
class Opened:
    """Events in the common form, with the column names that were found."""

    rows: ir.Table
    columns: Columns
    shape: Shape
    name: str
    unused: list[str]  # columns without a role
    remarks: list[str]  # sentences about columns
    listed: list[Listed]  # the tables as they are
    features: Features | None = None
    other_events: Mapping[str, int] = field(default_factory=dict)  # neither impressions nor feedback, by kind
    left_out: Sequence[LeftOut] = ()  # of the raw table


@dataclass(frozen=True)
class ReadImpressions:
    """Usable impressions; their features are in the same or in a second table."""

    impressions: ir.Table
    shape: Shape
    features: Features | None
    first_position: int
    missing: Mapping[str, int] = field(default_factory=dict)  # number of documents in which each feature is missing


@contextmanager
def running_engine(options: Options, tables: Tables, target: Path | None = None) -> Iterator[Engine]:
    """An engine with a scratch folder that is deleted with it; tables of a Spark session run in that session.

    The folder is next to the output, where there is room for it; in a dry run it is a temporary folder.
    """
    backend = tables.events.get_backend() if isinstance(tables.events, ir.Table) else None
    with scratch_folder(target) as scratch:
        engine: Engine
        if backend is not None and backend.name == "pyspark":
            engine = SparkEngine(backend)
        elif options.engine == "spark":
            engine = SparkEngine(master=options.master)
        else:
            engine = DuckEngine(scratch, options.memory, options.threads)
        try:
            with interruptible(engine.connection.con) if isinstance(engine, DuckEngine) else nullcontext():
                yield engine
        finally:
            engine.close()


def open_tables(engine: Engine, tables: Tables, columns: Columns, options: Options) -> Opened:
    """Events in the common form, with guesses for the columns that were not named."""
    place = _open(engine, tables, "events", columns)
    (table, asked), name = split_bulk(place.rows), place.name
    queries = None if asked is None else replace(place, rows=asked)
    if tables.queries is not None:
        queries = _open(engine, tables, "queries", columns)
    if queries is not None:
        there, others = paths(table), paths(queries.rows)
        wanted = [column for column in (*columns.bias, *columns.context) if column not in there and column in others]
        table = with_queries(table, queries.rows, queries.name, wanted)
    clicks = None if tables.clicks is None else _open(engine, tables, "clicks", columns)
    table, columns, events, left_out = prepared(engine, table, columns, name)
    clicks = clicks if events is None else _Place(events, name)
    pages = columns.page != NOTHING
    columns = complete(
        columns, paths(table), name, clicks_apart=clicks is not None, features_apart=tables.features is not None
    )
    second = None
    if tables.features is not None:
        second = _read_features(engine, _open(engine, tables, "features", columns), columns, options)
    no_features = [*place.partitions] if second is None else [*table.columns]
    opened = _read_events(engine, replace(place, rows=table), columns, no_features, options, pages=pages)
    opened.left_out = left_out
    if second is not None:
        opened.features, opened.unused = second, [*second.unused, *opened.unused]
        opened.remarks += second.remarks
        opened.listed.append(second.listed)
    opened.unused = [*place.not_in_all, *opened.unused]
    if clicks is not None:
        opened.rows = add_clicks(engine, opened.rows, clicks.rows, columns, clicks.name)
        opened.listed.append(Listed(clicks.rows, clicks.name, {}))
    if columns.form != "impressions":
        _keep_events(engine, opened, queries)
    opened.columns = find_first_position(engine, opened.rows, opened.columns, name)
    return opened


def _read_features(engine: Engine, place: _Place, columns: Columns, options: Options) -> Features:
    """A second table in the common form; a session, position or click column of the events is not a feature here."""
    table, name = plain_values(engine, place.rows, columns, place.name), place.name
    keys = list(key_columns(table.columns, columns, name).values())
    taken = [*keys, *columns.named, *place.partitions, VALID_FROM]
    sets, wanted, remarks = split_sets(engine, table, keys[-1], columns.features, taken)
    names = feature_columns(wanted, sets, taken, name)
    if wanted is None:
        others = {column: kind for column, kind in table.schema().items() if column not in taken}
        names += [column for column, kind in others.items() if is_date(kind)]
        names += few_values(engine, table, keys[-1], [column for column, kind in others.items() if kind.is_string()])
    if not names:
        raise ValueError(f"{name}: no column can be a feature: features are numbers, booleans, dates or categories")
    coded, vocabularies = number_categories(engine, sets, names, name, missing_too=options.fill is not None)
    split = [column for column in table.columns if column not in sets.columns]
    roles = dict.fromkeys(keys, "key") | dict.fromkeys([*names, *split], "feature")
    roles |= {VALID_FROM: "time"} if VALID_FROM in table.columns else {}
    return Features(
        feature_rows(coded, columns, name, names),
        names,
        name,
        vocabularies,
        remarks=[*remarks, *category_remarks(vocabularies)],
        unused=[*place.not_in_all, *unused_columns(table, list(roles))],
        listed=Listed(table, name, roles),
    )


def _read_events(
    engine: Engine, place: _Place, columns: Columns, no_features: Sequence[str], options: Options, *, pages: bool
) -> Opened:
    """The table of events in the common form, with candidate features."""
    table, name = place.rows, place.name
    taken = [*columns.named, *no_features]
    if pages:
        page = refuse_restarts(engine, table, columns, name)
        taken += [] if page is None else [page]
    features = columns.features if set(no_features) < set(table.columns) else None
    about_documents = columns.form in ("impressions", "separate")  # text in events describes the event
    sets = table
    remarks: list[str] = []
    if features is not None or about_documents:
        sets, features, remarks = split_sets(engine, table, columns.roles["document"], features, taken)
    names = feature_columns(features, sets, taken, name)
    if columns.features is None and about_documents:
        names += find_categories(engine, table, columns, taken)
    coded, vocabularies = number_categories(engine, sets, names, name, missing_too=options.fill is not None)
    rows, shape = common_rows(coded, columns, names, name)
    about_features, no_such = look_at_features(engine, rows, replace(shape, categories=vocabularies), columns)
    if no_such:
        names = [feature for feature in names if feature not in no_such]
        rows, shape = common_rows(coded, columns, names, name)
    shape = replace(shape, categories={name: texts for name, texts in vocabularies.items() if name in names})
    split = [column for column in table.columns if column not in sets.columns]
    unused = unused_columns(table, [*columns.used, *names, *no_such, *split])
    rows, columns, about_pages = one_position(engine, rows, columns, name)
    roles = dict.fromkeys([*names, *split], "feature") | no_such | columns.roles_by_column
    remarks += [*category_remarks(vocabularies), *about_features, *about_pages]
    return Opened(rows, columns, shape, name, unused, remarks, listed=[Listed(table, name, roles)])


def _keep_events(engine: Engine, opened: Opened, queries: _Place | None) -> None:
    """Keep impressions and clicks; if no impressions were logged, the documents that queries returned were shown."""
    rows, columns = opened.rows, opened.columns
    opened.other_events, has_impressions = count_others(engine, rows)
    if not has_impressions and queries is None:
        raise ValueError(
            f"{opened.name}: no value of column '{columns.event}' is one of {', '.join(columns.impression_events)}: "
            "pass the event type of impressions with --impression-event, or the query table with --queries"
        )
    if not has_impressions and queries is not None:
        by_event = {"seen"} if columns.seen is None else set()
        if columns.where is not None or set(opened.shape.extras) - by_event:
            raise ValueError(
                f"{opened.name}: no impressions were logged, and the query table has only ids: log impressions, or "
                "leave out --where, --bias, --context, --grade, --policy-score, --intervention and --seen"
            )
        rows, opened.shape = shown_by_queries(queries.rows, rows, queries.name), replace(opened.shape, features=())
    rows = rows.filter(rows.kind != OTHER)
    opened.rows = rows.drop("word") if "word" in rows.columns else rows


def read_impressions(
    engine: Engine, opened: Opened, options: Options, dropped: Dropped, salt: str | None = None
) -> tuple[ReadImpressions, int]:
    """Usable impressions with the table that has their features, and the number of rows read."""
    dropped.add("unreadable", *engine.unreadable_lines())
    for reason in opened.left_out:
        dropped.add(*reason)
    first = opened.columns.first_position
    assert first is not None
    conditions = reasons(opened.rows, opened.shape, first, options.n_positions)
    rows, n_rows = usable_rows(engine, opened.rows, conditions, dropped, opened.name)
    rows = rows.drop("wanted") if "wanted" in rows.columns else rows
    rows = users_read(engine, rows, opened.columns, salt, dropped)
    shape, second, impressions = replace(opened.shape, user="user" in rows.columns), opened.features, rows
    if options.period is not None:
        shape = replace(shape, period=check_period(options.period, has_times=shape.time))
    if opened.columns.form != "impressions":
        if options.window is not None:
            rows = within_window(engine, rows, options.window, dropped)
        impressions = merge_events(engine, rows, shape, dropped)
    if second is not None:
        shape = replace(shape, features=tuple(second.names), categories=second.categories)
        keys = [key for key in KEYS if key in second.rows.columns]
        described = with_keys(engine, second.rows, keys, second.name, dropped)
        impressions, described = same_keys(impressions, described, keys)
        second = replace(second, rows=described)
        if VALID_FROM in described.columns:
            impressions = as_shown(engine, impressions, described, keys, shape, second.name, options.fill, dropped)
            second = None
    return ReadImpressions(impressions, shape, second, first), n_rows


@dataclass(frozen=True)
class _Place:
    """An opened table."""

    rows: ir.Table
    name: str
    partitions: tuple[str, ...] = ()  # columns that come from folder names
    not_in_all: tuple[str, ...] = ()  # columns that are not read because the first file does not have them


def _open(engine: Engine, tables: Tables, which: str, columns: Columns) -> _Place:
    place, table = getattr(tables, which), getattr(tables, f"{which}_table")
    if isinstance(place, ir.Table):
        return _Place(engine.adopt(place), "the table")
    source = find_source(place)
    if table is not None and source.kind not in ("database", "address"):
        raise ValueError(f"{source.name} is {source.kind}, which has no tables: leave out the table name '{table}'")
    rows = engine.open(source, table, tables.encoding)
    if source.kind == "csv":
        rows = engine.open(source, table, tables.encoding, csv_types(columns, rows))
    lost = tuple(f"{column} (not in every file)" for column in source.not_in_all)
    return _Place(rows, source.name, source.partitions, lost)
