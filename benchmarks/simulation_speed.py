"""How fast sessions are simulated: one by one, and counted at once."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from timing import Row, in_turn
from unskew.data.judged.world import make_world
from unskew.simulation.policies import RankingSVM
from unskew.simulation.simulate import simulate
from unskew.simulation.users import make_user

WORLD, REPEATS = "small", 5
ONE_BY_ONE, COUNTED = 128, 1_000  # sessions of each query
TARGETS = {"position_based": 300_000, "ubm": 100_000, "dbn": 100_000}


def run() -> list[Row]:
    train = make_world(WORLD).train
    policy = RankingSVM().fit(train)

    def drawing(name: str, sessions: int, *, joint: bool) -> Callable[[], object]:
        user = make_user(name)
        return lambda: simulate(train, policy, user, sessions=sessions, joint=joint, threads=2)

    jobs = {name: drawing(name, ONE_BY_ONE, joint=True) for name in TARGETS}
    jobs["counted"] = drawing("position_based", COUNTED, joint=False)
    seconds = {name: statistics.median(times) for name, times in in_turn(jobs, REPEATS, warm_up=1).items()}
    n_drawn, n_counted = train.n_queries * ONE_BY_ONE, train.n_queries * COUNTED
    rows = [
        (f"{name}, sessions drawn one by one", f"{n_drawn / seconds[name]:,.0f} sessions/s", f"at least {target:,}")
        for name, target in TARGETS.items()
    ]
    counted = f"{n_counted / seconds['counted'] / 1e6:,.0f} million sessions/s"
    rows.append(("position_based, 1,000 sessions per list counted at once", counted, "at least 100 million"))
    return rows
