"""What kills, damage, full disks, second writers and little memory do: `make campaign`, or `campaign.py --seconds 20`.

Tries happen in one process and its forks, from a seed. With `--folder` counts are kept on disk: the next call adds to
them, with other random numbers. A try ends in one of these ways:

    refused     an error that a command prints as one line, with the name of the file where a file is damaged
    unnamed     the same without the name of the file
    unchanged   what is read is what was written
    other       a text table that now says something else, which no reader can know
    crashed     a library in C died for lack of memory; the place is unharmed, and the next run removes what is left
    silent      what is read is not what was written, a place holds neither the old nor the new, or scratch stays
    traceback   an error that nobody expected, or a wrong exit code
"""

from __future__ import annotations

import argparse
import json
import os
import random
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
from unskew.data.clicks.storage import read_log, write_log
from unskew.data.files import array_digest, write_text
from unskew.data.judged.tables import read_judged_table
from unskew.serving.model_files import save_model
from unskew.simulation.simulate import simulate
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe

WAYS = ("refused", "unnamed", "unchanged", "other", "crashed", "silent", "traceback")
KEPT = 1000  # tries after which counts are written
BAD = ("silent", "traceback", "unnamed")
COMMAND_PARTS = (by_command.kills, by_command.stops, by_command.full, by_command.memory, by_command.rivals)
SHARES = {"kills": 0.3, "mutations": 0.3, "commands": 0.4}  # of the time


class Book:
    """Counts of all tries, and the first example of every way that is bad."""

    def __init__(self, folder: Path | None = None):
        self.folder = folder
        self.counts: dict[str, Counter[str]] = {}
        self.examples: dict[str, str] = {}
        self.rounds = self.tries = 0
        if folder is not None and (folder / "counts.json").is_file():
            kept = json.loads((folder / "counts.json").read_text())
            self.counts = {name: Counter(found) for name, found in kept["counts"].items()}
            self.examples, self.rounds = kept["examples"], kept["rounds"]

    def add(self, name: str, way: str, said: str = "", content: bytes = b"") -> None:
        self.counts.setdefault(name, Counter())[way] += 1
        self.tries += 1
        if self.tries % KEPT == 0:
            self.keep()
        example = f"{name}: {way}"
        if way in BAD and example not in self.examples:
            self.examples[example] = said
            if self.folder is not None and content:
                (self.folder / f"{example.replace(':', ',')}.bin").write_bytes(content)

    def keep(self) -> None:
        if self.folder is not None:
            about = {"rounds": self.rounds, "counts": self.counts, "examples": self.examples}
            write_text(self.folder / "counts.json", json.dumps(about, indent=1))

    def table(self) -> str:
        width = max(map(len, [*self.counts, "all"])) + 2
        lines = [" " * width + f"{'tried':>9}" + "".join(f"{way:>11}" for way in WAYS)]
        total = sum(self.counts.values(), Counter())
        for name, found in [*sorted(self.counts.items()), ("all", total)]:
            lines.append(f"{name:{width}}{found.total():>9,}" + "".join(f"{found[way]:>11,}" for way in WAYS))
        return "\n".join(lines)

    def has_failed(self) -> bool:
        return any(found["silent"] or found["traceback"] for found in self.counts.values())


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


def kills(folder: Path, rng: random.Random, until: float, most: int, book: Book) -> None:
    """Kill writers at any moment; the old or the new stands, and nothing is left when the next one has written."""
    victims = Victims(folder)
    names = list(victims.actions)
    for number in range(most):
        if time.monotonic() > until:
            break
        name = names[number % len(names)]
        child = forked(rng.choice(victims.actions[name]))
        time.sleep(rng.random() * 1.2 * victims.seconds[name])
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        way = victims.resumed() if name == "training" else victims.stands(name)
        book.add(f"kill, {name} written" if name != "training" else "kill, training resumed", way)
    for name, each in victims.actions.items():
        each[0]()
        left = [file.name for file in folder.iterdir() if file.name.endswith(".part") and name in file.name]
        if left:
            book.add(f"kill, {name} written", "silent", f"{left} stays")


def run_parts(book: Book, seconds: float, seed: int, most: int, parts: tuple[str, ...] = tuple(SHARES)) -> None:
    """All parts, each for its share of the time; tries of several rounds have different random numbers."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    share = seconds / sum(SHARES[part] for part in parts)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        for part in parts:
            folder = Path(scratch) / part
            folder.mkdir()
            rng = random.Random(f"{seed} {book.rounds} {part}")
            until = time.monotonic() + share * SHARES[part]
            if part == "kills":
                kills(folder, rng, until, most, book)
            elif part == "mutations":
                mutations(folder, rng, until, most, book.add)
            else:
                commands(folder, rng, until, most, book)
            shutil.rmtree(folder)
            book.rounds += 1
            book.keep()


def commands(folder: Path, rng: random.Random, until: float, most: int, book: Book) -> None:
    """Every command that writes, in all kinds of trouble, for equal shares of the time."""
    trials = by_command.Trials(folder, rng, book.add)
    begun = time.monotonic()
    for number, part in enumerate(COMMAND_PARTS, start=1):
        part(trials, begun + (until - begun) * number / len(COMMAND_PARTS), most)
        book.keep()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=1_000_000, help="tries of each part")
    parser.add_argument("--folder", type=Path, help="for counts, which the next call adds to")
    parser.add_argument("--part", action="append", choices=list(SHARES), help="only this part; may be repeated")
    chosen = parser.parse_args()
    if chosen.folder is not None:
        chosen.folder.mkdir(parents=True, exist_ok=True)
    book = Book(chosen.folder)
    run_parts(book, chosen.seconds, chosen.seed, chosen.most, tuple(chosen.part or SHARES))
    print(book.table())
    for name, said in book.examples.items():
        print(f"\n{name}\n{said}")
    return int(book.has_failed())


if __name__ == "__main__":
    sys.exit(main())
