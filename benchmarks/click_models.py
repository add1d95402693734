"""Click models on three public logs of real clicks, against what CLAX 0.1.1 reached on the same splits.

    python benchmarks/click_models.py --out runs/click_models      # goes on where it was cut off

Needs `trec-session-2014`, `naver-clara2` and `sogou-mouse` under UNSKEW_DATA. Every model chooses its spreads among the
same few sets, on the validation pages of the log. CLAX's figures are those of AdamW with the best of a small grid on
validation. Where UNSKEW_CLAX is the Python of an environment with CLAX (see `clax_models.py`), its best model is
trained here too and compared page by page, and `run` has its CPU seconds, measured beside ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from timing import Row
from unskew.data.clicks.vocabulary import Vocabulary
from unskew.data.judged.catalogue import MissingDataError
from unskew.data.public_logs.id_pages import SPLITS, IdPages, read_pages
from unskew.evaluation.click_prediction import Z, predict_clicks
from unskew.lists import ClickedLists
from unskew.methods import METHODS
from unskew.methods.click_models.click_model import MOST_PASSES, ClickModel
from unskew.networks.registry import Problem

N_POSITIONS = 10
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
CLAX_BEST = "ubm"  # on all three logs
PAIRED = (("ubm", "ubm"), ("pbm", "pbm"), ("dbn", "dbn"))  # compared page by page
CLAX_DECAYS = {"sogou-mouse": ("1e-4", "0.1")}  # weight decays tried; elsewhere 1e-4
CLAX_SECONDS = {"pbm": 12, "ubm": 13, "dbn": 23}  # of CPU, on naver-clara2
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in CLAX},
    "dbn, patience by position": ("dbn", {"by_position": True}),
    "pbm, one depth": ("pbm", {"depth_spread": 0.0}),
    "ubm, one depth": ("ubm", {"depth_spread": 0.0}),
    "ubm, two user types": ("ubm", {"user_types": 2}),
}
SPREADS = [  # the first are the defaults of the methods
    dict(zip(("spread", "url_spread", "query_spread"), values, strict=True))
    for values in ((1.0, 0.5, 0.5), (0.25, 0.5, 0.3), (0.25, 1.0, 0.0), (0.5, 0.25, 0.25), (1.5, 1.0, 0.5))
]
UNSPREAD = ("gctr", "rctr")
LIKELIHOOD, CALIBRATION = "log-likelihood per impression", "predicted / observed clicks"
PASSES = (10, 15, 20, 30, 40, 60, 80, 150)


class Bench:
    """One log: its splits, and fits that are written down as they end."""

    def __init__(self, name: str, out: Path):
        self.pages = pages = read_pages(name)
        logs = [pages.select(pages.split == number).log() for number in range(len(SPLITS))]
        self.name, self.out = name, out
        self.vocabulary = Vocabulary.of(logs[:1])
        self.logs = dict(zip(SPLITS, (self.vocabulary.encode(log) for log in logs), strict=True))
        self.rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []

    def fit(self, case: str, spreads: dict[str, float], most_passes: int = MOST_PASSES) -> tuple[ClickModel, float]:
        name, options = CASES[case]
        own = {} if name in UNSPREAD else spreads
        method = METHODS[name](Problem(0, 10, {}, n_ids=self.vocabulary.sizes), **own, **options)
        assert isinstance(method, ClickModel)
        method.most_passes = most_passes
        started = time.process_time()
        method.finish({"clicks": self.logs["train"]})
        method.eval()
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

    def choose(self, case: str) -> dict[str, float]:
        """Spreads of a model by its likelihood on validation."""
        tried = SPREADS[:1] if case in UNSPREAD else SPREADS
        return max(tried, key=lambda spreads: self.measure(case, spreads, "valid", "test")[0][LIKELIHOOD][0])

    def page_likelihoods(self, method: Any) -> NDArray[np.float64]:
        """Log-likelihood of every test page, in their order."""
        pages = self.pages.select(self.pages.split == SPLITS.index("test"))
        lists = page_lists(pages, self.vocabulary)
        with torch.inference_mode():
            chances = method.conditional(lists)
            return chances.log_likelihood(lists.clicks, lists.sessions, lists.mask).sum(1).double().numpy()

    def clax(self, model: str) -> dict[str, Any] | None:
        """CLAX's training of a model on this log, from a file beside the rows if there is one; None: no CLAX here."""
        python, out = os.environ.get("UNSKEW_CLAX"), self.out.with_name(f"{self.name}-clax-{model}.json")
        if python is None and not out.exists():
            return None
        if not out.exists():
            numbers = Vocabulary.of([self.pages.log()]).numbers(
                np.repeat(self.pages.query_ids, N_POSITIONS), self.pages.document_ids.reshape(-1)
            )
            documents = numbers[:, 0].reshape(self.pages.document_ids.shape)
            source = self.out.with_name(f"{self.name}.npz")
            np.savez(source, documents=documents, clicks=self.pages.clicks, split=self.pages.split)
            script = Path(__file__).with_name("clax_models.py")
            decays = CLAX_DECAYS.get(self.name, ("1e-4",))
            command = [python, script, source, out, "--model", model, "--decays", *decays]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    def seconds_to(self, case: str, target: float) -> float:
        """CPU seconds of the shortest fit whose test likelihood per page reaches a target; infinite if none does."""
        for passes in PASSES:
            method, seconds = self.fit(case, SPREADS[0], passes)
            if self.page_likelihoods(method).mean() >= target:
                return seconds
        return float("inf")


