"""A small version of `make campaign`."""

import importlib
import math
import random
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def campaign():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("campaign")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def book(campaign):
    book = campaign.Book()
    yield book
    assert not book.has_failed(), book.examples


@pytest.mark.filterwarnings("ignore")  # what killed runs left is named
def test_after_a_kill_the_old_or_the_new_stands_and_training_goes_on(campaign, tmp_path, book):
    campaign.kills(tmp_path, random.Random(0), math.inf, 9, book)
    assert {name: found.total() for name, found in book.counts.items()} == {
        "kill, log written": 3,
        "kill, model written": 3,
        "kill, training resumed": 3,
    }


@pytest.mark.filterwarnings("ignore")
def test_damaged_files_are_refused_by_name_or_read_as_what_they_are(campaign, tmp_path, book):
    campaign.mutations(tmp_path, random.Random(0), math.inf, 150, book.add, onnx=False)
    assert sum(found.total() for found in book.counts.values()) == 150
    assert len(book.counts) >= 19
    assert not any(found["unnamed"] for found in book.counts.values()), book.examples


@pytest.mark.filterwarnings("ignore")
def test_a_command_in_trouble_loses_nothing(campaign, tmp_path, book):
    trials = campaign.by_command.Trials(tmp_path, random.Random(0), book.add, only=("judgements",))
    for part in campaign.COMMAND_PARTS:
        part(trials, math.inf, 1)
    assert sum(found.total() for found in book.counts.values()) == len(campaign.COMMAND_PARTS)


def test_counts_are_added_up_over_calls(campaign, tmp_path):
    for _ in range(2):
        book = campaign.Book(tmp_path)
        book.add("damaged, log.json", "traceback", "KeyError: 'shards'", b"{}")
        book.keep()
    assert campaign.Book(tmp_path).counts == {"damaged, log.json": {"traceback": 2}}
    assert (tmp_path / "damaged, log.json, traceback.bin").read_bytes() == b"{}"
    assert book.has_failed()
    assert "KeyError" in book.examples["damaged, log.json: traceback"]
