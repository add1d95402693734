r"""Explanations: which features matter to a ranker, and which decided between two documents.

The **importance** of a feature is the loss when its values are shuffled among the documents of the data: the loss of
nDCG if there are labels, otherwise the change of order, $1 - \tau_b$ with Kendall's $\tau_b$ within queries against the
order with all features. Values are averaged over shuffles, then over queries; the interval is over queries. Redundant
features share their importance or hide each other's.

**Deciding** between documents a and b: the features of b are replaced by those of a one by one, in many random orders,
and each feature gets the mean change of the score when it is replaced. These Shapley values add up to the difference of
the two scores, and are positive if the feature favors a.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow as pa
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from unskew.data.judged.judged_set import JudgedSet
from unskew.display import Displayed, OnScreen, Screen, draw_intervals, rows_table
from unskew.evaluation.agreement import kendall
from unskew.evaluation.differences import mean_interval
from unskew.evaluation.evaluate import Scorer, evaluate_scorer, score_documents
from unskew.reporting.drawing import COLOURS, STYLE, Drawn

METRIC = "ndcg@10"
ORDER = "change of order (1 − τ)"
SHOWN = 25  # features in a figure


@dataclass(frozen=True)
class Importance:
    """The importance of a feature."""

    feature: str
    mean: float
    low: float  # 95% interval over queries
    high: float


@dataclass(frozen=True, repr=False)
class Explanation(Displayed):
    """Features by importance, the most important first."""

    measure: str
    n_queries: int
    features: tuple[Importance, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def rows(self) -> list[tuple[str, str, str]]:
        """Feature, importance, interval, as text."""
        return [(row.feature, f"{row.mean:.4f}", f"{row.low:.4f} to {row.high:.4f}") for row in self.features]

    def to_table(self) -> pa.Table:
        """One row per feature, the most important first."""
        return rows_table(self.features, Importance)

    def screen(self) -> Screen:
        title = f"Loss of {self.measure} when a feature is shuffled, on {self.n_queries:,} queries"
        return Screen(title, ("feature", "importance", "95% interval"), self.rows())

    def plot(self, ax: Any = None) -> Any:
        """The most important features with their intervals, on matplotlib axes."""
        rows = [(row.feature, row.mean, row.low, row.high) for row in self.features[:SHOWN]]
        return draw_intervals(rows, f"{self.measure} that is lost without it", ax)

    def drawing(self) -> Drawn:
        """A bar per feature, with its interval."""
        top = self.features[:SHOWN]
        spread = np.array([[row.mean - row.low, row.high - row.mean] for row in top]).T
        title = f"What is lost when a feature is shuffled, by {self.measure}"
        return Drawn("importance", title, _bars([r.feature for r in top], [r.mean for r in top], title, spread))


@dataclass(frozen=True, repr=False)
class Decision(OnScreen):
    """Why one document is scored above or below another."""

    first: str
    second: str
    scores: tuple[float, float]
    features: tuple[tuple[str, float, float, float], ...]  # name, share of the difference, values of both documents

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Feature, share of the difference, values of both, as text."""
        return [(name, f"{share:+.4f}", f"{a:.4g}", f"{b:.4g}") for name, share, a, b in self.features]

    def screen(self) -> Screen:
        title = f"{self.first} scores {self.scores[0]:.4f}, {self.second} {self.scores[1]:.4f}"
        return Screen(title, ("feature", f"for {self.first}", self.first, self.second), self.rows())

    def drawing(self) -> Drawn:
        """One bar per feature; a bar to the right favors the first document."""
        top = self.features[:SHOWN]
        title = f"Features in favor of {self.first} (right) and of {self.second} (left)"
        return Drawn("decision", title, _bars([row[0] for row in top], [row[1] for row in top], title))


