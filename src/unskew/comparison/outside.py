"""Rankers of other programs as rows of a comparison: LightGBM, the usual choice, and the scores of any ranker.

LightGBM's `lambdarank` learns click rates of shown lists, as 32 grades with linear gains; `lightgbm_position` also gets
the positions, with which LightGBM corrects for position bias. Scores come from a parquet file with one row per
document: `query`, `document`, `score`. All are measured as our methods are, on the same held-out queries or judged
documents.
"""

from __future__ import annotations

import hashlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from unskew.comparison.held_out import own_case
from unskew.comparison.rows import Outcome
from unskew.comparison.sources import Definition, judged_split, own_log
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.feedback import feedback_of
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.criteria import Contender, measure_all
from unskew.evaluation.evaluate import Scorer, evaluate
from unskew.evaluation.held_out import HeldOut
from unskew.networks.trees import TreesRanker, from_lightgbm
from unskew.training.boosting import need_trees

GRADES = 32
TREES = 150
PATIENCE = 30  # trees without an improvement in validation
LIGHTGBM = {"lightgbm": False, "lightgbm_position": True}  # label -> whether it gets the positions
TOO_OPTIMISTIC = (
    "{}: this ranker may have been trained on the clicks that it is compared on. If so, its values are too optimistic; "
    "compare on a log recorded after its training"
)


def lightgbm_rows() -> tuple[str, ...]:
    """Labels of LightGBM's rows, none if it is not installed."""
    return tuple(LIGHTGBM) if importlib.util.find_spec("lightgbm") is not None else ()


def train_lightgbm(log: ClickLog, *, position: bool, seed: int = 0, validate: JudgedSet | None = None) -> Scorer:
    """LightGBM's `lambdarank` on the click rates of a log.

    Args:
        validate: judged queries that choose the number of trees; None: all trees are kept.
    """
    need_trees("lightgbm")
    import lightgbm

    shown = HeldOut(log).log  # its features include the context
    rates = (shown.clicks / shown.sessions[:, None])[shown.mask]
    top = max(float(rates.max(initial=0.0)), 1e-9) if shown.graded else 1.0
    grades = np.minimum(np.floor(rates / top * GRADES), GRADES - 1).astype(np.int64)
    rows = lightgbm.Dataset(
        shown.features[shown.versions[shown.mask]],
        grades,
        group=shown.mask.sum(axis=1),
        weight=np.repeat(shown.sessions / shown.sessions.mean(), shown.mask.sum(axis=1)),
        position=shown.positions[shown.mask].astype(np.int64) if position else None,
        params={"verbose": -1},
    )
    options = {
        "objective": "lambdarank",
        "label_gain": list(range(GRADES)),
        "num_threads": torch.get_num_threads(),
        "deterministic": True,
        "force_col_wise": True,
        "seed": seed,
        "verbose": -1,
    }
    if validate is None:
        return TreesRanker(from_lightgbm(lightgbm.train(options, rows, TREES).model_to_string())).eval()
    grades = np.minimum(np.floor(validate.grades), GRADES - 1).astype(np.int64)
    judged = lightgbm.Dataset(validate.features, grades, group=validate.sizes, reference=rows, params={"verbose": -1})
    options |= {"metric": "ndcg", "eval_at": [10]}
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    booster = lightgbm.train(options, rows, TREES, valid_sets=[judged], callbacks=[stop])
    return TreesRanker(from_lightgbm(booster.model_to_string(num_iteration=booster.best_iteration))).eval()


def measure_lightgbm(definition: Definition) -> Outcome:
    """Train LightGBM and measure it as our methods are."""
    position = bool(definition["position"])
    if definition.get("test") is not None:
        log = _with_feedback(own_log(definition["log"]["path"]), definition)
        return _by_labels(definition, train_lightgbm(log, position=position))
    case = own_case(definition)
    learning, held_out = _with_feedback(case.learning, definition), case.evidence.held_out
    ranker = train_lightgbm(learning, position=position)
    contender = Contender(held_out.score(ranker), held_out.score(ranker, "all"))
    values, reasons = measure_all(contender, case.evidence)
    return Outcome(values, held_out.query_ids, {"reasons": reasons, **case.about})


def _with_feedback(log: ClickLog, definition: Definition) -> ClickLog:
    """The log with the feedback that our methods learn from."""
    return feedback_of(log, definition.get("grade"), add_up=definition.get("sum_grades", False)).of(log)


