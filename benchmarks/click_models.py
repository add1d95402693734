"""Click models on three public logs of real clicks, against what CLAX 0.1.1 reached on the same splits.

    python benchmarks/click_models.py --out runs/click_models      # goes on where it was cut off

Needs `trec-session-2014`, `naver-clara2` and `sogou-mouse` under UNSKEW_DATA. Spreads are chosen for each log on its
validation pages, one after the other, by the likelihood of `pbm`; every model of ids then uses these or the defaults,
whichever is better on validation. CLAX's figures
are those of AdamW with the best of a small grid on validation, measured on two shared cores.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from unskew.data.clicks.vocabulary import Vocabulary
from unskew.data.judged.catalogue import MissingDataError
from unskew.data.public_logs.id_pages import SPLITS, read_pages
from unskew.evaluation.click_prediction import predict_clicks
from unskew.methods import METHODS
from unskew.networks.registry import Problem

LOGS = ("naver-clara2", "sogou-mouse", "trec-session-2014")
# Log-likelihood per impression on test, by log in this order; None: not valid there.
CLAX: dict[str, tuple[float | None, ...]] = {
    "gctr": (-0.1365, -0.3398, -0.1849),
    "rctr": (-0.1135, -0.2806, -0.1698),
    "dctr": (-0.1108, -0.3014, -0.1848),
    "pbm": (-0.1046, -0.2750, -0.1692),
    "cascade": (None, None, None),
    "ubm": (-0.1029, -0.2610, -0.1591),
    "dcm": (-0.1108, -0.2949, -0.1872),
    "sdbn": (-0.1123, -0.2973, -0.1897),
    "dbn": (-0.1046, -0.2630, -0.1686),
    "ccm": (-0.1040, -0.2618, -0.1635),
}
CLAX_SECONDS = {"pbm": 12, "ubm": 13, "dbn": 23}  # of CPU, on naver-clara2
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in CLAX},
    "dbn, patience by position": ("dbn", {"by_position": True}),
}
DEFAULTS = {"spread": 1.0, "url_spread": 0.5, "query_spread": 0.5}  # of the methods
UNSPREAD = ("gctr", "rctr")
GRID = {"spread": (0.25, 0.5, 1.0, 1.5), "url_spread": (0.0, 1.0, 2.0), "query_spread": (0.3, 0.6, 1.0)}
USUAL = {"spread": 1.0, "url_spread": 0.5, "query_spread": 0.6}  # chosen on validation pages of naver-clara2
START = {"spread": 0.5, "url_spread": 0.5, "query_spread": 0.0}


class Bench:
    """One log: its splits, and fits that are written down as they end."""

    def __init__(self, name: str, out: Path):
        pages = read_pages(name)
        logs = [pages.select(pages.split == number).log() for number in range(len(SPLITS))]
        self.name, self.out = name, out
        self.vocabulary = Vocabulary.of(logs[:1])
        self.logs = dict(zip(SPLITS, (self.vocabulary.encode(log) for log in logs), strict=True))
        self.rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []

    def fit(self, case: str, spreads: dict[str, float]) -> tuple[torch.nn.Module, float]:
        name, options = CASES[case]
        own = {} if name in UNSPREAD else spreads
        method = METHODS[name](Problem(0, 10, {}, n_ids=self.vocabulary.sizes), **own, **options)
        started = time.process_time()
        method.finish({"clicks": self.logs["train"]})
        return method, time.process_time() - started

    def measure(self, case: str, spreads: dict[str, float], *splits: str) -> list[dict[str, Any]]:
        """Rows of results on these splits, from the file if they are there; one fit serves all."""
        keys = [{"log": self.name, "case": case, "split": split, **spreads} for split in splits]
        known = [self._find(key) for key in keys]
        if None in known:
            method, seconds = self.fit(case, spreads)
            for key in keys:
                found = predict_clicks(method, self.logs[key["split"]]).summary()
                row = {**key, "seconds": seconds, "passes": method.fitted.passes}
                row |= {name: [entry.value, entry.low, entry.high] for name, entry in found.items()}
                with self.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                self.rows.append(row)
        return [row for row in (self._find(key) for key in keys) if row is not None]

    def _find(self, key: dict[str, Any]) -> dict[str, Any] | None:
        same = (row for row in self.rows if all(row.get(name) == value for name, value in key.items()))
        return next(same, None)

    def choose(self) -> dict[str, float]:
        """Spreads by the validation likelihood of `pbm`, one after the other."""
        best = dict(START)
        for name, values in GRID.items():
            tried = [{**best, name: value} for value in (best[name], *values)]
            best = max(tried, key=lambda spreads: self.measure("pbm", spreads, "valid")[0][LIKELIHOOD][0])
        return best


LIKELIHOOD, CALIBRATION = "log-likelihood per impression", "predicted / observed clicks"


def show(bench: Bench, number: int, candidates: Sequence[dict[str, float]]) -> None:
    """The table of one log: all models on test, and the one that is best on validation against CLAX's best."""
    print(f"\n{bench.name}, test; log-likelihood per impression", flush=True)
    columns = ("valid", "test", "CLAX", "gain", "perpl.", "cond.", "calibr.", "CPU s")
    print(f"{'model':27}" + "".join(f"{title:>10}" for title in columns))
    values = {}
    for case in CASES:
        tried = candidates[:1] if case in UNSPREAD else candidates
        own = [bench.measure(case, spreads, "valid", "test") for spreads in tried]
        valid, test = max(own, key=lambda rows: rows[0][LIKELIHOOD][0])
        values[case] = (valid[LIKELIHOOD][0], test)
        other, value = CLAX[case][number] if case in CLAX else None, test[LIKELIHOOD][0]
        against = f"{'–':>10}{'–':>10}" if other is None else f"{other:10.4f}{value - other:+10.4f}"
        tail = "".join(f"{test[name][0]:10.4f}" for name in ("perplexity", "conditional perplexity", CALIBRATION))
        print(f"{case:27}{values[case][0]:10.5f}{value:10.5f}{against}{tail}{test['seconds']:10.1f}", flush=True)
    best = max(values, key=lambda case: values[case][0])
    of_clax = max(value for row in CLAX.values() if (value := row[number]) is not None)
    value, low, high = (entry - of_clax for entry in values[best][1][LIKELIHOOD])
    # The interval is that of our likelihood: CLAX's likelihoods of single sessions are not known here.
    print(f"best on validation: {best}; on test less the best of CLAX: {value:+.4f} ({low:+.4f} to {high:+.4f})")


def run() -> list[tuple[str, str, str]]:
    """CPU time on the largest log, against a third of CLAX's."""
    try:
        bench = Bench("naver-clara2", Path(tempfile.mkdtemp()) / "rows.jsonl")
    except MissingDataError as error:
        return [("click models on naver-clara2", "not measured", str(error))]
    rows = []
    for case, seconds_of_clax in CLAX_SECONDS.items():
        row = bench.measure(case, USUAL, "test")[0]
        what = f"{case}, CPU s; test log-likelihood {row[LIKELIHOOD][0]:.4f}, CLAX {CLAX[case][0]}"
        rows.append((what, f"{row['seconds']:.1f}", f"≤ {seconds_of_clax / 3:.1f}"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--logs", nargs="+", default=list(LOGS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.logs:
        bench = Bench(name, arguments.out / f"{name}.jsonl")
        show(bench, LOGS.index(name), (bench.choose(), DEFAULTS))


if __name__ == "__main__":
    main()
