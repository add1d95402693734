"""Lists of several lengths with a bias column, for the tests of methods whose observation depends on documents."""

import numpy as np
import torch

from unskew.lists import ClickedLists
from unskew.networks.documents import Ranker
from unskew.networks.registry import Network, Problem

N_POSITIONS, N_FEATURES = 4, 3
DEVICES = {"device": ("desk", "phone")}


class Fixed(Ranker):
    """Gives the same scores whatever it sees."""

    def __init__(self, scores):
        super().__init__()
        self.scores = torch.nn.Parameter(scores)

    def forward(self, features, mask):
        return self.scores


def problem(bias=DEVICES, **network):
    return Problem(N_FEATURES, N_POSITIONS, bias, Network(**{"hidden": (6,), **network}))


def clicked_lists(n_lists=5, seed=0, dtype=torch.float64):
    """Lists of 2 to 4 documents, shown a few times each."""
    rng = np.random.default_rng(seed)
    mask = np.arange(N_POSITIONS) < rng.integers(2, N_POSITIONS + 1, n_lists)[:, None]
    sessions = rng.integers(1, 6, n_lists)
    clicks = rng.binomial(sessions[:, None], 0.4, mask.shape) * mask
    return ClickedLists(
        features=torch.tensor(rng.normal(size=(*mask.shape, N_FEATURES)), dtype=dtype),
        mask=torch.tensor(mask),
        positions=torch.tensor(np.where(mask, np.arange(N_POSITIONS), 0)),
        clicks=torch.tensor(clicks, dtype=dtype),
        sessions=torch.tensor(sessions, dtype=dtype),
        bias={"device": torch.tensor(rng.integers(0, 2, mask.shape))},
    )
