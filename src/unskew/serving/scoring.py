"""Rankers of every kind at work: what public functions take as a model or a ranker, `evaluate` and `rank`."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from numpy.typing import ArrayLike

from unskew.data.files import check_place
from unskew.data.inputs import Judged, LogOrPlace, Place, as_file, as_judged, as_log, is_log
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.metrics import Metric
from unskew.evaluation.evaluate import (
    METRICS_OF_PAPERS,
    Evaluation,
    Scorer,
    evaluate_scorer,
    seen_queries,
    shown_documents,
)
from unskew.evaluation.runs import evaluate_run, find_qrels, is_run
from unskew.reporting.terminal import Follow, counting_progress, followed
from unskew.serving.candidates import is_table
from unskew.serving.rankings import MEMORY, Ranking, check_ending, rank_judged, rank_table
from unskew.serving.saved_ranker import SavedRanker, UnknownCounts, as_model, as_ranker
from unskew.serving.spark_rank import rank_on_spark
from unskew.training.model import Model


def evaluate(
    ranker: Model | SavedRanker | Place | Scorer | ArrayLike,
    judged: Judged,
    metrics: Iterable[str | Metric] = METRICS_OF_PAPERS,
    *,
    undefined: str = "skip",
    max_grade: float | None = None,
    shown: LogOrPlace | ArrayLike | None = None,
    strict: bool = False,
) -> Evaluation:
    """Evaluate a ranker on every query of a judged set; `paired_differences` compares rankers on the same queries.

    Args:
        ranker: a model, a fitted `UnbiasedRanker`, the path of a saved model or of an `.onnx` file, a TREC run of any
            system, a function or module `(features, mask) -> scores`, or one score per document: predictions of
            another program, `-positions` for a shown order, zeros for chance.
        judged: judged queries, a data set of the catalogue (its test split), or a LETOR file; for a run also qrels, or
            the name that `ir_datasets` has for them.
        metrics: names that `metric` accepts, or metrics.
        undefined: the value of a query without a relevant document: "skip", "zero" or "one".
        max_grade: the highest possible grade, for `err` without `max_grade` in its name.
        shown: the log that defines the shown documents of `ndcg@10:shown` and `ndcg@10:never_shown` and the queries
            that `seen` marks; or one boolean per document.
        strict: refuse missing values in columns that had none in training; otherwise they are filled, with a warning.

    >>> judged = JudgedSet.from_arrays([[1.0], [0.0]], grades=[0, 1], group=[2])
    >>> evaluate([2.0, 1.0], judged, ["mrr"]).mean("mrr")
    0.5
    """
    if is_run(ranker):
        if shown is not None:
            raise ValueError("a run has no features to compare with a log: leave out shown")
        qrels = find_qrels(judged) or as_judged(judged, "test")
        return evaluate_run(ranker, qrels, metrics, undefined=undefined, max_grade=max_grade)  # type: ignore[arg-type]
    if find_qrels(judged) is not None:
        raise ValueError(f"{judged} holds qrels, without features: pass a run, or judged data with features")
    queries = as_judged(judged, "test")
    known = isinstance(ranker, SavedRanker | Model | str | Path) or hasattr(ranker, "model_")
    scorer: Any = ranker
    if known:
        saved = as_ranker(ranker)
        queries = queries.with_features(saved.feature_names, saved.categories, saved.context)
        scorer = saved.for_judged(queries) if saved.vocabulary is None else saved.score_judged(queries).scores
        counts = UnknownCounts(saved, strict=strict)
        counts.add(queries.features)
        for name, count in counts.filled().items():
            warnings.warn(f"column '{name}' has {count:,} missing values, none in training: filled", stacklevel=2)
    metrics, log, flags, lineage = list(metrics), None, shown, saved.lineage if known else {}
    if is_log(shown):
        log, flags = as_log(shown), None  # type: ignore[arg-type]
        if any(str(name).endswith("shown") for name in metrics):
            flags = shown_documents(queries, log)
    how: Any = {"undefined": undefined, "max_grade": max_grade, "shown": flags}
    result = evaluate_scorer(scorer, queries, metrics, **how)
    return replace(result, lineage=lineage, seen=None if log is None else seen_queries(queries, log))


def rank(
    ranker: Model | SavedRanker | Place,
    data: Any,
    out: Place | None = None,
    *,
    query: str = "query",
    document: str = "document",
    sort: bool = False,
    memory: str = MEMORY,
    strict: bool = False,
    overwrite: bool = False,
    engine: str = "duckdb",
    spark_master: str | None = None,
    progress: Follow = True,
) -> Ranking:
    """Score and rank candidates, and keep their ids. The table may be larger than memory.

    `evaluate` measures rankings of judged queries; `export` writes the ranker for another program.

    Args:
        ranker: a model, a fitted `UnbiasedRanker`, or the path of a saved model or of an `.onnx` file.
        data: candidates as a table of pandas, polars or pyarrow, or as parquet files (file, folder or glob) that may
            be larger than memory; or judged data: a `JudgedSet`, a data set name (test split), or a LETOR file.
        out: `.parquet`, `.csv` or `.trec`; None: keep the ranking in memory.
        query: the column of a table with query ids.
        document: the column of a table with document ids.
        sort: sort the table by query first, if the rows of a query are not adjacent.
        memory: memory limit for sorting; the rest spills to disk.
        strict: refuse missing values in columns that had none in training; otherwise they are filled and counted.
        engine: "duckdb" for this machine, or "spark": executors rank parquet files in any order into a folder `out`.
        spark_master: URL of the cluster; default: as Spark is configured.
        progress: False for no bar, or a function that receives the number of finished and of all documents.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> model = unskew.fit("naive", log, steps=3, progress=False)
    >>> unskew.rank(model, "world:tiny", progress=False).to_table().column_names
    ['query', 'document', 'score', 'rank']
    """
    how: Any = {"query": query, "document": document, "strict": strict}
    if engine == "spark":
        if out is None or not isinstance(data, str | Path) or isinstance(ranker, SavedRanker):
            raise ValueError("Spark ranks files: pass a model or its path, the path of the candidates, and out=")
        model = ranker if isinstance(ranker, str | Path) else as_model(ranker)
        done = rank_on_spark(model, str(data), out, overwrite=overwrite, master=spark_master, **how)
        return replace(done, out=Path(out))
    if engine != "duckdb":
        raise ValueError(f"there is no engine '{engine}': choose duckdb or spark")
    with tempfile.TemporaryDirectory(prefix="unskew-") as scratch:
        target = Path(scratch) / "ranking.parquet" if out is None else Path(out)
        check_place(target, overwrite=overwrite)
        check_ending(target)
        scorer = as_ranker(ranker)
        with as_file(data) as place:
            if not isinstance(place, JudgedSet) and is_table(str(place)):
                with followed(progress, counting_progress, "rank", "documents") as report:
                    done = rank_table(scorer, place, target, sort=sort, memory=memory, progress=report, **how)
            else:
                given = as_judged(place, "test")
                queries = given.with_features(scorer.feature_names, scorer.categories)
                others = [name for name in given.feature_names if name not in scorer.feature_names]
                done = rank_judged(scorer, queries, target, strict=strict)
                done = replace(done, ignored=tuple(others) if scorer.feature_names else ())
        kept = pq.read_table(target) if out is None else None
    return replace(done, out=None if out is None else target, kept=kept)
