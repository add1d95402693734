"""On position-based clicks the contextual methods find the examination curve that made them."""

import numpy as np
import pytest
import torch

from unskew.data.clicks.build import count_patterns
from unskew.data.clicks.click_log import ClickLog
from unskew.methods import METHODS
from unskew.networks.registry import Network, Problem
from unskew.training.settings import Settings
from unskew.training.train import train

CURVE = np.array([1.0, 0.7, 0.5, 0.3, 0.2, 0.15])
N_LISTS, N_DOCS, N_FEATURES, SESSIONS = 400, len(CURVE), 6, 100

# With the teacher and with the student as the ranker that propensities are learned with. The student learns from clicks
# that the teacher predicts, and these know of positions only if the teacher does.
CASES = {
    "teacher": ("cdla_ld", {}, {}),
    "student": ("cdla_ld", {"debias": "student"}, {"shown_order": True}),
    "xpa": ("xpa", {}, {}),
    "upe": ("upe", {}, {}),
    "upe without the policy's scores": ("upe", {}, {}),
    "iobm": ("iobm", {}, {}),
}


def position_based_log(*, policy_scores):
    """Lists that a fair policy ranked, and what its users clicked."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(N_LISTS, N_DOCS, N_FEATURES))
    taste = rng.normal(size=N_FEATURES) / np.sqrt(N_FEATURES)
    scores = features @ taste + rng.normal(size=(N_LISTS, N_DOCS))
    order = np.argsort(-scores, axis=1)
    features = np.take_along_axis(features, order[:, :, None], 1)
    attraction = 0.8 / (1 + np.exp(-1.5 * features @ taste))
    clicks = rng.random((N_LISTS, SESSIONS, N_DOCS)) < (attraction * CURVE)[:, None]
    owner = np.repeat(np.arange(N_LISTS), SESSIONS)
    return ClickLog(
        features=features.reshape(-1, N_FEATURES).astype(np.float32),
        versions=np.arange(N_LISTS * N_DOCS, dtype=np.int32).reshape(N_LISTS, N_DOCS),
        mask=np.ones((N_LISTS, N_DOCS), dtype=bool),
        clicks=clicks.sum(1).astype(np.float32),
        sessions=np.full(N_LISTS, float(SESSIONS), dtype=np.float32),
        patterns=count_patterns(owner, clicks.reshape(-1, N_DOCS).astype(np.float32), np.ones(len(owner))),
        policy_scores=np.take_along_axis(scores, order, 1).astype(np.float32) if policy_scores else None,
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_known_examination_curve_is_found(case):
    name, hyper, network = CASES[case]
    log = position_based_log(policy_scores="without" not in case)
    torch.manual_seed(0)
    problem = Problem(N_FEATURES, N_DOCS, network=Network(hidden=(16,), expand=16, layers=1, heads=2, **network))
    method = METHODS[name](problem, **hyper)
    train(method, {"clicks": log}, Settings(steps=500, batch_size=100))
    np.testing.assert_allclose(method.examination().numpy(), CURVE, atol=0.07)
