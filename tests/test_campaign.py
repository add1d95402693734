"""A small version of `make campaign`."""

import importlib.util
import math
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "benchmarks" / "campaign.py"


@pytest.fixture(scope="module")
def campaign():
    spec = importlib.util.spec_from_file_location("campaign", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["campaign"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")  # what killed runs left is named
@pytest.mark.parametrize(("part", "tries"), [("kills", 6), ("limits", 2), ("rivals", 2)])
def test_the_old_or_the_new_stands_and_nothing_else(campaign, tmp_path, part, tries):
    counts = getattr(campaign, part)(tmp_path, 0, math.inf, tries)
    assert sum(found.total() for found in counts.values()) == tries
    assert not any(found["silent"] or found["traceback"] for found in counts.values())