def page_lists(pages: IdPages, vocabulary: Vocabulary) -> ClickedLists:
    """Every page as a list of one session."""
    n_pages, n_positions = pages.document_ids.shape
    queries = np.repeat(pages.query_ids, n_positions)
    numbers = vocabulary.numbers(queries, pages.document_ids.reshape(-1)).reshape(n_pages, n_positions, 3)
    return ClickedLists(
        features=torch.zeros(n_pages, n_positions, 0),
        mask=torch.ones(n_pages, n_positions, dtype=torch.bool),
        codes=torch.from_numpy(numbers),
        positions=torch.arange(n_positions).expand(n_pages, -1),
        clicks=torch.from_numpy(pages.clicks),
        sessions=torch.ones(n_pages),
    )


def show(bench: Bench, number: int) -> None:
    """The table of one log: all models on test, and the one that is best on validation against CLAX's best."""
    print(f"\n{bench.name}, test; log-likelihood per impression", flush=True)
    columns = ("valid", "test", "CLAX", "gain", "perpl.", "cond.", "calibr.", "CPU s")
    print(f"{'model':27}" + "".join(f"{title:>10}" for title in columns))
    values = {}
    for case in CASES:
        spreads = bench.choose(case)
        valid, test = bench.measure(case, spreads, "valid", "test")
        values[case] = valid[LIKELIHOOD][0]
        other, value = CLAX[case][number] if case in CLAX else None, test[LIKELIHOOD][0]
        against = f"{'–':>10}{'–':>10}" if other is None else f"{other:10.4f}{value - other:+10.4f}"
        tail = "".join(f"{test[name][0]:10.4f}" for name in ("perplexity", "conditional perplexity", CALIBRATION))
        chosen = "/".join(f"{spread:g}" for spread in spreads.values())
        print(f"{case:27}{values[case]:10.5f}{value:10.5f}{against}{tail}{test['seconds']:10.1f}  {chosen}", flush=True)
    best = max(values, key=lambda case: values[case])
    print(f"best on validation: {best}")
    for ours, theirs in ((best, CLAX_BEST), *PAIRED):
        pair(bench, ours, theirs)


def pair(bench: Bench, ours: str, theirs: str) -> None:
    """A model of ours less one of CLAX's, per impression, over the same test pages."""
    found = bench.clax(theirs)
    if found is None:
        return
    method, _ = bench.fit(ours, bench.choose(ours))
    differences = (bench.page_likelihoods(method) - np.array(found["test"])) / N_POSITIONS
    error = Z * differences.std(ddof=1) / np.sqrt(len(differences))
    mean = differences.mean()
    print(f"{ours} less CLAX's {theirs}: {mean:+.5f} ({mean - error:+.5f} to {mean + error:+.5f})", flush=True)


def run() -> list[Row]:
    """CPU time on the largest log to the test likelihood of CLAX, against a third of CLAX's."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            bench = Bench("naver-clara2", Path(folder, "rows.jsonl"))
        except MissingDataError as error:
            return [("click models on naver-clara2", "not measured", str(error))]
        return _seconds_to_clax(bench)


def _seconds_to_clax(bench: Bench) -> list[Row]:
    rows = []
    for case, seconds_of_clax in CLAX_SECONDS.items():
        found = bench.clax(case)
        target = 10 * (CLAX[case][0] or 0.0) if found is None else float(np.mean(found["test"]))
        theirs, where = (seconds_of_clax, "earlier") if found is None else (found["seconds"], "in this run")
        ours = bench.seconds_to(case, target)
        what = f"{case}, CPU s to CLAX's test likelihood {target / N_POSITIONS:.4f}; CLAX {theirs:.1f} ({where})"
        rows.append((what, f"{ours:.1f}", f"≤ {theirs / 3:.1f}"))
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
        show(bench, LOGS.index(name))


if __name__ == "__main__":
    main()
