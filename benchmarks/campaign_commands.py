"""Every command, killed, stopped, short of disk and of memory, beside a second one of itself, or not allowed to write.

A command runs in a fork of this process, which has everything imported, so that a try costs what the command costs.
Each try has a folder of its own. A command that only prints has its output in the file `said`. What stands at the place
of the output afterwards is the output of a whole run, old or new, or nothing where nothing was; then the same command,
left alone, ends with the known output and nothing beside it.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import os
import random
import resource
import shutil
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from campaign_files import HANGS, small_judged
from unskew.cli import COMMANDS, app
from unskew.data.clicks.storage import read_log
from unskew.serving.model_files import load_model
from unskew.training import distributed

Counts = Counter[str]
Found = Callable[[str, str, str], Any]  # counted name, way, and what a reader needs to look into it
SMALL = ["--set", "steps=12", "--set", "validate_every=3", "--set", "batch_size=64", "--set", "hidden=[8]"]
MEETING = 30  # seconds after which a process of two no longer waits for the other
OUT, SAID = "{out}", "said"
EXPERIMENT = """
title = "Small"
paper = "none"
question = "Does it run?"
seeds = 1
[simulation]
sessions = 8
[training]
steps = 6
hidden = [4]
[[methods]]
label = "Clicks"
method = "naive"
[[methods]]
label = "DLA"
method = "dla"
"""
CRASHES = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)  # a library in C that found no memory
ENDS = {0: "unchanged"} | dict.fromkeys(CRASHES, "crashed")


@dataclass(frozen=True)
class Command:
    """A command line with a place for its output."""

    name: str
    arguments: tuple[str, ...]  # OUT is the place
    place: str  # its name
    kept: tuple[str, ...] = ()  # what may stay, in part, after a run that was cut off
    beside: tuple[str, ...] = ()  # what else it writes
    start: str = ""  # of inputs, what stands at its place before it begins
    lasting: bool = False  # it runs until it is stopped

    @property
    def prints(self) -> bool:
        return self.place == SAID

    def line(self, folder: Path) -> list[str]:
        return [text.replace(OUT, str(folder / self.place)) for text in self.arguments]


def write_inputs(inputs: Path) -> None:
    """What the commands begin with; and everything is imported, so that no fork needs to."""
    for module in ("lightgbm", "matplotlib.pyplot", "onnx", "onnxruntime", "onnxscript", "sklearn", "torch.onnx"):
        with suppress(ImportError):
            import_module(module)
    for declared in COMMANDS.values():
        import_module(f"unskew.{(declared.function or declared.run).partition(':')[0]}")
    log, events = str(inputs / "log"), inputs / "events.parquet"
    (inputs / "judged.csv").write_text(small_judged())
    (inputs / "users.txt").write_text("u3\n")
    (inputs / "mine.toml").write_text(EXPERIMENT)
    for line in (
        ("simulate", str(inputs / "judged.csv"), *SHOWN, "--joint", "--out", log),
        ("events", log, "--out", str(events), "--features", str(inputs / "features.parquet")),
        ("train", log, "--out", str(inputs / "model"), "--quiet", *SMALL),
        ("ingest", str(inputs / "people.parquet"), "--out", str(inputs / "people"), *ROLES),
    ):
        if line[0] == "ingest":
            write_users(events)
        if code_of(forked(list(line), inputs / SAID)):
            raise RuntimeError((inputs / SAID).read_text())


def commands(inputs: Path) -> list[Command]:
    """One of each command, by the first word of its line."""
    judged, log, model, people = (inputs / name for name in ("judged.csv", "log", "model", "people"))
    events, features = inputs / "events.parquet", inputs / "features.parquet"
    again = ("--overwrite",)
    of_log, of_model = (str(log), "--out", OUT), (str(model), str(judged), "--out", OUT)
    ranked = (str(model), str(features), "--out", OUT)
    pairs = ("--methods", "naive,dla", "--seeds", "1", "--jobs", "1", "--quiet", *SMALL)
    chosen = ("model", (".model.auto", ".model.checkpoint.auto", ".model.checkpoint"), ("model.html",))
    mine = ("--data", "world:tiny", "--jobs", "1", "--quiet", "--out", OUT)

    def printing(*line: str, **more: Any) -> Command:
        return Command(line[0], line, SAID, kept=(SAID,), **more)

    return [
        Command(
            "simulate", ("simulate", str(judged), *SHOWN, "--out", OUT, *again), "log", beside=("log.truth.parquet",)
        ),
        Command("shop", ("shop", "--out", OUT, "--sessions", "20", *again), "shop"),
        Command("events", ("events", *of_log, *again), "events.parquet"),
        Command("ingest", ("ingest", str(events), "--features", str(features), "--out", OUT, "--quiet", *again), "log"),
        Command("train", ("train", *of_log, "--method", "dla", *SMALL, *again), "model", kept=(".model.checkpoint",)),
        Command("train auto", ("train", *of_log, "--quiet", *SMALL, *again), *chosen),
        Command(
            "tune",
            ("tune", str(model), "--judged", str(judged), "--steps", "4", "--out", OUT, *again),
            "model",
            kept=(".model.tuning",),
        ),
        Command("weights", ("weights", *of_log, "--quiet", *SMALL, *again), "weights.parquet"),
        Command("judgements", ("judgements", *of_log, *again), "judgements.csv"),
        Command("rank", ("rank", *ranked, "--quiet", *again), "ranking.parquet"),
        Command("rank to CSV", ("rank", *ranked, "--quiet", *again), "ranking.csv"),
        Command("evaluate", ("evaluate", *of_model), "values.parquet"),
        Command("export", ("export", str(model), "--to", OUT, *again), "model.onnx"),
        Command("explain", ("explain", *ranked, "--by-order", "--repeats", "1"), "why", kept=("why",)),
        Command("diagnose", ("diagnose", *of_log, "--quick", "--quiet"), "report.html"),
        Command("compare", ("compare", *of_log, *pairs), "compare", kept=("compare",)),
        Command("auto", ("auto", *of_log, "--force", "--quiet", *SMALL, *again), *chosen),
        Command("look", ("look", str(model), str(log), "--out", OUT, *again), "look.html"),
        Command(
            "forget",
            ("forget", OUT, "--users", str(inputs / "users.txt")),
            "people",
            (),
            ("people.salt",),
            start="people",
        ),
        Command("reproduce", ("reproduce", str(inputs / "mine.toml"), *mine), "results", kept=("results",)),
        Command("demo", ("demo", "--data", "world:tiny", "--out", OUT), "report.html"),
        printing("drift", str(log), str(log), "--json"),
        printing("readout", str(people), "--arm", "arm", "--json"),
        printing("methods", "--json"),
        printing("data", "--json"),
        printing("serve", str(model), "--port", "0", lasting=True),
    ]


SHOWN = ("--policy", "random", "--n-shown", "6", "--sessions", "6", "--quiet")
ROLES = ("--user", "user", "--bias", "arm", "--keep-users", "--joint", "--quiet")


def write_users(events: Path) -> None:
    """The events, with a user and an arm for each session."""
    shown = pq.read_table(events)
    sessions = shown["session_id"].combine_chunks().dictionary_encode().indices.to_pylist()
    for name, values in {"user": [f"u{n % 7}" for n in sessions], "arm": [f"arm{n % 2}" for n in sessions]}.items():
        shown = shown.append_column(name, pa.array(values))
    pq.write_table(shown, events.with_name("people.parquet"))


def forked(line: list[str], said: Path, before: Callable[[], None] = lambda: None) -> int:
    """A child that runs a command line and ends as the command does; 1 after a traceback."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setpgid(0, 0)
        signal.alarm(HANGS)
        out = os.open(said, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        logging.disable(logging.NOTSET)  # `serve` says by a log line where it listens
        before()
        app(line, prog_name="unskew")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def code_of(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def content(place: Path) -> str:
    """What stands at a place, in one number, and "" if nothing does; an error if it is not whole."""
    if not place.exists():
        return ""
    if (place / "log.json").is_file():
        return read_log(place).digest
    if (place / "model.json").is_file():
        state = load_model(place).method.state_dict()
        return _digest(repr([(name, value.tolist()) for name, value in state.items()]))
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    return _digest(repr([(file.name, _file(file)) for file in files if file.is_file()]))


def _file(file: Path) -> str:
    if file.suffix == ".parquet":
        return repr(pq.read_table(file).to_pydict())
    text = file.read_bytes()
    if file.suffix == ".json":
        json.loads(text)
    ends = {".html": b"</html>", ".svg": b"</svg>", ".png": b"IEND\xaeB`\x82"}
    if file.suffix in ends and not text.rstrip().endswith(ends[file.suffix]):
        raise ValueError(f"{file.name} is cut off")
    return _digest(text.decode("latin-1"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Trials:
    """Commands with their known output, each tried in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        rng: random.Random,
        found: Found,
        only: tuple[str, ...] = (),
        tried: Mapping[str, int] = MappingProxyType({}),
    ):
        self.folder, self.rng, self.found, self.tried = folder, rng, found, tried
        folder.chmod(0o755)
        self.inputs = folder / "inputs"
        self.inputs.mkdir()
        write_inputs(self.inputs)
        self.commands = [command for command in commands(self.inputs) if not only or command.name in only]
        self.seconds: dict[str, float] = {}
        self.known: dict[str, set[str]] = {}
        self.number = 0

    def learn(self, command: Command) -> None:
        """Run a command twice: what it writes, whether that is always the same, and how long it takes."""
        self.known[command.name] = set()
        for turn in ("first", "second"):
            folder = self.folder / f"{turn} {command.name}"
            folder.mkdir()
            self.prepare(command, folder)
            begun = time.monotonic()
            if self.run(command, folder):
                raise RuntimeError(f"{command.name}: {(folder / SAID).read_text()}")
            self.seconds[command.name] = time.monotonic() - begun
            self.known[command.name].add(content(folder / command.place))
            known = (SAID, command.place, *command.beside)
            if left_over(folder, known):
                raise RuntimeError(f"{command.name} also writes {left_over(folder, known)}")
        if len(self.known[command.name]) > 1:  # times of day, for example: then only whole or not is checked
            self.known[command.name] = set()

    def prepare(self, command: Command, folder: Path) -> None:
        """What a command begins with."""
        for entry in self.inputs.glob(f"{command.start}*") if command.start else ():
            if entry.name in (command.start, f"{command.start}.salt"):
                (shutil.copytree if entry.is_dir() else shutil.copy)(entry, folder / entry.name)

    def run(self, command: Command, folder: Path) -> int:
        """Run a command alone, and give its exit code."""
        return self.ended(forked(command.line(folder), folder / SAID), command, folder / SAID)

    def ended(self, child: int, command: Command, said: Path) -> int:
        """The exit code; a command that lasts is asked to stop as soon as it listens."""
        while command.lasting:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            if said.exists() and "listens on" in said.read_text():
                os.kill(child, signal.SIGTERM)
                code = code_of(child)
                return 0 if code == 128 + signal.SIGTERM else code
            time.sleep(0.05)
        return code_of(child)

    def tries(
        self, fault: str, until: float, most: int, writers: bool = False
    ) -> Iterator[tuple[Command, Path, float]]:
        """Commands in turn with a new folder and a moment: a tenth of the duration after the other, and random in it.

        In half of the tries something stands at the place already.
        """
        chosen = [command for command in self.commands if not (writers and command.prints)]
        for number in range(self.tried.get(fault, 0), most):
            if time.monotonic() > until:
                return
            command = chosen[number % len(chosen)]
            if command.name not in self.known:
                self.learn(command)
            folder = self.folder / f"try {self.number}"
            self.number += 1
            folder.mkdir()
            self.prepare(command, folder)
            if not command.start and self.rng.random() < 0.5:
                whole = self.folder / f"first {command.name}" / command.place
                copy = shutil.copytree if whole.is_dir() else shutil.copy
                copy(whole, folder / command.place)
            tenth = (number // len(chosen) * 3) % 10
            yield command, folder, (tenth + self.rng.random()) / 10 * self.seconds[command.name]
            shutil.rmtree(folder)

    def judge(self, fault: str, command: Command, folder: Path, codes: tuple[int, ...], code: int) -> None:
        """Count what came of a try: by how it ended, what stands, and what the next run makes of it."""
        way = self._way(command, folder, codes, code) or ENDS.get(code, "refused")
        said = (folder / SAID).read_text(errors="replace")[-1500:] if way in ("silent", "traceback") else ""
        stands = sorted(file.name for file in folder.iterdir())
        self.found(f"{fault}, {command.name}", way, f"exit code {code}; {stands}\n{said}")

    def _way(self, command: Command, folder: Path, codes: tuple[int, ...], code: int) -> str:
        said = (folder / SAID).read_text(errors="replace") if (folder / SAID).exists() else ""
        if code not in codes or (code and "Traceback (most recent call last)" in said):
            return "traceback"  # after 0: Ctrl-C fell into a callback of Python's, which ignores it; all is done
        if not self._sound(command, folder, cut_off=True):
            return "silent"
        known = (SAID, command.place, *command.beside)
        if code >= 0 and left_over(folder, (*known, *command.kept)):
            return "silent"
        again = self.run(command, folder)
        if again or not self._sound(command, folder, cut_off=False):
            return "traceback" if again == 1 else "silent"
        return "silent" if left_over(folder, known) else ""

    def _sound(self, command: Command, folder: Path, *, cut_off: bool) -> bool:
        """Whether what stands is the output of a whole run; a run of several parts may have done some of them."""
        if cut_off and command.prints:
            return True
        try:
            stands = content(folder / command.place)
            before = {content(self.inputs / command.start)} if cut_off and command.start else set()
        except Exception as error:
            with (folder / SAID).open("a") as file:
                file.write(f"\n{error!r}")
            return False
        if cut_off and not command.start and (not stands or command.place in command.kept):
            return True
        return bool(stands) and (not self.known[command.name] or stands in self.known[command.name] | before)


def kills(trials: Trials, until: float, most: int) -> None:
    """SIGKILL at any moment."""
    for command, folder, moment in trials.tries("kill", until, most):
        child = forked(command.line(folder), folder / SAID)
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
        trials.judge("kill", command, folder, (0, -signal.SIGKILL), code_of(child))


def stops(trials: Trials, until: float, most: int) -> None:
    """SIGTERM or Ctrl-C at any moment: 143 or 130."""
    for command, folder, moment in trials.tries("SIGTERM or Ctrl-C", until, most):
        number = trials.rng.choice((signal.SIGTERM, signal.SIGINT))
        child = forked(command.line(folder), folder / SAID)
        time.sleep(moment + 0.1 * trials.seconds[command.name])  # first it must have begun
        os.kill(child, number)
        trials.judge("SIGTERM or Ctrl-C", command, folder, (0, 128 + number, -number), code_of(child))


def full(trials: Trials, until: float, most: int) -> None:
    """A limit of file sizes in place of a full disk."""
    for command, folder, _ in trials.tries("full disk", until, most, writers=True):
        size = int(2 ** (4 + 14 * trials.rng.random()))
        child = forked(command.line(folder), folder / SAID, limit(resource.RLIMIT_FSIZE, size))
        trials.judge("full disk", command, folder, (0, 2), code_of(child))


def memory(trials: Trials, until: float, most: int) -> None:
    """A limit of memory, from nothing more than the process has to 64 MB more."""
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for command, folder, _ in trials.tries("little memory", until, most):
        size = has + trials.rng.randrange(1 << 26)
        child = forked(command.line(folder), folder / SAID, limit(resource.RLIMIT_AS, size))
        code = trials.ended(child, command, folder / SAID)
        trials.judge("little memory", command, folder, (0, 2, *CRASHES), code)


def rivals(trials: Trials, until: float, most: int) -> None:
    """Two of the same at one place: one may be refused."""
    for command, folder, _ in trials.tries("two writers", until, most, writers=True):
        children = [forked(command.line(folder), folder / name) for name in (SAID, "said too")]
        codes = [code_of(child) for child in children]
        with (folder / SAID).open("a") as file:
            file.write((folder / "said too").read_text(errors="replace"))
        (folder / "said too").unlink()
        both = sorted(codes)
        trials.judge("two writers", command, folder, (0, 2), both[1] if both[0] == 0 else 1)


def read_only(trials: Trials, until: float, most: int) -> None:
    """A folder that may not be written, for somebody who is not root."""
    for command, folder, _ in trials.tries("read-only folder", until, most):
        (folder / SAID).touch()
        folder.chmod(0o555)
        child = forked(command.line(folder), folder / SAID, as_nobody)
        code = trials.ended(child, command, folder / SAID)
        folder.chmod(0o755)
        trials.judge("read-only folder", command, folder, (0, 2), code)


def as_nobody() -> None:
    """Root may write everywhere, unless it gives up its capabilities."""
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")


def deaths(trials: Trials, until: float, most: int) -> None:
    """One of two processes that train together dies: the other ends too, and one process alone finishes the run."""
    train = next(command for command in trials.commands if command.name == "train")
    for number in range(trials.tried.get("a process of two dies", 0), most):
        if time.monotonic() > until:
            return
        if train.name not in trials.known:
            trials.learn(train)
        folder = trials.folder / f"death {number}"
        folder.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        both = [forked(train.line(folder), folder / f"said {rank}", as_rank(rank, port)) for rank in (0, 1)]
        time.sleep((number % 10 + trials.rng.random()) / 10 * 3 * trials.seconds[train.name])
        dead = trials.rng.randrange(2)
        os.kill(both[dead], signal.SIGKILL)
        codes = [code_of(child) for child in both]
        told = "".join((folder / f"said {rank}").read_text(errors="replace") for rank in (0, 1))
        way = "unchanged" if codes[1 - dead] == 0 else "refused"
        if codes[1 - dead] not in (0, 2) or "Traceback (most" in told:
            way = "traceback"
        elif trials.run(train, folder) or not alike(folder / "model", trials.folder / "first train" / "model"):
            way = "silent"
        trials.found(f"a process of two dies, {('first', 'second')[dead]}", way, f"exit codes {codes}\n{told[-1500:]}")
        shutil.rmtree(folder)


def as_rank(rank: int, port: int) -> Callable[[], None]:
    """What `torchrun` sets."""
    distributed.MEETING = timedelta(seconds=MEETING)
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return lambda: os.environ.update({**{name: str(value) for name, value in told.items()}, "GLOO_SOCKET_IFNAME": "lo"})


def alike(one: Path, other: Path) -> bool:
    """Whether two models differ by rounding only: sums over two processes are added in another order."""
    first, second = (load_model(place).method.state_dict() for place in (one, other))
    return all(torch.allclose(first[name], second[name], rtol=1e-3, atol=1e-3) for name in first)


def left_over(folder: Path, known: tuple[str, ...]) -> list[str]:
    return [file.name for file in folder.iterdir() if file.name not in known]


def limit(kind: int, size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (size, size))
