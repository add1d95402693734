"""What the base vector costs: ranking 256 lists by vectorization against a scalar ranker of the same size.

Sizes are those of the paper's Table 3: 700 features, about 24 documents per list, hidden layers of 512, 256, 128, five
dimensions. All sides are repeated in turn, and the ratio is the median of the ratios of each turn. The products of the
paper's base network alone are 1.37 times those of the ranker.
"""

from __future__ import annotations

from functools import partial
from statistics import median

import torch

from timing import Row, in_turn, median_ratio
from unskew.methods.bias.vectorization import Vectorization
from unskew.networks.registry import Network, Problem

N_LISTS, N_DOCS, N_FEATURES, DIMENSIONS = 256, 24, 700, 5
REPEATS = 61
TARGETS = {"network": "at most 1.4 x", "head": "at most 1.05 x", "mean": ""}


def run() -> list[Row]:
    torch.manual_seed(0)
    problem = Problem(N_FEATURES, n_positions=10, network=Network(hidden=(512, 256, 128)))
    rankers = {base: Vectorization(problem, dimensions=DIMENSIONS, base=base).ranker().eval() for base in TARGETS}
    rankers["scalar"] = problem.new_ranker().eval()
    features = torch.randn(N_LISTS, N_DOCS, N_FEATURES)
    mask = torch.ones(N_LISTS, N_DOCS, dtype=torch.bool)
    with torch.inference_mode():
        seconds = in_turn({name: partial(ranker, features, mask) for name, ranker in rankers.items()}, REPEATS)
    rows = [
        (
            f"ranking {N_LISTS} lists: vectorization with base '{base}' / scalar ranker",
            f"{median_ratio(seconds, base, 'scalar'):.2f} x",
            target,
        )
        for base, target in TARGETS.items()
    ]
    return [*rows, (f"ranking {N_LISTS} lists: scalar ranker", f"{1000 * median(seconds['scalar']):.0f} ms", "")]
