"""Evaluate a ranker on judged queries: one value per query first, the mean last.

A query without a relevant document says nothing about a ranker. The argument `undefined` decides its value:

* `"skip"` (default): it is left out of the mean, and `Evaluation.n_left_out` counts such queries.
* `"zero"`: it counts as 0, as in ULTRA, TF-Ranking and scikit-learn.
* `"one"`: it counts as 1 in metrics whose best value is 1 for every other query (ndcg, ap, mrr), as in XGBoost and
  allRank, and as 0 in the others.

ARP leaves it out in every case: there is no rank to average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.lineage import lineage_line
from unskew.data.judged.judged_set import JudgedSet, padded_rows
from unskew.data.judged.metrics import Metric, Scored, measure, metric
from unskew.display import Displayed, Screen
from unskew.evaluation.differences import mean_interval
from unskew.lists import JudgedLists

IN_CACHE = 2048  # documents scored together: a quarter faster than 4,096, of which the hidden units leave the cache
Scorer = Callable[[Tensor, Tensor], Tensor]  # features [batch, docs, f], mask [batch, docs] -> scores [batch, docs]

METRICS_OF_PAPERS = ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "arp")

UNDEFINED: dict[str, Callable[[Metric], float]] = {
    "skip": lambda _: np.nan,
    "zero": lambda metric: 0.0 if metric.higher_is_better else np.nan,
    "one": lambda metric: float(metric.can_reach_one) if metric.higher_is_better else np.nan,
}


@dataclass(frozen=True)
class Summary:
    """One metric over all queries."""

    metric: str
    mean: float | None  # None: every query was left out
    low: float | None  # 95% t interval over queries
    high: float | None
    n_queries: int  # in the mean
    n_left_out: int
    higher_is_better: bool


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Displayed):
    """Values of metrics, query by query."""

    query_ids: NDArray  # [queries], as in the judged set
    per_query: dict[str, NDArray[np.float64]]  # metric -> [queries]; NaN = left out
    name: str = ""
    max_grade: float | None = None
    metrics: tuple[Metric, ...] = ()  # the requested metrics
    seen: NDArray[np.bool_] | None = None  # [queries], which occur in the click log; None: no log was given
    lineage: Mapping[str, Any] = field(default_factory=dict)  # digests of the model and its log, if it is one

    def values(self, name: str | Metric | Scored) -> NDArray[np.float64]:
        """The values of one metric `[queries]`, NaN if a query was left out."""
        own = isinstance(name, str) and name in self.per_query
        key = str(name if own else _with_max_grade(metric(name), self.max_grade))
        if key not in self.per_query:
            raise KeyError(f"'{key}' was not evaluated (only {', '.join(self.per_query)}): add it to `metrics`")
        return self.per_query[key]

    def mean(self, name: str | Metric | Scored) -> float:
        """The mean over all queries that were not left out."""
        values = self.values(name)
        counted = values[~np.isnan(values)]
        if len(counted) == 0:
            raise ValueError(
                f"there is no query to average {name} over: none of {len(values)} has a relevant document; "
                "check the grades, or count such queries with undefined='zero'"
            )
        return float(counted.mean())

    def n_left_out(self, name: str | Metric | Scored) -> int:
        return int(np.isnan(self.values(name)).sum())

    def summary(self) -> list[Summary]:
        """One row per metric: mean, 95% interval over queries, and the number of queries."""
        rows = []
        known = {str(entry): entry for entry in self.metrics}
        for name, values in self.per_query.items():
            left_out = int(np.isnan(values).sum())
            counted = len(values) - left_out
            mean, low, high = mean_interval(values) if counted else (None, None, None)
            rows.append(Summary(name, mean, low, high, counted, left_out, known[name].higher_is_better))
        return rows

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """The summary as text: metric with its direction, mean, 95% interval, queries, left out."""
        return [
            (
                f"{row.metric} {'↑' if row.higher_is_better else '↓'}",
                "–" if row.mean is None else f"{row.mean:.4f}",
                "–" if row.low is None or not np.isfinite(row.low) else f"{row.low:.4f} to {row.high:.4f}",
                f"{row.n_queries:,}",
                f"{row.n_left_out:,}",
            )
            for row in self.summary()
        ]

    def only(self, queries: NDArray[np.bool_]) -> Evaluation:
        """The evaluation of some of the queries."""
        kept = {name: values[queries] for name, values in self.per_query.items()}
        seen = None if self.seen is None else self.seen[queries]
        return replace(self, query_ids=self.query_ids[queries], per_query=kept, seen=seen)

    def by_seen(self) -> list[tuple[str, ...]]:
        """As text, one row per metric: mean and number of queries in the click log, then of those not in it."""
        if self.seen is None:
            return []
        parts = [self.only(self.seen).rows(), self.only(~self.seen).rows()]
        return [(row[0], row[1], row[3], other[1], other[3]) for row, other in zip(*parts, strict=True)]

    def to_table(self) -> pa.Table:
        """One row per query: its id and one column per metric, null if it was left out; `seen` if it is known."""
        columns = {name: pa.array(values, from_pandas=True) for name, values in self.per_query.items()}
        seen = {} if self.seen is None else {"seen": pa.array(self.seen)}
        return pa.table({"query": pa.array(self.query_ids), **columns, **seen})

    def to_json(self) -> dict[str, Any]:
        """Means and intervals per metric; with a log, also for queries in the log and queries not in it."""

        def means(part: Evaluation) -> dict[str, Any]:
            return {row.metric: {"mean": row.mean, "low": row.low, "high": row.high} for row in part.summary()}

        sides = {} if self.seen is None else {"seen": self.only(self.seen), "unseen": self.only(~self.seen)}
        parts = {name: {"queries": len(part.query_ids), **means(part)} for name, part in sides.items()}
        return {**means(self), "lineage": dict(self.lineage), **parts}

    def screen(self) -> Screen:
        title = f"Evaluation of {len(self.query_ids):,} queries {self.name}".rstrip()
        notes = [f"{lineage_line(self.lineage)}."] if self.lineage else []
        columns = ("metric", "in the log", "queries", "not in the log", "queries")
        more = []
        if self.seen is not None:
            text = f"{int(self.seen.sum()):,} of {len(self.seen):,} judged queries also occur in the click log"
            more = [Screen(text, columns, self.by_seen())]
        return Screen(title, ("metric", "mean", "95% interval", "queries", "left out"), self.rows(), notes, more=more)


def evaluate_scorer(
    ranker: Scorer | ArrayLike,
    judged: JudgedSet,
    metrics: Iterable[str | Metric | Scored] = METRICS_OF_PAPERS,
    *,
    undefined: str = "skip",
    max_grade: float | None = None,
    shown: ArrayLike | None = None,
) -> Evaluation:
    """Rank every query of a judged set, and evaluate each.

    Args:
        ranker: A function or module `(features, mask) -> scores`, or one score per document of the set: predictions of
            another program, `-positions` for a shown order, zeros for chance.
        metrics: Names such as "ndcg@10", or your own functions `(scores, grades, mask) -> values [batch]`.
        undefined: The value of a query without a relevant document: "skip", "zero" or "one".
        max_grade: The highest possible grade, for `err` without `max_grade` in its name.
        shown: For each document, whether the logging policy showed it, for metrics such as "ndcg@10:shown".
    """
    if undefined not in UNDEFINED:
        raise ValueError(f"unknown undefined='{undefined}': choose one of {', '.join(UNDEFINED)}")
    asked = [_with_max_grade(metric(name), max_grade) for name in metrics]
    per_query = {str(entry): np.full(judged.n_queries, UNDEFINED[undefined](entry)) for entry in asked}
    parts = _parts(asked, shown, judged)
    with _scorer(ranker, judged) as score, torch.inference_mode():
        for queries, lists in judged.batches():
            scores = _checked(score(queries, lists), lists)
            rows, _ = padded_rows(judged.offsets, queries, lists.n_docs)
            for entries, wanted in parts:
                mask = lists.mask if wanted is None else lists.mask & torch.from_numpy(wanted[rows])
                for name, measured in measure(entries, scores, lists.grades, mask).items():
                    defined = measured.defined.numpy()
                    per_query[name][queries[defined]] = measured.values.numpy()[defined]
    return Evaluation(judged.query_ids, per_query, judged.name, max_grade, tuple(asked))


def _parts(
    asked: Sequence[Metric], shown: ArrayLike | None, judged: JudgedSet
) -> list[tuple[list[Metric], NDArray[np.bool_] | None]]:
    """Metrics grouped by the documents that they use; None: all documents."""
    by_part: dict[str | None, list[Metric]] = {}
    for entry in asked:
        by_part.setdefault(entry.among, []).append(entry)
    if shown is None:
        if set(by_part) - {None}:
            name = next(entry for entry in asked if entry.among)
            raise ValueError(f"{name} needs to know which documents were shown: pass --shown LOG (in Python shown=)")
        return [(list(asked), None)]
    flags = np.asarray(shown, dtype=bool)
    if flags.shape != (judged.n_documents,):
        raise ValueError(f"shown has shape {flags.shape}: pass one value per document, {judged.n_documents}")
    wanted = {None: None, "shown": flags, "never_shown": ~flags}
    return [(entries, wanted[part]) for part, entries in by_part.items()]


def shown_documents(judged: JudgedSet, log: ClickLog) -> NDArray[np.bool_]:
    """For each document of a judged set, whether a log shows it, by query id and document id."""
    numbers = np.unique(log.documents[log.mask])
    queries = log.query_ids[log.document_queries[numbers]]
    known = set(zip(queries.tolist(), log.document_ids[numbers].tolist(), strict=True))
    owners = np.repeat(judged.query_ids, judged.sizes).tolist()
    is_shown = [pair in known for pair in zip(owners, judged.document_ids.tolist(), strict=True)]
    if not any(is_shown):
        raise ValueError("the log shows none of these documents: write query ids and document ids the same way in both")
    return np.array(is_shown)


def score_documents(ranker: Scorer, judged: JudgedSet) -> NDArray[np.float64]:
    """Scores of a ranker `[documents]`, in the order of the set."""
    scores = np.empty(judged.n_documents)
    with _scorer(ranker, judged) as score, torch.inference_mode():
        for queries, lists in judged.batches(IN_CACHE):
            rows, mask = padded_rows(judged.offsets, queries, lists.n_docs)
            scores[rows[mask]] = _checked(score(queries, lists), lists).numpy()[mask]
    if not np.isfinite(scores).all():
        row = int(np.argmin(np.isfinite(scores)))
        query = int(np.searchsorted(judged.offsets, row, side="right")) - 1
        raise ValueError(
            f"the score of document {judged.document_ids[row]} of query {judged.query_ids[query]} is {scores[row]}: "
            "scores must be finite; the ranker is damaged or training diverged"
        )
    return scores


@contextmanager
def _scorer(
    ranker: Scorer | ArrayLike, judged: JudgedSet
) -> Iterator[Callable[[NDArray[np.int64], JudgedLists], Tensor]]:
    """A function from a batch to its scores; a module is in evaluation mode in the meantime."""
    if not callable(ranker):
        scores = np.asarray(ranker)
        if scores.shape != (judged.n_documents,):
            raise ValueError(
                f"scores have shape {scores.shape}, but there are {judged.n_documents} documents: pass one per document"
            )
        yield lambda queries, lists: torch.from_numpy(scores[padded_rows(judged.offsets, queries, lists.n_docs)[0]])
    elif not isinstance(ranker, nn.Module):
        yield lambda _, lists: ranker(lists.features, lists.mask)
    else:
        parameter = next(ranker.parameters(), torch.empty(0))
        with predicting(ranker):
            yield lambda _, lists: ranker(lists.features.to(parameter.device), lists.mask.to(parameter.device))


@contextmanager
def predicting(module: nn.Module) -> Iterator[None]:
    """The module in evaluation mode, without gradients; afterwards every part of it is in its mode again."""
    modes = {part: part.training for part in module.modules()}  # they may differ, such as a frozen norm
    module.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for part, training in modes.items():
            part.training = training


def _checked(scores: Tensor, lists: JudgedLists) -> Tensor:
    if scores.shape != lists.mask.shape:
        raise ValueError(
            f"the ranker returned scores of shape {tuple(scores.shape)} for lists of shape {tuple(lists.mask.shape)}: "
            "it must return one score per document, [batch, docs]; a last dimension of 1 needs squeeze(-1)"
        )
    return scores.cpu()


def _with_max_grade(entry: Metric, max_grade: float | None) -> Metric:
    if entry.name == "err" and entry.max_grade is None and max_grade is not None:
        return replace(entry, max_grade=max_grade)
    return entry


def seen_queries(judged: JudgedSet, log: ClickLog) -> NDArray[np.bool_]:
    """Which judged queries the log shows, `[queries]`.

    They have the same id. If the ids are numbers this proves nothing, because many sets count from 0: then a document
    of the query must also share a feature row with the log, if both have the same number of features.
    """
    numbers = {str(name): number for number, name in enumerate(log.query_ids.tolist())}
    names = [str(name) for name in judged.query_ids.tolist()]
    comparable = bool(judged.n_features) and judged.n_features == log.n_features
    versions = np.argsort(log.version_queries, kind="stable")
    ends = np.cumsum(np.bincount(log.version_queries, minlength=len(log.query_ids)))

    def share_a_row(query: int, number: int) -> bool:
        rows = log.features[versions[ends[number - 1] if number else 0 : ends[number]]]
        known = {row.tobytes() for row in np.ascontiguousarray(rows, dtype=np.float32)}
        return any(row.tobytes() in known for row in judged.features[judged.offsets[query] : judged.offsets[query + 1]])

    return np.array(
        [
            name in numbers and (not comparable or not name.lstrip("-").isdigit() or share_a_row(query, numbers[name]))
            for query, name in enumerate(names)
        ],
        dtype=bool,
    )
