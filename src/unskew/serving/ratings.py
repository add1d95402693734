r"""Ratings of documents from clicks, corrected for position: judgement lists, and rows for training trees yourself.

**Judgement lists.** A rating is the number of clicks on a document divided by the examination of its positions, summed
over its impressions: its click rate if it were always at the top. COEC, clicks over expected clicks, uses the click
rate of each position in place of its examination: it is simple, but relevant documents are at the top, and COEC
mistakes part of that for examination. Intervals treat the curve as known, and clicks as Poisson counts.

**Debiased rows** for LightGBM or XGBoost. A document that was clicked in $c$ of $n$ showings at position $k$ gets the
target $\frac{c}{n p_k}$, an estimate of relevance up to a common factor, where $p_k$ is the examination of its position
relative to the top, as learned by a method. Its weight is $n p_k^2$, the inverse of a bound on the variance up to a
factor: rows that were shown often, near the top, have the largest weight.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray
from scipy.stats import gamma

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.lineage import KEY, lineage_line
from unskew.data.files import check_place, new_file
from unskew.data.inputs import LogOrPlace, Place, as_log
from unskew.display import MOST_ROWS, Displayed, Screen
from unskew.propensities.estimate import estimate_propensities
from unskew.serving.rankings import CsvWriter, refuse_spaces
from unskew.training.fitting import feedback_for
from unskew.training.model import Model
from unskew.training.recipe import check_has_curve

LEVEL = 0.95
N_GRADES = 5
Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Judgements(Displayed):
    """One row per shown query and document."""

    table: pa.Table  # query, document, rating, low, high, coec, clicks, impressions
    estimator: str  # of the curve
    lineage: Mapping[str, Any] = field(default_factory=dict)  # digest of the log

    def to_json(self) -> dict[str, Any]:
        return {"documents": len(self.table), "curve": self.estimator, "lineage": self.lineage}

    def to_table(self) -> pa.Table:
        """Query, document, rating with its interval, COEC, clicks and impressions."""
        return self.table

    def screen(self) -> Screen:
        rows = [
            [f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()]
            for row in self.table.slice(0, MOST_ROWS).to_pylist()
        ]
        notes = [f"{lineage_line(self.lineage)}."] if self.lineage else []
        title = f"Ratings of {len(self.table):,} shown documents; examination: {self.estimator}"
        return Screen(title, self.table.column_names, rows, notes, left=2, n_rows=len(self.table))


def judgements(
    log: LogOrPlace, out: Place | None = None, *, curve: ArrayLike | None = None, overwrite: bool = False
) -> Judgements:
    """Relevance ratings from clicks, corrected for position, with intervals and clicks over expected clicks.

    Use `fit` for a ranker, which also scores documents that were never shown.

    Args:
        out: a `.csv` file, `.qrels` for TREC's tools (grades 0 to 4), or `.json` for OpenSearch's Search Relevance
            Workbench; None: keep them in memory.
        curve: the examination of each position; default: estimated from the log.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> unskew.judgements(log, curve=[1.0] * 10).to_table().column_names[:3]
    ['query', 'document', 'rating']
    """
    if out is not None:
        if Path(out).suffix not in (".csv", ".qrels", ".json"):
            raise ValueError(f"{out}: use .csv, .qrels, or .json for OpenSearch's Search Relevance Workbench")
        check_place(Path(out), overwrite=overwrite)
    found = _judgements(as_log(log), None if curve is None else np.asarray(curve, dtype=np.float64))
    if out is not None:
        write_judgements(found, out, name=Path(log).name if isinstance(log, str | Path) else "unskew")
    return found


def _judgements(log: ClickLog, curve: NDArray | None) -> Judgements:
    """Ratings of all shown documents."""
    if log.graded:
        raise ValueError("the log holds graded feedback, but ratings need clicks: ingest clicks")
    estimator = "given"
    if curve is None:
        found = estimate_propensities(log)
        curve, estimator = found.propensities(log.n_positions), found.estimator
    shown = np.broadcast_to(log.sessions[:, None], log.mask.shape)[log.mask].astype(np.float64)
    documents, places, clicked = log.documents[log.mask], log.positions[log.mask], log.clicks[log.mask]
    rates = np.bincount(places, clicked, log.n_positions) / np.maximum(np.bincount(places, shown, log.n_positions), 1)

    def sums(values: NDArray) -> NDArray[np.float64]:
        return np.bincount(documents, values, len(log.document_ids)).astype(np.float64)

    impressions = sums(shown)
    rows = np.flatnonzero(impressions)
    clicks, examined, expected = (
        sums(values)[rows] for values in (clicked, shown * curve[places], shown * rates[places])
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        coec = clicks / expected
    tail = (1 - LEVEL) / 2
    lineage = {"log": log.lineage.to_json()}
    return Judgements(
        pa.table(
            {
                "query": log.query_ids[log.document_queries[rows]],
                "document": log.document_ids[rows],
                "rating": clicks / examined,
                "low": np.where(clicks > 0, gamma.ppf(tail, np.maximum(clicks, 1e-9)), 0.0) / examined,
                "high": gamma.ppf(1 - tail, clicks + 1) / examined,
                "coec": coec,
                "clicks": clicks,
                "impressions": impressions[rows],
            },
            metadata={KEY: json.dumps(lineage)},
        ),
        estimator,
        lineage,
    )


def write_judgements(found: Judgements, path: str | Path, *, name: str = "unskew") -> None:
    """Write as CSV, as qrels or, if the path ends in .json, for OpenSearch's Search Relevance Workbench."""
    with new_file(path) as scratch:
        if Path(path).suffix == ".qrels":
            scratch.write_text("".join(qrels_lines(found.table)), encoding="utf-8")
        elif Path(path).suffix == ".json":
            scratch.write_text(json.dumps(workbench(found, name), indent=1) + "\n", encoding="utf-8")
        else:
            with closing(CsvWriter(scratch, found.table.schema)) as file:
                file.write_table(found.table)


