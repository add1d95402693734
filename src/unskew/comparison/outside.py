"""Rankers that are not ours as rows: the logging policy, LightGBM, the usual choice, and the scores of any ranker.

LightGBM's `lambdarank` learns from the clicks of shown lists, counted, with linear gains; `lightgbm_position` also gets
the positions, by level of the bias columns (a device, a result type), with which it corrects for position bias.

The form of both was chosen by nDCG@10 on three worlds (`world:small`, seeds 901 to 903; `svm`, `position_based`, 128
sessions):

* click rates as 32 grades, 150 trees of 31 leaves, rate .1: plain .7858, with positions .7934;
* counts as grades: .7859, .7945;
* counts, rate .05, at least 100 documents in a leaf, trees chosen by the clicks of held-out queries: .7871, .7961 (the
  form used). Learning all queries again with as many trees gave .7949 with positions.

So the choice was made on the worlds that it is quoted for. Single sessions (on 901 only, 150 trees) gave .7984, .7983
for .7964, .7999 of counts, at ten times the cost. `two_tower+trees` has the same features and clicks without our
network; its objective and number of trees differ, so its lead is not due to debiasing alone.

Scores come from a parquet file with one row per document: `query`, `document`, `score`. All are
measured as our methods are, on the same held-out queries or judged documents.
"""

from __future__ import annotations

import hashlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from unskew.comparison.held_out import own_case
from unskew.comparison.rows import Outcome
from unskew.comparison.sources import Definition, judged_split, own_log, policy_of, simulation_of
from unskew.comparison.tasks import Task, evaluate_run
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.feedback import feedback_of
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.criteria import Contender, measure_all
from unskew.evaluation.evaluate import Scorer, evaluate_scorer
from unskew.evaluation.held_out import HeldOut
from unskew.networks.trees import TreesRanker, from_lightgbm
from unskew.training.boosting import need_trees

GRADES = 1_000  # clicks of a document are scaled to at most as many
MOST_TREES = 1_500
PATIENCE = 30  # trees without an improvement in validation
HELD_OUT = 0.2  # share of the queries whose clicks choose the number of trees
LIGHTGBM = {"lightgbm": False, "lightgbm_position": True}  # label -> whether it gets the positions
TOO_OPTIMISTIC = (
    "{}: this ranker may have been trained on the clicks that it is compared on. If so, its values are too optimistic; "
    "compare on a log recorded after its training"
)


def lightgbm_rows(methods: Sequence[str]) -> tuple[str, ...]:
    """Labels of LightGBM's rows, none if it is not installed; trees with our debiasing are among them."""
    if importlib.util.find_spec("lightgbm") is None:
        return ()
    return (*(name for name in ("two_tower+trees",) if "two_tower" in methods), *LIGHTGBM)


