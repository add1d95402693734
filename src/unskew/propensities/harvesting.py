r"""Propensities from documents that were shown at several positions: pivot, adjacent chain, all pairs.

No deliberate randomization is needed: two rankers, a retrained ranker, or swapped results are enough (Agarwal et al.,
Estimating Position Bias without Intrusive Interventions, WSDM 2019). All assume
$P(c) = p_k\,P(r \mid q, d)$: examination depends on the position alone. Notation: see `position_pairs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

import numpy as np
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import xlog1py, xlogy

from unskew.data.clicks.click_log import ClickLog
from unskew.propensities.curve import Curve, Interval, NotIdentified, Vector, curve_of_sums, ratio
from unskew.propensities.position_pairs import PairCounts, components, count_pairs, how_to_leave_out, spell

WIDEST = 25.0  # propensities are searched between e^-25 and e^25 of the top one
MOST_STEPS = 60  # of Newton's method; it usually needs only a few
LARGEST_CHANCE = 1 - 1e-12  # upper limit of a click probability if there was a non-click

HOW_TO_LINK = (
    "show the same documents at several positions: swap or shuffle a share of the sessions (in a simulation "
    "interventions={'swap_top': 0.1}), or alternate with a second ranker (policy 'mixed' or 'plackett_luce'). "
    "In a log without document ids (from_arrays), two lists never share a document: use from_table"
)


def pivot(
    log: ClickLog,
    *,
    weighting: str = "documents",
    counted: NDArray[np.bool_] | None = None,
    across_versions: bool = False,
    **interval: Unpack[Interval],
) -> Curve:
    r"""Each position against the top one: $p_k / p_1 = \hat c_k^{1k} / \hat c_1^{1k}$.

    Args:
        weighting: documents (each counts once) or shared (each counts with its impressions at the rarer position).
        counted: impressions that count, `[lists, docs]`; default: all.
        across_versions: also compare a document with itself after its features changed; see `count_pairs`.
    """
    pairs = count_pairs(log, weighting=weighting, counted=counted, across_versions=across_versions)
    _check_links(pairs, "pivot", [(0, place) for place in range(1, pairs.n_positions)])

    def estimate(sums: Vector) -> Vector:
        clicks, _ = pairs.sums(sums)
        return _after_one(ratio(clicks[:, 1:, 0], clicks[:, 0, 1:]))

    return _curve("pivot", pairs, estimate, **interval)


def adjacent_chain(
    log: ClickLog,
    *,
    weighting: str = "documents",
    counted: NDArray[np.bool_] | None = None,
    across_versions: bool = False,
    **interval: Unpack[Interval],
) -> Curve:
    r"""Each position against the one above: $p_k / p_1 = \prod_{j<k} \hat c_{j+1}^{j,j+1} / \hat c_j^{j,j+1}$.

    Neighbors are adjacent among the positions that occur. Arguments as for `pivot`.
    """
    pairs = count_pairs(log, weighting=weighting, counted=counted, across_versions=across_versions)
    _check_links(pairs, "adjacent_chain", [(place - 1, place) for place in range(1, pairs.n_positions)])

    def estimate(sums: Vector) -> Vector:
        clicks, _ = pairs.sums(sums)
        upper = np.arange(pairs.n_positions - 1)
        with np.errstate(invalid="ignore"):  # a resample may have no click on one side of a link
            return _after_one(np.cumprod(ratio(clicks[:, upper + 1, upper], clicks[:, upper, upper + 1]), axis=1))

    return _curve("adjacent_chain", pairs, estimate, **interval)


def all_pairs(
    log: ClickLog,
    *,
    weighting: str = "documents",
    counted: NDArray[np.bool_] | None = None,
    across_versions: bool = False,
    **interval: Unpack[Interval],
) -> Curve:
    r"""All pairs of positions jointly, each with its own relevance: AllPairs intervention harvesting.

    Maximizes $\sum_{k \ne l} \hat c_k^{kl} \log(p_k r_{kl}) + \hat n_k^{kl} \log(1 - p_k r_{kl})$,
    $r_{kl} = r_{lk}$ the mean relevance of the documents shown at both, $\hat n$ the non-clicks. Arguments as for
    `pivot`; the weighting shared is the variance-reduced one (Magnani & Xie 2025).
    """
    if log.graded:
        raise ValueError("all_pairs needs binary clicks, but this log is graded: use pivot or adjacent_chain")
    pairs = count_pairs(log, weighting=weighting, counted=counted, across_versions=across_versions)
    _check_connected(pairs)
    answer = fit_all_pairs(*pairs.total())

    def estimate(sums: Vector) -> Vector:
        return refit_all_pairs(*pairs.sums(sums), start=answer)

    return _curve("all_pairs", pairs, estimate, **interval)


def fit_all_pairs(clicks: Vector, others: Vector) -> Vector:
    """Maximum-likelihood propensities relative to the first, from clicks and non-clicks `[positions, positions]`."""
    n_free = len(clicks) - 1
    if n_free == 0:
        return np.ones(1)
    scale = clicks.sum() + others.sum() or 1.0

    def objective(free: Vector) -> tuple[float, Vector]:
        value, gradient, _ = negative_log_likelihood(
            np.append(0.0, free)[None], clicks[None] / scale, others[None] / scale
        )
        return value[0], gradient[0, 1:]

    result = optimize.minimize(
        objective,
        x0=np.zeros(n_free),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-WIDEST, WIDEST)] * n_free,
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1_000, "maxcor": 20},
    )
    return np.exp(np.append(0.0, result.x))


def refit_all_pairs(clicks: Vector, others: Vector, start: Vector) -> Vector:
    """`fit_all_pairs` for many counts `[fits, positions, positions]` at once, from a start near all solutions.

    Newton's method needs few steps there, and runs for all fits together.
    """
    now = np.tile(np.log(start), (len(clicks), 1))
    length = np.ones((len(clicks), 1))
    value, gradient, curvature = negative_log_likelihood(now, clicks, others)
    for _ in range(MOST_STEPS):
        step = np.zeros_like(now)
        step[:, 1:] = np.linalg.solve(_regular(curvature[:, 1:, 1:]), gradient[:, 1:, None])[..., 0]
        step = length * np.clip(step, -1.0, 1.0)
        trial = np.clip(now - step, -WIDEST, WIDEST)
        reached = negative_log_likelihood(trial, clicks, others)
        better = reached[0] <= value
        length = np.where(better, 1.0, length[:, 0] / 2)[:, None]
        now[better], value[better] = trial[better], reached[0][better]
        gradient[better], curvature[better] = reached[1][better], reached[2][better]
        if np.abs(step).max(initial=0.0) < 1e-7:
            break
    return np.exp(now)


def negative_log_likelihood(log_propensities: Vector, clicks: Vector, others: Vector) -> tuple[Vector, Vector, Vector]:
    r"""Negative log-likelihood of all pairs, each at its likeliest relevance, with gradient and curvature.

    The likelihood is concave in $\log p$ and $\log r$, and so in $\log p$ with the best $r$ inserted; at the best $r$
    the gradient is that with $r$ held fixed. Only products $p_k r_{kl}$ must stay below 1: the scale of $p$ is free.

    Args:
        log_propensities: `[fits, positions]`.
        clicks: `[fits, positions, positions]`, at the first position of documents shown at both.

    Returns:
        `[fits]`, `[fits, positions]` and `[fits, positions, positions]`.
    """
    n_positions = clicks.shape[-1]
    one, other = np.triu_indices(n_positions, 1)
    clicks_of = np.stack([clicks[:, one, other], clicks[:, other, one]], axis=1)  # [fits, 2, pairs]
    others_of = np.stack([others[:, one, other], others[:, other, one]], axis=1)
    propensities = np.exp(np.stack([log_propensities[:, one], log_propensities[:, other]], axis=1))
    relevance = _likeliest_relevance(propensities, clicks_of, others_of)[:, None]
    chance = np.minimum(propensities * relevance, LARGEST_CHANCE)
    value = -(xlogy(clicks_of, chance) + xlog1py(others_of, -chance)).sum(axis=(1, 2))

    slope = np.zeros_like(clicks, dtype=np.float64)
    slope[:, one, other], slope[:, other, one] = np.moveaxis(others_of * chance / (1 - chance) - clicks_of, 1, 0)
    bend = others_of * chance / (1 - chance) ** 2
    # A pair constrains only the difference of its two logarithms, like a spring: the curvature is a graph Laplacian.
    spring = bend.prod(axis=1) / np.maximum(bend.sum(axis=1), np.finfo(np.float64).tiny)
    curvature = np.zeros_like(slope)
    curvature[:, one, other] = curvature[:, other, one] = -spring
    places = np.arange(n_positions)
    curvature[:, places, places] = -curvature.sum(axis=2)
    return value, slope.sum(axis=2), curvature


def _likeliest_relevance(propensities: Vector, clicks: Vector, others: Vector) -> Vector:
    r"""The relevance of each pair, `[fits, pairs]`, from values `[fits, 2, pairs]` at its two positions.

    $\frac{c + c'}{r} = \frac{n p}{1 - p r} + \frac{n' p'}{1 - p' r}$ is quadratic in $r$; its smaller root leaves both
    $p r$ and $p' r$ at most 1.
    """
    total = clicks.sum(axis=1)
    square = (total + others.sum(axis=1)) * propensities.prod(axis=1)
    linear = total * propensities.sum(axis=1) + (others * propensities).sum(axis=1)
    root = np.sqrt(np.maximum(linear**2 - 4 * square * total, 0.0))
    return 2 * total / np.maximum(linear + root, np.finfo(np.float64).tiny)  # 0 if nothing was shown or clicked


def _regular(curvature: Vector) -> Vector:
    """The matrices, made invertible if a resample lost all clicks between some positions."""
    n = curvature.shape[-1]
    ridge = 1e-12 * np.trace(curvature, axis1=1, axis2=2) + np.finfo(np.float64).tiny
    return curvature + ridge[:, None, None] * np.eye(n)


def _curve(name: str, pairs: PairCounts, estimate: Callable[[Vector], Vector], **interval: Unpack[Interval]) -> Curve:
    return curve_of_sums(name, pairs.positions, pairs.n_impressions, pairs.per_query, estimate, **interval)


def _after_one(ratios: Vector) -> Vector:
    return np.concatenate([np.ones((len(ratios), 1)), ratios], axis=1)


def _check_links(pairs: PairCounts, name: str, links: Sequence[tuple[int, int]]) -> None:
    """Refuse a log without shared documents, or without clicks, at both positions of a link."""
    positions, (clicks, _) = pairs.positions, pairs.total()
    unlinked = [(positions[k], positions[j]) for k, j in links if not pairs.documents[k, j]]
    if unlinked:
        raise NotIdentified(
            f"{name} compares positions {_spell_links(unlinked)}, but no document was shown at both. "
            f"all_pairs may link them through other positions; otherwise {HOW_TO_LINK}"
        )
    silent = [(positions[k], positions[j]) for k, j in links if not (clicks[k, j] and clicks[j, k])]
    if silent:
        raise NotIdentified(
            f"{name} compares positions {_spell_links(silent)}, but the documents shown at both were never clicked at "
            f"one of them: use a longer log, or {how_to_leave_out(silent[0][1])}"
        )


def _spell_links(links: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{one + 1} and {other + 1}" for one, other in links)


def _check_connected(pairs: PairCounts) -> None:
    """Refuse a log whose positions are not linked, or are linked only by documents without clicks."""
    groups = components(pairs.documents > 0, pairs.positions)
    if len(groups) > 1:
        raise NotIdentified(
            f"all_pairs cannot compare {' with '.join(spell(group) for group in groups)}: no document was shown in "
            f"both. Instead {HOW_TO_LINK}"
        )
    # Without clicks on one side of a cut the likelihood has no maximum, as in any comparison that one side always wins.
    groups = components(pairs.total()[0] > 0, pairs.positions, both_ways=True)
    if len(groups) > 1:
        raise NotIdentified(
            f"all_pairs cannot compare {' with '.join(spell(group) for group in groups)}: the documents shown in both "
            "were never clicked on one side. Use a longer log, or "
            f"{how_to_leave_out(min(group[0] for group in groups[1:]))}"
        )
