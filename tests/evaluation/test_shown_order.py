"""Agreement of a ranker with what was shown, and what is said where it runs against it."""

import numpy as np
import pytest

from unskew import ClickLog, Recipe, fit
from unskew.evaluation.plausibility import LEAST_QUERIES, reversal, shown_order_agreement

CURVE = np.array([0.9, 0.5, 0.2])


def log_shown_by(sign, n=60, looks=0.0):
    """Lists of three documents with one feature, shown in its order times `sign`.

    People like what has much of the feature; what has little of it catches the eye by `looks`.
    """
    rng = np.random.default_rng(0)
    feature = np.sort(rng.normal(size=(n, 3)), axis=1)[:, ::-sign]
    seen = CURVE ** np.maximum(1 + looks * feature, 0.0)
    clicks = rng.binomial(200, seen / (1 + np.exp(-feature)))
    return ClickLog(
        features=feature.reshape(-1, 1).astype(np.float32),
        versions=np.arange(3 * n, dtype=np.int32).reshape(n, 3),
        mask=np.ones((n, 3), dtype=bool),
        clicks=clicks.astype(np.float32),
        sessions=np.full(n, 200, dtype=np.float32),
    )


def by_feature(sign):
    return lambda features, mask: sign * features[..., 0]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_agreement_is_kendalls_tau_in_each_query(sign):
    assert (shown_order_agreement(by_feature(1), log_shown_by(sign)) == sign).all()
    assert (shown_order_agreement(by_feature(-1), log_shown_by(sign)) == -sign).all()


def test_a_constant_has_no_order_to_agree():
    assert len(shown_order_agreement(by_feature(0), log_shown_by(1))) == 0


@pytest.mark.parametrize(
    ("mean", "said"),
    [(0.0, None), (-0.1, "little to do with the shown one (Kendall's tau -0.10"), (-0.4, "reverses the shown one")],
)
def test_an_order_is_doubted_if_its_agreement_is_below_a_fifth_by_more_than_chance(mean, said):
    agreement = np.resize([0.5, -0.5], LEAST_QUERIES) + mean  # a standard error of .5 / sqrt(29) = .093
    found = reversal(agreement)
    assert found is None if said is None else said in (found or "")
    assert reversal(np.full(LEAST_QUERIES - 1, -1.0)) is None  # too few


def test_training_warns_where_looks_reverse_the_order():
    with pytest.warns(RuntimeWarning, match="the learned order reverses the shown one"):
        model = fit(Recipe.of("dla", steps=200, hidden=(8,)), log_shown_by(1, looks=1.5))
    assert any("reverses the shown" in text for text in model.history.warnings)


def test_training_is_silent_where_only_the_position_matters():
    assert not fit(Recipe.of("dla", steps=200, hidden=(8,)), log_shown_by(1)).history.warnings