def train_lightgbm(log: ClickLog, *, position: bool, seed: int = 0, validate: JudgedSet | None = None) -> Scorer:
    """LightGBM's `lambdarank` on the clicks of a log.

    Args:
        validate: judged queries that choose the number of trees; None: the clicks of a share of the queries do.
    """
    need_trees("lightgbm")
    import lightgbm

    described = HeldOut(log)
    shown = described.log  # its features include the context
    if validate is None:
        learning, held_out = shown.split(HELD_OUT, seed) if described.n_queries > 1 else (shown, shown)
        rows = _dataset(learning, position=position)
        checked = _dataset(held_out, position=False, reference=rows)
    else:
        rows = _dataset(shown, position=position)
        grades = np.minimum(np.floor(validate.grades), GRADES).astype(np.int64)
        checked = lightgbm.Dataset(validate.features, grades, group=validate.sizes, reference=rows)
    options = {
        "objective": "lambdarank",
        "label_gain": list(range(GRADES + 1)),
        "learning_rate": 0.05,
        "min_data_in_leaf": int(np.clip(shown.mask.sum() // 300, 20, 100)),
        "metric": "ndcg",
        "eval_at": [10],
        "num_threads": torch.get_num_threads(),
        "deterministic": True,
        "force_col_wise": True,
        "seed": seed,
        "verbose": -1,
    }
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    booster = lightgbm.train(options, rows, MOST_TREES, valid_sets=[checked], callbacks=[stop])
    return TreesRanker(from_lightgbm(booster.model_to_string(num_iteration=booster.best_iteration))).eval()


def _dataset(log: ClickLog, *, position: bool, reference: Any = None) -> Any:
    """LightGBM's rows of the shown documents, list by list."""
    import lightgbm

    sizes = log.mask.sum(axis=1)
    return lightgbm.Dataset(
        log.features[log.versions[log.mask]],
        click_grades(log)[log.mask],
        group=sizes,
        weight=np.repeat(log.sessions / log.sessions.mean(), sizes),
        position=shown_places(log)[log.mask] if position else None,
        reference=reference,
        params={"verbose": -1},
    )


def click_grades(log: ClickLog) -> NDArray[np.int64]:
    """Clicks as whole grades, `[lists, docs]`: counts, or `GRADES` for the most in a list; above 0 if clicked."""
    most = log.clicks.max(axis=1, keepdims=True, initial=0)
    scale = np.where((most > GRADES) | log.graded, GRADES / np.maximum(most, 1e-9), 1.0)
    return np.minimum(np.ceil(log.clicks * scale), GRADES).astype(np.int64)


def shown_places(log: ClickLog) -> NDArray[np.int64]:
    """The number of each combination of position and levels of bias columns, `[lists, docs]`."""
    levels = [column.per_document(log.n_docs) for column in log.bias.values() if column.levels is not None]
    places = np.stack([log.positions, *levels], axis=-1).astype(np.int64)
    _, numbers = np.unique(places.reshape(-1, places.shape[-1]), axis=0, return_inverse=True)
    return numbers.reshape(log.mask.shape)


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
    how = {name: definition[name] for name in ("undefined", "max_grade")}
    result = evaluate_scorer(ranker, judged, metrics, **how)
    return Outcome({name: result.values(name) for name in metrics}, result.query_ids, {})


def read_scores(path: str | Path) -> dict[tuple[str, str], float]:
    """Scores by query and document."""
    try:
        table = pq.read_table(path)
        table.validate(full=True)
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
    by_document = {(str(query), str(document)): score for (query, document), score in zip(keys, scores, strict=True)}
    if len(by_document) < len(scores):
        raise ValueError(
            f"{path}: {len(scores) - len(by_document)} documents have several scores: write one per query and document"
        )
    return by_document


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


def measure_logger(definition: Definition) -> Outcome:
    """The ranking on which the clicks were collected; the first of several logging policies."""
    policy = policy_of(definition["data"], definition["simulation"]["policy"])

    def scores(judged: JudgedSet) -> np.ndarray:
        return policy.scores(judged).reshape(judged.n_documents, -1)[:, 0]

    return _outcome(definition, scores(judged_split(definition, "valid")), scores(judged_split(definition, "test")))


def measure_trees(definition: Definition) -> Outcome:
    """LightGBM, trained on the same clicks as our methods."""
    ranker = train_lightgbm(
        simulation_of(definition).log,
        position=LIGHTGBM[definition["row"]],
        seed=definition["simulation_seed"],
        validate=judged_split(definition, "valid"),
    )
    return _outcome(definition, ranker, ranker)


def _outcome(definition: Definition, on_valid: object, on_test: object) -> Outcome:
    main = definition["metric"]
    valid = evaluate_scorer(on_valid, judged_split(definition, "valid"), [main.partition(":")[0]])  # type: ignore[arg-type]
    result = evaluate_run(definition, on_test, judged_split(definition, "test"))
    per_query = {name: result.values(name) for name in definition["metrics"]}
    return Outcome(per_query, result.query_ids, {"validation": valid.mean(main.partition(":")[0])})


ROW_TASKS: dict[str, Task] = {"logger": measure_logger, "lightgbm": measure_trees, "lightgbm_position": measure_trees}
