"""Judgement lists from clicks: the relevance of each document for its query, corrected for position.

A rating is the number of clicks on a document divided by the examination of its positions, summed over its impressions:
its click rate if it were always at the top. COEC, clicks over expected clicks, uses the click rate of each position in
place of its examination: it is simple, but relevant documents are at the top, and COEC mistakes part of that for
examination. Intervals treat the curve as known, and clicks as Poisson counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray
from scipy.stats import gamma

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.lineage import KEY, lineage_line
from unskew.data.files import new_file
from unskew.display import MOST_ROWS, Displayed, Screen
from unskew.propensities.estimate import estimate_propensities

LEVEL = 0.95


@dataclass(frozen=True, eq=False, repr=False)
class Judgements(Displayed):
    """One row per shown query and document."""

    table: pa.Table  # query, document, rating, low, high, coec, clicks, impressions
    estimator: str  # of the curve
    lineage: Mapping[str, Any] = field(default_factory=dict)  # digest of the log

    def to_table(self) -> pa.Table:
        """Query, document, rating with its interval, COEC, clicks and impressions."""
        return self.table

    def screen(self) -> Screen:
        rows = [
            [f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()]
            for row in self.table.slice(0, MOST_ROWS).to_pylist()
        ]
        title = f"Ratings of {len(self.table):,} shown documents; examination: {self.estimator}"
        return Screen(title, self.table.column_names, rows, left=2, n_rows=len(self.table))


def judgements(log: ClickLog, curve: NDArray | None = None) -> Judgements:
    """Ratings of all shown documents; the examination curve is estimated from the log unless it is given.

    >>> rows = {"session": [1, 1, 2, 2], "query": ["q"] * 4, "document": ["a", "b", "b", "a"]}
    >>> table = pa.table(rows | {"position": [0, 1, 0, 1], "click": [1, 0, 1, 1]})
    >>> judgements(ClickLog.from_table(table), np.array([1.0, 0.5])).table["rating"].to_pylist()
    [1.3333333333333333, 0.6666666666666666]
    """
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
    """Write as CSV or, if the path ends in .json, for import into OpenSearch's Search Relevance Workbench."""
    with new_file(path) as scratch:
        if Path(path).suffix == ".json":
            scratch.write_text(json.dumps(workbench(found, name), indent=1) + "\n", encoding="utf-8")
        else:
            pyarrow.csv.write_csv(found.table, scratch)


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