def qrels_lines(table: pa.Table) -> Iterator[str]:
    """Query, iteration, document and grade: equal steps of the rating up to its 99% quantile, as in `debiased_rows`."""
    for name in ("query", "document"):
        refuse_spaces(table, name, "qrels", ".csv")
    ratings = table["rating"].to_numpy()
    grades = grades_of(ratings, _top(ratings)).tolist()
    names = (table[name].to_pylist() for name in ("query", "document"))
    return (f"{query} 0 {document} {grade}\n" for query, document, grade in zip(*names, grades, strict=True))


def workbench(found: Judgements, name: str) -> dict[str, Any]:
    """The body of a request that imports judgements, with ratings clipped at 1."""
    by_query: dict[str, list[dict[str, str]]] = {}
    for query, document, rating in zip(
        *(found.table[column].to_pylist() for column in ("query", "document", "rating")), strict=True
    ):
        by_query.setdefault(str(query), []).append({"docId": str(document), "rating": f"{min(rating, 1.0):.4f}"})
    return {
        "name": name,
        "description": f"Clicks corrected for position by unskew. {lineage_line(found.lineage)}.",
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": [{"query": query, "ratings": ratings} for query, ratings in by_query.items()],
    }


class Scale(NamedTuple):
    """What the rows of a log have in common."""

    top: float  # target of the highest grade
    weight: float  # mean weight, which becomes 1


def debiased_rows(log: ClickLog, model: Model, scale: Scale | None = None) -> pa.Table:
    """One row per shown document, query by query: ids, position, target, grade, weight and the features.

    `target` is for regression, `grade` (0 to 4, by equal steps of the target) for ranking objectives, which need whole
    numbers; `group` numbers the lists, from 0 in this order. XGBoost needs one weight per group: the mean of `weight`.

    Args:
        scale: that of a whole log, if this log is one of its shards; default: from this log.
    """
    log, lists, order, target, weight = _targets(log, model)
    scale = scale or Scale(_top(target), float(weight.mean()))
    documents, versions = log.documents[log.mask][order], log.versions[log.mask][order]
    grade = grades_of(target, scale.top)
    names = log.feature_names or tuple(f"f{number}" for number in range(log.n_features))
    return pa.table(
        {
            "query": pa.array(log.query_ids[log.document_queries[documents]]),
            "document": pa.array(log.document_ids[documents]),
            "group": pa.array(np.cumsum(np.diff(lists, prepend=lists[:1]) != 0)),
            "position": pa.array(log.positions[log.mask][order].astype(np.int64)),
            "target": pa.array(target),
            "grade": pa.array(grade),
            "weight": pa.array(weight / scale.weight),
            **{name: pa.array(log.features[versions, number]) for number, name in enumerate(names)},
        }
    )


def rows_of_shards(shards: Iterable[ClickLog], model: Model, scale: Scale) -> Iterator[pa.Table]:
    """The rows of a log, shard by shard, in the order of `debiased_rows`."""
    n_groups = 0
    for shard in shards:
        if not shard.n_lists:
            continue
        rows = debiased_rows(shard, model, scale)
        numbers = pc.add(rows["group"], n_groups)
        yield rows.set_column(rows.schema.get_field_index("group"), "group", numbers)
        n_groups += shard.n_lists


def scale_of(log: ClickLog, model: Model) -> Scale:
    """The scale of the rows of this log."""
    *_, target, weight = _targets(log, model)
    return Scale(_top(target), float(weight.mean()))


def _top(target: Vector) -> float:
    return max(float(np.quantile(target, 0.99)), 1e-9)


def grades_of(target: Vector, top: float) -> NDArray[np.int32]:
    """Grades 0 to 4, by equal steps."""
    return np.minimum(np.floor(target / top * N_GRADES), N_GRADES - 1).astype(np.int32)


def _targets(log: ClickLog, model: Model) -> tuple[ClickLog, NDArray[np.int64], NDArray[np.int64], Vector, Vector]:
    """The log with its feedback and inputs; the list of each row, the order of the rows, their targets and weights."""
    check_has_curve(model.recipe.method_class)
    curve = model.examination()
    assert curve is not None
    graded = feedback_for(model.recipe, log).of(log)
    log = graded.with_context_as_features()
    lists = np.repeat(np.arange(log.n_lists), log.mask.sum(1))
    order = np.argsort(log.queries[lists], kind="stable")
    lists = lists[order]
    positions = log.positions[log.mask][order].astype(np.int64)
    seen = curve[np.minimum(positions, len(curve) - 1)]
    sessions = log.sessions[lists].astype(np.float64)
    target = log.clicks[log.mask][order] / (sessions * seen)
    target = target if log.graded else np.minimum(target, 1.0)
    return log, lists, order, target, sessions * seen**2


def write_rows(tables: Iterable[pa.Table], path: str | Path) -> None:
    """Write a parquet file atomically, table after table."""
    with new_file(path) as scratch, ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        for table in tables:
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(scratch, table.schema))
            writer.write_table(table.cast(writer.schema))
