"""What kills, damage, full disks, second writers and little memory do: `make campaign`, or `campaign.py --seconds 20`.

Everything happens in one process and its forks, from a seed. A try ends in one of these ways:

    refused     an error that a command prints as one line, with the name of the file where a file is damaged
    unnamed     the same without the name of the file
    unchanged   what is read is what was written
    other       a text table that now says something else, which no reader can know
    silent      what is read is not what was written, or a place holds neither the old nor the new
    traceback   an error that nobody expected
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from unskew.commands.app import _refusal
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import read_log, write_log
from unskew.data.files import array_digest, json_digest
from unskew.data.judged.letor import read_letor
from unskew.data.judged.tables import read_judged_table
from unskew.data.judged.world import make_world
from unskew.fitting import fit
from unskew.recipe import Recipe
from unskew.serving.export import export_model
from unskew.serving.model_files import load_model, save_model
from unskew.serving.onnx_file import OnnxRanker
from unskew.simulation.simulate import simulate

WAYS = ("refused", "unnamed", "unchanged", "other", "silent", "traceback")
Counts = Counter[str]
FAST = {"steps": 6, "batch_size": 64, "hidden": (8,)}


@dataclass
class Place:
    """A file that is damaged, and a reader that says what it holds."""

    name: str
    file: Path
    read: Callable[[], str]
    verified: bool = True  # it carries digests: nothing that differs may be read
    sealed: bool = False  # JSON whose shape is changed, with its digest written anew


def digest_of_log(log: ClickLog) -> str:
    parts = [log.features, log.versions, log.positions, log.clicks, log.sessions, log.mask]
    return array_digest(parts, [*map(str, log.query_ids), *map(str, log.document_ids)])


def digest_of_model(folder: Path) -> str:
    state = load_model(folder).method.state_dict()
    return array_digest([value.numpy() for value in state.values()], list(state))


def digest_of_onnx(file: Path) -> str:
    ranker = OnnxRanker(file, threads=1)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1, 5, ranker.n_features, generator=generator)
    return array_digest([ranker(rows, torch.ones(1, 5, dtype=torch.bool)).numpy()])


def digest_of_judged(judged: Any) -> str:
    ids = [*map(str, judged.query_ids), *map(str, judged.document_ids)]
    return array_digest([judged.features, judged.grades, judged.offsets], ids)


def places(folder: Path) -> list[Place]:
    """One of every file format, written by the package."""
    world = make_world("tiny", seed=0)
    log = simulate(world.train, "svm", "position_based", sessions=16, joint=True, seed=0).log
    log_folder = write_log(log, folder / "log")
    model = fit(Recipe.of("dla", **FAST), log, checkpoint=folder / "checkpoint")
    model_folder = save_model(model, folder / "model")
    onnx = folder / "model.onnx"
    export_model(model, onnx)
    rows = "".join(f"q{n // 5},d{n},{n % 3},{n * 0.5},{n % 7}\n" for n in range(60))
    table = "query,document,grade,a,b\n" + rows
    (folder / "judged.csv").write_text(table)
    letor = folder / "letor.txt"
    letor.write_text("".join(f"{n % 3} qid:{n // 5} 1:{n * 0.5} 2:{n % 7} # d{n}\n" for n in range(60)))

    def resumed() -> str:
        found = fit(Recipe.of("dla", **FAST), log, checkpoint=folder / "checkpoint").method.state_dict()
        return array_digest([value.numpy() for value in found.values()], list(found))

    def of_log() -> str:
        return digest_of_log(read_log(log_folder))

    def of_model() -> str:
        return digest_of_model(model_folder)

    found = [Place(f"log, {file.name}", file, of_log) for file in sorted(log_folder.iterdir())]
    data = [model_folder / name for name in ("model.json", "history.json", "weights.safetensors")]
    found += [Place(f"model, {file.name}", file, of_model) for file in data]
    found += [
        Place("log.json, sealed", log_folder / "log.json", of_log, verified=False, sealed=True),
        Place("model.json, sealed", model_folder / "model.json", of_model, verified=False, sealed=True),
        Place("ONNX", onnx, lambda: digest_of_onnx(onnx)),
        Place("LETOR", letor, lambda: digest_of_judged(read_letor(letor, cache=False)), verified=False),
        Place(
            "judged .csv",
            folder / "judged.csv",
            lambda: digest_of_judged(read_judged_table(str(folder / "judged.csv"))),
            False,
        ),
    ]
    if (folder / "checkpoint").is_file():
        found.append(Place("checkpoint", folder / "checkpoint", resumed))
    return found


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A bit flipped, bytes overwritten, cut, doubled or left out."""
    data = bytearray(content)
    place, size = rng.randrange(len(data)), rng.randint(1, 16)
    kind = rng.randrange(6)
    if kind <= 1:
        data[place] ^= 1 << rng.randrange(8)
    elif kind == 2:
        data[place : place + size] = rng.randbytes(size)
    elif kind == 3:
        del data[place:]
    elif kind == 4:
        del data[place : place + size]
    else:
        data[place:place] = data[place : place + size]
    return bytes(data)


