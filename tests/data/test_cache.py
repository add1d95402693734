"""The cache of arrays: fast, shared, and never trusted when something about it is wrong."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from unskew.data.judged import letor
from unskew.data.judged.cache import ArrayCache, default_cache_folder
from unskew.data.judged.letor import read_letor

TEXT = "1 qid:1 1:1 2:2 #docid = a\n0 qid:2 1:3 2:4 #docid = b\n"
FEATURES = np.float32([[1, 2], [3, 4]])


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "set.txt"
    path.write_text(TEXT)
    long_ago = path.stat().st_mtime_ns - 10**9
    os.utime(path, ns=(long_ago, long_ago))
    return path


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def parsed(monkeypatch):
    """The files that were parsed, not taken from the cache."""
    files = []
    read = letor._read
    monkeypatch.setattr(letor, "_read", lambda paths, *rest: files.append(paths) or read(paths, *rest))
    return files


def entry_of(folder: Path) -> Path:
    [entry] = (folder / "arrays").iterdir()
    return entry


def test_the_second_load_does_not_parse_and_is_mapped(source, folder, parsed):
    first, second = read_letor(source, cache=folder), read_letor(source, cache=folder)

    assert len(parsed) == 1
    for name in ("features", "grades", "offsets", "query_ids", "document_ids"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert isinstance(second.features.base, np.memmap)


def test_changing_loaded_arrays_leaves_the_cache_as_it_was(source, folder, parsed):
    read_letor(source, cache=folder)
    read_letor(source, cache=folder).features[:] = 99.0
    np.testing.assert_array_equal(read_letor(source, cache=folder).features, FEATURES)
    assert len(parsed) == 1


def test_the_same_content_under_another_name_is_not_parsed_again(source, folder, parsed, tmp_path):
    read_letor(source, cache=folder)
    read_letor(shutil.copy(source, tmp_path / "copy.txt"), cache=folder)
    assert len(parsed) == 1


def test_options_have_entries_of_their_own(source, folder, parsed):
    assert read_letor(source, cache=folder).n_features == 2
    assert read_letor(source, cache=folder, n_features=5).n_features == 5
    assert read_letor(source, cache=folder, first_feature=0).n_features == 3
    assert len(parsed) == 3


def test_a_changed_source_is_parsed_again_even_with_its_size_and_time_set_back(source, folder, parsed):
    read_letor(source, cache=folder)
    status = source.stat()
    source.write_text(TEXT.replace("1:1", "1:9"))
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert source.stat().st_size == status.st_size
    assert source.stat().st_mtime_ns == status.st_mtime_ns
    assert read_letor(source, cache=folder).features[0, 0] == 9.0
    assert len(parsed) == 2


def test_a_source_changed_at_once_is_parsed_again(source, folder, parsed):
    """Faster than the clock of the file system ticks, many times, so that some stamps must be equal."""
    for value in range(30):
        source.write_text(TEXT.replace("1:1", f"1:{value % 10}"))
        assert read_letor(source, cache=folder).features[0, 0] == value % 10


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def flip_byte_and_set_time_back(path: Path) -> None:
    status = path.stat()
    flip_byte(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip_byte, flip_byte_and_set_time_back, truncate, empty, Path.unlink])
@pytest.mark.parametrize("file", ["features.npy", "offsets.npy", "document_ids.npy", "manifest.json"])
def test_a_damaged_entry_is_rebuilt(source, folder, parsed, caplog, damage, file):
    read_letor(source, cache=folder)
    damage(entry_of(folder) / file)

    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(read_letor(source, cache=folder).features, FEATURES)
    assert len(parsed) == 2
    assert "building it again" in caplog.text
    read_letor(source, cache=folder)
    assert len(parsed) == 2  # what was rebuilt is good


def test_a_copied_cache_is_checked_and_used(source, folder, parsed, tmp_path):
    read_letor(source, cache=folder)
    copy = shutil.copytree(folder, tmp_path / "copy")
    np.testing.assert_array_equal(read_letor(source, cache=copy).features, FEATURES)
    assert len(parsed) == 1


def test_damaged_notes_of_stamps_are_ignored(source, folder, parsed):
    read_letor(source, cache=folder)
    for note in (folder / "stamps").iterdir():
        note.write_text("{}")
    np.testing.assert_array_equal(read_letor(source, cache=folder).features, FEATURES)
    assert len(parsed) == 1


def test_a_cache_that_cannot_be_written_is_only_a_warning(source, tmp_path, caplog):
    blocked = tmp_path / "a-file"
    blocked.write_text("in the way of a folder")
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(read_letor(source, cache=blocked).features, FEATURES)
    assert "set UNSKEW_CACHE to another folder" in caplog.text


def test_a_file_that_changes_while_it_is_read_is_refused_and_not_kept(source, folder, monkeypatch):
    read = letor._read

    def read_then_change(paths, *rest):
        arrays = read(paths, *rest)
        source.write_text(TEXT + "0 qid:3 1:1\n")
        return arrays

    monkeypatch.setattr(letor, "_read", read_then_change)
    with pytest.raises(letor.LetorError, match="changed while being read"):
        read_letor(source, cache=folder)
    assert not (folder / "arrays").exists()


STORE_REPEATEDLY = """
import sys
from pathlib import Path
import numpy as np
from unskew.data.judged.cache import ArrayCache

cache = ArrayCache(Path(sys.argv[1]))
for _ in range(10):
    cache.store("key", {"x": np.arange(10_000), "y": np.full(10, 7.0)})
    loaded = cache.load("key")
    # Another process may be replacing the entry at this moment; what is loaded must be whole.
    assert loaded is None or (loaded["x"].sum() == 49_995_000 and loaded["y"].sum() == 70.0)
"""


def test_many_writers_at_once_leave_one_whole_entry(folder):
    command = [sys.executable, "-c", STORE_REPEATEDLY, str(folder)]
    writers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    messages = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0], messages
    loaded = ArrayCache(folder).load("key")
    assert loaded is not None
    np.testing.assert_array_equal(loaded["x"], np.arange(10_000))
    assert [path.name for path in (folder / "arrays").iterdir()] == ["key"]


def test_objects_are_refused(folder):
    with pytest.raises(ValueError, match="allow_pickle=False"):
        ArrayCache(folder).store("key", {"x": np.array([{}])})


def test_the_folder_comes_from_the_environment_unless_empty(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSKEW_CACHE", str(tmp_path))
    assert default_cache_folder() == tmp_path
    monkeypatch.setenv("UNSKEW_CACHE", "")
    assert default_cache_folder().name == "unskew"
