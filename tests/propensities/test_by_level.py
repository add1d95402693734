"""Examination by the levels of a context feature."""

import numpy as np
import pytest

import unskew
from unskew.data.clicks.click_log import ClickLog
from unskew.diagnosis import model_based
from unskew.diagnosis.page import diagnose
from unskew.propensities.estimate import curves_by_level

FALLS = {"desktop": 0.3, "phone": 1.5}


def two_devices(falls, n_queries=40):
    """Expected clicks on three documents that take turns, on two devices; examination is 1 / position ** fall."""
    rng = np.random.default_rng(0)
    relevance = rng.uniform(0.2, 0.9, 3 * n_queries)
    turns = np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    versions = (np.arange(n_queries)[:, None, None] * 3 + turns).reshape(-1, 3)
    lists = np.concatenate([versions, versions])
    device = np.repeat([0.0, 1.0], len(versions))
    examined = np.arange(1, 4) ** -np.array(falls)[device.astype(int)][:, None]
    return ClickLog(
        features=rng.normal(size=(len(relevance), 1)).astype(np.float32),
        versions=lists.astype(np.int32),
        mask=np.ones(lists.shape, dtype=bool),
        clicks=200 * examined * relevance[lists],
        sessions=np.full(len(lists), 200.0),
        document_queries=np.repeat(np.arange(n_queries), 3),
        context=device[:, None].astype(np.float32),
        context_names=("device",),
        categories={"device": ("desktop", "phone")},
        feature_names=("bm25",),
    )


def test_curves_of_levels_are_their_own():
    found = curves_by_level(two_devices(tuple(FALLS.values())), "device")
    for device, fall in FALLS.items():
        np.testing.assert_allclose(found.curves[device].values, np.arange(1, 4) ** -fall, rtol=1e-4)
    assert found.apart == ("desktop", "phone", 2)


def test_diagnose_suggests_a_bias_column_where_curves_differ_and_only_there():
    different, same = (
        {found.question: found.answer for found in diagnose(two_devices(falls), quick=True).findings()}
        for falls in ((0.3, 1.5), (0.8, 0.8))
    )
    assert "ingest it with --bias device" in different["examination by device"]
    assert same["examination by device"] == "equal for all levels within the intervals"


def test_the_theorems_see_the_context_that_their_model_sees(monkeypatch):
    monkeypatch.setattr(model_based, "SMALL", {"hidden": (8,), "steps": 10})
    monkeypatch.setattr(model_based, "N_PAIRS", 5)
    assert model_based.model_bounds(two_devices((0.8, 0.8))).n_pairs == 5


def test_a_linear_ranker_says_that_it_cannot_use_context():
    with pytest.warns(RuntimeWarning, match=r"a linear ranker cannot use context \(device\)"):
        unskew.fit("naive", two_devices((1.0, 1.0)), network="linear", steps=2, progress=False)
