"""Remove the sessions of given users from a log that keeps users, or that has them as a bias column.

The log is then what it would be if their events had never been ingested: this also removes queries that nobody else
asked, and versions of documents that nobody else was shown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.impressions import BiasColumn
from unskew.data.clicks.kept_users import UserLog, numbers_of, recounted, salt_beside
from unskew.data.clicks.shards import USERS as KEPT
from unskew.data.clicks.shards import read_table
from unskew.data.clicks.storage import LogFolder, open_log, write_shards
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def screen(self) -> Screen:
        return Screen(
            f"{self.users:,} users forgotten ({self.not_found:,} are not in the log): {self.lists:,} lists, "
            f"{self.sessions:,.0f} sessions, {self.clicks:,.0f} clicks, {self.queries:,} queries that nobody else asked"
        )


def forget(log: str | Path, users: str | Path | Collection[str], column: str | None = None) -> Forgotten:
    """Remove all sessions of the given users from a click log, and the queries that nobody else asked, atomically.

    Args:
        log: folder of a log that keeps users (`ingest --user user_id --keep-users`), or of an older one with users as
            a bias column; it is replaced atomically.
        users: user ids, or a text file with one per line.
        column: the bias column of an older log; default: user, user_id, or a similar name.

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
    whole = open_log(log)
    if all(KEPT in shard["digests"] for shard in whole.about["shards"]):
        done = Forgotten(None)
        wanted = numbers_of(sorted(names), salt_beside(whole.path))
        seen = {number for table in _tables(whole) for number in np.intersect1d(table["user"], wanted)}
        done.users = len(seen)
        changed = (_without_kept(whole, number, wanted, done) for number in range(whole.n_shards))
    else:
        name = _user_column(whole, column)
        levels = whole.about["bias"][name]
        gone = np.isin(levels, list(names))
        done = Forgotten(name, users=int(gone.sum()))
        changed = (_without_level(shard, name, gone, done) for shard in whole.shards())
    done.not_found = len(names) - done.users
    if done.users:
        notes = {**whole.about.get("notes", {}), "forgotten_users": _forgotten_before(whole) + done.users}
        notes["lineage"] = whole.lineage.written("forget", users=done.users)
        write_shards(_some(changed, whole.path), log, overwrite=True, notes=notes)
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


def _without_kept(log: LogFolder, number: int, wanted: NDArray[np.uint64], done: Forgotten) -> UserLog | None:
    shard = log.shard(number)
    with log.files(number) as stem:
        table = read_table(stem, KEPT, log.about["shards"][number])
    gone = np.isin(table["user"].to_numpy(), wanted)
    kept = recounted(shard, table.filter(pa.array(~gone))) if not gone.all() else UserLog(shard.select([]))
    _count(done, shard, kept.log)
    done.lists += len(np.unique(table["list"].to_numpy()[gone]))
    return UserLog(_without_rest(shard, kept.log), kept.users) if kept.log.n_lists else None


def _without_level(shard: ClickLog, name: str, gone: NDArray[np.bool_], done: Forgotten) -> UserLog | None:
    column = shard.bias[name]
    removed = gone[column.values.astype(np.int64)]
    kept = shard.select(~removed)
    _count(done, shard, kept)
    done.lists += shard.n_lists - kept.n_lists
    names = tuple(level for level, is_gone in zip(column.levels or (), gone, strict=True) if not is_gone)
    numbers = (np.cumsum(~gone) - 1)[kept.bias[name].values.astype(np.int64)]
    kept = replace(kept, bias={**kept.bias, name: BiasColumn(numbers, names)})
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
