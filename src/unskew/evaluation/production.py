"""The production ranking that the log shows, as one score per document.

The score is the policy score if the log has it and it is one number per document; otherwise it is minus the mean
position at which the document was shown, in lists without intervention if there are any. It does not depend on clicks.

If a log shows several rankers, the latest is in production: `latest_ranker` finds it, by a column that names rankers or
by a change over time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.windows import DAY, microseconds
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.held_out import HeldOut, NotMeasured, Vector
from unskew.evaluation.ranker_change import latest_change
from unskew.reporting.answers import BAD, PLAIN

WAYS = {"since": "DATE", "score": "COLUMN", "logger": "COLUMN:VALUE"}  # ways to name the production ranker
HELD_BACK = 0.2  # share of the queries for checking an imitation
NAMES_RANKERS = ("logger", "ranker", "policy")  # in the name of a bias column whose levels are rankers
ARM = "arm"  # or its whole name


@dataclass(frozen=True, eq=False)
class Production:
    """Scores of documents and their origin."""

    scores: Vector
    source: str
    reproduced: float | None = None  # share of document pairs in its lists that the scores order as shown

    @property
    def described(self) -> str:
        """The origin of the scores, and how well they reproduce the shown order."""
        if self.reproduced is None:
            return self.source
        return f"{self.source}, which orders {self.reproduced:.0%} of shown pairs as shown"


def production_of_log(log: ClickLog, which: str | None = None) -> Production:
    """The production ranking of the documents of a log, `[documents]`; NaN for documents that were never shown.

    Args:
        which: the production ranker, if the log has several: since=DATE, logger=COLUMN:VALUE or score=COLUMN.
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
    """The production ranking of judged documents: as the log shows them, otherwise imitated.

    If the log shows the judged queries, with the same ids and features, the ranking is known, and documents that were
    not shown are below the others. Otherwise boosted trees learn the production scores from the features; the source
    says how many document pairs they order as production did, on held-out queries.
    """
    own = production_of_log(log, which)
    known = _looked_up(log, own.scores, judged)
    if known is not None:
        return Production(known, own.source, own.reproduced)
    trees, agreement = _imitation(log, own.scores)
    scores = trees.predict(judged.features) if judged.n_documents else np.zeros(0)
    meant = "" if which is None else f"{own.source}, "
    return Production(scores, f"{meant}imitated from features, {agreement:.0%} of pairs in production's order")


def parse_production(which: str) -> tuple[str, str]:
    """Parse a description such as since=2026-11-01 into its kind and value."""
    kind, _, value = which.partition("=")
    if kind not in WAYS or not value or (kind == "logger" and ":" not in value):
        raise ValueError(f"production '{which}': write {', '.join(f'{name}={form}' for name, form in WAYS.items())}")
    if kind == "since":
        microseconds(value, kind)  # raises before anything runs
    return kind, value


def _lists_of(log: ClickLog, kind: str, value: str) -> NDArray[np.bool_]:
    """The lists of the production ranker."""
    if kind == "since":
        times = log.periods if log.periods is not None else log.first_shown
        start = microseconds(value, "since")
        if times is None or start is None:
            raise ValueError("the log has no times: ingest it with --time, or name production by score= or logger=")
        if not (times >= start).any():
            last = datetime.fromtimestamp(int(times.max(initial=0)) / 1e6, UTC).isoformat(" ", "minutes")
            raise ValueError(f"there are no sessions since {value}: the last is of {last}; choose an earlier date")
        return times >= start
    name, _, level = value.partition(":")
    column = log.bias.get(name)
    if column is None or column.levels is None or column.values.ndim > 1 or level not in column.levels:
        known = [f"{key}:{entry}" for key, found in log.bias.items() for entry in found.levels or ()]
        raise ValueError(f"no list has logger={value}. Found: {', '.join(known) or 'no column with rankers'}")
    return column.values == column.levels.index(level)


def _in_lists(log: ClickLog, lists: NDArray[np.bool_], which: str) -> Production:
    """The ranking of some lists; documents that they do not show are below, in the order of the other lists."""
    if not log.sessions[lists].sum() or not log.mask[lists].any():
        raise ValueError(f"no held-out session belongs to {which}: choose another, or hold out more queries")
    own, everywhere = production_of_log(log.select(lists)), -_mean_position(log, np.ones(log.n_lists, dtype=bool))
    absent = np.isnan(own.scores) & ~np.isnan(everywhere)
    below = np.nanmin(own.scores) - 1.0 - log.n_positions + everywhere
    sessions = f"{log.sessions[lists].sum():,.0f} of {log.n_sessions:,.0f} sessions"
    unseen = f", {absent.sum():,} documents that it never showed come last" if absent.any() else ""
    first = which.startswith("since") and log.periods is None and (log.sessions > 1).any()
    roughly = ", dated by the first showing of each list (ingest with --period day to count by day)" if first else ""
    source = f"{own.source} of {which}, {sessions}{roughly}{unseen}"
    return Production(np.where(absent, below, own.scores), source, own.reproduced)


