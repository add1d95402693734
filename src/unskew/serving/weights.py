r"""Debiased rows for training LightGBM or XGBoost yourself.

A document that was clicked in $c$ of $n$ showings at position $k$ gets the target $\frac{c}{n p_k}$, an estimate of
relevance up to a common factor, where $p_k$ is the examination of its position relative to the top, as learned by a
method. Its weight is $n p_k^2$, the inverse of a bound on the variance up to a factor: rows that were shown often, near
the top, have the largest weight.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.data.clicks.click_log import ClickLog
from unskew.data.files import new_file
from unskew.fitting import feedback_for
from unskew.model import Model
from unskew.recipe import check_has_curve

N_GRADES = 5


def debiased_rows(log: ClickLog, model: Model) -> pa.Table:
    """One row per shown document, query by query: ids, position, target, grade, weight and the features.

    `target` is for regression, `grade` (0 to 4, by equal steps of the target) for ranking objectives, which need whole
    numbers; `group` numbers the lists, from 0 in this order. XGBoost needs one weight per group: the mean of `weight`.
    """
    check_has_curve(model.recipe.method_class)
    curve = model.examination()
    assert curve is not None
    graded = feedback_for(model.recipe, log).of(log)
    log = graded.with_context_as_features()
    lists = np.repeat(np.arange(log.n_lists), log.mask.sum(1))
    order = np.argsort(log.queries[lists], kind="stable")
    lists = lists[order]
    documents, versions = log.documents[log.mask][order], log.versions[log.mask][order]
    positions = log.positions[log.mask][order].astype(np.int64)
    seen = curve[np.minimum(positions, len(curve) - 1)]
    sessions = log.sessions[lists].astype(np.float64)
    target = log.clicks[log.mask][order] / (sessions * seen)
    target = target if log.graded else np.minimum(target, 1.0)
    weight = sessions * seen**2
    top = max(float(np.quantile(target, 0.99)), 1e-9)
    grade = np.minimum(np.floor(target / top * N_GRADES), N_GRADES - 1).astype(np.int32)
    names = log.feature_names or tuple(f"f{number}" for number in range(log.n_features))
    return pa.table(
        {
            "query": pa.array(log.query_ids[log.document_queries[documents]]),
            "document": pa.array(log.document_ids[documents]),
            "group": pa.array(np.cumsum(np.diff(lists, prepend=lists[:1]) != 0)),
            "position": pa.array(positions),
            "target": pa.array(target),
            "grade": pa.array(grade),
            "weight": pa.array(weight / weight.mean()),
            **{name: pa.array(log.features[versions, number]) for number, name in enumerate(names)},
        }
    )


def write_rows(table: pa.Table, path: str | Path) -> None:
    """Write a parquet file atomically."""
    with new_file(path) as scratch:
        pq.write_table(table, scratch)
