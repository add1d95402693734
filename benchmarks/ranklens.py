"""Rankers and curves learned from the real clicks of RankLens, against the truth that its random lists show.

    python benchmarks/ranklens.py --plan             the runs that are missing and their minutes of one core
    python benchmarks/ranklens.py                    run what is missing, a line of docs/results/ranklens.jsonl at once
    python benchmarks/ranklens.py --logs random      only these logs; --methods, --splits alike
    python benchmarks/ranklens.py --sample .02 OUT   a share of the people, as a trial

`ranklens_logs.py` says how logs, splits and thinning are made. Everything runs with its defaults on the columns that
`ingest` makes. LightGBM has them as numbers, directors and writers too, which was its best form on training folds; the
clicks of held-out people choose the number of its trees. Its classifier takes the position as a feature, and scores
every movie as at the top. Finished lines are kept, whatever the code; each has the state of the code that it is of.
`real_people.py` writes the page.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import torch
from numpy.typing import NDArray

import unskew
from click_models_mouse import MODELS, examination, fitted, relative
from ranklens_logs import FOLDS, ORDERS, Marks, folds, marks, thinned, with_context
from row_file import Row, append_row, mend, read_rows
from unskew.comparison.code_digest import code_digest
from unskew.comparison.outside import train_lightgbm
from unskew.propensities.curve import NotIdentified
from unskew.propensities.estimate import estimate_propensities

ROWS = Path(__file__).parents[1] / "docs" / "results" / "ranklens.jsonl"
METRIC = "ndcg@10"
CLICKS = {"1": (1, 1), "2–3": (2, 3), "4–7": (4, 7), "8 or more": (8, 24)}  # of a list
TREES = ("lightgbm lambdarank", "lightgbm lambdarank position", "lightgbm classifier", "lightgbm classifier position")
PLAIN_TREES = TREES[::2]
SECONDS = {"auto": 250.0, "lbd": 120.0}  # of one core, on random lists, before a line is known
USUAL_SECONDS, TREE_SECONDS = 50.0, 8.0
FEW = "few clicks, popular strong"
STRENGTH_OF_LOG = {"random": 1.0, "context": 1.1, "weak": 0.4, "strong": 0.2}  # seconds, relative to random lists
MOST_ROUNDS, PATIENCE = 1_500, 30


@dataclass(frozen=True)
class Run:
    """A training; `truth` and `models` are estimates on all random lists."""

    log: str
    method: str
    split: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.log, self.method, self.split


def plan() -> list[Run]:
    """All runs, the most important first; splits go round, so that an early end leaves few of each."""
    strong, weak = ([f"{order} {strength}" for order in ORDERS] for strength in ("strong", "weak"))
    every = range(FOLDS)
    runs = [Run("random", "truth", 0)]
    runs += [Run("random", name, split) for split in every for name in (*PLAIN_TREES, "dla", "naive")]
    runs += [Run(log, name, split) for split in every for log in strong for name in ("naive", "dla", *TREES)]
    runs += [Run(FEW, name, split) for split in every for name in ("naive", "dla")]
    runs += [Run("random", "two_tower", split) for split in every]
    runs += [Run("context", name, split) for split in every for name in ("dla", PLAIN_TREES[1])]
    runs += [Run("random", name, split) for split in every for name in ("lbd", "low_rank", "affine_softmax")]
    runs += [Run(log, "two_tower", split) for split in every for log in (*strong, FEW)]
    runs += [Run(log, name, split) for split in every for log in weak for name in ("naive", "dla", *TREES)]
    return [*runs, *(Run(log, "auto", split) for log in ("random", *strong) for split in every)]


def seconds_of(run: Run, known: Sequence[Row]) -> float:
    """What a run takes, as finished ones did."""
    spent = [row["cpu_seconds"] for row in known if (row["log"], row["method"]) == (run.log, run.method)]
    if spent:
        return statistics.median(spent)
    factor = next((value for name, value in STRENGTH_OF_LOG.items() if name in run.log), 1.0)
    return factor * (TREE_SECONDS if run.method in TREES else SECONDS.get(run.method, USUAL_SECONDS))


def measure(run: Run, seen: Marks) -> Row:
    """Do a run; one that ends with an error has no quality."""
    started = time.process_time()
    if run.method == "truth":
        found = truths(seen)
    else:
        fold = folds(seen)
        found = trained(run, training_marks(run.log, seen.of(fold != run.split)), seen, fold == run.split)
    about = {"cpu_seconds": round(time.process_time() - started, 1), "code": code_digest()}
    return {"log": run.log, "method": run.method, "split": run.split, **found, **about}


def training_marks(name: str, seen: Marks) -> Marks:
    """The marks that a log is made of."""
    if name == FEW:
        seen, name = seen.few(), "popular strong"
    return seen if name in ("random", "context") else thinned(seen, *name.split())


def trained(run: Run, training: Marks, seen: Marks, is_test: NDArray[np.bool_]) -> Row:
    """Train on a log, and judge on held-out random lists: on all, and on those with one to three clicks."""
    if run.log == "context":
        everything = with_context(seen)
        training, test = everything.of(~is_test), everything.of(is_test)
    else:
        test = seen.of(is_test)
    log = training.log()
    about: Row = {"lists": log.n_lists, "documents": int(log.mask.sum()), "clicks": int(log.n_clicks)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of `auto`, that its ranker is not known to be better than production
            ranker, learned = _ranker(run, log, training)
    except (ArithmeticError, ValueError, RuntimeError) as error:
        return {**about, METRIC: None, "error": f"{type(error).__name__}: {error}"}
    for name, part in ((METRIC, test), ("few", test.few())):
        judged = part.judged()
        scorer: Any = ranker(judged.features) if run.method in TREES and callable(ranker) else ranker
        about[name] = unskew.evaluate(scorer, judged, [METRIC]).mean(METRIC)
    return about | learned


def _ranker(run: Run, log: unskew.ClickLog, training: Marks) -> tuple[Any, Row]:
    if run.method == TREES[0] or run.method == TREES[1]:
        scorer = train_lightgbm(log, position=run.method == TREES[1], seed=run.split)
        return partial(_scores, scorer), {}
    if run.method in TREES:
        return classifier(training, position=run.method == TREES[3], seed=run.split), {}
    chosen = unskew.auto(log, seed=run.split, progress=False) if run.method == "auto" else None
    model = chosen.model if chosen else unskew.fit(run.method, log, seed=run.split, progress=False)
    curve = model.examination()
    about: Row = {"examination": None if curve is None else [round(float(value), 4) for value in curve]}
    return model, about | ({"chosen": str(chosen.verdict)[:200]} if chosen else {"ended": str(model.history.ended)})


def _scores(scorer: Any, features: NDArray[np.float32]) -> NDArray:
    rows = torch.from_numpy(features)[None]
    with torch.inference_mode():
        return scorer(rows, torch.ones(rows.shape[:2], dtype=torch.bool))[0].numpy()


def classifier(training: Marks, *, position: bool, seed: int) -> Callable[[NDArray], NDArray]:
    """LightGBM as a classifier of clicks; the clicks of a tenth of the people choose the number of trees."""
    people, number = np.unique(training.people, return_inverse=True)
    held_out = (np.random.default_rng(seed).permutation(len(people)) % 10 == 0)[number]

    def inputs(features: NDArray, places: NDArray | float) -> NDArray:
        return np.column_stack([features, np.broadcast_to(places, len(features))]) if position else features

    columns = [training.features, *training.context.values()]
    rows = inputs(np.column_stack(columns), training.positions)
    learning = lightgbm.Dataset(rows[~held_out], training.clicks[~held_out])
    checked = lightgbm.Dataset(rows[held_out], training.clicks[held_out], reference=learning)
    leaf = int(np.clip(len(rows) // 300, 20, 100))  # as in `train_lightgbm`
    settings = {"objective": "binary", "learning_rate": 0.05, "min_data_in_leaf": leaf, "seed": seed, "verbose": -1}
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    options = settings | {"num_threads": torch.get_num_threads(), "deterministic": True, "force_col_wise": True}
    booster = lightgbm.train(options, learning, MOST_ROUNDS, [checked], callbacks=[stop])
    return lambda features: np.asarray(booster.predict(inputs(features, 0.0)))


def truths(seen: Marks) -> Row:
    """Examination by randomization, by the number of clicks of a list, and what estimates of all random lists say."""
    log = seen.log()
    clicks = np.where(log.mask, log.clicks, 0).sum(axis=1)
    parts = {"all": np.ones(log.n_lists, bool)}
    parts |= {name: (clicks >= low) & (clicks <= high) for name, (low, high) in CLICKS.items()}
    truth = {}
    for name, part in parts.items():
        try:
            curve = estimate_propensities(log.select(part), "randomization", assume_random=True)
        except NotIdentified:  # in a sample
            continue
        values = {key: [round(float(value), 4) for value in getattr(curve, key)] for key in ("values", "low", "high")}
        truth[name] = {**values, "lists": int(part.sum()), "steepness": _steepness(log.select(part))}
    pages = seen.pages()
    ids = pages.log()
    estimates = {
        name: _values(lambda name=name: estimate_propensities(ids, name, n_bootstrap=0).values) for name in PAIRS
    }
    for name in MODELS:
        estimates[name] = _values(lambda name=name: relative(examination(*fitted(name, pages), pages)))
    return {"truth": truth, "estimates": estimates}


PAIRS = ("all_pairs", "adjacent_chain", "pivot")


def _values(estimate: Callable[[], NDArray]) -> list[float] | None:
    try:
        return [round(float(value), 4) for value in estimate()]
    except NotIdentified as error:
        print(f"  not identified: {error}", flush=True)
        return None


def _steepness(log: unskew.ClickLog) -> float:
    """Click rate at the top over the mean of positions 10 to 20."""
    rates = log.click_rates()
    return round(float(rates[0] / rates[9:20].mean()), 3)


def run_missing(runs: Sequence[Run], path: Path, seen: Callable[[], Marks]) -> None:
    """Do what is missing, a line at once for each finished run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mend(path)
    for number, run in enumerate(runs, start=1):
        row = measure(run, seen())
        append_row(path, row)
        value = row.get(METRIC)
        told = "" if value is None else f", {METRIC} {value:.4f}"
        print(
            f"{number}/{len(runs)} {row['cpu_seconds']:6.1f} s  {run.log}, {run.method}, {run.split}{told}", flush=True
        )


