"""Shared by all tests: a cache of their own, one thread each, and the smallest world with its log."""

from __future__ import annotations

import pytest
import torch

import unskew

torch.set_num_threads(1)  # tests run side by side, and sums of one thread are the same everywhere


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSKEW_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def world():
    return unskew.load("world:tiny")


@pytest.fixture(scope="session")
def log(world):
    """Joint clicks of position-based users on the smallest world, one tenth of the sessions shuffled."""
    return unskew.simulate(
        world.train, "svm", "position_based", sessions=64, interventions={"shuffle": 0.1}, joint=True, seed=1
    ).log


LONGEST = ("test_guide.py", "test_readme.py")  # one long test each: begun last, they would leave the other core idle


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)
