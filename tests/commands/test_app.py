"""What a command says when it cannot go on."""

import errno
import gc
import os
import signal
import threading

import duckdb
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from unskew.cli import app
from unskew.commands.app import LESS_MEMORY, _refusal, command
from unskew.ingestion.interruption import interruptible


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        pa.ArrowMemoryError("malloc of size 64 failed"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("can't start new thread"),
        ImportError("_core.so: failed to map segment from shared object"),
    ],
)
def test_lack_of_memory_is_one_line_that_says_what_to_lower(error):
    message = _refusal(error)
    assert message.startswith("out of memory")
    assert LESS_MEMORY in message


def test_a_fault_of_ours_keeps_its_traceback():
    assert _refusal(RuntimeError("no such thing")) is None


def test_memory_that_does_not_suffice_to_load_a_command_is_one_line_too(monkeypatch):
    def no_room(name):
        raise ImportError("_core.so: failed to map segment from shared object")

    monkeypatch.setattr("unskew.cli.command_of", no_room)
    found = CliRunner().invoke(app, ["methods"])
    assert found.exit_code == 2
    assert found.stderr.startswith("error: out of memory")


def test_an_exit_code_of_its_own_is_returned_and_not_printed(capsys):
    @command
    def nothing_better():
        raise typer.Exit(3)

    with pytest.raises(typer.Exit) as ended:
        nothing_better()
    assert ended.value.exit_code == 3
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def _in_terminal():
    """Ctrl-C as in a terminal, where a shell may have started the tests in the background and ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_in_terminal")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_in_the_midst_of_a_query_ends_a_command_without_a_traceback(number, code, capsys):
    @command
    def query():  # as DuckDB does it
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            raise RuntimeError("Query interrupted") from None

    with pytest.raises(typer.Exit) as ended:
        query()
    assert ended.value.exit_code == code
    assert capsys.readouterr().err.strip() == "stopped"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_ends_a_query_of_several_threads_at_once(capsys):
    @command
    def query():
        with duckdb.connect(config={"threads": 2}) as connection, interruptible(connection):
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
            connection.execute("SELECT sum(hash(a.range + b.range) % 7) FROM range(1000000) a, range(1000000) b")

    with pytest.raises(typer.Exit) as ended:
        query()
    assert ended.value.exit_code == 143
    assert capsys.readouterr().err.strip() == "stopped"
    del ended  # if the signal arrives in the exit of `interruptible`, it ends with the frame
    gc.collect()
    assert signal.set_wakeup_fd(-1) == -1  # as before
