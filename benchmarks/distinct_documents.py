"""What running networks once per distinct document saves, and how close a step is to its bare matrix products.

The log shows every query in eight orders. "Each place" is the same batches with the features of every place, as if all
documents were different. Sides are measured in turn and in seconds of the processor, so that other programs disturb
little; ratios are of medians, with the quartiles of the ratios of single repeats.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from timing import Row, Seconds, in_turn, ratios
from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.lists import ClickedLists
from unskew.methods import METHODS
from unskew.networks.registry import Network, Problem
from unskew.training.settings import Settings
from unskew.training.train import train

BARS = {"naive": 0.25, "dla": 0.25, "two_tower": 0.25, "low_rank": 0.25, "vectorization": 0.25, "lbd": 0.4}
N_FEATURES, N_DOCS, BATCH = 136, 10, 256
HIDDEN = (512, 256, 128)
N_QUERIES, ORDERS = 256, 8
REPEATS = 5


class EachPlace(ClickBatches):
    """The same batches, in which no document is known to stand twice."""

    def rows(self, rows: np.ndarray, keys: Tensor | None = None) -> ClickedLists:
        lists = super().rows(rows, keys)
        return replace(lists, features=lists.features, distinct=None)


def run() -> list[Row]:
    torch.set_num_threads(1)
    log = log_in_orders(N_QUERIES, ORDERS)
    once, each = (kind(log, BATCH) for kind in (ClickBatches, EachPlace))
    rows = [_epoch(name, bar, once, each) for name, bar in BARS.items()]
    single = log_in_orders(N_QUERIES * ORDERS, 1)
    alone = ClickBatches(single, BATCH), EachPlace(single, BATCH)
    rows.append(_epoch("naive", 1.0, *alone, "a single order per query"))
    return [*rows, *_products(once)]


def log_in_orders(n_queries: int, n_orders: int, n_docs: int = N_DOCS, n_features: int = N_FEATURES) -> ClickLog:
    """Every query in so many orders of its documents."""
    rng = np.random.default_rng(0)
    shape = (n_queries * n_orders, n_docs)
    places = rng.random(shape).argsort(1)
    return ClickLog(
        features=rng.standard_normal((n_queries * n_docs, n_features), dtype=np.float32),
        versions=(n_docs * np.repeat(np.arange(n_queries), n_orders)[:, None] + places).astype(np.int32),
        mask=np.ones(shape, dtype=bool),
        clicks=(rng.random(shape) < 0.1).astype(np.float32),
        sessions=np.ones(len(places), dtype=np.float32),
    )


def _epoch(name: str, bar: float, once: ClickBatches, each: ClickBatches, what: str = "8 orders per query") -> Row:
    """An epoch of both kinds of batches with the stage that learns most."""

    def epoch(batches: ClickBatches) -> Callable[[], None]:
        method = METHODS[name](Problem(N_FEATURES, N_DOCS, network=Network(hidden=HIDDEN)))
        return stage_steps(method, batches, once.per_epoch)

    seconds = in_turn({"once": epoch(once), "each": epoch(each)}, REPEATS, 1, time.process_time)
    return (f"{name}, epoch of {what}: once per document / each place", ratio(seconds, "once", "each"), f"<= {bar}")


def stage_steps(method: nn.Module, batches: ClickBatches, steps: int) -> Callable[[], None]:
    """So many steps of the longest stage of a method, as the loop takes them."""
    stage = max(method.stages(), key=lambda stage: float("inf") if stage.steps is None else stage.steps)
    method.stages = lambda: [replace(stage, steps=None)]  # type: ignore[assignment, method-assign]
    settings = Settings(steps=steps, batch_size=BATCH, validate_every=steps, average=0.0)
    return lambda: train(method, {"clicks": batches}, settings) and None  # type: ignore[arg-type, dict-item, return-value]


def _products(batches: ClickBatches) -> list[Row]:
    """A step of `naive` against the matrix products of its layers alone, forward and backward."""
    lists = batches(0)
    assert lists.distinct is not None
    rows = lists.distinct.rows
    sizes = [N_FEATURES, *HIDDEN, 1]
    weights = [torch.randn(after, before) for before, after in pairwise(sizes)]
    inputs = [torch.randn(len(rows), size) for size in sizes]

    def products() -> None:
        for place, weight in enumerate(weights):
            torch.mm(inputs[place], weight.T)  # forward
            torch.mm(inputs[place + 1].T, inputs[place])  # gradient of the weights
            if place:
                torch.mm(inputs[place + 1], weight)  # gradient of the inputs

    def repeated(function: Callable[[], object]) -> Callable[[], None]:
        return lambda: [function() for _ in range(batches.per_epoch)] and None

    method = METHODS["naive"](Problem(N_FEATURES, N_DOCS, network=Network(hidden=HIDDEN)))
    sides = {"step": stage_steps(method, batches, batches.per_epoch), "products": repeated(products)}
    seconds = in_turn(sides, REPEATS, 1, time.process_time)
    each = statistics.median(seconds["products"]) / batches.per_epoch
    return [
        (f"bare matrix products of a step, {len(rows)} distinct documents", f"{1000 * each:.1f} ms", ""),
        ("naive, step / its bare matrix products", ratio(seconds, "step", "products"), ""),
    ]


def ratio(seconds: Seconds, one: str, other: str) -> str:
    """Ratio of medians, and the quartiles of single ratios."""
    low, _, high = statistics.quantiles(ratios(seconds, one, other), n=4)
    middle = statistics.median(seconds[one]) / statistics.median(seconds[other])
    return f"{middle:.2f} x ({low:.2f}–{high:.2f})"
