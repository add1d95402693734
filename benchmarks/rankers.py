"""The default ranker against a linear one and LightGBM's lambdarank, all taught by labels, over five folds or seeds.

LightGBM gets the best of a small grid, ours the best state, both by nDCG@10 on the validation part. Resumable: finished
runs are kept in UNSKEW_BENCH (default: a folder of its own, thrown away). Intervals are t intervals over five folds or
worlds. Folds share training data, so theirs are those of the corrected resampled t-test. The bar: on average at least
LightGBM, on no set an interval below 0 against the better one. Sets that are not in `UNSKEW_DATA` are left out and
named; `mslr-sample`, with 86 queries, is shown but not averaged.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import lightgbm
import numpy as np
from numpy.typing import NDArray

import unskew
from intervals import mean_text
from timing import Row, kept_folder
from unskew.data.judged.catalogue import data_folder
from unskew.data.judged.catalogue_entries import reciprocal_ranks
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.letor import read_letor

Splits = tuple[JudgedSet, JudgedSet, JudgedSet]
NAMES = ("mq2008", "mq2007-agg", "clueweb09", "world:small", "mslr-sample")  # of SETS
FOLDS = range(1, 6)
OTHERS = ("linear", "LightGBM")
EXTRA = "mslr-sample"  # too small to count
GRID = {"num_leaves": (7, 31), "learning_rate": (0.05, 0.1), "min_data_in_leaf": (20, 100)}
ROUNDS, PATIENCE = 300, 40
TRAINING: dict[str, object] = {}  # other settings of ours: the defaults


def run() -> list[Row]:
    with kept_folder() as folder:
        return _rows(folder / "rankers.jsonl")


def _rows(kept: Path) -> list[Row]:
    done = {tuple(row["run"]): row["values"] for row in _read(kept)}
    rows: list[Row] = []
    means = {}
    for name in NAMES:
        try:
            values = {ranker: _values(name, ranker, done, kept) for ranker in RANKERS}
        except FileNotFoundError as error:
            rows.append((name, f"left out: {error}", ""))
            continue
        means[name] = [np.mean(np.concatenate(values[ranker])) for ranker in RANKERS]
        rows.append((f"{name}, nDCG@10", _listed(means[name]), ""))
        best = max(OTHERS, key=lambda ranker: np.mean(np.concatenate(values[ranker])))
        for other in OTHERS:
            target = "interval not below 0" if other == best and name != EXTRA else ""
            rows.append((f"{name}, tabular less {other}", _difference(name, values["tabular"], values[other]), target))
    averaged = [values for name, values in means.items() if name != EXTRA]
    if averaged:
        rows.append((f"mean over {len(averaged)} sets", _listed(np.mean(averaged, axis=0)), "tabular >= LightGBM"))
    return rows


def _values(name: str, ranker: str, done: dict, kept: Path) -> list[list[float]]:
    """nDCG@10 of every test query of each fold; queries without a relevant document are left out."""
    found = []
    for fold in FOLDS:
        key = (name, ranker, fold)
        if key not in done:
            train, valid, test = SETS[name](fold)
            result = unskew.evaluate(RANKERS[ranker](train, valid, test, fold), test, ["ndcg@10"])
            values = result.per_query["ndcg@10"]
            done[key] = values[~np.isnan(values)].tolist()
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"run": key, "values": done[key]}) + "\n")
        found.append(done[key])
    return found


def _network(kind: str) -> Callable[[JudgedSet, JudgedSet, JudgedSet, int], object]:
    def train(train: JudgedSet, valid: JudgedSet, _: JudgedSet, fold: int) -> object:
        recipe = unskew.Recipe.of("labelled", network=kind, seed=fold, validate_every=20, patience=20, **TRAINING)
        return unskew.fit(recipe, judged=train, validate=valid).ranker()

    return train


def _trees(train: JudgedSet, valid: JudgedSet, test: JudgedSet, _: int) -> NDArray[np.float64]:
    best: tuple[float, NDArray[np.float64]] | None = None
    for point in itertools.product(*GRID.values()):
        settings = {"objective": "lambdarank", "metric": "ndcg", "eval_at": [10], "verbose": -1, "seed": 0}
        data = lightgbm.Dataset(train.features, train.grades.astype(int), group=train.sizes, params={"verbose": -1})
        checked = lightgbm.Dataset(valid.features, valid.grades.astype(int), group=valid.sizes, reference=data)
        stopping = lightgbm.early_stopping(PATIENCE, verbose=False)
        booster = lightgbm.train(
            {**settings, **dict(zip(GRID, point, strict=True))},
            data,
            ROUNDS,
            valid_sets=[checked],
            callbacks=[stopping],
        )
        value = unskew.evaluate(booster.predict(valid.features), valid, ["ndcg@10"]).mean("ndcg@10")
        if best is None or value > best[0]:
            best = value, booster.predict(test.features)
    assert best is not None
    return best[1]


RANKERS: dict[str, Callable[[JudgedSet, JudgedSet, JudgedSet, int], object]] = {
    "tabular": _network("tabular"),
    "linear": _network("linear"),
    "LightGBM": _trees,
}


def _catalogue(name: str) -> Splits:
    data = unskew.load(name)
    return data.train, data.valid, data.test


def _parts(folder: str, file: str, fold: int, n_features: int) -> Splits:
    """Fold `i` of five trains on three parts from `i` on, validates on the next and tests on the last."""
    around = [data_folder() / folder / file.format((fold - 1 + part) % 5 + 1) for part in range(5)]
    train, valid, test = (read_letor(files, n_features=n_features) for files in (around[:3], around[3:4], around[4:]))
    return train, valid, test


def _ranks(fold: int) -> Splits:
    train, valid, test = (reciprocal_ranks(part) for part in _parts("mq2007-agg", "A{}.txt.gz", fold, 21))
    return train, valid, test


def _refolded(name: str, fold: int) -> Splits:
    """All queries of a small set, dealt out to five parts in turn; a fold tests on one, and validates on the next."""
    parts = _catalogue(name)
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([part.sizes for part in parts]))])
    features, grades = (np.concatenate([getattr(part, each) for part in parts]) for each in ("features", "grades"))
    whole = JudgedSet(features=features, grades=grades, offsets=offsets)
    place = (np.arange(whole.n_queries) - fold) % 5
    train, valid, test = (whole.select(np.flatnonzero(chosen)) for chosen in (place > 1, place == 1, place == 0))
    return train, valid, test


SETS: dict[str, Callable[[int], Splits]] = {
    "mq2008": lambda fold: _catalogue(f"mq2008/{fold}"),
    "mq2007-agg": _ranks,
    "clueweb09": lambda fold: _parts("clueweb09", "F{}.txt.gz", fold, 42),
    "world:small": lambda seed: _catalogue(f"world:small:{seed}"),
    "world:tiny": lambda seed: _catalogue(f"world:tiny:{seed}"),
    "mslr-sample": lambda fold: _refolded("mslr-sample", fold),
}


def _read(path: Path) -> Iterator[dict]:
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def _listed(means: Sequence[float]) -> str:
    return ", ".join(f"{ranker} {mean:.4f}" for ranker, mean in zip(RANKERS, means, strict=True))


def _difference(name: str, ours: list[list[float]], theirs: list[list[float]]) -> str:
    overlap = 0.0 if name.startswith("world") else 1 / 3  # of test and training parts
    differences = [np.mean(one) - np.mean(other) for one, other in zip(ours, theirs, strict=True)]
    return mean_text(differences, overlap=overlap)
