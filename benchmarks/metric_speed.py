"""How fast nDCG@10 of 100,000 queries of 25 documents is, against one query at a time.

The loops are measured on a subsample and scaled to all queries: they cost the same for every query, and scikit-learn
alone would take minutes. All sides are repeated in turn, and the ratio is of medians.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from sklearn.metrics import ndcg_score

from timing import Row, in_turn
from unskew.data.judged.metrics import measure, metric

N_QUERIES, N_DOCS, CUTOFF = 100_000, 25, 10
N_NUMPY, N_SKLEARN = 5_000, 200  # queries that the loops are measured on
REPEATS = 5
DISCOUNTS = 1 / np.log2(np.arange(2, CUTOFF + 2))
OTHERS = ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "err@10", "arp", "mrr", "ap")


def numpy_ndcg(scores: np.ndarray, grades: np.ndarray) -> float:
    """One query, as one would write it in numpy; ties fall as they fall."""
    gains = 2.0**grades - 1
    ideal = np.sort(gains)[::-1][:CUTOFF] @ DISCOUNTS
    return gains[np.argsort(-scores)[:CUTOFF]] @ DISCOUNTS / ideal if ideal > 0 else 0.0


def run() -> list[Row]:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(N_QUERIES, N_DOCS)).astype(np.float32)
    grades = rng.choice(5, p=[0.52, 0.32, 0.11, 0.035, 0.015], size=scores.shape).astype(np.float32)
    tensors = torch.from_numpy(scores), torch.from_numpy(grades), torch.ones(scores.shape, dtype=torch.bool)
    ndcg = metric(f"ndcg@{CUTOFF}")

    loop = [numpy_ndcg(*pair) for pair in zip(scores[:N_NUMPY], grades[:N_NUMPY], strict=True)]
    np.testing.assert_allclose(ndcg(*tensors)[:N_NUMPY].numpy(), loop, rtol=1e-6)

    gains = 2.0 ** grades[:N_SKLEARN] - 1
    sides: dict[str, Callable[[], object]] = {
        "ours": lambda: ndcg(*tensors),
        "all": lambda: measure(OTHERS, *tensors),
        "tied": lambda: ndcg(torch.zeros_like(tensors[0]), *tensors[1:]),
        "numpy": lambda: [numpy_ndcg(*pair) for pair in zip(scores[:N_NUMPY], grades[:N_NUMPY], strict=True)],
        "sklearn": lambda: [ndcg_score(gains[i : i + 1], scores[i : i + 1], k=CUTOFF) for i in range(N_SKLEARN)],
    }
    took = {name: median(times) for name, times in in_turn(sides, REPEATS).items()}
    took["numpy"] *= N_QUERIES / N_NUMPY
    took["sklearn"] *= N_QUERIES / N_SKLEARN

    what = f"ndcg@{CUTOFF} of {N_QUERIES:,} x {N_DOCS}"
    return [
        (f"{what}: numpy loop / ours", f"{took['numpy'] / took['ours']:.1f} x", "at least 10 x"),
        (f"{what}: scikit-learn loop / ours", f"{took['sklearn'] / took['ours']:.0f} x", "at least 300 x"),
        (f"{what}: queries a second", f"{N_QUERIES / took['ours']:,.0f}", ""),
        (f"{what}: every score tied / none tied", f"{took['tied'] / took['ours']:.1f} x", ""),
        (f"{len(OTHERS)} metrics from one sort / ndcg@{CUTOFF} alone", f"{took['all'] / took['ours']:.1f} x", ""),
    ]