def explain(
    ranker: Scorer,
    data: JudgedSet,
    names: Sequence[str] = (),
    *,
    metric: str | None = METRIC,
    repeats: int = 5,
    seed: int = 0,
) -> Explanation:
    """Permutation importance of each feature; `decide` explains the order of two documents of a query.

    `evaluate` measures the ranker itself.

    Args:
        names: feature names, in order.
        metric: the metric whose loss is measured, by the labels of the data; None: the order, for data without labels.
        repeats: number of shuffles per feature.

    >>> import numpy as np
    >>> from unskew import JudgedSet, explain
    >>> features = np.random.default_rng(0).standard_normal((60, 2)).astype(np.float32)
    >>> judged = JudgedSet.from_arrays(features, (features[:, 1] > 0).astype(np.float32), group=[6] * 10)
    >>> found = explain(lambda features, mask: features[..., 1], judged, ("price", "rating"))
    >>> [row.feature for row in found.features]
    ['rating', 'price']
    """
    names = names or tuple(f"feature {number}" for number in range(data.n_features))
    if len(names) != data.n_features:
        raise ValueError(f"{len(names)} names for {data.n_features} features: pass one name per feature")
    if not data.n_documents:
        raise ValueError("the data have no documents: pass data to explain the ranker on")
    rng = np.random.default_rng(seed)
    scores = score_documents(ranker, data)
    found = []
    for column, name in enumerate(names):
        lost = np.mean([_lost(ranker, data, column, rng, scores, metric) for _ in range(repeats)], axis=0)
        if not np.isfinite(lost).any():
            raise ValueError("no query has two documents to order, or none has a relevant one: pass other data")
        found.append(Importance(name, *mean_interval(lost[np.isfinite(lost)])))
    counted = int(np.isfinite(lost).sum())
    ordered = sorted(found, key=lambda row: -row.mean)
    return Explanation(ORDER if metric is None else metric, counted, tuple(ordered))


def _lost(
    ranker: Scorer, data: JudgedSet, column: int, rng: np.random.Generator, scores: NDArray, metric: str | None
) -> NDArray[np.float64]:
    """The loss per query when a column is shuffled; NaN if it is not defined."""
    features = data.features.copy()
    features[:, column] = rng.permutation(features[:, column])
    shuffled = replace(data, features=features)
    without = score_documents(ranker, shuffled)
    if metric is None:
        return 1 - kendall(scores, without, shuffled.offsets)
    both = [evaluate_scorer(values, shuffled, [metric]).values(metric) for values in (scores, without)]
    return both[0] - both[1]


def decide(
    ranker: Scorer,
    features: NDArray[np.float32],
    first: int,
    second: int,
    names: Sequence[str] = (),
    *,
    labels: tuple[str, str] | None = None,
    orders: int = 64,
    seed: int = 0,
) -> Decision:
    """Which features decided between two documents of a query.

    Args:
        features: features of all candidates of the query, `[documents, f]`; a listwise ranker uses the others too.
        first, second: rows of the two documents.
        orders: number of random orders of replacement; more are more precise.
    """
    n_features = features.shape[1]
    names = names or tuple(f"feature {number}" for number in range(n_features))
    rng = np.random.default_rng(seed)
    a, b = features[first], features[second]
    shares = np.zeros(n_features)
    for _ in range(orders):
        order = rng.permutation(n_features)
        turn = np.empty(n_features, dtype=np.int64)
        turn[order] = np.arange(n_features)
        replaced = turn[None, :] < np.arange(n_features + 1)[:, None]  # each row has one more feature of a
        path = _scores_in_place(ranker, features, second, np.where(replaced, a, b))
        shares[order] += np.diff(path)
    whole = _scores_in_place(ranker, features, second, np.stack([a, b]))
    shares /= orders
    ranked = np.argsort(-np.abs(shares), kind="stable")
    rows = tuple((str(names[k]), float(shares[k]), float(a[k]), float(b[k])) for k in ranked)
    said = labels or (f"document {first}", f"document {second}")
    return Decision(*said, (float(whole[0]), float(whole[1])), rows)


def _scores_in_place(ranker: Scorer, features: NDArray, row: int, versions: NDArray) -> NDArray[np.float64]:
    """Scores of versions of one document, each among the other documents."""
    lists = np.repeat(features[None], len(versions), axis=0)
    lists[:, row] = versions
    mask = torch.ones(lists.shape[:2], dtype=torch.bool)
    with torch.inference_mode():
        return ranker(torch.from_numpy(lists.astype(np.float32)), mask)[:, row].double().numpy()


def _bars(labels: Sequence[str], values: Sequence[float], x_label: str, spread: NDArray | None = None) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 1.2 + 0.22 * len(labels)), layout="constrained")
        axes = figure.add_subplot()
        places = np.arange(len(labels))[::-1]
        axes.barh(places, values, xerr=spread, color=COLOURS[0], height=0.7, error_kw={"linewidth": 0.8})
        axes.set_yticks(places, labels)
        axes.set_xlabel(x_label)
        return figure


def save_explanation(found: Explanation | Decision, folder: str | Path) -> Path:
    """Write a figure and the numbers into a folder."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    drawn = found.drawing()
    drawn.save(target)
    (target / f"{drawn.file}.json").write_text(json.dumps(found.to_json(), indent=2) + "\n", encoding="utf-8")
    return target
