"""Using rankers: `evaluate`, `rank` and `export`."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.lineage import lineage_line
from unskew.data.clicks.storage import LogFolder
from unskew.data.columns import listed
from unskew.data.files import check_place
from unskew.data.inputs import Judged, LogOrPlace, Place, as_file, as_judged, as_log
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.metrics import Metric
from unskew.display import MOST_ROWS, Displayed, Screen
from unskew.evaluation import evaluate as evaluation
from unskew.evaluation.evaluate import METRICS_OF_PAPERS, Evaluation, Scorer, seen_queries
from unskew.reporting.terminal import Follow, counting_progress, followed
from unskew.serving.candidates import is_table
from unskew.serving.distillation import ExportedTrees, export_trees
from unskew.serving.export import Exported, export_model
from unskew.serving.inputs import as_model, as_ranker
from unskew.serving.rankings import MEMORY, Ranked, check_ending, rank_judged, rank_table
from unskew.serving.saved_ranker import SavedRanker, UnknownCounts
from unskew.serving.spark_rank import rank_on_spark
from unskew.serving.tree_files import FORMS as TREE_FORMS
from unskew.simulation.truth import Simulation
from unskew.training.model import Model

UNKNOWN = (
    "{} documents are not in the log that the model learned from: they are ranked by their URL and query where the "
    "model knows these, otherwise as average documents"
)


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
        ranker: a model, a fitted `UnbiasedRanker`, the path of a saved model or of an `.onnx` file, a function or
            module `(features, mask) -> scores`, or one score per document: predictions of another program,
            `-positions` for a shown order, zeros for chance.
        judged: judged queries, a data set of the catalogue (its test split), or a LETOR file.
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
    if isinstance(shown, ClickLog | LogFolder | Simulation | str | Path):
        log, flags = as_log(shown), None
        if any(str(name).endswith("shown") for name in metrics):
            flags = evaluation.shown_documents(queries, log)
    found = evaluation.evaluate_scorer(
        scorer, queries, metrics, undefined=undefined, max_grade=max_grade, shown=cast(ArrayLike | None, flags)
    )
    return replace(found, lineage=lineage, seen=None if log is None else seen_queries(queries, log))


@dataclass(frozen=True, eq=False, repr=False)
class Ranking(Displayed):
    """Documents of queries with scores and ranks."""

    n_documents: int
    n_queries: int
    out: Path | None  # file of the ranking; None: it is in memory only
    kept: pa.Table | None = None
    n_unknown: int = 0  # documents that a ranker of ids does not know
    filled: Mapping[str, int] = field(default_factory=dict)  # missing values, by column that had none in training
    unseen: Mapping[str, int] = field(default_factory=dict)  # values that training never saw, by categorical column
    ignored: tuple[str, ...] = ()  # columns that the ranker does not know
    lineage: Mapping[str, Any] = field(default_factory=dict)  # digests of the model and its log

    @classmethod
    def of(cls, done: Ranked, out: Path | None, kept: pa.Table | None = None) -> Ranking:
        """The ranking with these counts."""
        counts = {name: getattr(done, name) for name in ("filled", "unseen", "ignored", "lineage")}
        return cls(done.documents, done.queries, out, kept, done.unknown, **counts)

    @cached_property
    def _table(self) -> pa.Table:
        if self.kept is not None:
            return self.kept
        if self.out is None or self.out.suffix != ".parquet":
            raise ValueError(
                f"{self.out} is a file for other programs: to get a table, rank to a .parquet file or leave out=None"
            )
        return pq.read_table(self.out)

    def to_table(self) -> pa.Table:
        """One row per document: query, document, score, rank (1 = best), best first within each query."""
        return self._table

    def to_json(self) -> dict[str, Any]:
        counts = {"documents": self.n_documents, "queries": self.n_queries, "unknown": self.n_unknown}
        unlike_training = {"filled": dict(self.filled), "unseen": dict(self.unseen), "ignored": list(self.ignored)}
        return {**counts, **unlike_training, "lineage": dict(self.lineage)}

    def screen(self) -> Screen:
        place = "" if self.out is None else f" in {self.out}"
        title = f"{self.n_documents:,} documents of {self.n_queries:,} queries ranked{place}"
        notes = [f"{lineage_line(self.lineage)}."] if self.lineage else []
        notes += [UNKNOWN.format(f"{self.n_unknown:,}")] if self.n_unknown else []
        if self.ignored:
            notes.append(f"Ignored, because the model does not use them: {listed(self.ignored)}")
        notes += [f"'{name}' has {count:,} values that training never saw" for name, count in self.unseen.items()]
        notes += [
            f"'{name}' has {count:,} missing values, which were filled: it had none in training (strict refuses them)"
            for name, count in self.filled.items()
        ]
        if self.kept is None:
            return Screen(title, notes=notes)
        head = self.kept.slice(0, MOST_ROWS).to_pylist()
        rows = [[str(row["query"]), str(row["document"]), f"{row['score']:.4f}", str(row["rank"])] for row in head]
        return Screen(title, ("query", "document", "score", "rank"), rows, notes, left=2, n_rows=self.kept.num_rows)


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
    if engine == "spark":
        if out is None or not isinstance(data, str | Path) or isinstance(ranker, SavedRanker):
            raise ValueError("Spark ranks files: pass a model or its path, the path of the candidates, and out=")
        done = rank_on_spark(
            ranker if isinstance(ranker, str | Path) else as_model(ranker),
            str(data),
            out,
            query=query,
            document=document,
            strict=strict,
            overwrite=overwrite,
            master=spark_master,
        )
        return Ranking.of(done, Path(out))
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
                    done = rank_table(
                        scorer,
                        place,
                        target,
                        query=query,
                        document=document,
                        sort=sort,
                        memory=memory,
                        strict=strict,
                        progress=report,
                    )
            else:
                given = as_judged(place, "test")
                queries = given.with_features(scorer.feature_names, scorer.categories)
                others = [name for name in given.feature_names if name not in scorer.feature_names]
                done = rank_judged(scorer, queries, target, strict=strict)
                done = replace(done, ignored=tuple(others) if scorer.feature_names else ())
        kept = pq.read_table(target) if out is None else None
    return Ranking.of(done, None if out is None else target, kept)


def export(
    model: Model | Place,
    to: Place,
    *,
    form: str | None = None,
    log: LogOrPlace | None = None,
    judged: Judged | None = None,
    overwrite: bool = False,
    seed: int = 0,
    **options: Any,
) -> Exported | ExportedTrees:
    """Export a model to a file for serving; its scores are checked against torch.

    `save_model` saves it for Python.

    Args:
        model: a model, a fitted `UnbiasedRanker`, or the path of a saved model.
        to: the output file; its extension decides the format unless `form` does.
        form: the format, see `unskew export --help`; `lightgbm` and `xgboost` are trees.
        log: the log with the documents that trees learn from.
        judged: judged queries to evaluate the model and the trees.
        seed: for the random lists on which the file is compared with torch.
        options: options of the format, see `serving.export.export_model` and `serving.distillation.export_trees`.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> model = unskew.fit("naive", log, network="linear", transform="standard", steps=3, progress=False)
    >>> unskew.export(model, "model.json", form="linear").path.name
    'model.json'
    """
    fitted = as_model(model)
    if form not in TREE_FORMS:
        return export_model(fitted, to, form=form, overwrite=overwrite, seed=seed, **options)
    clicks = None if log is None else as_log(log)
    queries = None if judged is None else as_judged(judged, "test")
    return export_trees(fitted, to, clicks, kind=form, judged=queries, overwrite=overwrite, seed=seed, **options)
