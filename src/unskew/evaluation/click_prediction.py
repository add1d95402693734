r"""How well a model predicts held-out clicks: likelihood, perplexity, calibration, each with an interval over sessions.

With $\ell_{ik}$ the natural log-likelihood of what session $i$ did at position $k$, clicked or not:

* log-likelihood per page: the mean over sessions of $\sum_k \ell_{ik}$, each click given those above it; per impression
  it is the same divided by the mean number of documents of a page.
* perplexity at $k$: $\exp(-\frac1n \sum_i \ell_{ik})$ of the marginal probability, before anything was clicked;
  conditional perplexity: the same, given the clicks above. The overall value is the mean over positions. 1 is perfect;
  a coin flip has 2.
* calibration: predicted clicks over observed clicks; 1 is perfect.

These are the definitions of PyClick and CLAX (which also use the natural logarithm). A session is one showing of a
list. Intervals are 95% intervals, by the delta method from the spread over sessions, for a given model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.display import OnScreen, Screen
from unskew.evaluation.evaluate import predicting
from unskew.evaluation.held_out import NotMeasured
from unskew.lists import ClickedLists
from unskew.methods.click_models.click_model import ClickModel
from unskew.methods.click_models.sequences import Chances
from unskew.methods.method import Method

BY_POSITION = ("predicted click rate", "observed click rate", "perplexity", "conditional perplexity")
Z = 1.959964  # of a 95% interval
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval over sessions."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class ClickPrediction(OnScreen):
    """Log-likelihoods of single sessions; equal clicks on the same list are counted together."""

    sessions: Vector  # [rows], number of sessions
    positions: NDArray[np.int64]  # [rows, docs]
    mask: NDArray[np.bool_]  # [rows, docs]
    clicks: Vector  # [rows, docs], of one session
    marginal: Vector  # [rows, docs], probability of a click
    marginal_likelihood: Vector  # [rows, docs], of one session
    conditional_likelihood: Vector  # [rows, docs], of one session, given the clicks above

    @property
    def n_sessions(self) -> float:
        return float(self.sessions.sum())

    @property
    def n_positions(self) -> int:
        return int(self.positions[self.mask].max(initial=-1)) + 1

    def page_log_likelihoods(self) -> Vector:
        """The log-likelihood of one session of each row, `[rows]`."""
        return self.conditional_likelihood.sum(axis=1)

    def per_page(self) -> Estimate:
        return self.mean(self.page_log_likelihoods())

    def per_impression(self) -> Estimate:
        sizes = self.mask.sum(axis=1).astype(np.float64)
        mean_size = self.mean(sizes).value
        ratio = self.per_page().value / mean_size
        return self.mean(ratio + (self.page_log_likelihoods() - ratio * sizes) / mean_size)

    def perplexity(self, *, conditional: bool = False) -> Estimate:
        """The mean over positions."""
        by_position = [self._negative_log_likelihood(place, conditional) for place in range(self.n_positions)]
        known = [(level, influence) for level, influence in by_position if level is not None]
        value = float(np.mean([level for level, _ in known]))
        return self.mean(value + np.mean([influence for _, influence in known], axis=0))

    def perplexity_by_position(self, *, conditional: bool = False) -> list[Estimate | None]:
        """At each position; None: nothing was shown there."""
        found = [self._negative_log_likelihood(place, conditional) for place in range(self.n_positions)]
        return [None if level is None else self.mean(level + influence) for level, influence in found]

    def calibration(self) -> Estimate:
        """Predicted clicks over observed ones."""
        predicted = np.where(self.mask, self.marginal, 0.0).sum(axis=1)
        observed = self.clicks.sum(axis=1)
        mean = self.mean(observed).value
        if not mean:
            raise NotMeasured("nothing was clicked")
        ratio = self.mean(predicted).value / mean
        return self.mean(ratio + (predicted - ratio * observed) / mean)

    def rates_by_position(self) -> list[tuple[float, float]]:
        """Predicted and observed click rate at each position; NaN if nothing was shown."""
        rates = []
        for place in range(self.n_positions):
            weights = self.sessions[:, None] * (self.mask & (self.positions == place))
            total = weights.sum() or np.nan
            rates.append((float((weights * self.marginal).sum() / total), float((weights * self.clicks).sum() / total)))
        return rates

    def summary(self) -> dict[str, Estimate]:
        """Everything that can be measured: without a click there is no calibration."""
        calibration = {"predicted / observed clicks": self.calibration()} if self.clicks.any() else {}
        return {
            "log-likelihood per impression": self.per_impression(),
            "log-likelihood per page": self.per_page(),
            "perplexity": self.perplexity(),
            "conditional perplexity": self.perplexity(conditional=True),
            **calibration,
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "sessions": self.n_sessions,
            **{name: vars(entry) for name, entry in self.summary().items()},
            "positions": [
                dict(zip(BY_POSITION, (*(None if np.isnan(rate) else rate for rate in rates), *known), strict=True))
                for rates, *both in self._positions()
                for known in [[estimate and vars(estimate) for estimate in both]]
            ],
        }

    def screen(self) -> Screen:
        rows = [(name, f"{e.value:.4f}", f"{e.low:.4f} to {e.high:.4f}") for name, e in self.summary().items()]
        places = [
            (
                str(place),
                *("–" if np.isnan(rate) else f"{rate:.4f}" for rate in rates),
                *("–" if e is None else f"{e.value:.4f} ± {(e.high - e.low) / 2:.4f}" for e in both),
            )
            for place, (rates, *both) in enumerate(self._positions(), start=1)
        ]
        more = [Screen("By position (from 1)", ("position", *BY_POSITION), places)]
        return Screen(f"{self.n_sessions:,.0f} sessions", ("clicks", "value", "95% interval"), rows, more=more)

    def _positions(self) -> list[tuple[tuple[float, float], Estimate | None, Estimate | None]]:
        """Rates, perplexity and conditional perplexity at each position."""
        perplexities = [self.perplexity_by_position(conditional=conditional) for conditional in (False, True)]
        return list(zip(self.rates_by_position(), *perplexities, strict=True))

    def _negative_log_likelihood(self, place: int, conditional: bool) -> tuple[float | None, Vector]:
        """Perplexity at a position, and the influence of each session on it, `[rows]`."""
        likelihood = self.conditional_likelihood if conditional else self.marginal_likelihood
        here = self.mask & (self.positions == place)
        shown = here.any(axis=1)
        share = float((self.sessions * shown).sum() / self.n_sessions)
        if not share:
            return None, np.zeros(len(shown))
        values = np.where(here, likelihood, 0.0).sum(axis=1)
        mean = self.mean(values).value / share
        level = float(np.exp(-mean))
        return level, -level * (values - mean * shown) / share

    def mean(self, values: Vector) -> Estimate:
        """The mean over sessions of one value per row."""
        n = self.n_sessions
        mean = float((self.sessions * values).sum() / n)
        spread = float((self.sessions * (values - mean) ** 2).sum())
        error = np.sqrt(spread / n / max(n - 1, 1e-9)) if n > 1 else np.nan
        return Estimate(mean, mean - Z * error, mean + Z * error)


def predict_clicks(method: Method, log: ClickLog) -> ClickPrediction:
    """A method's predictions of the clicks of a log.

    Args:
        log: with transformed features, and with the codes of the model's vocabulary if the method uses ids.
    """
    if method.click_model != "bernoulli":
        raise NotMeasured(
            f"{type(method).__name__} does not predict whether a document is clicked: evaluate it on judged data, or "
            "train a click model, such as pbm or ubm"
        )
    if not log.joint:
        raise NotMeasured("the log has only counts: keep which documents were clicked together (joint=True, --joint)")
    with predicting(method):
        parts = [_predict(method, lists) for lists in ClickBatches(log, detail="patterns").all()]
    return ClickPrediction(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _predict(method: Method, lists: ClickedLists) -> tuple[NDArray, ...]:
    if isinstance(method, ClickModel):
        marginal, conditional = method.marginal(lists), method.conditional(lists)
    else:
        logits = method.click_logits(lists)
        assert logits is not None
        marginal = conditional = Chances.of(torch.nn.functional.logsigmoid(logits))
    clicks = lists.clicks / lists.sessions.unsqueeze(-1)

    def likelihood(chances: Chances) -> Tensor:
        return chances.log_likelihood(clicks, torch.ones_like(lists.sessions), lists.mask)

    columns = (marginal.log_click.exp(), likelihood(marginal), likelihood(conditional))
    doubles = (column.double().numpy() for column in columns)
    return (
        lists.sessions.double().numpy(),
        lists.positions.numpy(),
        lists.mask.numpy(),
        clicks.double().numpy(),
        *doubles,
    )


def paired_difference(one: ClickPrediction, other: ClickPrediction) -> Estimate:
    """Log-likelihood per page of one model minus that of another, on the same sessions."""
    return one.mean(one.page_log_likelihoods() - other.page_log_likelihoods())
