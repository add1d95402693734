"""What kills, damage, full disks, second writers, degenerate logs and the like do: `make campaign`.

    python benchmarks/campaign.py --seconds 60 --part files         one part, for a minute
    python benchmarks/campaign.py --folder rows --docs docs/reliability.md

With `--folder` every try is a line of rows.jsonl as soon as it has ended: the next call goes on from there, with other
random numbers, and `--docs` writes the tables of all of them into a page. A try ends in one of these ways:

    unchanged   what is read is what was written
    warned      training ended, with a warning
    refused     an error that a command prints as one line, with the name of the file where a file is damaged
    unnamed     the same without the name of the file
    other       a text table that now says something else, which no reader can know
    crashed     a library in C died for lack of memory, or of a damaged file; the place is unharmed
    silent      what is read is not what was written, a place holds neither the old nor the new, scratch stays, or
                training on a log that teaches nothing ended without a word
    traceback   an error that nobody expected, or a wrong exit code
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import campaign_commands as by_command
from campaign_files import FAST, digest_of_log, digest_of_model, mutations, small_judged
from campaign_formats import every_place
from campaign_logs import LOGS, METHODS, USES, degenerate, fitted, ordinary
from campaign_storage import storage
from row_file import append_row, mend, read_rows
from unskew.data.clicks.storage import read_log, write_log
from unskew.data.files import array_digest, write_text
from unskew.data.judged.tables import read_judged_table
from unskew.serving.model_files import save_model
from unskew.simulation.simulate import simulate
from unskew.training.checkpoint import Stopped
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe

WAYS = ("unchanged", "warned", "refused", "other", "crashed", "unnamed", "silent", "traceback")
BAD = ("silent", "traceback", "unnamed")
COMMAND_PARTS = tuple(
    getattr(by_command, name) for name in ("kills", "stops", "full", "memory", "rivals", "read_only", "deaths")
)
ROUNDS = 4  # in which the kinds of trouble share the time of the commands
BEGIN, END = "<!-- campaign -->\n", "<!-- end of campaign -->\n"


class Book:
    """How every try ended; in a folder, also those of earlier calls."""

    def __init__(self, folder: Path | None = None):
        self.file = None if folder is None else folder / "rows.jsonl"
        self.rows: list[dict[str, str]] = []
        if self.file is not None:
            mend(self.file)
            self.rows = read_rows(self.file)

    def add(self, name: str, way: str, said: str = "", content: bytes = b"") -> None:
        row = {"name": name, "way": way} | ({"said": said} if way in BAD or way == "crashed" else {})
        self.rows.append(row)
        if self.file is not None:
            append_row(self.file, row)
            if way in BAD and content:
                write_text(self.file.with_name(f"{name}, {way}.hex".replace("/", " ")), content.hex())

    def counts(self, subject: bool = False) -> dict[str, Counter[str]]:
        """Ways by kind of fault, or by its subject as well."""
        found: dict[str, Counter[str]] = {}
        for row in self.rows:
            name = row["name"] if subject else row["name"].partition(", ")[0]
            found.setdefault(name, Counter())[row["way"]] += 1
        return found

    def tried(self) -> Counter[str]:
        return Counter({name: found.total() for name, found in self.counts().items()})

    def has_failed(self) -> bool:
        return any(row["way"] in ("silent", "traceback") for row in self.rows)


def table(first: str, counts: dict[str, Counter[str]]) -> str:
    """A Markdown table of how tries ended."""
    ways = [way for way in WAYS if any(found[way] for found in counts.values()) or way in BAD]
    lines = [f"| {first} | tried | {' | '.join(ways)} |", f"|---|{'---:|' * (len(ways) + 1)}"]
    for name, found in counts.items():
        cells = (f"{found[way]:,}" if found[way] else "–" for way in ways)
        lines.append(f"| {name} | {found.total():,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def tables(book: Book) -> str:
    """All tries by the kind of fault, and damaged files by format."""
    faults = book.counts()
    damaged = {name: found for name, found in book.counts(subject=True).items() if name.startswith("damaged")}
    formats = {
        f"{name.partition(', ')[2]} ({'a digest' if 'with a' in name else 'no digest'})": damaged[name]
        for name in sorted(damaged)
    }
    commands = {row["name"].partition(", ")[2] for row in book.rows if row["name"].startswith("kill, ")}
    kills = sum(faults.get(name, Counter()).total() for name in ("kill", "kill of a writer"))
    about = (
        f"{kills:,} kills (of {len(commands)} command lines), "
        f"{sum(found.total() for found in formats.values()):,} damaged files in {len(formats)} formats, "
        f"{faults.get('degenerate log', Counter()).total():,} of {(len(METHODS) + len(USES)) * len(LOGS):,} pairs of a "
        f"method or function ({len(METHODS)} and {len(USES)}) and a degenerate log ({len(LOGS)}):"
    )
    return "\n".join([about, "", table("fault", faults), "", table("damaged file", formats)])


class Victims:
    """Writers that cost little: two logs and two models of which one replaces the other, and a training run."""

    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "judged.csv").write_text(small_judged())
        judged = read_judged_table(folder / "judged.csv")
        logs = [simulate(judged, "random", "position_based", sessions=6, n_shown=6, seed=seed).log for seed in (0, 1)]
        models = [fit_recipe(Recipe.of("dla", **FAST, seed=seed), logs[0]) for seed in (0, 1)]
        self.actions: dict[str, list[Callable[[], Any]]] = {
            "log": [lambda log=log: write_log(log, folder / "log", n_shards=2, overwrite=True) for log in logs],
            "model": [lambda model=model: save_model(model, folder / "model", overwrite=True) for model in models],
            "training": [lambda: self.train(logs[0])],
        }
        self.readers = {
            "log": lambda: digest_of_log(read_log(folder / "log")),
            "model": lambda: digest_of_model(folder / "model"),
            "training": lambda: (folder / "weights").read_text(),
        }
        self.known = {name: {self._write(name, action) for action in each} for name, each in self.actions.items()}
        self.seconds = {name: self._time(each[0]) for name, each in self.actions.items()}

    def train(self, log: Any) -> None:
        """Train with a checkpoint every other step, and write a digest of the weights."""
        recipe = Recipe.of("dla", steps=24, batch_size=8, hidden=(8,), validate_every=2)
        found = fit_recipe(recipe, log, checkpoint=self.folder / "checkpoint").method.state_dict()
        write_text(self.folder / "weights", array_digest([value.numpy() for value in found.values()], list(found)))
        (self.folder / "checkpoint").unlink()

    def _write(self, name: str, action: Callable[[], Any]) -> str:
        action()
        return self.readers[name]()

    def _time(self, action: Callable[[], Any]) -> float:
        begun = time.monotonic()
        action()
        return time.monotonic() - begun

    def stands(self, name: str) -> str:
        """Whether the old or the new one stands."""
        try:
            return "unchanged" if self.readers[name]() in self.known[name] else "silent"
        except Exception:
            return "silent"

    def resumed(self) -> str:
        """A training run that was killed goes on, and ends with the weights of one that was not."""
        (self.folder / "weights").unlink(missing_ok=True)
        self.actions["training"][0]()
        return self.stands("training")


def forked(action: Callable[[], Any]) -> int:
    """A child that does something, without a word."""
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            action()
        finally:
            os._exit(0)
    return child


def writers(folder: Path, rng: random.Random, until: float, most: int, book: Book) -> None:
    """Kill writers at any moment; the old or the new stands, and nothing is left when the next one has written."""
    victims = Victims(folder)
    names = list(victims.actions)
    for number in range(book.tried()["kill of a writer"], most):
        if time.monotonic() > until:
            break
        name = names[number % len(names)]
        child = forked(rng.choice(victims.actions[name]))
        time.sleep(rng.random() * 1.2 * victims.seconds[name])
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        way = victims.resumed() if name == "training" else victims.stands(name)
        book.add(f"kill of a writer, {name}{' resumed' if name == 'training' else ''}", way)
    for name, each in victims.actions.items():
        each[0]()
        left = [file.name for file in folder.iterdir() if file.name.endswith(".part") and name in file.name]
        if left:
            book.add(f"kill of a writer, {name}", "silent", f"{left} stays")


def files(folder: Path, rng: random.Random, until: float, most: int, book: Book) -> None:
    """Damaged files of every format."""
    mutations(every_place(folder), rng, until, most, book.add)


def commands(folder: Path, rng: random.Random, until: float, most: int, book: Book) -> None:
    """Every command, in all kinds of trouble, for equal shares of the time."""
    begun, number = time.monotonic(), 0
    trials = by_command.Trials(folder, rng, book.add)
    for _ in range(ROUNDS):
        for part in COMMAND_PARTS:
            number += 1
            trials.tried = book.tried()
            part(trials, begun + (until - begun) * number / (ROUNDS * len(COMMAND_PARTS)), most)


def logs(folder: Path, _: random.Random, until: float, __: int, book: Book) -> None:
    """Degenerate logs, each method and function once."""
    known = {row["name"] for row in book.rows}
    degenerate(folder, known, book.add, lambda: time.monotonic() > until)


def stages(folder: Path, _: random.Random, until: float, __: int, book: Book) -> None:
    """SIGTERM in each stage of each method; the run goes on from its checkpoint, to the same weights."""
    for method in METHODS:
        if time.monotonic() > until:
            return
        seen: dict[str, int] = {}
        whole = fitted(
            method, ordinary(), progress=lambda report, seen=seen: seen.setdefault(report.stage, report.step), **STEPS
        )
        for stage in seen:
            name = f"SIGTERM in a stage, {method}, {stage}"
            if any(row["name"] == name for row in book.rows):
                continue

            def stop(report: Any, stage: str = stage) -> None:
                if report.stage == stage:
                    os.kill(os.getpid(), signal.SIGTERM)

            checkpoint = folder / "checkpoint"
            way, said = "silent", "the signal had no effect"
            try:
                fitted(method, ordinary(), progress=stop, checkpoint=checkpoint, **STEPS)
            except Stopped:
                again = fitted(method, ordinary(), progress=False, checkpoint=checkpoint, **STEPS)
                way, said = ("unchanged" if again.digest == whole.digest else "silent"), "other weights"
            except Exception as error:
                way, said = "traceback", repr(error)
            if said != "other weights" and stage == list(seen)[-1] and way == "silent":
                way = "unchanged"  # the last report came after the last step: all is done
            checkpoint.unlink(missing_ok=True)
            book.add(name, way, said)


def objects(folder: Path, rng: random.Random, until: float, most: int, book: Book) -> None:
    """Object storage that fails."""
    storage(folder, rng, until, most, book.add, sum(n for name, n in book.tried().items() if name.startswith("object")))


STEPS = {"steps": 8, "batch_size": 64, "hidden": (8,), "validate_every": 2}
PARTS: dict[str, tuple[Callable[..., None], float]] = {  # with their shares of the time
    "logs": (logs, 0.1),
    "stages": (stages, 0.05),
    "writers": (writers, 0.1),
    "files": (files, 0.2),
    "commands": (commands, 0.5),
    "objects": (objects, 0.05),
}


def run_parts(book: Book, seconds: float, seed: int, most: int, parts: tuple[str, ...] = tuple(PARTS)) -> None:
    """All parts, each for its share of the time; tries of several calls have different random numbers."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable()
    shares = {part: PARTS[part][1] / sum(PARTS[name][1] for name in parts) for part in parts}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        Path(scratch).chmod(0o755)
        for part in parts:
            folder = Path(scratch) / part
            folder.mkdir()
            rng = random.Random(f"{seed} {len(book.rows)} {part}")
            PARTS[part][0](folder, rng, time.monotonic() + seconds * shares[part], most, book)
            shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=1_000_000, help="tries of each kind, with those of earlier calls")
    parser.add_argument("--folder", type=Path, help="for rows.jsonl, to which the next call adds")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only this part; may be repeated")
    parser.add_argument("--docs", type=Path, help="write the tables into this page; with --seconds 0 nothing is tried")
    chosen = parser.parse_args()
    if chosen.folder is not None:
        chosen.folder.mkdir(parents=True, exist_ok=True)
    book = Book(chosen.folder)
    if chosen.seconds:
        run_parts(book, chosen.seconds, chosen.seed, chosen.most, tuple(chosen.part or PARTS))
    if chosen.docs is not None:
        page = chosen.docs.read_text(encoding="utf-8")
        inside = re.compile(f"(?<={BEGIN}).*?(?={END})", re.DOTALL)
        write_text(chosen.docs, inside.sub(lambda _: tables(book), page))
    print(tables(book))
    for row in book.rows:
        if row["way"] in (*BAD, "crashed"):
            print(f"\n{row['name']}: {row['way']}\n{row['said']}")
    return int(book.has_failed())


if __name__ == "__main__":
    sys.exit(main())
