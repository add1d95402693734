"""Every command that writes, killed, stopped, short of disk and of memory, and beside a second one of itself.

A command runs in a fork of this process, which has everything imported, so that a try costs what the command costs.
Each try has a folder of its own. What stands at the place of the output afterwards is the output of a whole run, old or
new, or nothing where nothing was; then the same command, left alone, ends with the known output and nothing beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from campaign_files import small_judged
from unskew.cli import COMMANDS, app
from unskew.data.clicks.storage import read_log
from unskew.serving.model_files import load_model

Counts = Counter[str]
Found = Callable[[str, str, str], Any]  # counted name, way, and what a reader needs to look into it
HANGS = 120  # seconds after which a command counts as hanging
SMALL = ["--set", "steps=12", "--set", "validate_every=3", "--set", "batch_size=64", "--set", "hidden=[8]"]
OUT = "{out}"
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

    def line(self, folder: Path) -> list[str]:
        return [text.replace(OUT, str(folder / self.place)) for text in self.arguments]


def commands(inputs: Path) -> list[Command]:
    """Inputs are written first; then one of each command that writes."""
    for module in ("lightgbm", "matplotlib.pyplot", "onnx", "onnxruntime", "onnxscript", "sklearn", "torch.onnx"):
        with suppress(ImportError):
            import_module(module)  # here, so that no fork needs to
    for declared in COMMANDS.values():
        import_module(f"unskew.{(declared.function or declared.run).partition(':')[0]}")
    judged, log, model = inputs / "judged.csv", inputs / "log", inputs / "model"
    events, features = inputs / "events.parquet", inputs / "features.parquet"
    judged.write_text(small_judged())
    shown = ("simulate", str(judged), "--policy", "random", "--n-shown", "6", "--sessions", "6", "--quiet", "--out")
    for line in (
        (*shown, str(log), "--joint"),
        ("events", str(log), "--out", str(events), "--features", str(features)),
        ("train", str(log), "--out", str(model), "--quiet", *SMALL),
    ):
        if code_of(forked(list(line), inputs / "said")):
            raise RuntimeError((inputs / "said").read_text())
    again = ("--overwrite",)
    of_log, of_model = (str(log), "--out", OUT), (str(model), str(judged), "--out", OUT)
    ranked = (str(model), str(features), "--out", OUT)
    pairs = ("--methods", "naive,dla", "--seeds", "1", "--jobs", "1", "--quiet", *SMALL)
    return [
        Command("simulate", (*shown, OUT, *again), "log", beside=("log.truth.parquet",)),
        Command("shop", ("shop", "--out", OUT, "--sessions", "20", *again), "shop"),
        Command("events", ("events", *of_log, *again), "events.parquet"),
        Command("ingest", ("ingest", str(events), "--features", str(features), "--out", OUT, "--quiet", *again), "log"),
        Command("train", ("train", *of_log, "--quiet", *SMALL, *again), "model", kept=(".model.checkpoint",)),
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
    ]


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

    def __init__(self, folder: Path, rng: random.Random, found: Found, only: tuple[str, ...] = ()):
        self.folder, self.rng, self.found = folder, rng, found
        inputs = folder / "inputs"
        inputs.mkdir()
        self.commands = [command for command in commands(inputs) if not only or command.name in only]
        self.seconds: dict[str, float] = {}
        self.known: dict[str, set[str]] = {}
        for command in self.commands:
            self._learn(command)
        self.number = 0

    def _learn(self, command: Command) -> None:
        """Run a command twice: what it writes, whether that is always the same, and how long it takes."""
        self.known[command.name] = set()
        for turn in ("first", "second"):
            folder = self.folder / f"{turn} {command.name}"
            folder.mkdir()
            begun = time.monotonic()
            if code_of(forked(command.line(folder), folder / "said")):
                raise RuntimeError(f"{command.name}: {(folder / 'said').read_text()}")
            self.seconds[command.name] = time.monotonic() - begun
            self.known[command.name].add(content(folder / command.place))
        if len(self.known[command.name]) > 1:  # times of day, for example: then only whole or not is checked
            self.known[command.name] = set()

    def tries(self, until: float, most: int) -> Iterator[tuple[Command, Path]]:
        """Commands in turn with a new folder; in half of them something stands at the place already."""
        for number in range(most):
            if time.monotonic() > until:
                return
            command = self.commands[number % len(self.commands)]
            folder = self.folder / f"try {self.number}"
            self.number += 1
            folder.mkdir()
            if self.rng.random() < 0.5:
                whole = self.folder / f"first {command.name}" / command.place
                copy = shutil.copytree if whole.is_dir() else shutil.copy
                copy(whole, folder / command.place)
            yield command, folder
            shutil.rmtree(folder)

    def judge(self, part: str, command: Command, folder: Path, codes: tuple[int, ...], code: int) -> None:
        """Count what came of a try: by how it ended, what stands, and what the next run makes of it."""
        way = self._way(command, folder, codes, code) or ENDS.get(code, "refused")
        said = (folder / "said").read_text(errors="replace")[-1500:] if way in ("silent", "traceback") else ""
        stands = sorted(file.name for file in folder.iterdir())
        self.found(f"{part}, {command.name}", way, f"exit code {code}; {stands}\n{said}")

    def _way(self, command: Command, folder: Path, codes: tuple[int, ...], code: int) -> str:
        said = (folder / "said").read_text(errors="replace") if (folder / "said").exists() else ""
        if code not in codes or (code and "Traceback (most recent call last)" in said):
            return "traceback"  # after 0: Ctrl-C fell into a callback of Python's, which ignores it; all is done
        if not self._sound(command, folder, cut_off=True):
            return "silent"
        known = ("said", command.place, *command.beside)
        if code >= 0 and left_over(folder, (*known, *command.kept)):
            return "silent"
        again = code_of(forked(command.line(folder), folder / "said"))
        if again or not self._sound(command, folder, cut_off=False):
            return "traceback" if again == 1 else "silent"
        return "silent" if left_over(folder, known) else ""

    def _sound(self, command: Command, folder: Path, *, cut_off: bool) -> bool:
        """Whether what stands is the output of a whole run; a run of several parts may have done some of them."""
        try:
            stands = content(folder / command.place)
        except Exception as error:
            (folder / "said").open("a").write(f"\n{error!r}")
            return False
        if cut_off and (not stands or command.place in command.kept):
            return True
        return bool(stands) and (not self.known[command.name] or stands in self.known[command.name])


def kills(trials: Trials, until: float, most: int) -> None:
    """SIGKILL at any moment."""
    for command, folder in trials.tries(until, most):
        child = forked(command.line(folder), folder / "said")
        time.sleep(trials.rng.random() * 1.1 * trials.seconds[command.name])
        os.kill(child, signal.SIGKILL)
        trials.judge("kill", command, folder, (0, -signal.SIGKILL), code_of(child))


def stops(trials: Trials, until: float, most: int) -> None:
    """SIGTERM or Ctrl-C at any moment: 143 or 130."""
    for command, folder in trials.tries(until, most):
        number = trials.rng.choice((signal.SIGTERM, signal.SIGINT))
        child = forked(command.line(folder), folder / "said")
        time.sleep((0.1 + trials.rng.random()) * trials.seconds[command.name])  # first it must have begun
        os.kill(child, number)
        trials.judge(number.name, command, folder, (0, 128 + number, -number), code_of(child))


def full(trials: Trials, until: float, most: int) -> None:
    """A limit of file sizes in place of a full disk."""
    for command, folder in trials.tries(until, most):
        size = int(2 ** (4 + 14 * trials.rng.random()))
        child = forked(command.line(folder), folder / "said", limit(resource.RLIMIT_FSIZE, size))
        trials.judge("full disk", command, folder, (0, 2), code_of(child))


def memory(trials: Trials, until: float, most: int) -> None:
    """A limit of memory, from nothing more than the process has to 64 MB more."""
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for command, folder in trials.tries(until, most):
        size = has + trials.rng.randrange(1 << 26)
        child = forked(command.line(folder), folder / "said", limit(resource.RLIMIT_AS, size))
        trials.judge("memory", command, folder, (0, 2, *CRASHES), code_of(child))


def rivals(trials: Trials, until: float, most: int) -> None:
    """Two of the same at one place: one may be refused."""
    for command, folder in trials.tries(until, most):
        children = [forked(command.line(folder), folder / name) for name in ("said", "said too")]
        codes = [code_of(child) for child in children]
        text = (folder / "said too").read_text(errors="replace")
        (folder / "said").open("a").write(text)
        (folder / "said too").unlink()
        both = sorted(codes)
        trials.judge("two writers", command, folder, (0, 2), both[1] if both[0] == 0 else 1)


def left_over(folder: Path, known: tuple[str, ...]) -> list[str]:
    return [file.name for file in folder.iterdir() if file.name not in known]


def limit(kind: int, size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (size, size))