def _by_score(log: ClickLog, name: str) -> Production:
    """A feature column, or a numeric bias column, as the score of production."""
    if name in log.feature_names:
        scores: Vector | None = log.features[:, log.feature_names.index(name)].astype(np.float64)
    elif name in log.bias and log.bias[name].levels is None:
        scores = _one_score(log, log.bias[name].per_document(log.mask.shape[1]))
    else:
        raise ValueError(f"no feature or numeric bias column '{name}': name the column with the production score")
    shown = np.unique(log.versions[log.mask])
    if scores is None or np.isnan(scores[shown]).any():
        raise ValueError(f"'{name}' is not a production score: it must be one number per shown document")
    return Production(scores, f"score {name}", _reproduced(log, scores, np.ones(log.n_lists, dtype=bool)))


def _one_score(log: ClickLog, policy_scores: NDArray) -> Vector | None:
    """The score of each document, if no document has several scores and they are not constant."""
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
    """Share of the document pairs in these lists that the scores order as shown; a tie counts one half."""
    lists = lists if lists.any() else np.ones(log.n_lists, dtype=bool)
    rows, columns = np.nonzero(log.mask & lists[:, None])  # from the top down
    height = scores[log.versions[rows, columns]]
    known = ~np.isnan(height)
    rows, columns = rows[known], columns[known]
    return _agreement(height[known], -columns, rows, log.sessions[rows])


def _looked_up(log: ClickLog, scores: Vector, judged: JudgedSet) -> Vector | None:
    """Scores of judged documents that are in the log; None unless it shows every judged query."""
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
    # Ids that are equal by coincidence, as in two numbered files, have different features.
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
    # Only the order within a query matters, so the level of a query is removed.
    mean = np.bincount(queries, scores[documents]) / np.maximum(np.bincount(queries), 1)
    target = scores[documents] - mean[queries]
    learnt = ~checked if (~checked).any() else checked
    trees = HistGradientBoostingRegressor(
        max_iter=200, max_leaf_nodes=15, max_bins=63, early_stopping=False, random_state=0
    )
    trees.fit(log.features[documents[learnt]], target[learnt])
    guess = trees.predict(log.features[documents[checked]])
    agreement = _agreement(guess, target[checked], queries[checked], np.ones(len(guess)))
    return trees, 0.5 if agreement is None else agreement


def _agreement(guess: Vector, truth: NDArray, groups: NDArray[np.int64], weights: NDArray) -> float | None:
    """Weighted share of the pairs of one group that two scores order equally; a tie of the guess counts one half.

    None: the truth orders no pair.

    Args:
        groups: the group of each, `[documents]`, without gaps.
        weights: of each, equal within a group.
    """
    agreeing = pairs = 0.0
    for distance in range(1, len(groups)):
        together = groups[distance:] == groups[:-distance]
        if not together.any():
            break
        of_truth = np.sign(truth[distance:] - truth[:-distance])[together]
        of_guess = np.sign(guess[distance:] - guess[:-distance])[together]
        weight = np.where(of_truth != 0, weights[distance:][together], 0.0)
        agreeing += float((weight * (1 + of_truth * of_guess) / 2).sum())
        pairs += float(weight.sum())
    return agreeing / pairs if pairs else None


@dataclass(frozen=True)
class LatestRanker:
    """The ranker that counts as production unless the user names one, and how it was found."""

    which: str | None  # a value of `--production`; None: all sessions
    line: str  # in few words

    def answer(self) -> tuple[str, str]:
        if self.which is None:
            return self.line, PLAIN
        return f"no: {self.line}. Production is --production {self.which}", BAD


def latest_ranker(log: ClickLog) -> LatestRanker:
    """The latest ranker of a log."""
    column = _column_of_rankers(log)
    if column is not None:
        return _latest_level(log, column)
    try:
        change = latest_change(log)
    except NotMeasured as reason:
        return LatestRanker(None, f"unknown whether the ranker changed: {reason}")
    if change is None:
        return LatestRanker(None, "no change of ranker found")
    return LatestRanker(f"since={change.day}", change.line)


def _column_of_rankers(log: ClickLog) -> str | None:
    """The bias column that names the ranker of each list, if there are several rankers; otherwise None."""
    for name, column in log.bias.items():
        named = name.lower() == ARM or any(part in name.lower() for part in NAMES_RANKERS)
        if named and column.levels is not None and column.values.ndim == 1 and len(np.unique(column.values)) > 1:
            return name
    return None


def _latest_level(log: ClickLog, name: str) -> LatestRanker:
    """The ranker with the most sessions on the last day."""
    column = log.bias[name]
    assert column.levels is not None
    times = log.periods if log.periods is not None else log.first_shown
    if times is None:
        levels = ", ".join(column.levels[level] for level in np.unique(column.values))
        return LatestRanker(None, f"the rankers of {name} ({levels}) are pooled: without times the latest is not known")
    usual = np.ones(log.n_lists, dtype=bool) if log.interventions is None else log.interventions.values == 0
    last = int(times[usual].max() if usual.any() else times.max()) // DAY
    sessions = np.bincount(column.values, np.where((times // DAY == last) & usual, log.sessions, 0), len(column.levels))
    level = column.levels[int(sessions.argmax())]
    day = datetime.fromtimestamp(last * DAY / 1e6, UTC).date().isoformat()
    share = f"{sessions.max():,.0f} of {sessions.sum():,.0f} sessions"
    return LatestRanker(f"logger={name}:{level}", f"the {name} with the most sessions on the last day, {day}: {share}")
