"""Click models on three public logs of real clicks, against what CLAX 0.1.1 reached on the same splits.

    python benchmarks/click_models.py --out runs/click_models            # chooses on validation, resumable
    python benchmarks/click_models.py --out runs/click_models --test     # fits once more and looks at the test pages

Needs `trec-session-2014`, `naver-clara2` and `sogou-mouse` under UNSKEW_DATA. Spreads are chosen for each log on its
validation pages, one after the other, by the likelihood of `pbm`; all models of ids then use the same. CLAX's figures
are those of AdamW with the best of a small grid on validation, measured on two shared cores.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from unskew.data.clicks.vocabulary import Vocabulary
from unskew.data.public_logs.id_pages import SPLITS, read_pages
from unskew.evaluation.click_prediction import ClickPrediction, paired_difference, predict_clicks
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
GRID = {"spread": (0.25, 0.5, 1.0), "url_spread": (0.0, 1.0, 2.0), "query_spread": (0.3, 0.6)}
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
        own = {} if name in ("gctr", "rctr") else spreads
        method = METHODS[name](Problem(0, 10, {}, n_ids=self.vocabulary.sizes), **own, **options)
        started = time.process_time()
        method.finish({"clicks": self.logs["train"]})
        return method, time.process_time() - started

    def measure(self, case: str, spreads: dict[str, float], split: str) -> dict[str, Any]:
        """A row of results, from the file if it is there."""
        key = {"log": self.name, "case": case, "split": split, **spreads}
        known = next((row for row in self.rows if all(row.get(name) == value for name, value in key.items())), None)
        if known is not None:
            return known
        method, seconds = self.fit(case, spreads)
        found = predict_clicks(method, self.logs[split])
        summary = {name: [entry.value, entry.low, entry.high] for name, entry in found.summary().items()}
        row = {**key, "seconds": seconds, "passes": method.fitted.passes, **summary}
        with self.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.rows.append(row)
        return row

    def choose(self) -> dict[str, float]:
        """Spreads by the validation likelihood of `pbm`, one after the other."""
        best = dict(START)
        for name, values in GRID.items():
            tried = [{**best, name: value} for value in (best[name], *values)]
            best = max(tried, key=lambda spreads: self.measure("pbm", spreads, "valid")[LIKELIHOOD][0])
        return best

    def predictions(self, case: str, spreads: dict[str, float]) -> ClickPrediction:
        return predict_clicks(self.fit(case, spreads)[0], self.logs["test"])


LIKELIHOOD = "log-likelihood per impression"


def show(bench: Bench, number: int, spreads: dict[str, float], split: str) -> None:
    print(f"\n{bench.name}, {split}; {', '.join(f'{name}={value:g}' for name, value in spreads.items())}")
    print(f"{'model':27}{'LL/impr.':>10}{'CLAX':>9}{'gain':>9}{'perpl.':>9}{'cond.':>9}{'calibr.':>9}{'CPU s':>7}")
    for case in CASES:
        row = bench.measure(case, spreads, split)
        other = CLAX[case][number] if case in CLAX else None
        value = row[LIKELIHOOD][0]
        gain = f"{'–':>9}{'–':>9}" if other is None or split != "test" else f"{other:9.4f}{value - other:+9.4f}"
        tail = f"{row['perplexity'][0]:9.4f}{row['conditional perplexity'][0]:9.4f}"
        print(f"{case:27}{value:10.5f}{gain}{tail}{row['predicted / observed clicks'][0]:9.3f}{row['seconds']:7.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--logs", nargs="+", default=list(LOGS))
    parser.add_argument("--test", action="store_true", help="look at the test pages")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.logs:
        bench = Bench(name, arguments.out / f"{name}.jsonl")
        spreads = bench.choose()
        show(bench, LOGS.index(name), spreads, "valid")
        if arguments.test:
            show(bench, LOGS.index(name), spreads, "test")
            best = max(CASES, key=lambda case: bench.measure(case, spreads, "valid")[LIKELIHOOD][0])
            low, value, high = _against_clax(bench, best, spreads, LOGS.index(name))
            print(
                f"{best}, best on validation; on test less the best of CLAX: {value:+.4f} ({low:+.4f} to {high:+.4f})"
            )
            gain = paired_difference(bench.predictions(best, spreads), bench.predictions("pbm", spreads))
            print(f"log-likelihood per page, {best} less pbm: {gain.value:+.4f} ({gain.low:+.4f} to {gain.high:+.4f})")


def _against_clax(bench: Bench, case: str, spreads: dict[str, float], number: int) -> tuple[float, float, float]:
    """Per impression; the interval is ours alone: CLAX's likelihoods of single sessions are not known here."""
    best = max(value for values in CLAX.values() if (value := values[number]) is not None)
    value, low, high = bench.measure(case, spreads, "test")[LIKELIHOOD]
    return low - best, value - best, high - best


if __name__ == "__main__":
    main()
