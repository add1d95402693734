r"""Debiased rows for training LightGBM or XGBoost yourself.

A document that was clicked in $c$ of $n$ showings at position $k$ gets the target $\frac{c}{n p_k}$, an estimate of
relevance up to a common factor, where $p_k$ is the examination of its position relative to the top, as learned by a
method. Its weight is $n p_k^2$, the inverse of a bound on the variance up to a factor: rows that were shown often, near
the top, have the largest weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.files import new_file
from unskew.training.fitting import feedback_for
from unskew.training.model import Model
from unskew.training.recipe import check_has_curve

N_GRADES = 5

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Scale:
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
    scale = scale or _scale(target, weight)
    documents, versions = log.documents[log.mask][order], log.versions[log.mask][order]
    grade = np.minimum(np.floor(target / scale.top * N_GRADES), N_GRADES - 1).astype(np.int32)
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
    return _scale(target, weight)


def _scale(target: Vector, weight: Vector) -> Scale:
    return Scale(max(float(np.quantile(target, 0.99)), 1e-9), float(weight.mean()))


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
