"""Personal data: users are read to cap heavy ones and robots, and then dropped; rare levels of bias columns are merged.

The sessions that a capped user keeps are chosen at random but the same in every run. Only if users are kept does an
opaque number take the place of the id: a digest of the id and of a secret salt, which lies beside the log.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir

from unskew.data.clicks.kept_users import salt_file
from unskew.data.files import write_text
from unskew.data.object_storage import read_there
from unskew.ingestion.columns import Columns
from unskew.ingestion.engines import Engine, count_rows, one_row
from unskew.ingestion.impressions import Shape
from unskew.ingestion.report import Dropped

SALT_BYTES = 16
LEAST_SESSIONS = 20  # of a level of a bias column; rarer ones are merged
OTHER = "other"  # the level that they are merged into


def users_read(engine: Engine, rows: ir.Table, columns: Columns, salt: str | None, dropped: Dropped) -> ir.Table:
    """Rows within the cap on sessions per user, without their users, or with opaque numbers in their place.

    Args:
        salt: of the opaque numbers; None: users are dropped.
    """
    if columns.user is None:
        return rows
    if "user" not in rows.columns:
        raise ValueError("impressions that come from the query table have no user: leave out --user")
    rows = _one_user_each(engine, rows, dropped)
    if columns.sessions_a_user is not None:
        rows = _capped(engine, rows, columns.sessions_a_user, dropped, drop=columns.drop_heavy)
    return rows.drop("user") if salt is None else rows.mutate(user=_opaque(rows.user, salt))


def salt_of(target: Path) -> str:
    """The secret beside a log; made if there is none."""
    place = salt_file(target)
    stored = read_there(place)
    if stored is not None:
        return stored.decode().strip()
    salt = secrets.token_hex(SALT_BYTES)
    write_text(place, salt + "\n", private=True)
    return salt


def hashed_queries(table: ir.Table, salt: str) -> ir.Table:
    """Opaque numbers in place of queries, if the table has them."""
    return table.mutate(query=_opaque(table.query, salt)) if "query" in table.columns else table


def merged_levels(engine: Engine, rows: ir.Table, shape: Shape, dropped: Dropped) -> ir.Table:
    """Rows with rare levels of bias columns merged into one; columns in which most levels are rare are refused."""
    for number, (name, is_level) in enumerate(shape.bias):
        if not is_level:
            continue
        column = f"bias_{number}"
        levels = rows.group_by(column).aggregate(sessions=rows.session.nunique())
        levels = engine.keep(f"levels_{number}", levels.mutate(rare=levels.sessions < LEAST_SESSIONS))
        counts = {"n_levels": levels.count(), "n_rare": levels.rare.sum(), "total": levels.sessions.sum()}
        counts["sessions"] = levels.sessions.sum(where=levels.rare)
        n_levels, n_rare, total, sessions = one_row(engine, levels, **counts).values()
        if not n_rare:
            continue
        if n_levels >= LEAST_SESSIONS and 2 * sessions > total:
            raise ValueError(
                f"bias column '{name}' looks like an id: {n_rare:,} of its {n_levels:,} values have fewer than "
                f"{LEAST_SESSIONS} sessions. A model would learn a curve for each and store it: leave the column out; "
                "if it is the user, pass --user"
            )
        text = f"{n_rare:,} of {n_levels:,} levels have fewer than {LEAST_SESSIONS} sessions: merged into '{OTHER}'"
        dropped.remarks.append(f"Bias column {name}: {text}, {sessions:,} sessions.")
        kept = engine.arrow(levels.filter(~levels.rare).select(column))[column].to_pylist()
        rows = rows.mutate(
            **{column: rows[column].isin(kept).ifelse(rows[column], OTHER) if kept else ibis.literal(OTHER)}
        )
    return rows


def _one_user_each(engine: Engine, rows: ir.Table, dropped: Dropped) -> ir.Table:
    """Rows without the sessions that two users have."""
    sessions = rows.group_by("session").aggregate(users=rows.user.nunique())
    shared = engine.keep("shared_sessions", sessions.filter(sessions.users > 1).select("session"))
    n_sessions = count_rows(engine, shared)
    if not n_sessions:
        return rows
    total, count = count_rows(engine, rows), count_rows(engine, rows.semi_join(shared, "session"))
    dropped.add("two_users", count, f"{n_sessions:,} sessions")
    dropped.refuse_if_most(["two_users"], total, "rows")
    return rows.anti_join(shared, "session")


def _capped(engine: Engine, rows: ir.Table, most: int, dropped: Dropped, *, drop: bool) -> ir.Table:
    """Rows of at most `most` sessions per user, or of users with no more; the others are counted."""
    pairs = rows.filter(rows.user.notnull()).select("user", "session").distinct()
    # By a digest, not by a random number, so that both engines and every run keep the same sessions.
    chance = pairs.session.cast("string").hexdigest("md5")
    place = ibis.row_number().over(group_by=pairs.user, order_by=[chance, pairs.session])
    over = pairs.mutate(place=place)
    if drop:  # all sessions of a user with too many
        over = pairs.mutate(place=pairs.session.count().over(group_by=pairs.user) - 1)
    over = engine.keep("capped_sessions", over.filter(over.place >= most).select("user", "session"))
    count = count_rows(engine, rows.semi_join(over, "session"))
    if count:
        heaviest = over.group_by("user").aggregate(sessions=over.count())
        n_users, n_sessions = count_rows(engine, heaviest), count_rows(engine, over)
        first = one_row(engine, heaviest, most=heaviest.sessions.max())["most"]
        dropped.add("capped", count, f"{n_sessions:,} sessions of {n_users:,} users, {first:,} of them by one user")
    return rows.anti_join(over, "session")


def _opaque(user: Any, salt: str) -> Any:
    """Sixteen hexadecimal digits for a user; `kept_users.numbers_of` makes the same in Python."""
    return (ibis.literal(salt) + user.cast("string")).hexdigest("sha256").substr(0, 16)
