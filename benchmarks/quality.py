"""Are the defaults still as good as they were? The guard behind `make quality`.

    python benchmarks/quality.py                         run what is missing, show the table; exit code 1 if a cell fell
    python benchmarks/quality.py --plan                  the runs and their minutes, and run nothing
    python benchmarks/quality.py --share 1/2             one of two processes that work on the same table
    python benchmarks/quality.py --accept                make the finished table the one that later ones are compared to
    python benchmarks/quality.py --reference             the grid of steps and rates, made once
    python benchmarks/quality.py --reference --gaps      how far the defaults are from the best of the grid
    python benchmarks/quality.py --set further --seeds 0 --methods dla naive
                                                         another set, looked at once: its rows and a table for the docs

Six methods on eight logs (`quality_logs.py`) with three seeds, defaults only, beside LightGBM with `position`; all
other methods on two of the logs with one seed. A cell fell if its mean paired difference to the accepted table exceeds
.01 and twice its standard error. Every finished run is a line of docs/quality/defaults.jsonl, so that an interrupted
command continues; lines of another state of the code are made again. The grid keeps its lines, whatever the code.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from quality_logs import SETS
from quality_runs import (
    GRID_SEEDS,
    GRID_STEPS,
    MAIN,
    OPPONENT,
    RATES,
    SEEDS,
    Run,
    case_of,
    default_runs,
    grid_runs,
    key_of,
    measure,
    state_of_code,
)
from quality_table import cells_of, fallen, gaps, gaps_text, markdown, read_accepted, table_text, write_accepted
from row_file import Row, append_row, mend, read_rows

HERE = Path(__file__).parents[1] / "docs" / "quality"
ACCEPTED = "defaults.json"
# Seconds of one core of 1,000 steps on the first log, for methods that no row is known of.
SECONDS = {"lbd": 11.2, "cdla_ld": 27.1, "upe": 9.4, "hte": 30.0, OPPONENT: 1.9}
USUAL_SECONDS = 4.5
TRAINED_APART = ("vectorization",)  # each number of steps is a training of its own, see `quality_runs.long_run`


@dataclass(frozen=True)
class Work:
    """Runs, the file of their rows, and the accepted table."""

    runs: Sequence[Run]
    path: Path
    accepted: Path
    code: str | None  # rows of another state of the code do not count; None: all count

    def rows(self) -> list[Row]:
        """Finished rows of these runs, in their order."""
        known = {key_of(row): row for row in read_rows(self.path) if self.code in (None, row["code"])}
        return [known[run.key] for run in self.runs if run.key in known]

    def missing(self) -> list[Run]:
        done = {key_of(row) for row in self.rows()}
        return [run for run in self.runs if run.key not in done]

    def seconds(self) -> dict[Run, float]:
        """What each run takes: as rows of the same cell, else of the same method, else as was once measured."""
        known: dict[tuple[str | None, str], list[float]] = {}
        for row in [*read_accepted(self.accepted), *read_rows(self.path)]:
            if (row.get("rate") is None) == (self.code is not None):
                for log in (row["log"], None):
                    known.setdefault((log, row["method"]), []).append(row["total_seconds"])
        return {run: _expected(run, known) for run in self.runs}

    def shared(self, which: int, of: int) -> list[Run]:
        """The missing runs of one of several processes: neighbours, so that few logs are made twice."""
        seconds, passed, own = self.seconds(), 0.0, []
        total = sum(seconds.values())
        for run in self.runs:
            middle = passed + seconds[run] / 2
            passed += seconds[run]
            own += [run] if which - 1 <= middle / total * of < which else []
        missing = {run.key for run in self.missing()}
        return [run for run in own if run.key in missing]


def _expected(run: Run, known: dict[tuple[str | None, str], list[float]]) -> float:
    spent = known.get((run.log.name, run.method)) or known.get((None, run.method))
    if spent:
        return statistics.median(spent)
    steps = 1_000 if run.rate is None else sum(run.steps) if run.method in TRAINED_APART else run.most
    return SECONDS.get(run.method, USUAL_SECONDS) * steps / 1_000


def plan_text(work: Work) -> str:
    """The runs of each log, and their minutes of one core."""
    seconds, missing = work.seconds(), {run.key for run in work.missing()}
    lines = [f"{'log':<36}{'runs':>6}{'missing':>9}{'core minutes':>14}{'left':>8}"]
    for log in [*dict.fromkeys(run.log.name for run in work.runs), None]:
        own = [run for run in work.runs if log in (None, run.log.name)]
        left = [run for run in own if run.key in missing]
        minutes, to_do = (sum(seconds[run] for run in some) / 60 for some in (own, left))
        lines.append(f"{log or 'all':<36}{len(own):>6}{len(left):>9}{minutes:>14.1f}{to_do:>8.1f}")
    return "\n".join(lines)


def run_missing(work: Work, which: int = 1, of: int = 1) -> None:
    """Do what is missing, a line at once for each finished run."""
    work.path.parent.mkdir(parents=True, exist_ok=True)
    mend(work.path)
    todo = work.shared(which, of)
    for number, run in enumerate(todo, start=1):
        row = measure(run)
        append_row(work.path, row)
        where = f"{run.log.name}, {run.method}, seed {run.seed}" + (
            "" if run.rate is None else f", rate {run.rate:.2g}"
        )
        print(f"{number}/{len(todo)} {row['total_seconds']:6.1f} s  {where}", flush=True)
    case_of.cache_clear()


def show(work: Work) -> int:
    """Print the table; 1 if a cell fell."""
    rows, missing = cells_of(work.rows()), len(work.missing())
    accepted = cells_of(read_accepted(work.accepted))
    print(table_text(rows, accepted))
    fell = fallen(rows, accepted)
    for log, method in fell:
        print(f"FELL: {method} on '{log}'")
    if missing:
        print(f"{missing} of {len(work.runs)} runs are missing: repeat the command")
    elif not fell and work.code is not None:
        print("no cell fell; commit the table with --accept if a default changed")
    return int(bool(fell))


def accept(work: Work) -> None:
    """Make the finished table the accepted one."""
    if missing := len(work.missing()):
        raise SystemExit(f"{missing} of {len(work.runs)} runs are missing: run `make quality` before --accept")
    write_accepted(work.accepted, work.rows())
    print(f"wrote {work.accepted}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", action="store_true", help="print the runs and their minutes; run nothing")
    parser.add_argument("--accept", action="store_true", help="accept the finished table")
    parser.add_argument("--reference", action="store_true", help="the grid of steps and rates instead of the defaults")
    parser.add_argument("--gaps", action="store_true", help="compare finished defaults with the finished grid")
    parser.add_argument("--set", choices=SETS, default="reference", help="of logs; all but one are looked at once")
    parser.add_argument("--methods", nargs="+", help=f"default: {', '.join(MAIN)}, LightGBM and others")
    parser.add_argument("--seeds", nargs="+", type=int, help="of clicks and training; default: 0 1 2, of the grid 0 1")
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, help="of the grid, relative to the default")
    parser.add_argument("--most", type=int, default=GRID_STEPS[-1], help="steps of the grid")
    parser.add_argument("--share", default="1/1", help="which of how many processes this one is, such as 1/2")
    parser.add_argument("--folder", type=Path, default=HERE, help="of the rows and the accepted table")
    chosen = parser.parse_args(arguments)
    if chosen.accept and (chosen.reference or chosen.set != "reference"):
        parser.error(
            "only the table of the defaults on the reference logs is accepted: leave out --reference and --set"
        )
    torch.set_num_threads(1)
    defaults, grid = works(chosen.set, chosen.folder, chosen.methods, chosen.seeds, chosen.rates, chosen.most)
    if chosen.gaps:
        print(gaps_text(gaps(grid.rows(), cells_of(defaults.rows()))))
        return 0
    work = grid if chosen.reference else defaults
    if chosen.accept:
        accept(work)
        return 0
    print(plan_text(work), flush=True)
    if chosen.plan:
        return 0
    run_missing(work, *map(int, chosen.share.split("/")))
    if chosen.set != "reference" and not chosen.reference:
        write_accepted(chosen.folder / f"{chosen.set}.json", work.rows())
        print(markdown(cells_of(work.rows())))
        return 0
    return 0 if chosen.reference else show(work)


def works(
    name: str,
    folder: Path,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    rates: Sequence[float] = RATES,
    most: int = GRID_STEPS[-1],
) -> tuple[Work, Work]:
    """The runs of the defaults and of the grid on a set of logs."""
    logs, suffix = SETS[name], "" if name == "reference" else f"-{name}"
    usual = default_runs(logs, methods or (*MAIN, OPPONENT), seeds or SEEDS)
    searched = grid_runs(logs, methods or MAIN, seeds or GRID_SEEDS, rates, most)
    accepted = folder / ACCEPTED
    return (
        # What is looked at once is not measured again for every change of the code.
        Work(usual, folder / f"defaults{suffix}.jsonl", accepted, None if suffix else state_of_code()),
        Work(searched, folder / f"reference{suffix}.jsonl", accepted, None),
    )


if __name__ == "__main__":
    sys.exit(main())
