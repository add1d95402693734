"""The benchmarks of `make bench`: what was measured, the ratio or rate, and the target.

    python benchmarks/run.py                   all, one after the other, each in a process of its own
    python benchmarks/run.py parser trees      only these
    python benchmarks/run.py --smallest        whether they still run: the figures of so small a size say nothing

What fails is named at the end, with exit code 1; the others run all the same. A folder named in UNSKEW_BENCH keeps the
finished parts of benchmarks that can resume.

A file of this folder is one of three things, and a test fails if it is none:

* a benchmark, in `BENCHMARKS`: its `run()` gives rows of text, and its sizes are constants of the module;
* a study, in `STUDIES` or `STUDIES_APART`: a command of its own, with files of results, for a page of the docs;
* a module of theirs, in `SHARED`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console
from rich.table import Table

from timing import Row

HERE = Path(__file__).parent
WIDTH = 140  # of tables in a file
PATIENCE = 60  # seconds after which a benchmark says that it still runs, again and again

# Every benchmark with its smallest size: constants of its module, and their values.
BENCHMARKS: dict[str, dict[str, Any]] = {
    "changing_features": {"N_SESSIONS": 300},
    "click_models": {"CLAX_SECONDS": {"pbm": 12}, "PASSES": (1,)},
    "click_models_mouse": {"MODELS": ("pbm",), "N_RESAMPLES": 2},
    "contextual": {"N_LISTS": 2, "REPEATS": 1, "WARM_UP": 0},
    "digests": {"WORLD": "tiny", "REPEATS": 1},
    "distinct_documents": {"HIDDEN": (8,), "N_QUERIES": 32, "ORDERS": 2, "REPEATS": 2},
    "ingest_speed": {"N_SESSIONS": 200, "SESSIONS_AT_ONCE": 100, "N_QUERIES": 10},
    "lbd_step": {"N_LISTS": 2, "REPEATS": 1, "WARM_UP": 0},
    "metric_speed": {"N_QUERIES": 20, "N_NUMPY": 10, "N_SKLEARN": 2, "REPEATS": 1},
    "parser": {"N_SMALL": 1_000, "N_LARGE": 2_000, "REPEATS": 1},
    "rankers": {
        "NAMES": ("world:tiny", "mslr-sample"),
        "FOLDS": (1, 2),
        "GRID": {"num_leaves": (7,)},
        "ROUNDS": 3,
        "TRAINING": {"steps": 3},
    },
    "readout_errors": {"WORLD": "world:tiny", "REPETITIONS": 2, "QUERIES": 20, "OF_TRUTH": 8},
    "serving_speed": {"N_LISTS": 2, "REPEATS": 1, "RANK_REPEATS": 1, "N_TIMES": 2},
    "simulation_speed": {"WORLD": "tiny", "REPEATS": 1, "ONE_BY_ONE": 2, "COUNTED": 2},
    "startup": {"REPEATS": 1},
    "time_to_quality": {"WORLD": "world:tiny", "SESSIONS": 4, "SEEDS": (8, 9), "STEPS": 4, "EVERY": 2, "LAST": 2},
    "training_step": {
        "WORLD": "world:tiny",
        "SEEDS": (8,),
        "SESSIONS": 8,
        "SINGLE": 20,
        "COUNTED": 20,
        "N_LISTS": 64,
        "N_FEATURES": 8,
        "BATCH": 32,
        "STEPS": 1,
        "REPEATS": 1,
    },
    "trees": {"WORLD": "world:tiny", "SESSIONS": 8, "ROUNDS": 3, "TRAINING": {"steps": 3}},
    "two_processes": {"BATCHES": (16,), "N_LISTS": 64, "REPEATS": 1},
    "vectorization_inference": {"N_LISTS": 2, "REPEATS": 1},
    "warm_starts": {"WORLDS": (100, 101), "DAYS": 2, "STEPS": 6},
}
# Studies with the arguments of their smallest size; OUT is a folder.
STUDIES = {
    "attention": "OUT world:tiny:100 --rows low_rank --coupling 0.3 --form power --steps 3 --sessions 4",
    "campaign": "--seconds 1 --most 1 --part files",
    "click_models_ranking": "--worlds 300 --size tiny --steps 3 --out OUT/rows.jsonl",
    "growth": "OUT --part 0.02 --commands ingest;train;rank",
    "never_shown": "OUT world:tiny:documents=12 --logger stochastic --cases 0 --steps 3 --sessions 4",
    "papers_pilot": "--plan",
    "raw_table": "OUT 300",
    "peers": "--plan",
    "quality": "--plan",
    "results": "--plan",
    "ranklens": "--plan",
    "scale": "OUT 1000 ingest",
    "server": "OUT --turns 1 --requests 2",
    "shop": "--sessions 100 --seeds 2 --out OUT",
    "trees_bar": "OUT --worlds 1 --size tiny --steps 3",
}
STUDIES_APART = {  # that no test runs, and why
    "auto_rules": "trains the family of `auto` in a world at least",
    "auto_study": "trains six methods and `auto` in a world at least",
    "clax_models": "needs an environment with CLAX; `click_models` calls it",
    "engines": "needs packages of npm and a browser",
    "real_people": "writes docs/real_people.md from four public logs",
    "results_pages": "writes docs/results; it has tests of its own",
}
SHARED = (
    "auto_worlds",
    "campaign_commands",
    "campaign_files",
    "campaign_formats",
    "campaign_logs",
    "campaign_storage",
    "default_worlds",
    "intervals",
    "label_free",
    "quality_logs",
    "quality_runs",
    "quality_table",
    "ranklens_logs",
    "results_cells",
    "row_file",
    "run",
    "timing",
)


def rows_of(name: str, *, smallest: bool = False) -> list[Row]:
    """The rows of a benchmark, measured in this process."""
    module = importlib.import_module(name)
    if not smallest:
        return module.run()
    with mock.patch.multiple(module, **BENCHMARKS[name]), mock.patch.dict(os.environ, {"UNSKEW_BENCH": ""}):
        return module.run()


def show(name: str, rows: list[Row], seconds: float) -> None:
    """Print the table of a benchmark."""
    table = Table(title=f"{name} ({seconds:.0f} s)", title_justify="left", box=None)
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("target", justify="right")
    for row in rows:
        table.add_row(*row)
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    console.print(table, "")


def run_apart(name: str, options: list[str]) -> str | None:
    """Run a benchmark in a process of its own, with a line for every minute; gives how it failed, if it did."""
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, __file__, name, "--here", *options])
    while True:
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            print(f"{name}: {(time.monotonic() - started) / 60:.0f} min so far", flush=True)
        else:
            return None if code == 0 else f"exit code {code}" if code > 0 else signal.Signals(-code).name


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all. {', '.join(BENCHMARKS)}")
    parser.add_argument("--smallest", action="store_true", help="at the smallest size: whether they run")
    parser.add_argument("--here", action="store_true", help="in this process, for debuggers: an error ends the run")
    chosen = parser.parse_args(arguments)
    strangers = [name for name in chosen.names if name not in BENCHMARKS]
    if strangers:
        parser.error(f"no benchmark '{strangers[0]}'. There are {', '.join(BENCHMARKS)}")
    names = chosen.names or list(BENCHMARKS)
    if chosen.here:
        for name in names:
            started = time.perf_counter()
            show(name, rows_of(name, smallest=chosen.smallest), time.perf_counter() - started)
        return 0
    ends = {name: run_apart(name, ["--smallest"] if chosen.smallest else []) for name in names}
    failed = {name: end for name, end in ends.items() if end is not None}
    if failed:
        print(f"{len(failed)} of {len(names)} failed: {', '.join(f'{name} ({end})' for name, end in failed.items())}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
