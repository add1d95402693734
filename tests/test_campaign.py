"""A small version of `make campaign`; and that it covers every command and every file that is read."""

import importlib
import math
import random
import sys
from pathlib import Path

import pytest

from unskew.command_line.declarations import COMMANDS

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SOURCE = Path(__file__).parents[1] / "src" / "unskew"


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
    assert not book.has_failed(), [row for row in book.rows if row["way"] in campaign.BAD]


@pytest.fixture(scope="module")
def all_places(campaign, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        return campaign.every_place(tmp_path_factory.mktemp("places"), engines=False)


def test_every_command_is_in_the_campaign(campaign, tmp_path):
    assert {command.arguments[0] for command in campaign.by_command.commands(tmp_path)} == set(COMMANDS)


def test_every_module_that_reads_files_has_a_format_in_the_campaign(campaign):
    formats = importlib.import_module("campaign_formats")
    reading = {
        str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if formats.READS.search(file.read_text("utf-8"))
    }
    assert reading == set(formats.MODULES)


@pytest.mark.long
def test_every_format_is_damaged(all_places):
    formats = importlib.import_module("campaign_formats")
    names = [place.name for place in all_places] + ["ONNX", "trees"]  # of engines
    reasons = (formats.OWN, formats.CODE, formats.LINES, formats.DIGEST)
    assert [
        form for form in formats.MODULES.values() if form not in reasons and not any(n.startswith(form) for n in names)
    ] == []


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # what killed runs left is named
def test_after_a_kill_the_old_or_the_new_stands_and_training_goes_on(campaign, tmp_path, book):
    campaign.writers(tmp_path, random.Random(0), math.inf, 9, book)
    assert {name: found.total() for name, found in book.counts(subject=True).items()} == {
        "kill of a writer, log": 3,
        "kill of a writer, model": 3,
        "kill of a writer, training resumed": 3,
    }


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_damaged_files_are_refused_by_name_or_read_as_what_they_are(campaign, all_places, book):
    campaign.mutations(all_places, random.Random(0), math.inf, 250, book.add)
    assert len(book.rows) == 250
    assert len(book.counts(subject=True)) == len({place.name for place in all_places})
    assert not any(row["way"] == "unnamed" for row in book.rows), book.rows


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_command_in_trouble_loses_nothing(campaign, tmp_path, book, monkeypatch):
    monkeypatch.setattr(campaign.by_command, "MEETING", 2)
    trials = campaign.by_command.Trials(tmp_path, random.Random(0), book.add, only=("train",))
    for part in campaign.COMMAND_PARTS:
        part(trials, math.inf, 1)
    assert len(book.rows) == len(campaign.COMMAND_PARTS)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_object_storage_that_fails_leaves_nothing_half(campaign, tmp_path, book):
    campaign.objects(tmp_path, random.Random(0), math.inf, 8, book)
    assert {name: found.total() for name, found in book.counts().items()} == {
        "object storage fails every tenth request": 4,
        "object storage fails from a request on": 4,
    }


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_method_refuses_a_degenerate_log_or_warns_or_learns_from_it(campaign, tmp_path, book, monkeypatch):
    of_logs = importlib.import_module("campaign_logs")
    monkeypatch.setattr(of_logs, "METHODS", ("dla", "dctr", "labelled"))
    monkeypatch.setattr(of_logs, "USES", {name: of_logs.USES[name] for name in ("drift", "judgements")})
    campaign.logs(tmp_path, random.Random(0), math.inf, 0, book)
    assert len(book.rows) == len(of_logs.LOGS) * (3 + len(of_logs.USES))
    said = {row["name"]: row["way"] for row in book.rows}
    assert [said[f"degenerate log, {name}, dla"] for name in of_logs.SAID] == ["warned"] * len(of_logs.SAID)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_sigterm_in_any_stage_is_resumed_to_the_same_weights(campaign, tmp_path, book, monkeypatch):
    monkeypatch.setattr(campaign, "METHODS", ("vectorization",))
    campaign.stages(tmp_path, random.Random(0), math.inf, 0, book)
    assert len(book.rows) > 1


def test_rows_are_added_to_those_of_earlier_calls_and_tables_count_them(campaign, tmp_path):
    for _ in range(2):
        book = campaign.Book(tmp_path)
        book.add("damaged file with a digest, log.json", "traceback", "KeyError: 'shards'", b"{}")
    assert campaign.Book(tmp_path).tried() == {"damaged file with a digest": 2}
    assert (tmp_path / "damaged file with a digest, log.json, traceback.hex").read_text() == b"{}".hex()
    assert book.has_failed()
    assert "| log.json (a digest) | 2 | – | – | 2 |" in campaign.tables(book)
    assert "KeyError" in book.rows[0]["said"]
