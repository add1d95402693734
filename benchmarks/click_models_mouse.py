"""Which click model's examination is closest to where mice were, on `sogou-mouse`.

    python benchmarks/run.py click_models_mouse

Models are fitted to the clicks of the training pages. The examination of a position is the mean over all pages with
mouse data; hover shares are those of the same pages. Both are taken relative to the top, since clicks leave the scale
open. Intervals of 95% are by resampling pages, the models as given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch.nn import functional as F

from click_models import page_lists
from timing import Row
from unskew.data.clicks.vocabulary import Vocabulary
from unskew.data.judged.catalogue import MissingDataError
from unskew.data.public_logs.id_pages import SPLITS, IdPages, read_pages
from unskew.methods import METHODS
from unskew.networks.registry import Problem

MODELS = ("pbm", "ubm", "dcm", "ccm", "dbn", "sdbn")  # cascade: its second clicks are of no model of examination
SPREADS = {"spread": 0.5, "url_spread": 0.5, "query_spread": 0.0}
AS_IN_PAPERS = {name: {**SPREADS, "depth_spread": 0.0} for name in ("pbm", "ubm")}  # one depth for all queries
N_RESAMPLES = 1000


def fitted(name: str, learning: IdPages) -> tuple[Any, Vocabulary]:
    """A click model of these pages."""
    log = learning.log()
    vocabulary = Vocabulary.of([log])
    method = METHODS[name](Problem(0, log.n_positions, {}, n_ids=vocabulary.sizes), **AS_IN_PAPERS.get(name, SPREADS))
    method.finish({"clicks": vocabulary.encode(log)})
    return method, vocabulary


def examination(method: Any, vocabulary: Vocabulary, pages: IdPages) -> NDArray[np.float64]:
    """Probability that each position of each page is examined, `[pages, positions]`."""
    lists = page_lists(pages, vocabulary)
    with torch.inference_mode():
        log_examined = method.marginal(lists).log_click - F.logsigmoid(method.attraction.of(lists))
    return log_examined.exp().clamp(max=1.0).double().numpy()


def run() -> list[Row]:
    torch.set_num_threads(1)
    try:
        pages = read_pages("sogou-mouse")
    except MissingDataError as error:
        return [("examination against mice", "not measured", str(error))]
    learning = pages.select(pages.split == SPLITS.index("train"))
    assert pages.hovered is not None
    moused = pages.select(np.isfinite(pages.hovered[:, 0]))
    assert moused.hovered is not None
    hovered = moused.hovered.astype(np.float64)
    mouse = relative(hovered)
    rng = np.random.default_rng(0)
    resamples = [rng.integers(0, len(hovered), len(hovered)) for _ in range(N_RESAMPLES)]
    rows = [("hovered, relative to the top", curve_text(mouse), "")]
    for name in MODELS:
        found = examination(*fitted(name, learning), moused)
        curve = relative(found)
        pairs = [(relative(hovered[row]), relative(found[row])) for row in resamples]
        error = interval(np.abs(mouse - curve)[1:].mean(), [np.abs(one - other)[1:].mean() for one, other in pairs])
        order = interval(spearmanr(mouse, curve).statistic, [spearmanr(*pair).statistic for pair in pairs])
        rows.append((f"{name}: mean error {error}, rank correlation {order}", curve_text(curve), ""))
    return rows


def relative(seen: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over pages, relative to the top."""
    mean = seen.mean(0)
    return mean / mean[0]


def interval(value: float, resampled: list[float]) -> str:
    low, high = np.quantile(resampled, [0.025, 0.975])
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def curve_text(curve: NDArray[np.float64]) -> str:
    return " ".join(f"{value:.2f}" for value in curve)