def measure_scores(definition: Definition) -> Outcome:
    """Measure the scores of another program's ranker."""
    path = Path(definition["scores"]["path"])
    known = read_scores(path)
    if definition.get("test") is not None:
        judged = judged_split(definition, "test")
        queries = np.repeat(judged.query_ids, judged.sizes)
        return _by_labels(definition, looked_up(known, queries, judged.document_ids, path))
    case = own_case(definition)
    values, reasons = measure_all(_foreign(known, case.evidence.held_out, path), case.evidence)
    return Outcome(values, case.evidence.held_out.query_ids, {"reasons": reasons, **case.about})


def _foreign(known: Mapping[tuple[str, str], float], held_out: HeldOut, path: Path) -> Contender:
    """The scores of shown documents, and of all candidates if the file has them."""
    queries, ids = document_keys(held_out.log)
    scores = np.full(len(ids), np.nan)
    documents, _ = held_out.candidates("shown")
    scores[documents] = looked_up(known, queries[documents], ids[documents], path)
    every, _ = held_out.candidates("all")
    of_all = scores.copy()
    of_all[every] = [known.get((str(q), str(d)), np.nan) for q, d in zip(queries[every], ids[every], strict=True)]
    return Contender(scores, of_all if np.isfinite(of_all[every]).all() else None)


def _by_labels(definition: Definition, ranker: Scorer | NDArray) -> Outcome:
    judged, metrics = judged_split(definition, "test"), definition["metrics"]
    result = evaluate(ranker, judged, metrics, undefined=definition["undefined"], max_grade=definition["max_grade"])
    return Outcome({name: result.values(name) for name in metrics}, result.query_ids, {})


def read_scores(path: str | Path) -> dict[tuple[str, str], float]:
    """Scores by query and document."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(
            f"{path} cannot be read as parquet ({error}): write a parquet file with query, document and score"
        ) from error
    for name in ("query", "document", "score"):
        if name not in table.column_names:
            raise ValueError(f"{path}: no column '{name}'. Found: {', '.join(table.column_names)}")
    keys = zip(table["query"].to_pylist(), table["document"].to_pylist(), strict=True)
    try:
        scores = table["score"].cast(pa.float64()).to_pylist()
    except pa.ArrowException as error:
        raise ValueError(f"{path}: column 'score' holds {table['score'].type}, but must hold numbers") from error
    found = {(str(query), str(document)): score for (query, document), score in zip(keys, scores, strict=True)}
    if len(found) < len(scores):
        raise ValueError(
            f"{path}: {len(scores) - len(found)} documents have several scores: write one per query and document"
        )
    return found


def looked_up(known: Mapping[tuple[str, str], float], queries: NDArray, documents: NDArray, path: Path) -> NDArray:
    """The score of each document; an error if one has none."""
    keys = [(str(query), str(document)) for query, document in zip(queries.tolist(), documents.tolist(), strict=True)]
    scores = np.array([known.get(key, np.nan) for key in keys], dtype=np.float64)
    lacking = np.flatnonzero(~np.isfinite(scores))
    if len(lacking):
        query, document = keys[lacking[0]]
        raise ValueError(
            f"{path}: {len(lacking):,} of {len(keys):,} documents in the comparison have no finite score, the first is "
            f"document '{document}' of query '{query}': score every candidate of the log"
        )
    return scores


def document_keys(log: ClickLog) -> tuple[NDArray, NDArray]:
    """Query id and document id of each row of the features."""
    return log.query_ids[log.version_queries], log.document_ids[log.version_documents]


def scores_definition(name: str, path: str | Path) -> dict[str, object]:
    """The definition of a run from a file of scores, with a warning about its unknown training data."""
    place = Path(path)
    if not place.is_file():
        raise FileNotFoundError(f"{place} does not exist: pass --scores NAME=FILE.parquet")
    read_scores(place)
    warnings.warn(TOO_OPTIMISTIC.format(name), UserWarning, stacklevel=3)
    with place.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()[:24]
    return {"scores": {"path": str(place.resolve()), "digest": digest}}


OUTSIDE_TASKS: dict[str, Callable[[Definition], Outcome]] = {"lightgbm": measure_lightgbm, "scores": measure_scores}