def reshaped(content: bytes, rng: random.Random) -> bytes:
    """JSON in which one value became another kind of value, or is gone, with a digest that fits."""
    about = json.loads(content)
    del about["digest"]
    node: Any = about
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = rng.choice(keys)
        if isinstance(node[key], dict | list) and node[key] and rng.random() < 0.6:
            node = node[key]
            continue
        break
    if rng.random() < 0.2:
        del node[key]
    else:
        node[key] = rng.choice([None, 7, -1, 2**70, 1e308, "text", "", [], {}, [[1]], {"a": 1}, True])
    return json.dumps({**about, "digest": json_digest(about)}).encode()


def outcome(action: Callable[[], str], known: str, file: Path, verified: bool) -> str:
    try:
        found = action()
    except Exception as error:
        message = _refusal(error)
        if message is None:
            return "traceback"
        return "refused" if file.name in message or file.parent.name in message or "shard-" in message else "unnamed"
    if found == known:
        return "unchanged"
    return "silent" if verified else "other"


def mutations(folder: Path, seed: int, until: float, most: int, examples: dict[str, str]) -> dict[str, Counts]:
    rng = random.Random(seed)
    all_places = places(folder)
    known = {place.name: place.read() for place in all_places}
    contents = {place.name: place.file.read_bytes() for place in all_places}
    counts: dict[str, Counts] = {place.name: Counter() for place in all_places}
    for number in range(most):
        if time.monotonic() > until:
            break
        place = all_places[number % len(all_places)]
        content = contents[place.name]
        changed = reshaped(content, rng) if place.sealed else damaged(content, rng)
        place.file.write_bytes(changed)
        way = outcome(place.read, known[place.name], place.file, place.verified)
        counts[place.name][way] += 1
        if way in ("silent", "traceback", "unnamed") and place.name + way not in examples:
            examples[place.name + way] = explain(place)
        place.file.write_bytes(content)
    return counts


def explain(place: Place) -> str:
    try:
        place.read()
    except Exception as error:
        return f"{place.name}: {type(error).__name__}: {str(error)[:200]}"
    return f"{place.name}: read without an error"


def forked(action: Callable[[], None]) -> int:
    """A child that does something; it ends with 0, with 2 after a refusal, with 3 after anything else."""
    child = os.fork()
    if child:
        return child
    code = 3
    try:
        signal.alarm(20)  # a child that hangs counts as a traceback
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        action()
        code = 0
    except Exception as error:
        code = 3 if _refusal(error) is None else 2
    finally:
        os._exit(code)


