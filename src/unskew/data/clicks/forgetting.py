"""Remove the sessions of given users from a log that keeps users, or that has them as a bias column.

The log is then what it would be if their events had never been ingested: this also removes queries that nobody else
asked, versions of documents that nobody else was shown, and names of levels and categories that nobody else had.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.kept_users import UserLog, numbers_of, recounted, salt_beside
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.clicks.shards import USERS as KEPT
from unskew.data.clicks.shards import read_table
from unskew.data.clicks.storage import LogFolder, open_log, write_shards
from unskew.data.clicks.traces import Made, Traces, find_traces, made_from
from unskew.data.object_storage import remote
from unskew.display import OnScreen, Screen

USERS = ("user", "user_id", "userid", "client_id", "visitor_id")


@dataclass(repr=False)
class Forgotten(OnScreen):
    """Counts of what was removed."""

    column: str | None  # the bias column; None: the log keeps users
    users: int = 0  # given users that were in the log
    not_found: int = 0
    lists: int = 0
    sessions: float = 0.0
    clicks: float = 0.0
    queries: int = 0  # queries that nobody else asked
    made: list[Made] = field(default_factory=list)  # what was made from the log as it was, and what to do with it

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def screen(self) -> Screen:
        rows = [(one.kind, one.place, one.to_do) for one in self.made]
        return Screen(
            f"{self.users:,} users forgotten ({self.not_found:,} are not in the log): {self.lists:,} lists, "
            f"{self.sessions:,.0f} sessions, {self.clicks:,.0f} clicks, {self.queries:,} queries that nobody else "
            "asked",
            more=[Screen("Made from the log as it was", ("what", "where", "to do"), rows, left=3)] if rows else [],
        )


def forget(
    log: str | Path,
    users: str | Path | Collection[str],
    column: str | None = None,
    *,
    below: str | Path | None = None,
    check: bool = False,
) -> Forgotten | Traces:
    """Remove all sessions of the given users from a click log, and the queries that nobody else asked, atomically.

    Args:
        log: folder of a log that keeps users (`ingest --user user_id --keep-users`), or of an older one with users as
            a bias column; it is replaced atomically. With `check`: any folder.
        users: user ids, or a text file with one per line.
        column: the bias column of an older log; default: user, user_id, or a similar name.
        below: Folder in which to look for models, checkpoints and reports made from the log. Default: the one that
            holds the log.
        check: Remove nothing: read every file below the folder, and say where the users still are.

    `ingest` makes a log, `forget` removes people from it.

    >>> import pyarrow, tempfile, unskew
    >>> rows = {"session": ["s", "t"], "query": ["q", "q"], "document": ["a", "a"], "position": [0, 0]}
    >>> rows |= {"click": [1, 0], "user_id": ["ann", "bob"], "price": [1.0, 1.0]}
    >>> place = tempfile.mkdtemp() + "/log"
    >>> _ = unskew.ingest(pyarrow.table(rows), place, user="user_id", keep_users=True, progress=False)
    >>> unskew.forget(place, ["bob"]).sessions
    1.0
    """
    names = _names(users)
    if check:
        return find_traces(Path(log), names, Path(users) if isinstance(users, str | Path) else None)
    whole = open_log(log)
    if all(KEPT in shard["digests"] for shard in whole.about["shards"]):
        done = Forgotten(None)
        wanted = numbers_of(sorted(names), salt_beside(whole.path))
        seen = {number for table in _tables(whole) for number in np.intersect1d(table["user"], wanted)}
        done.users = len(seen)
        parts = [partial(_without_kept, whole, number, wanted) for number in range(whole.n_shards)]
    else:
        name = _user_column(whole, column)
        levels = whole.about["bias"][name]
        gone = np.isin(levels, list(names))
        done = Forgotten(name, users=int(gone.sum()))
        parts = [partial(_without_level, whole, number, name, gone) for number in range(whole.n_shards)]
    done.not_found = len(names) - done.users
    steps = [*whole.lineage.steps]
    if done.users:
        used = _Names.of(part(done) for part in parts)
        notes = {**whole.about.get("notes", {}), "forgotten_users": _forgotten_before(whole) + done.users}
        notes["lineage"] = steps = whole.lineage.written("forget", users=done.users)
        left = (used.only(part(Forgotten(None))) for part in parts)
        write_shards(_some(left, whole.path), log, overwrite=True, notes=notes)
    if remote(whole.path) is None or below is not None:
        was_changed = any(step["step"] == "forget" for step in steps)
        before = {digest for step in steps if was_changed for digest in step["from"]}
        done.made = made_from(before, whole.path.parent if below is None else Path(below), whole.path)
    return done


def _names(users: str | Path | Collection[str]) -> set[str]:
    if isinstance(users, str | Path):
        try:
            users = Path(users).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"{users} is not text ({error}): write one user per line") from error
    names = {str(name).strip() for name in users} - {""}
    if not names:
        raise ValueError("no user to forget: write one user per line")
    return names


def _tables(log: LogFolder) -> Iterator[pa.Table]:
    """The table of users of each shard."""
    for number in range(log.n_shards):
        with log.files(number) as stem:
            yield read_table(stem, KEPT, log.about["shards"][number])


def _some(shards: Iterator[UserLog | None], path: Path) -> Iterator[UserLog]:
    """The shards of which something is left."""
    left = 0
    for shard in shards:
        if shard is not None:
            left += 1
            yield shard
    if not left:
        raise ValueError(f"{path}: every list belongs to these users, so nothing would be left: delete the folder")


@dataclass
class _Names:
    """Which levels and categories of a log are still used, by its shards together."""

    bias: dict[str, set[int]] = field(default_factory=dict)
    interventions: set[int] = field(default_factory=lambda: {0})  # "none" stays
    categories: dict[str, set[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, shards: Iterator[UserLog | None]) -> _Names:
        found = cls()
        for log in (shard.log for shard in shards if shard is not None):
            for name, column in log.bias.items():
                found.bias.setdefault(name, set()).update(_numbers(column.values))
            if log.interventions is not None:
                found.interventions.update(_numbers(log.interventions.values))
            for name in log.categories:
                found.categories.setdefault(name, set()).update(_numbers(_inputs(log, name)))
        return found

    def only(self, shard: UserLog | None) -> UserLog | None:
        """The shard with names that are used, numbered anew."""
        if shard is None:
            return None
        log, features, context = shard.log, shard.log.features, shard.log.context
        categories = {}
        for name, names in log.categories.items():
            kept = sorted(self.categories[name])
            categories[name] = tuple(names[number] for number in kept)
            if len(kept) < len(names):
                inside = name in log.feature_names
                features, context = (features.copy(), context) if inside else (features, context.copy())
                column = _inputs(replace(log, features=features, context=context), name)
                known = ~np.isnan(column)
                column[known] = np.searchsorted(kept, column[known])
        changed = replace(
            log,
            features=features,
            context=context,
            categories=categories,
            bias={name: _renumbered(column, self.bias[name]) for name, column in log.bias.items()},
            interventions=None if log.interventions is None else _renumbered(log.interventions, self.interventions),
        )
        return UserLog(changed, shard.users)


def _inputs(log: ClickLog, name: str) -> NDArray[np.float32]:
    """A column of the features or of the context, as a view."""
    if name in log.feature_names:
        return log.features[:, log.feature_names.index(name)]
    return log.context[:, log.context_names.index(name)]


def _numbers(values: NDArray) -> set[int]:
    return set(np.unique(values[~np.isnan(values)] if values.dtype.kind == "f" else values).astype(int).tolist())


def _renumbered(column: BiasColumn, used: set[int]) -> BiasColumn:
    """The column with levels that are used; a column of numbers as it is."""
    if column.levels is None or len(used) == len(column.levels):
        return column
    kept = sorted(number for number in used if number < len(column.levels))
    numbers = np.searchsorted(kept, column.values).astype(column.values.dtype)
    return BiasColumn(numbers, tuple(column.levels[number] for number in kept))


def _without_kept(log: LogFolder, number: int, wanted: NDArray[np.uint64], done: Forgotten) -> UserLog | None:
    shard = log.shard(number)
    with log.files(number) as stem:
        table = read_table(stem, KEPT, log.about["shards"][number])
    gone = np.isin(table["user"].to_numpy(), wanted)
    kept = recounted(shard, table.filter(pa.array(~gone))) if not gone.all() else UserLog(shard.select([]))
    _count(done, shard, kept.log)
    done.lists += len(np.unique(table["list"].to_numpy()[gone]))
    return UserLog(_without_rest(shard, kept.log), kept.users) if kept.log.n_lists else None


def _without_level(log: LogFolder, number: int, name: str, gone: NDArray[np.bool_], done: Forgotten) -> UserLog | None:
    shard = log.shard(number)
    kept = shard.select(~gone[shard.bias[name].values.astype(np.int64)])
    _count(done, shard, kept)
    done.lists += shard.n_lists - kept.n_lists
    return UserLog(_without_rest(shard, kept)) if kept.n_lists else None


def _count(done: Forgotten, shard: ClickLog, kept: ClickLog) -> None:
    done.sessions += shard.n_sessions - kept.n_sessions
    done.clicks += shard.n_clicks - kept.n_clicks
    done.queries += len(np.setdiff1d(shard.queries, kept.queries))


def _without_rest(shard: ClickLog, kept: ClickLog) -> ClickLog:
    """The kept lists without queries and versions that only removed lists had; versions never shown stay."""
    asked = np.ones(len(shard.query_ids), dtype=bool)
    asked[np.setdiff1d(shard.queries, kept.queries)] = False
    only = np.zeros(len(shard.features), dtype=bool)
    only[np.setdiff1d(shard.versions[shard.mask], kept.versions[kept.mask])] = True
    return kept.without_versions(only).of_queries(asked)


def _user_column(log: LogFolder, column: str | None) -> str:
    levels = {name: names for name, names in log.about["bias"].items() if names is not None}
    found = [name for name in levels if name.lower() in USERS] if column is None else [column]
    if len(found) == 1 and found[0] in levels:
        return found[0]
    has = f"its bias columns are: {', '.join(levels)}" if levels else "it has no bias column"
    raise ValueError(
        f"{log.path} keeps no column '{column}' with users; {has}"
        if column is not None
        else f"{log.path} holds nobody: it keeps no users ({has}). Remove their rows from the events and ingest them "
        "again, with --user COLUMN --keep-users if you want to forget users later. If an old log has users as a bias "
        "column, name it with --column"
    )


def _forgotten_before(log: LogFolder) -> int:
    return int(log.about.get("notes", {}).get("forgotten_users", 0))
