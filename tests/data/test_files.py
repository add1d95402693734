"""Output: whole or not at all, one writer at a time, nothing of the dead left behind."""

import errno
import os
import stat
import subprocess
import sys
import textwrap

import pytest

from unskew.data.files import HOST, new_file, new_folder, restore, sole_writer

NOBODY = 2**22 - 1  # above the largest process number of Linux's default


def folder_of(path, text):
    path.mkdir()
    (path / "log.json").write_text(text)
    return path


def test_a_file_takes_its_place_when_the_block_ends(tmp_path):
    (tmp_path / "a").write_text("old")
    with new_file(tmp_path / "a") as scratch:
        scratch.write_text("new")
        assert (tmp_path / "a").read_text() == "old"
    assert (tmp_path / "a").read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "a").write_text("old")

    def fail(scratch):
        scratch.write_text("ne")
        raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"), new_file(tmp_path / "a") as scratch:
        fail(scratch)
    assert (tmp_path / "a").read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
        OSError(errno.EFBIG, "File too large"),
    ],
    ids=["the system's", "a library's", "a limit"],
)
def test_a_full_disk_is_one_clear_line_whoever_met_it(tmp_path, error):
    with pytest.raises(OSError, match=r"the disk is full: .*a was not written.*make room"), new_file(tmp_path / "a"):
        raise error
    with (
        pytest.raises(OSError, match=r"the disk is full: .*log was not written"),
        new_folder(tmp_path / "log", "log.json", overwrite=False),
    ):
        raise error
    assert list(tmp_path.iterdir()) == []


def test_permissions_are_those_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        with new_file(tmp_path / "a") as scratch:
            scratch.write_text("x")
            scratch.chmod(0o600)  # as some libraries leave it
        with new_folder(tmp_path / "log", "log.json", overwrite=False) as new:
            (new / "log.json").write_text("x")
            (new / "log.json").chmod(0o600)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "log" / "log.json").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o750


def test_a_second_writer_learns_who_writes(tmp_path):
    program = """
        import sys
        from pathlib import Path
        from unskew.data.files import sole_writer
        with sole_writer(Path(sys.argv[1])):
            print("writing", flush=True)
            sys.stdin.read()
    """
    first = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "a")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout.readline() == "writing\n"
    told = rf"a is being written by process {first.pid} on {HOST} since 20.*: wait, or choose another path"
    with pytest.raises(FileExistsError, match=told), new_file(tmp_path / "a"):
        pass
    first.communicate()
    with new_file(tmp_path / "a") as scratch:
        scratch.write_text("x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_a_lock_of_the_dead_holds_nobody_up(tmp_path):
    (tmp_path / ".a.lock").write_text("{}")
    with sole_writer(tmp_path / "a"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_scratch_of_a_killed_run_is_removed_and_named(tmp_path):
    left = tmp_path / f".a.{HOST}-{NOBODY}-0123abcd.part"
    elsewhere = tmp_path / ".a.other_host-1-0123abcd.part"
    alive = tmp_path / f".a.{HOST}-{os.getpid()}-0123abcd.part"
    for file in (left, elsewhere, alive):
        file.write_text("half")
    with pytest.warns(RuntimeWarning, match=f"removed {left.name}, which a killed run left"), new_file(tmp_path / "a"):
        pass
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([alive.name, elsewhere.name, "a"])


def test_a_kill_between_two_renames_loses_nothing(tmp_path):
    scratch = tmp_path / f".log.{HOST}-{NOBODY}-0123abcd.part"
    scratch.mkdir()
    folder_of(scratch / "old", "old")
    folder_of(scratch / "new", "new")
    with pytest.warns(RuntimeWarning, match="the old folder was restored"):
        restore(tmp_path / "log")
    assert (tmp_path / "log" / "log.json").read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["log"]


def test_a_kill_after_two_renames_leaves_nothing_for_long(tmp_path):
    folder_of(tmp_path / "log", "new")
    scratch = tmp_path / f".log.{HOST}-{NOBODY}-0123abcd.part"
    scratch.mkdir()
    folder_of(scratch / "old", "old")
    with (
        pytest.warns(RuntimeWarning, match="which a killed run left"),
        new_folder(tmp_path / "log", "log.json", overwrite=True) as folder,
    ):
        (folder / "log.json").write_text("newest")
    assert (tmp_path / "log" / "log.json").read_text() == "newest"
    assert [entry.name for entry in tmp_path.iterdir()] == ["log"]


def test_a_scratch_never_follows_a_link(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr("unskew.data.files.uuid.uuid4", lambda: type("Fixed", (), {"hex": "0" * 32})())
    (tmp_path / f".a.{HOST}-{os.getpid()}-{'0' * 8}.part").symlink_to(victim)
    with pytest.raises(FileExistsError), new_file(tmp_path / "a") as scratch:
        scratch.write_text("theirs")
    assert victim.read_text() == "mine"