def code_of(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class Writers:
    """Two logs and two models, of which the one replaces the other."""

    def __init__(self, folder: Path):
        world = make_world("tiny", seed=0)
        logs = [simulate(world.train, "svm", "position_based", sessions=8, seed=seed).log for seed in (0, 1)]
        models = [fit(Recipe.of("dla", **FAST, seed=seed), logs[0]) for seed in (0, 1)]
        self.folder = folder
        self.actions = {
            "log": [lambda log=log: write_log(log, folder / "log", n_shards=2, overwrite=True) for log in logs],
            "model": [lambda model=model: save_model(model, folder / "model", overwrite=True) for model in models],
        }
        self.known = {name: {self._write(action, name) for action in both} for name, both in self.actions.items()}

    def _write(self, action: Callable[[], Any], name: str) -> str:
        action()
        return self.read(name)

    def read(self, name: str) -> str:
        place = self.folder / name
        return digest_of_log(read_log(place)) if name == "log" else digest_of_model(place)

    def stands(self, name: str) -> str:
        """Whether the old or the new one stands, and nothing beside it."""
        try:
            return "unchanged" if self.read(name) in self.known[name] else "silent"
        except Exception:
            return "silent"

    def left(self) -> list[str]:
        return [file.name for file in self.folder.iterdir() if file.name.endswith(".part")]


def kills(folder: Path, seed: int, until: float, most: int) -> dict[str, Counts]:
    rng = random.Random(seed)
    writers = Writers(folder)
    counts: dict[str, Counts] = {name: Counter() for name in writers.actions}
    seconds: dict[str, float] = {}
    for name, both in writers.actions.items():
        start = time.monotonic()
        both[0]()
        seconds[name] = time.monotonic() - start
    for number in range(most):
        if time.monotonic() > until:
            break
        name = ("log", "model")[number % 2]
        child = forked(writers.actions[name][rng.randrange(2)])
        time.sleep(rng.random() * 1.3 * seconds[name])
        os.kill(child, signal.SIGKILL)
        code_of(child)
        counts[name][writers.stands(name)] += 1
    for name, both in writers.actions.items():
        both[0]()
        if any(name in left for left in writers.left()):
            counts[name]["silent"] += 1
    return {f"kill, {name}": count for name, count in counts.items()}


def limited(kind: int, size: int, action: Callable[[], Any]) -> Callable[[], None]:
    def act() -> None:
        resource.setrlimit(kind, (size, size))
        action()

    return act


def limits(folder: Path, seed: int, until: float, most: int) -> dict[str, Counts]:
    """A file-size limit in place of a full disk, and little memory."""
    rng = random.Random(seed)
    writers = Writers(folder)
    counts: dict[str, Counts] = {
        f"{what}, {name}": Counter() for what in ("full", "memory") for name in writers.actions
    }
    pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for number in range(most):
        if time.monotonic() > until:
            break
        name, full = ("log", "model")[number % 2], number % 4 < 2
        write = writers.actions[name][rng.randrange(2)]
        if full:
            child = forked(limited(resource.RLIMIT_FSIZE, rng.randrange(1, 20_000), write))
        else:
            child = forked(
                limited(
                    resource.RLIMIT_AS, pages + rng.randrange(1 << 24), lambda w=write, n=name: (w(), writers.read(n))
                )
            )
        code = code_of(child)
        stands = writers.stands(name)
        way = "traceback" if code not in (0, 2) else "silent" if stands != "unchanged" or writers.left() else ""
        counts[f"{'full' if full else 'memory'}, {name}"][way or ("refused" if code else "unchanged")] += 1
    return counts


def rivals(folder: Path, seed: int, until: float, most: int) -> dict[str, Counts]:
    """Two writers at one place: one of them may be refused, one of the two stands in the end."""
    rng = random.Random(seed)
    writers = Writers(folder)
    counts: dict[str, Counts] = {name: Counter() for name in writers.actions}
    for number in range(most):
        if time.monotonic() > until:
            break
        name = ("log", "model")[number % 2]
        children = [forked(action) for action in rng.sample(writers.actions[name], 2)]
        codes = sorted(map(code_of, children))
        bad = "traceback" if codes[1] not in (0, 2) else "silent" if codes[0] != 0 or writers.left() else ""
        counts[name][bad or (writers.stands(name) if codes[1] == 0 else "refused")] += 1
    return {f"two writers, {name}": count for name, count in counts.items()}


def run(seconds: float, seed: int, most: int = 100_000) -> tuple[dict[str, Counts], dict[str, str]]:
    """All parts, each for its share of the time."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    counts: dict[str, Counts] = {}
    examples: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, (part, share) in enumerate(((kills, 0.3), (limits, 0.15), (rivals, 0.1))):
            folder = Path(scratch) / f"part{number}"
            folder.mkdir()
            counts |= part(folder, seed, time.monotonic() + share * seconds, most)
        folder = Path(scratch) / "files"
        folder.mkdir()
        counts |= mutations(folder, seed, time.monotonic() + 0.45 * seconds, most, examples)
    return counts, examples


def table(counts: dict[str, Counts]) -> str:
    lines = [f"{'':28}{'tried':>9}" + "".join(f"{way:>11}" for way in WAYS)]
    for name, found in {**counts, "all": sum(counts.values(), Counter())}.items():
        lines.append(f"{name:28}{found.total():>9,}" + "".join(f"{found[way]:>11,}" for way in WAYS))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=100_000, help="tries of each part")
    chosen = parser.parse_args()
    counts, examples = run(chosen.seconds, chosen.seed, chosen.most)
    print(table(counts))
    for text in examples.values():
        print(text)
    return int(any(found["silent"] or found["traceback"] for found in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
