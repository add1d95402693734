"""Heavy users and robots: capped in a table of impressions before it becomes a log, and counted.

A click log counts sessions and forgets who they belong to, so that one robot with ten thousand sessions weighs as much
as ten thousand people. A cap keeps so many sessions of each user, drawn by chance, and leaves out the others whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.data.checks import check_columns
from unskew.data.clicks.impressions import first_rows, shown_order
from unskew.data.columns import as_arrow
from unskew.data.grouping import number_ids


@dataclass(frozen=True)
class CappedUsers:
    """What a cap on sessions a user took off."""

    n_users: int
    n_capped: int
    most: float | None  # sessions a user may have; None: no cap
    sessions_dropped: float
    impressions_dropped: float
    clicks_dropped: float
    heaviest: str  # the user with most sessions, before the cap
    heaviest_share: float  # of all sessions
    heaviest_rate: float  # clicks an impression: a robot clicks nothing, or everything


def cap_heavy_users(
    table: Any, user_column: str, most: int, *, session: str = "session", click: str = "click", seed: int = 0
) -> tuple[pa.Table, CappedUsers]:
    """A table of impressions with so many sessions of each user at the most, and what that left out.

    Args:
        table: a pyarrow, pandas or polars table with one row per impression.
        user_column: names the user; rows without one stay.
        most: sessions that a user may have.
        seed: draws the sessions that stay.
    """
    data = as_arrow(table)
    check_columns(data, [session, click])
    if user_column not in data.column_names:
        raise ValueError(f"column '{user_column}' is missing; the table has: {', '.join(data.column_names)}")
    if most < 1:
        raise ValueError(f"a user may have {most} sessions: give a whole number from 1")
    known = data[user_column].is_valid().to_numpy()
    rows = np.flatnonzero(known)
    if not len(rows):
        raise ValueError(f"column '{user_column}' holds no user at all: name another, or do without a cap")
    names, users = number_ids(data[user_column].take(pa.array(rows)))
    sessions = number_ids(data[session].take(pa.array(rows)))[1]
    # A session of two users is one of each: it is a user's session that is dropped.
    pair = np.unique(users.astype(np.int64) * (int(sessions.max()) + 1) + sessions, return_inverse=True)[1]
    owner = users[first_rows(pair)]
    order = np.random.default_rng(seed).permutation(len(owner))
    place = np.empty(len(owner), dtype=np.int64)
    place[order] = shown_order(owner[order])
    dropped = np.zeros(len(data), dtype=bool)
    dropped[rows] = (place >= most)[pair]
    clicks = data[click].cast(pa.float64()).to_numpy()
    of_user = np.bincount(owner)
    worst = int(np.argmax(of_user))
    own_rows = rows[users == worst]
    report = CappedUsers(
        n_users=len(of_user),
        n_capped=int((of_user > most).sum()),
        most=most,
        sessions_dropped=float((place >= most).sum()),
        impressions_dropped=float(dropped.sum()),
        clicks_dropped=float(clicks[dropped].sum()),
        heaviest=str(names[worst]),
        heaviest_share=float(of_user[worst] / len(owner)),
        heaviest_rate=float(clicks[own_rows].mean()),
    )
    return data.filter(pa.array(~dropped)), report
