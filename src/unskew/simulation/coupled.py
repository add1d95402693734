r"""Users whose examination depends on the document (LBD, Chen et al., NeurIPS 2022, section 6.1), or on its list.

Ten crux features $x'$, those that a forest of extremely randomized trees finds most important for relevance, also
change examination. So relevance and examination depend on the same features: they are coupled. Crux features are scaled
on the training data to $[-1, 1]$, as in the paper, or standardized; the same coupling is far stronger on standardized
features, so always report which.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Literal, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from unskew.data.checks import check_features
from unskew.data.judged.judged_set import JudgedSet
from unskew.options import NotNegative
from unskew.simulation.browsing import Matrix, Shown
from unskew.simulation.independent import PositionBased

N_CRUX = 10
N_TREES = 250
# The forest only has to order the features: this many random documents are enough, and take seconds.
FOREST_DOCUMENTS = 8_000

# The direction that the paper's experiments scale for every coupling, at coupling 0.1.
FIXED_DIRECTION = np.array(
    [-0.1, -0.005693, -0.032078, -0.061168, 0.063808, 0.1, 0.020537, -0.061057, 0.056496, -0.015535]
)

# Importances are needed again for every coupling and seed, so they are cached as long as the data set exists.
_known_importances: WeakKeyDictionary[JudgedSet, Matrix] = WeakKeyDictionary()


def by_power(curve: Matrix, pull: Matrix) -> Matrix:
    r"""The paper's form: $\theta_k^{\max(w \cdot x' + 1, 0)}$."""
    return curve ** np.maximum(pull + 1, 0.0)


def by_logit(curve: Matrix, pull: Matrix) -> Matrix:
    r"""A second form: $\mathrm{logit}\,P(o) = \mathrm{logit}\,\theta_k + 2\,w \cdot x'$."""
    odds = np.exp(np.clip(2 * pull, -500.0, 500.0))  # avoids overflow
    return curve * odds / (1 - curve + curve * odds)


def minmax(values: Matrix) -> tuple[Matrix, Matrix]:
    """Center and half width of each column, which scale it to -1 to 1."""
    low, high = values.min(axis=0), values.max(axis=0)
    return (low + high) / 2, (high - low) / 2


def standard(values: Matrix) -> tuple[Matrix, Matrix]:
    """Mean and standard deviation of each column."""
    return values.mean(axis=0), values.std(axis=0)


FORMS: dict[str, Callable[[Matrix, Matrix], Matrix]] = {"power": by_power, "logistic": by_logit}
SCALINGS: dict[str, Callable[[Matrix], tuple[Matrix, Matrix]]] = {"minmax": minmax, "standard": standard}


def find_crux(train: JudgedSet, n_features: int = N_CRUX) -> tuple[int, ...]:
    """The features most important for relevance, most important first."""
    if train not in _known_importances:
        _known_importances[train] = _importances(train)
    order = np.argsort(-_known_importances[train], kind="stable")
    return tuple(int(column) for column in order[:n_features])


def _importances(train: JudgedSet) -> Matrix:
    """Importance of each feature in a forest that predicts the grades; the same data give the same forest."""
    check_features(train.features, missing=False)
    rows = np.random.default_rng(0).permutation(train.n_documents)[:FOREST_DOCUMENTS]
    rows.sort()
    grades = train.grades[rows]
    levels = (grades == np.floor(grades)).all()
    forest = (ExtraTreesClassifier if levels else ExtraTreesRegressor)(N_TREES, n_jobs=2, random_state=0)
    return forest.fit(train.features[rows], grades).feature_importances_


