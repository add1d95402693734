"""Logs on disk: they come back as they were, appear whole or not at all, and damage is named."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.data import files
from unskew.data.clicks import shards
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.clicks.shards import join_logs
from unskew.data.clicks.storage import open_log, read_log, write_log, write_shards

DOCS = Path(__file__).parents[2] / "docs" / "click_log.md"


def make_log(n_queries=6, seed=0, **changes):
    """A log with everything that a log can have; lists are sorted by query."""
    rng = np.random.default_rng(seed)
    rows = []
    for session in range(5 * n_queries):
        query = session // 5
        size = 1 + (query % 3)
        order = rng.permutation(3)[:size]
        device = ["phone", "desk"][rng.integers(2)]
        for place, document in enumerate(order):
            row = (session, f"q{query}", int(document), place, rng.integers(2), device)
            more = (10.0 * query + document, rng.integers(2), [None, "red"][document % 2], query)
            events = (rng.integers(2), [1, 0, None][session % 3])
            rows.append((*row, ["web", "ad"][rng.integers(2)], 0.5 * place, session, *more, *events))
    names = ("session", "query", "document", "position", "click", "device", "kind", "score", "time")
    names = (*names, "feature", "price", "colour", "hour", "carts", "look")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    table = pa.table({**columns, "changed": ["swap" if session % 4 == 0 else "none" for session in columns["session"]]})
    log = ClickLog.from_table(
        table,
        bias=["device", "kind"],
        policy_score="score",
        intervention="changed",
        time="time",
        period="day",
        features=["feature", "price", "colour"],
        context=["hour"],
        events=["carts"],
        seen="look",
    )
    return replace(log, **changes)


def same(one: ClickLog, other: ClickLog) -> bool:
    patterns = (one.patterns is None) == (other.patterns is None)
    if one.patterns is not None and other.patterns is not None:
        patterns = all(
            np.array_equal(getattr(one.patterns, name), getattr(other.patterns, name))
            for name in ("lists", "clicks", "sessions")
        )
    features = np.array_equal(one.features[one.versions], other.features[other.versions], equal_nan=True)
    names = (one.graded, one.input_names, one.categories) == (other.graded, other.input_names, other.categories)
    context = np.array_equal(one.context, other.context, equal_nan=True)
    return patterns and features and names and context and one.to_table().equals(other.to_table())


@pytest.mark.parametrize("n_shards", [1, 2, 4, 100])
def test_a_log_comes_back_as_it_was(tmp_path, n_shards):
    log = make_log()
    write_log(log, tmp_path / "log", n_shards=n_shards)
    assert open_log(tmp_path / "log").n_shards == min(n_shards, 6)
    assert same(read_log(tmp_path / "log"), log)


@pytest.mark.parametrize(
    "log",
    [
        make_log().marginal(),
        make_log(bias={}, policy_scores=None, interventions=None, first_shown=None, feature_names=(), categories={}),
        make_log(features=make_log().features[:, :0], feature_names=(), categories={}),
        make_log(graded=True, clicks=make_log().clicks * 1000.1),
        make_log(sessions=make_log().sessions * 2.0**26, patterns=None),
        make_log(query_ids=np.array([2**62 + number for number in range(6)])),
        make_log(query_ids=np.array(["ü", "日本", "\U0001f600", "", " ", "'"])),
        ClickLog.from_arrays(np.ones((3, 2)), [0, 1, 1], group=[1, 2], weight=[0.1, 3.0]),
    ],
)
def test_every_kind_of_log_comes_back(tmp_path, log):
    write_log(log, tmp_path / "log", n_shards=2)
    assert same(read_log(tmp_path / "log"), log)


def test_a_log_without_lists_comes_back_with_its_documents(tmp_path):
    write_log(make_log().select([]), tmp_path / "log", n_shards=2)
    log = read_log(tmp_path / "log")
    assert (log.n_lists, len(log.features), log.joint) == (0, len(make_log().features), True)


def test_documents_that_were_never_shown_are_kept(tmp_path):
    log = make_log()
    shown = log.select(log.queries == 2)
    write_log(shown, tmp_path / "log", n_shards=3)
    assert sorted(read_log(tmp_path / "log").features[:, 0]) == sorted(log.features[:, 0])


def test_a_folder_tells_its_sizes_without_being_read(tmp_path):
    log = make_log()
    folder = open_log(write_log(log, tmp_path / "log", n_shards=3))
    assert folder.n_lists == log.n_lists
    assert sum(folder.counts("patterns")) == len(log.patterns.lists)
    assert (folder.n_sessions, folder.n_clicks, folder.n_positions) == (log.n_sessions, log.n_clicks, log.n_positions)
    assert (folder.n_features, folder.n_inputs, folder.joint) == (3, 4, True)


def test_shards_are_logs_by_themselves_in_the_order_asked_for(tmp_path):
    folder = open_log(write_log(make_log(), tmp_path / "log", n_shards=3))
    assert [log.query_ids.tolist() for log in folder.shards([2, 0])] == [["q4", "q5"], ["q0", "q1"]]
    assert list(folder.shards([])) == []


def test_shards_may_come_one_after_another_and_bring_new_levels(tmp_path):
    def renamed(column, names):
        return BiasColumn(column.values, names)

    one, other = make_log().of_queries([0, 1]), make_log().of_queries([4, 5])
    other = replace(other, bias={**other.bias, "device": renamed(other.bias["device"], ("phone", "watch"))})
    write_shards(iter([one, other]), tmp_path / "log")
    log = read_log(tmp_path / "log")
    assert log.bias["device"].levels == ("desk", "phone", "watch")
    expected = one.to_table()["device"].to_pylist() + other.to_table()["device"].to_pylist()
    assert log.to_table()["device"].to_pylist() == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"patterns": None}, "shard 1: joint is False, but True in shard 0"),
        ({"feature_names": ("other", "price", "colour")}, r"shard 1: features is \['other', 'price', 'colour'\]"),
        ({"policy_scores": None}, "shard 1: policy_scores is False"),
        ({"bias": {}}, "shard 1: bias is {}"),
    ],
)
def test_shards_that_do_not_fit_together_are_refused_and_nothing_is_left(tmp_path, change, message):
    shards = [make_log().of_queries([0]), replace(make_log().of_queries([1]), **change)]
    with pytest.raises(ValueError, match=message):
        write_shards(shards, tmp_path / "log")
    assert list(tmp_path.iterdir()) == []


def test_no_shards_are_no_log(tmp_path):
    with pytest.raises(ValueError, match="no shards to write"):
        write_shards([], tmp_path / "log")
    with pytest.raises(ValueError, match="n_shards must be at least 1, got 0"):
        write_log(make_log(), tmp_path / "log", n_shards=0)


def test_a_query_in_two_shards_is_refused_when_they_are_joined(tmp_path):
    part = make_log().of_queries([3])
    write_shards([part, part], tmp_path / "log")
    with pytest.raises(ValueError, match=r"log: query 'q3' is in log 0 and in log 1"):
        read_log(tmp_path / "log")


def test_numbers_in_one_log_and_text_in_another_are_joined_as_text():
    numbered = make_log(query_ids=np.arange(6)).of_queries([0, 1])
    joined = join_logs([numbered, make_log().of_queries([5])])
    assert joined.query_ids.tolist() == ["0", "1", "q5"]


def test_an_existing_log_is_only_overwritten_when_asked(tmp_path):
    write_log(make_log(seed=1), tmp_path / "log")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_log(make_log(), tmp_path / "log")
    write_log(make_log(seed=2), tmp_path / "log", overwrite=True)
    assert same(read_log(tmp_path / "log"), make_log(seed=2))
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_what_is_no_log_is_never_overwritten(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    (tmp_path / "file").write_text("more")
    for name in ("thesis", "file"):
        with pytest.raises(FileExistsError, match=r"contains no log\.json, so it is not overwritten"):
            write_log(make_log(), tmp_path / name, overwrite=True)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    write_log(make_log(), tmp_path / "empty", overwrite=True)


def test_a_missing_parent_and_an_unwritable_one_are_named(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="none is not a folder: create it first"):
        write_log(make_log(), tmp_path / "none" / "log")

    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.tempfile, "TemporaryFile", refuse)
    with pytest.raises(PermissionError, match="cannot be written"):
        write_log(make_log(), tmp_path / "log")


@pytest.mark.parametrize("before", [False, True])
def test_a_full_disk_leaves_no_half_written_log_and_the_old_one_as_it_was(tmp_path, monkeypatch, before):
    if before:
        write_log(make_log(seed=1), tmp_path / "log")
    calls = []

    def write(table, path, **options):
        calls.append(path)
        if len(calls) == 5:
            raise OSError(28, "No space left on device")
        pq.write_table(table, path, **options)

    monkeypatch.setattr(shards, "pq", type("full", (), {"write_table": staticmethod(write)}))
    with pytest.raises(OSError, match=r"the disk is full: .*log was not written.*No space left"):
        write_log(make_log(seed=2), tmp_path / "log", n_shards=3, overwrite=True)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == (["log"] if before else [])
    if before:
        assert same(read_log(tmp_path / "log"), make_log(seed=1))


@pytest.mark.parametrize("n_broken", [1, 2])
def test_the_old_log_survives_when_the_new_one_cannot_take_its_place(tmp_path, monkeypatch, n_broken):
    """Moves are: old aside, new into place, and when that fails old back; broken are the last one or two."""
    write_log(make_log(seed=1), tmp_path / "log")
    move, moves = Path.replace, []

    def replace_some(source, target):
        moves.append((source.name, Path(target).name))
        if 2 <= len(moves) < 2 + n_broken:
            raise OSError(5, "the disk is gone")
        return move(source, target)

    monkeypatch.setattr(Path, "replace", replace_some)
    with pytest.raises(OSError, match="the disk is gone"):
        write_log(make_log(seed=2), tmp_path / "log", overwrite=True)
    assert moves == [("log", "old"), ("new", "log"), ("old", "log")]
    monkeypatch.undo()
    (survivor,) = [path.parent for path in tmp_path.rglob("log.json") if path.parent.name != "new"]
    assert same(read_log(survivor), make_log(seed=1))
    assert survivor == (tmp_path / "log" if n_broken == 1 else survivor)


def test_an_interrupted_source_of_shards_leaves_nothing(tmp_path):
    def shards():
        yield make_log().of_queries([0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(shards(), tmp_path / "log")
    assert list(tmp_path.iterdir()) == []


def test_others_may_read_a_written_folder(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    assert write_log(make_log(), tmp_path / "log").stat().st_mode == mine.stat().st_mode


def damage(folder: Path, name: str, change) -> None:
    path = folder / name
    path.write_bytes(change(path.read_bytes()))


def edit_json(folder: Path, **changes) -> None:
    about = json.loads((folder / "log.json").read_text())
    del about["digest"]
    about |= {name: value for name, value in changes.items() if name != "digest"}
    (folder / "log.json").write_text(json.dumps({**about, "digest": files.json_digest(about)}))


def flipped(share):
    """A change of one bit, at this share of a file."""

    def flip(data):
        at = int(share * len(data))
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return flip


@pytest.mark.parametrize("table", ["versions", "lists", "patterns"])
def test_a_truncated_changed_foreign_or_missing_shard_is_named(tmp_path, table):
    write_log(make_log(), tmp_path / "whole")
    other = write_log(make_log(n_queries=9), tmp_path / "other")
    name = f"shard-00000.{table}.parquet"
    foreign = (other / name).read_bytes()
    cuts = (lambda data: data[: len(data) // 2], lambda _: b"", lambda data: data[:-1], lambda _: foreign)
    for change in (*cuts, *map(flipped, (0.1, 0.5, 0.9)), None):
        log = shutil.copytree(tmp_path / "whole", tmp_path / "log", dirs_exist_ok=True)
        if change is None:
            (log / name).unlink()
        else:
            damage(log, name, change)
        with pytest.raises(ValueError, match=rf"shard-00000\.{table}\.parquet cannot be read"):
            read_log(log)


@pytest.mark.parametrize("name", ["documents", "lists", "patterns", "sessions", "clicks", "positions"])
def test_false_totals_are_noticed(tmp_path, name):
    write_log(make_log(), tmp_path / "log")
    about = json.loads((tmp_path / "log" / "log.json").read_text())
    about["shards"][0][name] += 1
    edit_json(tmp_path / "log", **about)
    with pytest.raises(ValueError, match=rf"have [\d.]+ {name}, but log\.json says|has \d+ rows instead of \d+"):
        read_log(tmp_path / "log")


def test_another_content_has_another_digest(tmp_path):
    log = make_log()
    reversed_clicks = replace(log, clicks=np.where(log.mask, log.sessions[:, None] - log.clicks, 0), patterns=None)
    logs = (log, reversed_clicks, replace(log, features=log.features + 1), log)
    folders = [write_log(entry, tmp_path / str(number)) for number, entry in enumerate(logs)]
    digests = [open_log(folder).digest for folder in folders]
    assert digests[0] == digests[3]
    assert len(set(digests)) == 3
    digests = [entry.digest for entry in logs]
    assert digests[0] == digests[3]
    assert len(set(digests)) == 3


def test_columns_that_do_not_fit_together_are_refused(tmp_path):
    write_log(make_log(), tmp_path / "log")
    path = tmp_path / "log" / "shard-00000.lists.parquet"
    for changed in (pq.read_table(path).drop_columns(["clicks"]), pq.read_table(path).drop_columns(["bias.kind"])):
        write_log(make_log(), tmp_path / "log", overwrite=True)
        pq.write_table(changed, path)
        about = json.loads((tmp_path / "log" / "log.json").read_text())
        about["shards"][0]["digests"]["lists"] = files.file_digest(path)
        edit_json(tmp_path / "log", **about)
        with pytest.raises(ValueError, match="do not fit together"):
            read_log(tmp_path / "log")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[: len(data) // 2], r"log\.json is damaged"),
        (lambda _: b"[]", "format is None"),
        (lambda _: b"{}", "format is None"),
        (lambda _: b"\xff\xfe", r"log\.json is damaged"),
        (
            lambda data: data.replace(b'"version": 2', b'"version": 1'),
            "version 1 of the format, but this release reads version 2: make the log again from its source",
        ),
        (lambda data: data.replace(b'"graded"', b'"graduated"'), r"log\.json does not match its digest"),
    ],
)
def test_a_damaged_or_newer_description_is_refused(tmp_path, change, message):
    write_log(make_log(), tmp_path / "log")
    damage(tmp_path / "log", "log.json", change)
    with pytest.raises(ValueError, match=message):
        open_log(tmp_path / "log")


def test_a_folder_without_description_is_no_log(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"not a click log: it has no log\.json"):
        open_log(tmp_path)


def test_the_examples_of_the_documentation_run(tmp_path, monkeypatch):
    log = make_log()
    write_log(log, tmp_path / "LOG")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, names)
    clicks = [log.clicks[log.mask & (log.positions == place)].sum() for place in range(3)]
    sessions = [(log.sessions[:, None] * (log.mask & (log.positions == place))).sum() for place in range(3)]
    expected = [(place, clicks[place] / sessions[place]) for place in range(3)]
    assert names["by_position"] == [(place, pytest.approx(rate)) for place, rate in expected]
    assert names["shown"]["query"].tolist() == log.to_table()["query"].to_pylist()


def test_every_column_on_disk_is_documented(tmp_path):
    write_log(make_log(), tmp_path / "log")
    text = (
        DOCS.read_text(encoding="utf-8")
        .replace("bias.NAME", "bias.device")
        .replace("`bias.device`", "`bias.device` `bias.kind` `context.hour` `events.carts`")
    )
    for path in (tmp_path / "log").glob("*.parquet"):
        assert all(f"`{name}`" in text for name in pq.read_schema(path).names)
    assert all(f"`{key}`" in text for key in json.loads((tmp_path / "log" / "log.json").read_text()))


@pytest.mark.parametrize(
    ("name", "value"), [("features", 1.5), ("features", True), ("context", 3), ("bias", []), ("shards", [])]
)
def test_an_entry_of_the_wrong_kind_is_refused_by_name_though_its_digest_is_right(tmp_path, name, value):
    write_log(make_log(), tmp_path / "log")
    edit_json(tmp_path / "log", **{name: value})
    with pytest.raises(ValueError, match=rf"log.json is damaged \('{name}' is"):
        open_log(tmp_path / "log")
