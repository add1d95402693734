"""The production ranking: what was shown before anybody trained anything, as one score per document.

The score is the policy's own where the log has it and it is one number per document; else minus the mean position at
which the document was shown, in lists that no intervention changed where there are such. No click enters it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.windows import microseconds
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.held_out import HeldOut, Vector

WAYS = {"since": "DATE", "score": "COLUMN", "logger": "COLUMN:VALUE"}  # of saying which ranker production is
HELD_BACK = 0.2  # share of the queries on which an imitation is checked


@dataclass(frozen=True, eq=False)
class Production:
    """Scores of documents and where they come from."""

    scores: Vector
    source: str
    reproduced: float | None = None  # share of the pairs of documents in its lists that stand as the scores order them

    @property
    def described(self) -> str:
        """The origin of the scores, and how well they reproduce the shown order."""
        if self.reproduced is None:
            return self.source
        return f"{self.source}, which orders {self.reproduced:.0%} of shown pairs as shown"


def production_of_log(log: ClickLog, which: str | None = None) -> Production:
    """The production ranking of the documents of a log, `[documents]`; NaN where one was never shown.

    Args:
        which: the ranker meant, where the log has several: since=DATE, logger=COLUMN:VALUE or score=COLUMN.
    """
    if which is not None:
        kind, value = parse_production(which)
        return _by_score(log, value) if kind == "score" else _in_lists(log, _lists_of(log, kind, value), which)
    known = None if log.policy_scores is None else _one_score(log, log.policy_scores)
    unchanged = np.ones(log.n_lists, dtype=bool) if log.interventions is None else log.interventions.values == 0
    if known is not None:
        return Production(known, "policy score", _reproduced(log, known, unchanged))
    everywhere = _mean_position(log, np.ones(log.n_lists, dtype=bool))
    usual = _mean_position(log, unchanged)
    scores = -np.where(np.isnan(usual), everywhere, usual)
    return Production(scores, "shown order", _reproduced(log, scores, unchanged))


def production_of_judged(log: ClickLog, judged: JudgedSet, which: str | None = None) -> Production:
    """The production ranking of judged documents: as the log shows them, else imitated.

    Where the log shows the judged queries, with the same ids and features, the ranking is known, and what was not shown
    stands below what was. Else boosted trees learn the production scores from the features; the source says how many
    pairs of documents they order as production did, on queries that they did not learn from.
    """
    own = production_of_log(log, which)
    known = _looked_up(log, own.scores, judged)
    if known is not None:
        return Production(known, own.source, own.reproduced)
    trees, agreement = _imitation(log, own.scores)
    scores = trees.predict(judged.features) if judged.n_documents else np.zeros(0)
    meant = "" if which is None else f"{own.source}, "
    return Production(scores, f"{meant}imitated from features, {agreement:.0%} of pairs as in production")


def parse_production(which: str) -> tuple[str, str]:
    """The kind and the value of a description such as since=2026-11-01."""
    kind, _, value = which.partition("=")
    if kind not in WAYS or not value or (kind == "logger" and ":" not in value):
        raise ValueError(f"production is '{which}': say {', '.join(f'{name}={form}' for name, form in WAYS.items())}")
    if kind == "since":
        microseconds(value, kind)  # refused before anything runs
    return kind, value


def _lists_of(log: ClickLog, kind: str, value: str) -> NDArray[np.bool_]:
    """The lists of the ranker that is meant."""
    if kind == "since":
        times = log.periods if log.periods is not None else log.first_shown
        start = microseconds(value, "since")
        if times is None or start is None:
            raise ValueError("the log has no times: ingest it with --time, or say what production is by another way")
        if not (times >= start).any():
            last = datetime.fromtimestamp(int(times.max(initial=0)) / 1e6, UTC).isoformat(" ", "minutes")
            raise ValueError(f"no session is of production since={value}: the last here is of {last}")
        return times >= start
    name, _, level = value.partition(":")
    column = log.bias.get(name)
    if column is None or column.levels is None or column.values.ndim > 1 or level not in column.levels:
        known = [f"{key}:{entry}" for key, found in log.bias.items() for entry in found.levels or ()]
        raise ValueError(f"no list is of logger={value}; the log has {', '.join(known) or 'no column of loggers'}")
    return column.values == column.levels.index(level)


def _in_lists(log: ClickLog, lists: NDArray[np.bool_], which: str) -> Production:
    """The ranking of some lists; what they do not show stands below, in the order of the others."""
    if not log.sessions[lists].sum() or not log.mask[lists].any():
        raise ValueError(f"no held-out session is of production {which}: choose another, or hold out more queries")
    own, everywhere = production_of_log(log.select(lists)), -_mean_position(log, np.ones(log.n_lists, dtype=bool))
    absent = np.isnan(own.scores) & ~np.isnan(everywhere)
    below = np.nanmin(own.scores) - 1.0 - log.n_positions + everywhere
    sessions = f"{log.sessions[lists].sum():,.0f} of {log.n_sessions:,.0f} sessions"
    unseen = f", {absent.sum():,} documents that it did not show below the others" if absent.any() else ""
    first = which.startswith("since") and log.periods is None and (log.sessions > 1).any()
    roughly = ", by when a list was first shown (ingest with --period day to count by day)" if first else ""
    source = f"{own.source} of {which}, {sessions}{roughly}{unseen}"
    return Production(np.where(absent, below, own.scores), source, own.reproduced)


def _by_score(log: ClickLog, name: str) -> Production:
    """A column of features, or a bias column of numbers, as the score of production."""
    if name in log.feature_names:
        scores: Vector | None = log.features[:, log.feature_names.index(name)].astype(np.float64)
    elif name in log.bias and log.bias[name].levels is None:
        scores = _one_score(log, log.bias[name].per_document(log.mask.shape[1]))
    else:
        raise ValueError(f"no column '{name}' of features or numbers: say which one holds the score of production")
    shown = np.unique(log.versions[log.mask])
    if scores is None or np.isnan(scores[shown]).any():
        raise ValueError(f"'{name}' is not a score of production: it must be one number for every shown document")
    return Production(scores, f"score {name}", _reproduced(log, scores, np.ones(log.n_lists, dtype=bool)))


def _one_score(log: ClickLog, policy_scores: NDArray) -> Vector | None:
    """The score of each document, if no document has several and they order anything."""
    lowest, highest = np.full(len(log.features), np.inf), np.full(len(log.features), -np.inf)
    np.minimum.at(lowest, log.versions[log.mask], policy_scores[log.mask])
    np.maximum.at(highest, log.versions[log.mask], policy_scores[log.mask])
    shown = np.isfinite(lowest)
    if (lowest[shown] != highest[shown]).any() or not np.ptp(lowest[shown]) > 0:
        return None
    return np.where(shown, lowest, np.nan)


def _mean_position(log: ClickLog, lists: NDArray[np.bool_]) -> Vector:
    counted = log.mask & lists[:, None]
    documents = log.versions[counted]
    shown = np.broadcast_to(log.sessions[:, None], counted.shape)[counted].astype(np.float64)
    n = len(log.features)
    times = np.bincount(documents, shown, n)
    places = np.bincount(documents, shown * log.positions[counted], n)
    return np.divide(places, times, out=np.full(n, np.nan), where=times > 0)


def _reproduced(log: ClickLog, scores: Vector, lists: NDArray[np.bool_]) -> float | None:
    """Share of the pairs of documents in these lists that stand as the scores order them; a tie counts one half."""
    lists = lists if lists.any() else np.ones(log.n_lists, dtype=bool)
    height = np.where(log.mask, scores[log.versions], np.nan)[lists]  # from the top down
    right = pairs = 0.0
    for distance in range(1, height.shape[1]):
        lead = height[:, :-distance] - height[:, distance:]
        known = ~np.isnan(lead)
        sessions = np.broadcast_to(log.sessions[lists][:, None], lead.shape)[known]
        right += float((sessions * (1 + np.sign(lead[known])) / 2).sum())
        pairs += float(sessions.sum())
    return right / pairs if pairs else None


def _looked_up(log: ClickLog, scores: Vector, judged: JudgedSet) -> Vector | None:
    """Scores of judged documents that the log describes; None unless it shows every judged query."""
    number = {
        (str(query), str(document)): row
        for row, (query, document) in enumerate(
            zip(
                log.query_ids[log.version_queries].tolist(),
                log.document_ids[log.version_documents].tolist(),
                strict=True,
            )
        )
    }
    ids = np.repeat(judged.query_ids, judged.sizes).tolist()
    rows = np.array(
        [number.get((str(q), str(d)), -1) for q, d in zip(ids, judged.document_ids.tolist(), strict=True)], dtype=int
    )
    found = rows >= 0
    if not found.any() or judged.n_features != log.n_features:
        return None
    # Ids that only happen to be equal, as in two numbered files, come with other features.
    if not np.array_equal(log.features[rows[found]], judged.features[found], equal_nan=True):
        return None
    values = np.where(found, scores[rows], np.nan)
    query = np.repeat(np.arange(judged.n_queries), judged.sizes)
    if (np.bincount(query, ~np.isnan(values), judged.n_queries) == 0).any():
        return None
    return np.where(np.isnan(values), np.nanmin(values) - 1.0, values)


def _imitation(log: ClickLog, scores: Vector) -> tuple[HistGradientBoostingRegressor, float]:
    """Trees from features to production scores, and their agreement with production on other queries."""
    documents, queries = HeldOut(log).candidates("shown")
    checked = np.random.default_rng(0).random(int(queries.max(initial=0)) + 1)[queries] < HELD_BACK
    if checked.all() or not checked.any():
        checked = queries == queries.max(initial=0)
    # Orders count within a query only: the level of a query is not to be learned.
    mean = np.bincount(queries, scores[documents]) / np.maximum(np.bincount(queries), 1)
    target = scores[documents] - mean[queries]
    learnt = ~checked if (~checked).any() else checked
    trees = HistGradientBoostingRegressor(
        max_iter=200, max_leaf_nodes=15, max_bins=63, early_stopping=False, random_state=0
    )
    trees.fit(log.features[documents[learnt]], target[learnt])
    guess = trees.predict(log.features[documents[checked]])
    return trees, _agreement(guess, target[checked], queries[checked])


def _agreement(guess: Vector, truth: Vector, queries: NDArray[np.int64]) -> float:
    """Share of pairs of one query that two scores order alike; a tie of the guess counts one half."""
    agreeing = pairs = 0.0
    for distance in range(1, len(queries)):
        together = queries[distance:] == queries[:-distance]
        if not together.any():
            break
        of_truth = np.sign(truth[distance:] - truth[:-distance])[together]
        of_guess = np.sign(guess[distance:] - guess[:-distance])[together]
        told = of_truth != 0
        agreeing += ((1 + of_truth * of_guess)[told] / 2).sum()
        pairs += told.sum()
    return agreeing / pairs if pairs else 0.5
