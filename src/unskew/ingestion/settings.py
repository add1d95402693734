"""The settings of an ingestion: its tables, names of columns, and how the log is made. No engine is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.data.columns import check_period
from unskew.data.memory import parse_memory
from unskew.data.untrusted import read_toml
from unskew.ingestion.columns import FORMS, Columns
from unskew.options import build, check_choice, near

if TYPE_CHECKING:
    import ibis.expr.types as ir

ENGINES = ("duckdb", "spark")
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
RENAMED = {
    "feature": "features",
    "category": "categories",
}  # option `feature` names feature columns; `features` is the feature table


@dataclass(frozen=True)
class Tables:
    """The input tables: a path, folder, glob or URL, or an Ibis table."""

    events: str | Path | ir.Table
    features: str | Path | ir.Table | None = None
    queries: str | Path | ir.Table | None = None  # of User Behavior Insights
    events_table: str | None = None  # name in a database
    features_table: str | None = None
    queries_table: str | None = None
    encoding: str | None = None  # of CSV files
    clicks: str | Path | ir.Table | None = None  # if the events contain only impressions
    clicks_table: str | None = None


@contextmanager
def as_tables(events: Any, features: Any, queries: Any, clicks: Any, **names: Any) -> Iterator[Tables]:
    """The input tables; those in memory are temporary files."""
    from unskew.data.inputs import as_file  # takes longer than a small table takes to read

    with ExitStack() as files:
        tables = {"events": events, "features": features, "queries": queries, "clicks": clicks}
        yield Tables(**{name: files.enter_context(as_file(table)) for name, table in tables.items()}, **names)


@dataclass(frozen=True)
class Options:
    """The options of an ingestion."""

    n_positions: int | None = None  # None: all
    keep_users: bool = False  # keep what `forget` needs, in a file of its own
    hash_queries: bool = False  # store digests of queries in place of their texts
    fill: float | None = None  # replaces missing features; None: they stay missing in the log
    joint: bool = False  # keep which documents were clicked together
    strict: bool = False  # fail instead of leaving rows out
    engine: str = "duckdb"
    memory: str = "2GB"
    threads: int | None = None
    master: str | None = None  # URL of the Spark cluster
    period: str | None = None  # count lists per hour, day, week or month; None: all together
    window: int | None = None  # seconds after the impression in which events count; None: any time

    def __post_init__(self) -> None:
        check_choice(self.engine, ENGINES, "engine")
        if self.period is not None:
            check_period(self.period, has_times=True)  # a missing column of times is noticed later
        parse_memory(self.memory)


def settings(
    columns: Columns | Mapping[str, Any] | str | Path | None, options: Mapping[str, Any]
) -> tuple[dict[str, Any], Columns, Options]:
    """Options sorted by what they belong to: tables, names of columns, and how the log is made."""
    kinds = (Tables, Columns, Options)
    known = {kind: [entry.name for entry in fields(kind)] for kind in kinds}
    known[Tables] = [name for name in known[Tables] if name not in ("events", "features", "queries", "clicks")]
    given: dict[type, dict[str, Any]] = {kind: {} for kind in kinds}
    for name, value in options.items():
        name = RENAMED.get(name, name)
        owner = next((kind for kind in kinds if name in known[kind]), None)
        if owner is None:
            every = ", ".join(entry for names in known.values() for entry in names)
            raise ValueError(f"ingest has no option '{name}'; it accepts {every}")
        given[owner][name] = value
    if columns is None or isinstance(columns, Columns):
        start = columns or Columns()
    else:
        start = named_columns(Columns(), columns) if isinstance(columns, Mapping) else read_columns(Path(columns))
    return given[Tables], named_columns(start, given[Columns]), Options(**given[Options])


def read_columns(path: str | Path) -> Columns:
    """Names from a TOML file; its keys are the fields of `Columns`."""
    try:
        names = read_toml(Path(path))
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f'{path} does not exist: pass a TOML file with lines such as session = "sid"'
        ) from error
    except ValueError as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from error
    return build(Columns, names, str(path))


def named_columns(base: Columns, names: Mapping[str, Any]) -> Columns:
    """The names of `base`, overridden by those of `names` that are not None or empty."""
    given = {key: value for key, value in names.items() if value is not None and value != [] and value != ()}
    if "user" in given:
        given |= user_and_cap(given["user"])
    if isinstance(given.get("page_size"), str) and given["page_size"].isdecimal():
        given["page_size"] = int(given["page_size"])
    columns = replace(base, **given)
    if columns.form is not None and columns.form not in FORMS:
        raise ValueError(f"unknown form '{columns.form}'{near(columns.form, FORMS)}: choose from {', '.join(FORMS)}")
    for size in ("row_size", "page_size", "sessions_a_user"):
        value = getattr(columns, size)
        sizes = page_sizes(value)[1].values() if isinstance(value, str) else [1 if value is None else value]
        if min(sizes) < 1:
            raise ValueError(f"{size} must be at least 1, got {value}")
    unnamed = [entry for entry in columns.missing if not entry.rpartition("=")[0]]
    if unnamed:
        raise ValueError(f"--missing '{unnamed[0]}': write COLUMN=VALUE, such as rating=-1")
    if columns.first_position not in (None, 0, 1):
        raise ValueError(f"first_position must be 0 or 1, got {columns.first_position}")
    return columns


def as_options(columns: Columns) -> dict[str, Any]:
    """The names that are not the default, as options of `ingest`."""
    default, names = Columns(), {field: option for option, field in RENAMED.items()}
    changed = {entry.name: getattr(columns, entry.name) for entry in fields(columns)}
    return {names.get(name, name): value for name, value in changed.items() if value != getattr(default, name)}


def page_sizes(text: str) -> tuple[str, dict[str, int]]:
    """The column and the size by level of `device:desktop=25,phone=10`."""
    column, _, listed = text.partition(":")
    sizes = {level: size for level, _, size in (entry.rpartition("=") for entry in listed.split(","))}
    if not column or not all(level and size.isdecimal() for level, size in sizes.items()):
        raise ValueError(
            f"page size '{text}': write a whole number, or COLUMN:LEVEL=SIZE,… such as device:phone=10,web=25"
        )
    return column, {level: int(size) for level, size in sizes.items()}


def parse_window(text: str) -> int:
    """Seconds of "30m", "12h" or "7d"."""
    number, unit = text.strip()[:-1], text.strip()[-1:]
    if unit not in SECONDS or not number.isdecimal() or int(number) < 1:
        raise ValueError(f"window '{text}' is not a duration: write a whole number and s, m, h or d, such as 30m or 7d")
    return int(number) * SECONDS[unit]


def user_and_cap(text: str) -> dict[str, Any]:
    """The column of `COLUMN` or `COLUMN=N`, and the maximum number of sessions per user."""
    column, equals, number = text.rpartition("=")
    if not equals or not number.isdecimal():
        return {"user": text}
    return {"user": column, "sessions_a_user": int(number)}