@dataclass(kw_only=True, eq=False)
class Coupled(PositionBased):
    r"""Examines by position and by crux features: $P(o) = \theta_k^{\max(w \cdot x' + 1, 0)}$.

    Attributes:
        coupling: $\eta$, largest weight of a crux feature; 0 is the position-based user.
        form: power (the paper's) or logistic ($\mathrm{logit}\,P(o) = \mathrm{logit}\,\theta_k + 2\,w \cdot x'$).
        crux_scale: minmax ($[-1, 1]$, the paper's) or standard.
        direction: fixed (the reference experiment's) or random ($w$ uniform in $[-\eta, \eta]$).
        direction_seed: draws the random direction; the same for every log of one world.
        crux: columns of the crux features; default: found in the training data.
    """

    coupling: NotNegative = 0.1
    form: Literal["power", "logistic"] = "power"
    crux_scale: Literal["minmax", "standard"] = "minmax"
    direction: Literal["fixed", "random"] = "fixed"
    direction_seed: int = 0
    crux: tuple[int, ...] | None = None
    _centre: Matrix | None = field(default=None, init=False, repr=False)
    _scale: Matrix | None = field(default=None, init=False, repr=False)

    @property
    def fitted(self) -> bool:
        return self._centre is not None

    def fit(self, train: JudgedSet) -> Self:
        known = copy(self)
        if self.crux is None:
            known.crux = find_crux(train) if self.coupling > 0 else ()  # without coupling no crux is needed
        assert known.crux is not None
        bad = [column for column in known.crux if not 0 <= column < train.n_features]
        if bad:
            raise ValueError(f"crux names column {bad[0]}, but the data have columns 0 to {train.n_features - 1}")
        columns = train.features[:, list(known.crux)].astype(np.float64)
        check_features(columns, [str(column) for column in known.crux], missing=False)
        known._centre, scale = SCALINGS[self.crux_scale](columns)
        known._scale = np.where(scale > 0, scale, 1.0)  # a constant column has no effect
        return known

    def weights(self, n_crux: int = N_CRUX) -> Matrix:
        """$w$, one weight per crux feature."""
        if self.direction == "random":
            return self.coupling * np.random.default_rng(self.direction_seed).uniform(-1, 1, n_crux)
        if n_crux > len(FIXED_DIRECTION):
            raise ValueError(f"the fixed direction has {N_CRUX} weights, crux has {n_crux}: use direction='random'")
        return self.coupling / 0.1 * FIXED_DIRECTION[:n_crux]

    def document_traits(self, judged: JudgedSet) -> Matrix | None:
        r"""$w \cdot x'$ of each document."""
        if self.crux is None or self._centre is None or self._scale is None:
            raise ValueError("the user is not fitted yet: call fit(train) first")
        needed = max(self.crux, default=-1) + 1
        if judged.n_features < needed:
            name = judged.name or "this set"
            raise ValueError(f"the user needs feature {needed - 1}, but {name} has only {judged.n_features} features")
        columns = judged.features[:, list(self.crux)]
        check_features(columns, [str(column) for column in self.crux], missing=False)
        scaled = (columns - self._centre) / self._scale
        return scaled @ self.weights(len(self.crux))

    def position_curve(self, n_positions: int) -> Matrix | None:
        return self.base_curve(n_positions) if self.coupling == 0 else None

    def pull(self, shown: Shown) -> NDArray[np.float64]:
        """The visual attraction of each shown document, `[lists, docs]`."""
        if shown.traits is None:
            raise ValueError("a coupled user needs the traits of the shown documents: see document_traits")
        return shown.traits

    def examined(self, curve: Matrix, shown: Shown) -> Matrix:
        return FORMS[self.form](curve, self.pull(shown))


@dataclass(kw_only=True, eq=False)
class QueryContext(Coupled):
    r"""Examines more positions for some queries than for others: $w \cdot x'$ is replaced by its mean over the list."""

    def pull(self, shown: Shown) -> NDArray[np.float64]:
        traits = np.where(shown.mask, super().pull(shown), 0.0)
        mean = traits.sum(axis=1) / np.maximum(shown.mask.sum(axis=1), 1)
        return np.broadcast_to(mean[:, None], traits.shape)
