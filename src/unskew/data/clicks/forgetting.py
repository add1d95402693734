"""Remove the rows of given users from a log that has users as a bias column.

This also removes queries that nobody else asked, versions of documents that nobody else was shown, and the users'
names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.impressions import BiasColumn
from unskew.data.clicks.storage import LogFolder, open_log, write_shards
from unskew.display import OnScreen, Screen

USERS = ("user", "user_id", "userid", "client_id", "visitor_id")


@dataclass(repr=False)
class Forgotten(OnScreen):
    """Counts of what was removed."""

    column: str
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
    """Remove all lists of the given users from a click log, and the queries that nobody else asked, atomically.

    Args:
        log: folder of a log with users as a bias column (`ingest --bias user_id`); it is replaced atomically.
        users: user ids, or a text file with one per line.
        column: the bias column; default: user, user_id, or a similar name.

    `ingest` makes a log, `forget` removes people from it.

    >>> import pyarrow, tempfile, unskew
    >>> rows = {"session": ["s", "t"], "query": ["q", "q"], "document": ["a", "a"], "position": [0, 0]}
    >>> rows |= {"click": [1, 0], "user": ["ann", "bob"]}
    >>> log = unskew.ClickLog.from_table(pyarrow.table(rows), bias=["user"])
    >>> place = unskew.write_log(log, tempfile.mkdtemp() + "/log")
    >>> unskew.forget(place, ["bob"]).sessions
    1.0
    """
    if isinstance(users, str | Path):
        try:
            users = Path(users).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"{users} is not text ({error}): write one user per line") from error
    names = {str(name).strip() for name in users} - {""}
    if not names:
        raise ValueError("no user to forget: write one user per line")
    whole = open_log(log)
    name = _user_column(whole, column)
    levels = whole.about["bias"][name]
    gone = np.isin(levels, list(names))
    done = Forgotten(name, users=int(gone.sum()), not_found=len(names - set(levels)))
    if done.users:
        notes = {**whole.about.get("notes", {}), "forgotten_users": _forgotten_before(whole) + done.users}
        notes["lineage"] = whole.lineage.written("forget", users=done.users)
        write_shards(_without(whole, name, gone, done), log, overwrite=True, notes=notes)
    return done


def _without(log: LogFolder, name: str, gone: NDArray[np.bool_], done: Forgotten) -> Iterator[ClickLog]:
    left = 0
    for shard in log.shards():
        kept = _without_users(shard, name, gone, done)
        if kept.n_lists:
            left += kept.n_lists
            yield kept
    if not left:
        raise ValueError(f"{log.path}: every list belongs to these users, so nothing would be left: delete the folder")


def _without_users(shard: ClickLog, name: str, gone: NDArray[np.bool_], done: Forgotten) -> ClickLog:
    column = shard.bias[name]
    removed = gone[column.values.astype(np.int64)]
    lost = shard.select(removed)
    kept = shard.select(~removed)
    known = np.unique(kept.queries)
    done.lists += lost.n_lists
    done.sessions += lost.n_sessions
    done.clicks += lost.n_clicks
    done.queries += len(np.setdiff1d(lost.queries, known))
    names = tuple(level for level, is_gone in zip(column.levels or (), gone, strict=True) if not is_gone)
    numbers = (np.cumsum(~gone) - 1)[kept.bias[name].values.astype(np.int64)]
    kept = replace(kept, bias={**kept.bias, name: BiasColumn(numbers, names)})
    asked = np.ones(len(shard.query_ids), dtype=bool)
    asked[np.setdiff1d(lost.queries, known)] = False
    only = np.zeros(len(shard.features), dtype=bool)  # shown by removed lists only; versions never shown stay
    only[np.setdiff1d(lost.versions[lost.mask], kept.versions[kept.mask])] = True
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
        else f"{log.path} keeps no users that can be distinguished ({has}): name the column with --column, or remove "
        "their rows from the event table and ingest it again"
    )


def _forgotten_before(log: LogFolder) -> int:
    return int(log.about.get("notes", {}).get("forgotten_users", 0))
