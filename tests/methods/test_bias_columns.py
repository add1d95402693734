"""Bias columns: a device or a number bends the examination curve, and the methods that know it find out how.

Logs hold the clicks to be expected of documents that take turns at every position, so that the truth fits exactly.
"""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn
from unskew.methods import METHODS
from unskew.networks.observation import PositionObservation
from unskew.networks.registry import Network, Problem
from unskew.training.settings import Settings
from unskew.training.train import train

RELEVANCE = np.array([0.9, 0.5, 0.2])
DESK, PHONE = np.array([1.0, 0.8, 0.6]), np.array([1.0, 0.4, 0.1])
TURNS = np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1]])
SETTINGS = Settings(steps=300, optimizer="adagrad", learning_rate=0.3, max_gradient_norm=None, weight_decay=0.0)


def expected_log(seen, column):
    """Every turn of three documents under each examination curve, `[curves, positions]`, with the column's values."""
    documents = np.tile(TURNS, (len(seen), 1)).astype(np.int32)
    sessions = np.full(len(documents), 100.0)
    return ClickLog(
        features=np.eye(3, dtype=np.float32),
        versions=documents,
        mask=np.ones(documents.shape, dtype=bool),
        clicks=100 * np.repeat(seen, 3, axis=0) * RELEVANCE[documents],
        sessions=sessions,
        bias=column,
    )


def by_device():
    levels = np.repeat([0, 1], 3)
    return expected_log([DESK, PHONE], {"device": BiasColumn(levels, ("desk", "phone"))})


def problem(log, **bias):
    return Problem(3, 3, bias, network=Network(kind="linear"))


def learnt_relevance(method):
    """Relevance of the three documents relative to the first."""
    with torch.no_grad():
        scores = method.ranker()(torch.eye(3).unsqueeze(0), torch.ones(1, 3, dtype=torch.bool))[0]
    return (scores - scores[0]).exp()


def learnt_curve(method, value, name):
    places = torch.arange(3).unsqueeze(0)
    with torch.no_grad():
        logits = method.observation(places, {name: torch.full((1, 3), value)})[0]
    return (logits - logits[0]).exp()


TRUE_RELEVANCE = torch.from_numpy(RELEVANCE / RELEVANCE[0]).float()


@pytest.mark.parametrize("name", ["two_tower", "dla"])
def test_a_curve_for_each_device_is_recovered(name):
    log = by_device()
    method = METHODS[name](problem(log, device=("desk", "phone")))
    train(method, {"clicks": log}, SETTINGS)
    assert_close(learnt_curve(method, 0, "device"), torch.from_numpy(DESK).float(), rtol=0, atol=0.02)
    assert_close(learnt_curve(method, 1, "device"), torch.from_numpy(PHONE).float(), rtol=0, atol=0.02)
    assert_close(learnt_relevance(method), TRUE_RELEVANCE, rtol=0, atol=0.02)


@pytest.mark.parametrize("name", ["two_tower", "dla"])
def test_a_numeric_column_bends_the_curve_by_its_slope(name):
    ages = np.array([-1.0, 0.0, 1.0], dtype=np.float32)
    base, slope = np.log([1.0, 0.5, 0.3]), np.array([0.0, -0.2, -0.4])
    seen = np.exp(base + ages[:, None] * slope)
    log = expected_log(seen, {"age": BiasColumn(np.repeat(ages, 3))})
    method = METHODS[name](problem(log, age=None))
    train(method, {"clicks": log}, SETTINGS)
    for age, curve in zip(ages, seen, strict=True):
        assert_close(learnt_curve(method, float(age), "age"), torch.from_numpy(curve).float(), rtol=0, atol=0.02)
    assert_close(method.examination(), torch.tensor([1.0, 0.5, 0.3]), rtol=0, atol=0.02)


def test_without_the_column_the_curve_is_one_for_all():
    log = by_device()
    method = METHODS["two_tower"](problem(log))
    train(method, {"clicks": log}, SETTINGS)
    curve = method.examination().numpy()
    assert (curve[1:] < DESK[1:]).all()
    assert (curve[1:] > PHONE[1:]).all()


def test_ipw_tells_levels_apart_that_stand_in_one_list():
    """The first document is an advertisement, seen half as often at every position, the top included."""
    kind = (TURNS == 0).astype(np.int64)
    seen = np.where(kind == 1, 0.5, 1.0) * DESK
    log = expected_log([DESK], {"type": BiasColumn(kind, ("result", "advertisement"))})
    log.clicks[:] = 100 * seen * RELEVANCE[TURNS]
    method = METHODS["ipw"](problem(log, type=("result", "advertisement")), propensities=[DESK, 0.5 * DESK], by="type")
    train(method, {"clicks": log}, SETTINGS)
    assert_close(learnt_relevance(method), TRUE_RELEVANCE, rtol=0, atol=0.02)


@pytest.mark.parametrize(
    ("by", "propensities", "message"),
    [
        ("age", [DESK, PHONE], "by='age' is not a bias column with levels. Found: device, age"),
        ("colour", [DESK, PHONE], "by='colour' is not a bias column"),
        ("device", [DESK], "1 propensity curves for 2 levels of 'device'"),
        (None, [DESK, PHONE], "pass by="),
    ],
)
def test_curves_that_do_not_fit_the_column_are_refused(by, propensities, message):
    with pytest.raises(ValueError, match=message):
        METHODS["ipw"](problem(None, device=("desk", "phone"), age=None), propensities=np.array(propensities), by=by)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_curve_of_a_level_is_there_where_the_level_bends_the_curve_and_nowhere_else(name):
    """Two levels whose tables differ give two curves; a method that cannot tell them apart gives none."""
    options = {"ipw": {"propensities": [DESK, PHONE], "by": "device"}}.get(name, {})
    try:
        method = METHODS[name](problem(by_device(), device=("desk", "phone")), **options).eval()
    except ValueError:
        pytest.skip("cannot be built from a problem alone")
    tables = [part for part in method.modules() if isinstance(part, PositionObservation)]
    for table in tables:
        table.levels[0].data[1] = -torch.arange(float(table.levels[0].shape[1]))
    levels = [method.at_level("device", level) for level in (0, 1)]
    if method.examination() is None or levels[0] is None:
        assert name not in ("dla", "ipw", "two_tower", "pbm", "low_rank", "lbd", "cdla_ld", "attention", "ubm")
        return
    desk, phone = (each.examination() for each in levels)
    assert (phone[1:] < desk[1:]).all()


def test_ipw_has_the_curve_of_each_level():
    method = METHODS["ipw"](problem(by_device(), device=("desk", "phone")), propensities=[DESK, PHONE], by="device")
    assert_close(method.at_level("device", 1).examination(), torch.tensor(PHONE, dtype=torch.float32))
    assert method.at_level("country", 0) is None
    assert_close(method.examination(), torch.tensor((DESK + PHONE) / 2, dtype=torch.float32))  # as it was
