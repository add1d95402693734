"""Our rankers beside those that people use today, on the same clicks: the table of the README and of docs/peers.md.

    python benchmarks/peers.py                   run what is missing; rows go to docs/results/peers.jsonl
    python benchmarks/peers.py --plan            how many runs are missing, and run nothing
    python benchmarks/peers.py --write           put the table into README.md and docs/peers.md

Twelve worlds that nothing was tuned on: six of position bias, six of trust bias; each has documents, a logger and
clicks of its own. All get the same log and are measured on the same judged queries, which nobody learns from.
LightGBM is in the form of `unskew compare` (counts as grades, trees chosen by held-out clicks), XGBoost gets as many
trees in the same way. ULTRA's algorithms are our implementations of the same papers, with the papers' loss and Adagrad.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import t as student

import unskew
from quality_logs import POSITION, RIDGE, TRUST, QualityLog, open_scene
from row_file import Row, append_row, mend, read_rows
from unskew.comparison.outside import click_grades, train_lightgbm
from unskew.data.clicks.click_log import ClickLog

TOP = Path(__file__).parents[1]
ROWS = TOP / "docs" / "results" / "peers.jsonl"
PAGES = (TOP / "README.md", TOP / "docs" / "index.md", TOP / "docs" / "peers.md")
START, END = "<!-- peers: written by benchmarks/peers.py -->", "<!-- end of peers -->"
METRIC = "ndcg@10"
FIRST = 8_501
N_WORLDS = 6  # of each user
BASELINE = "raw clicks"
MOST_TREES, PATIENCE, HELD_OUT = 1_500, 30, 0.2  # of XGBoost, as of LightGBM
Train = Callable[[ClickLog], Any]


@dataclass(frozen=True)
class Rival:
    """A ranker of the table: its name, how it is trained, what it needs, and what it tells."""

    name: str
    train: Train
    needs: str
    tells: str


def _ours(method: str, **settings: Any) -> Train:
    return lambda log: unskew.fit(method, log, **settings)


def _auto(log: ClickLog) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing is certified
        return unskew.fit(log=log)


def _xgboost(*, unbiased: bool) -> Train:
    import xgboost

    def data(log: ClickLog) -> Any:
        rows = xgboost.DMatrix(log.features[log.versions[log.mask]], click_grades(log)[log.mask])
        rows.set_group(log.mask.sum(axis=1))
        return rows

    def train(log: ClickLog) -> Callable[[Any], Any]:
        learning, held_out = log.split(HELD_OUT, 0)
        options = {"objective": "rank:ndcg", "eta": 0.05, "nthread": 1, "ndcg_exp_gain": False, "seed": 0}
        options |= {"lambdarank_unbiased": unbiased, "eval_metric": "ndcg@10"}
        booster = xgboost.train(
            options,
            data(learning),
            MOST_TREES,
            evals=[(data(held_out), "held_out")],
            early_stopping_rounds=PATIENCE,
            verbose_eval=False,
        )
        best = (0, booster.best_iteration + 1)
        return lambda features: booster.predict(xgboost.DMatrix(features), iteration_range=best)

    return train


PAPER = {"optimizer": "adagrad", "learning_rate": 0.05, "steps": 1_000}  # ULTRA's usual rate
CURVE, NOTHING = "curve, verdict on the log", "–"
TABLE = "clicks, positions"
RIVALS = (
    Rival("unskew `auto` (default)", _auto, TABLE, "curve, verdict on the log, verdict on production"),
    Rival("unskew `two_tower`", _ours("two_tower"), TABLE, CURVE),
    Rival("unskew `dla`", _ours("dla"), TABLE, CURVE),
    Rival(BASELINE, _ours("naive"), "clicks", NOTHING),
    Rival("LightGBM", lambda log: train_lightgbm(log, position=False), "clicks", NOTHING),
    Rival("LightGBM `position`", lambda log: train_lightgbm(log, position=True), TABLE, "bias, hidden in the model"),
    Rival("XGBoost", _xgboost(unbiased=False), "clicks", NOTHING),
    Rival("XGBoost `lambdarank_unbiased`", _xgboost(unbiased=True), "clicks, rows in shown order", "ratios"),
    Rival("ULTRA's DLA¹", _ours("dla", observed_by="weights", **PAPER), TABLE, "curve in a log line"),
    Rival("ULTRA's RegressionEM¹", _ours("regression_em", **PAPER), TABLE, "curve in a log line"),
    Rival("ULTRA's PairDebias¹", _ours("pair_debias", **PAPER), "single sessions", "ratios in a log line"),
)


def worlds() -> list[QualityLog]:
    """Half of the worlds of each user have a linear production and scaled features, half an SVM and raw features."""
    found = []
    for kind, person in (("position bias", POSITION), ("trust bias", TRUST)):
        for index in range(N_WORLDS):
            number = FIRST + index + (N_WORLDS if person is TRUST else 0)
            sessions = (16, 128)[index // 2 % 2]
            more: Any = RIDGE if index % 2 else {}
            name, data = f"{kind} {number}", f"world:small:{number}"
            entry = QualityLog(name, data, sessions, person=person, number=number, joint=True, **more)
            found.append(entry)
    return found


def missing() -> list[tuple[QualityLog, Rival]]:
    done = {(row["world"], row["ranker"]) for row in read_rows(ROWS)}
    return [(world, rival) for world in worlds() for rival in RIVALS if (world.name, rival.name) not in done]


def run_missing() -> None:
    mend(ROWS)
    for world, rival in missing():
        case = open_scene(world).case(0)
        started = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                ranker, error = rival.train(case.log), None
            except FloatingPointError as ending:  # it ran away
                ranker, error = None, str(ending)
        seconds = time.process_time() - started
        value = 0.0 if error else _quality(ranker, case.test)
        found = {METRIC: round(value, 5), "cpu_seconds": round(seconds, 2), "error": error}
        append_row(ROWS, {"world": world.name, "ranker": rival.name, **found})
        print(f"{world.name}, {rival.name}: {value:.4f}, {seconds:.1f} s", flush=True)


def _quality(ranker: Any, test: unskew.JudgedSet) -> float:
    scores = ranker(test.features) if callable(ranker) and not hasattr(ranker, "parameters") else ranker
    return float(unskew.evaluate(scores, test, [METRIC]).mean(METRIC))


def table(rows: Sequence[Row]) -> str:
    """Means of each user, with the 95% interval of the difference from raw clicks over worlds."""
    users = ("position bias", "trust bias")
    values = {(row["world"], row["ranker"]): row[METRIC] for row in rows if not row["error"]}
    names = {user: [world.name for world in worlds() if world.name.startswith(user)] for user in users}
    head = [f"{user}: nDCG@10 (less {BASELINE})" for user in users]
    lines = [f"| ranker | {' | '.join(head)} | CPU s | needs | tells you |", "|---|---|---|---|---|---|"]
    means = {
        (rival.name, user): statistics.mean(
            values[name, rival.name] for name in names[user] if (name, rival.name) in values
        )
        for rival in RIVALS
        for user in users
    }
    for rival in RIVALS:
        cells = []
        for user in users:
            own = means[rival.name, user]
            best = own == max(means[other.name, user] for other in RIVALS)
            shown = f"{own:.3f}".lstrip("0")
            text = f"**{shown}**" if best else shown
            known = [name for name in names[user] if (name, rival.name) in values]
            differences = [values[name, rival.name] - values[name, BASELINE] for name in known]
            failed = f"; {len(names[user]) - len(known)} failed" if len(known) < len(names[user]) else ""
            cells.append(text if rival.name == BASELINE else f"{text} ({_interval(differences)}{failed})")
        seconds = statistics.median(row["cpu_seconds"] for row in rows if row["ranker"] == rival.name)
        lines.append(f"| {rival.name} | {' | '.join(cells)} | {seconds:.0f} | {rival.needs} | {rival.tells} |")
    return "\n".join(lines)


def _interval(differences: Sequence[float]) -> str:
    mean, n = statistics.mean(differences), len(differences)
    half = float(student.ppf(0.975, n - 1)) * statistics.stdev(differences) / n**0.5
    low, high = (f"{value:+.3f}".replace("0.", ".", 1).replace("-", "−") for value in (mean - half, mean + half))
    return f"{low} to {high}"


def with_table(text: str, lines: str) -> str:
    """A page with the table between its marks."""
    return re.sub(f"{re.escape(START)}.*?{re.escape(END)}", f"{START}\n{lines}\n{END}", text, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if asked.plan:
        print(f"{len(missing())} of {len(worlds()) * len(RIVALS)} runs are missing, about 8 CPU seconds each")
    elif asked.write:
        for page in PAGES:
            page.write_text(with_table(page.read_text(encoding="utf-8"), table(read_rows(ROWS))), encoding="utf-8")
    else:
        run_missing()


if __name__ == "__main__":
    main()
