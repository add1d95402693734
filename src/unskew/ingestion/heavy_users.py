"""Heavy users and robots: keep a limited number of sessions per user, chosen at random but the same in every run.

A click log counts sessions without their users, so a robot with ten thousand sessions weighs as much as ten thousand
people. Sessions without a user are all kept.
"""

from __future__ import annotations

from typing import Any

import ibis
import ibis.expr.types as ir

from unskew.ingestion.engines import Engine
from unskew.ingestion.report import Dropped


def cap_users(engine: Engine, rows: ir.Table, most: int, dropped: Dropped) -> ir.Table:
    """Rows of at most `most` sessions per user; the others are counted."""
    if "user" not in rows.columns:
        raise ValueError("impressions that come from the query table have no user: leave out --cap-user")
    pairs = rows.filter(rows.user.notnull()).select("user", "session").distinct()
    # By a digest, not by a random number, so that both engines and every run keep the same sessions.
    chance = pairs.session.cast("string").hexdigest("md5")
    place = ibis.row_number().over(group_by=pairs.user, order_by=[chance, pairs.session])
    over = pairs.mutate(place=place)
    over = engine.keep("capped_sessions", over.filter(over.place >= most).select("user", "session"))
    count = _count(engine, rows.semi_join(over, ["user", "session"]))
    if count:
        heaviest = over.group_by("user").aggregate(sessions=over.count())
        first = engine.arrow(heaviest.order_by(ibis.desc("sessions"), "user").limit(1)).to_pylist()[0]
        n_users, n_sessions = _count(engine, heaviest), _count(engine, over)
        example = f"{n_sessions:,} sessions of {n_users:,} users, {first['sessions']:,} of them by {first['user']}"
        dropped.add("capped", count, example)
    return rows.anti_join(over, ["user", "session"]).drop("user")


def _count(engine: Engine, table: ir.Table) -> Any:
    return engine.arrow(table.aggregate(rows=table.count()))["rows"][0].as_py()