def missing(runs: Sequence[Run], path: Path) -> Iterator[Run]:
    done = {(row["log"], row["method"], row["split"]) for row in read_rows(path)}
    return (run for run in runs if run.key not in done)


def plan_text(runs: Sequence[Run], known: Sequence[Row]) -> str:
    """The runs of each log, and their minutes."""
    lines = [f"{'log':<30}{'missing':>9}{'core minutes':>14}"]
    for log in [*dict.fromkeys(run.log for run in runs), None]:
        own = [run for run in runs if log in (None, run.log)]
        lines.append(f"{log or 'all':<30}{len(own):>9}{sum(seconds_of(run, known) for run in own) / 60:>14.1f}")
    return "\n".join(lines)


def sample(seen: Marks, share: float) -> Marks:
    people, number = np.unique(seen.people, return_inverse=True)
    return seen.of((np.random.default_rng(0).random(len(people)) < share)[number])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path, default=ROWS, help="the file of lines")
    parser.add_argument("--plan", action="store_true", help="run nothing")
    parser.add_argument("--logs", nargs="+")
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--splits", nargs="+", type=int)
    parser.add_argument("--sample", type=float, help="share of the people")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    some = [(chosen.logs, "log"), (chosen.methods, "method"), (chosen.splits, "split")]
    wanted = [run for run in plan() if all(not given or getattr(run, name) in given for given, name in some)]
    todo = list(missing(wanted, chosen.out))
    print(plan_text(todo, read_rows(chosen.out)), flush=True)
    if not chosen.plan:
        run_missing(todo, chosen.out, marks if chosen.sample is None else lambda: sample(marks(), chosen.sample))


if __name__ == "__main__":
    main()
