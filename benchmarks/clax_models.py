"""CLAX's click models on one log, run in an environment of its own (`pip install clax-models==0.1.1 jax==0.7.2`).

    CLAX/bin/python benchmarks/clax_models.py PAGES.npz OUT.json --model ubm --rates 0.003 0.01 0.03

PAGES has `documents` (pages x 10, numbers from 1), `clicks` (pages x 10) and `split` (0 train, 1 valid, 2 test).
AdamW, batches of 128, the best epoch by validation with patience 3, restored from outside, since CLAX's own restoring
keeps the last one. OUT has the log-likelihood of every test page and the CPU seconds of training, compilation
included, of the learning rate that is best on validation. `click_models.py` calls this; nothing of unskew is needed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from clax.models.ccm import ClickChainModel
from clax.models.dbn import DynamicBayesianNetwork
from clax.models.pbm import PositionBasedModel
from clax.models.ubm import UserBrowsingModel
from clax.trainer import Trainer
from flax import nnx

MODELS = {
    "pbm": PositionBasedModel,
    "ubm": UserBrowsingModel,
    "dbn": DynamicBayesianNetwork,
    "ccm": ClickChainModel,
}
BY_POSITION = ("pbm", "ubm")
BATCH, PATIENCE, MOST_EPOCHS = 128, 3, 50


def batches(pages: Any, rows: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    """Pages in this order; the last batch may be smaller."""
    for start in range(0, len(rows), BATCH):
        chosen = rows[start : start + BATCH]
        shape = (len(chosen), pages["documents"].shape[1])
        yield {
            "positions": np.broadcast_to(np.arange(1, shape[1] + 1), shape),
            "query_doc_ids": pages["documents"][chosen],
            "clicks": pages["clicks"][chosen].astype(np.float32),
            "mask": np.ones(shape, dtype=bool),
        }


@nnx.jit
def page_likelihoods(model: Any, batch: dict[str, Any]) -> Any:
    click = model.predict_conditional_clicks(batch)
    skip = jax.numpy.log(-jax.numpy.expm1(jax.numpy.minimum(click, -1e-7)))
    return jax.numpy.where(batch["clicks"] > 0, click, skip).sum(1)


def likelihoods(model: Any, pages: Any, rows: np.ndarray) -> np.ndarray:
    return np.concatenate([np.asarray(page_likelihoods(model, batch)) for batch in batches(pages, rows)])


def train(name: str, pages: Any, rate: float, decay: float, seed: int) -> dict[str, Any]:
    """One training; its likelihoods and CPU seconds up to the best epoch."""
    learning, validation, test = (np.flatnonzero(pages["split"] == number) for number in range(3))
    rng = np.random.default_rng(seed)
    n_pairs = int(pages["documents"].max()) + 1
    sizes = {"positions": pages["documents"].shape[1] + 1} if name in BY_POSITION else {}
    model = MODELS[name](**sizes, query_doc_pairs=n_pairs, rngs=nnx.Rngs(seed))
    trainer = Trainer(optax.adamw(rate, weight_decay=decay))
    optimizer = nnx.ModelAndOptimizer(model, trainer.optimizer)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))
    best: dict[str, Any] = {"valid": -np.inf}
    spent, unimproved = 0.0, 0
    for epoch in range(MOST_EPOCHS):
        model.train()
        started = time.process_time()
        for batch in batches(pages, rng.permutation(learning)):
            trainer._train_step(model, optimizer, metrics, batch)
        jax.block_until_ready(nnx.state(model))
        spent += time.process_time() - started  # validation is not counted
        model.eval()
        value = float(likelihoods(model, pages, validation).mean())
        unimproved = 0 if value > best["valid"] else unimproved + 1
        if value > best["valid"]:
            best = {"valid": value, "test": likelihoods(model, pages, test).tolist(), "seconds": spent, "epoch": epoch}
        if unimproved >= PATIENCE:
            break
    return {**best, "rate": rate, "decay": decay, "all_seconds": spent, "epochs": epoch + 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages")
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.003, 0.01, 0.03])
    parser.add_argument("--decays", type=float, nargs="+", default=[1e-4])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    pages = dict(np.load(arguments.pages))
    tried = [
        train(arguments.model, pages, rate, decay, arguments.seed)
        for rate in arguments.rates
        for decay in arguments.decays
    ]
    best = max(tried, key=lambda row: row["valid"])
    brief = [{key: value for key, value in row.items() if key != "test"} for row in tried]
    arguments.out.write_text(json.dumps({"model": arguments.model, **best, "tried": brief}))


if __name__ == "__main__":
    main()
