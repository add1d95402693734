"""How fast sessions are simulated: one by one, and counted at once."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from unskew.data.world import make_world
from unskew.simulation.policies import RankingSVM
from unskew.simulation.simulate import simulate
from unskew.simulation.users import make_user

Row = tuple[str, str, str]
REPEATS = 5


def run() -> list[Row]:
    train = make_world("small").train
    policy = RankingSVM().fit(train)

    def drawing(name: str, sessions: int, *, joint: bool) -> Callable[[], float]:
        user = make_user(name)
        return lambda: simulate(train, policy, user, sessions=sessions, joint=joint, threads=2).log.n_sessions

    measured = rates(
        {
            "position_based": drawing("position_based", 128, joint=True),
            "ubm": drawing("ubm", 128, joint=True),
            "dbn": drawing("dbn", 128, joint=True),
            "counted": drawing("position_based", 1_000, joint=False),
        }
    )
    rows = [
        (f"{name}, sessions drawn one by one", f"{measured[name]:,.0f} sessions/s", f"at least {target:,} sessions/s")
        for name, target in (("position_based", 300_000), ("ubm", 100_000), ("dbn", 100_000))
    ]
    counted = f"{measured['counted'] / 1e6:,.0f} million sessions/s"
    rows.append(("position_based, 1,000 sessions a list counted at once", counted, "at least 100 million sessions/s"))
    return rows


def rates(jobs: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Sessions per second of each job, the median of interleaved repeats; a first round warms up."""
    found: dict[str, list[float]] = {name: [] for name in jobs}
    for repeat in range(REPEATS + 1):
        for name, job in jobs.items():
            start = time.perf_counter()
            sessions = job()
            if repeat:
                found[name].append(sessions / (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in found.items()}


if __name__ == "__main__":
    for row in run():
        print(*row, sep="\t")
