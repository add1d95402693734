"""Damaged files: every format that the package reads, with bytes changed at random, read again.

Everything happens in one process. Formats get equal shares of time, so that those which are read fast are tried often.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import torch

import unskew
from unskew.commands.app import _refusal
from unskew.comparison.rows import Outcome, read_row, write_row
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import read_log, write_log
from unskew.data.files import array_digest, json_digest
from unskew.data.judged.letor import read_letor
from unskew.data.judged.tables import read_judged_table
from unskew.ingestion.settings import read_columns
from unskew.papers.experiment_files import experiment_text, load_experiment
from unskew.serving.exports import export_model
from unskew.serving.model_files import load_model, save_model
from unskew.serving.onnx_file import OnnxRanker
from unskew.simulation.simulate import simulate
from unskew.training.checkpoint import load_checkpoint, save_checkpoint
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe
from unskew.training.run_state import RunState

HANGS = 600  # seconds after which a reader or a command counts as hanging
FAST = {"steps": 6, "batch_size": 64, "hidden": (8,)}
Found = Callable[[str, str, str, bytes], None]  # counted name, way, what it said, and the damaged content


@dataclass
class Place:
    """A file that is damaged, and a reader that says what it holds."""

    name: str
    file: Path
    read: Callable[[], str]
    verified: bool = True  # it carries digests: nothing that differs may be read
    redone: bool = False  # a damaged one counts as none, and is made again
    sealed: bool = False  # JSON whose shape is changed, with its digest written again
    named: bool = True  # a refusal names the file
    apart: bool = False  # it is read by a library in C that may die: in a process of its own


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


def digest_of_checkpoint(file: Path, method: torch.nn.Module) -> str:
    run, optimizer = load_checkpoint(file, method, {"data": 1})
    numbers = {f"{name}.{key}": value for name, entry in optimizer.items() for key, value in entry.items()}
    state = {**method.state_dict(), **{name: torch.as_tensor(value) for name, value in numbers.items()}}
    return array_digest([value.numpy() for value in state.values()], [*state, str(run.step)])


def digest_of_row(folder: Path) -> str:
    """A damaged row is run again: it reads as none."""
    found = read_row(folder, "row")
    return "none" if found is None else array_digest([found.per_query["ndcg@10"]], [repr(found.about)])


def digest_of_events(file: Path) -> str:
    """What becomes of events."""
    target = file.with_name("ingested")
    unskew.ingest(file, target, overwrite=True, progress=False)
    return read_log(target).digest


def small_judged() -> str:
    """A table of 24 queries with 6 documents each."""
    rng = random.Random(0)
    rows = [f"q{n // 6},d{n},{rng.randrange(4)},{rng.random():.3f},{rng.random():.3f}" for n in range(144)]
    return "\n".join(["query,document,grade,a,b", *rows]) + "\n"


def places(folder: Path, *, onnx: bool) -> list[Place]:
    """One of every file format, most of them written by the package."""
    judged = folder / "judged.csv"
    judged.write_text(small_judged())
    log = simulate(read_judged_table(judged), "random", "position_based", sessions=6, n_shown=6, joint=True).log
    log_folder, model = write_log(log, folder / "log"), fit_recipe(Recipe.of("dla", **FAST), log)
    model_folder = save_model(model, folder / "model")
    ids = save_model(fit_recipe(Recipe.of("pbm", **FAST, attraction="ids"), log), folder / "ids")

    def of_log() -> str:
        return digest_of_log(read_log(log_folder))

    def of_model() -> str:
        return digest_of_model(model_folder)

    data = [model_folder / name for name in ("model.json", "history.json", "weights.safetensors")]
    return [
        *(Place(f"log, {file.name}", file, of_log) for file in sorted(log_folder.iterdir())),
        *(Place(f"model, {file.name}", file, of_model) for file in data),
        Place("model, documents.parquet", ids / "documents.parquet", lambda: digest_of_model(ids)),
        Place("log.json, sealed", log_folder / "log.json", of_log, verified=False, sealed=True),
        Place("model.json, sealed", model_folder / "model.json", of_model, verified=False, sealed=True),
        *(onnx_file(folder / "model.onnx", model) if onnx else []),
        *single_files(folder),
        *judged_files(folder, judged),
        *event_files(folder, log),
        *settings_files(folder),
    ]


def onnx_file(file: Path, model: Any) -> list[Place]:
    export_model(model, file)
    return [Place("ONNX", file, lambda: digest_of_onnx(file))]


def single_files(folder: Path) -> list[Place]:
    """A checkpoint, and a row of an experiment."""
    checkpoint = folder / "checkpoint"
    method = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(method.parameters())
    method(torch.ones(3)).sum().backward()
    optimizer.step()
    save_checkpoint(checkpoint, RunState(step=7), method, optimizer, {"data": 1})
    row = Outcome({"ndcg@10": np.arange(5.0)}, np.arange(5), {"validation": 0.5})
    return [
        Place("checkpoint", checkpoint, lambda: digest_of_checkpoint(checkpoint, method)),
        Place("row of an experiment", write_row(folder, "row", {}, row), lambda: digest_of_row(folder), redone=True),
    ]


def judged_files(folder: Path, judged: Path) -> list[Place]:
    """LETOR, plain and gzip, and tables."""
    letor, zipped, table = folder / "letor.txt", folder / "letor.gz", folder / "judged.parquet"
    letor.write_text("".join(f"{n % 3} qid:{n // 5} 1:{n * 0.5} 2:{n % 7} # d{n}\n" for n in range(60)))
    zipped.write_bytes(gzip.compress(letor.read_bytes(), mtime=0))
    pq.write_table(pyarrow.csv.read_csv(judged), table)

    def of_letor(file: Path) -> Callable[[], str]:
        return lambda: digest_of_judged(read_letor(file, cache=False))

    def of_table(file: Path) -> Callable[[], str]:
        return lambda: digest_of_judged(read_judged_table(file))

    readers = {"LETOR": (letor, of_letor), "LETOR, gzip": (zipped, of_letor)}
    readers |= {"judged .csv": (judged, of_table), "judged .parquet": (table, of_table)}
    return [Place(name, file, reader(file), verified=False) for name, (file, reader) in readers.items()]


def event_files(folder: Path, log: ClickLog) -> list[Place]:
    """Events as parquet, CSV, CSV in gzip and JSON lines."""
    first = folder / "events.parquet"
    unskew.events(log, first)
    table = pq.read_table(first).slice(0, 240)
    pq.write_table(table, first)
    plain, zipped, lines = (folder / name for name in ("events.csv", "events.csv.gz", "events.jsonl"))
    pyarrow.csv.write_csv(table, plain)
    zipped.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    lines.write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))

    def reader(file: Path) -> Callable[[], str]:
        return lambda: digest_of_events(file)

    return [
        Place(f"events, {file.name.partition('.')[2]}", file, reader(file), verified=False)
        for file in (first, plain, zipped, lines)
    ]


def settings_files(folder: Path) -> list[Place]:
    """TOML of an experiment and of columns."""
    experiment, columns = folder / "mine.toml", folder / "columns.toml"
    experiment.write_text(experiment_text("lbd-table1"))
    columns.write_text('session = "sid"\nquery = "q"\ndocument = "d"\nposition = "rank"\nclick = "c"\nbias = ["x"]\n')
    return [
        Place("experiment .toml", experiment, lambda: repr(load_experiment(str(experiment))), verified=False),
        Place("columns .toml", columns, lambda: repr(read_columns(columns)), verified=False),
    ]


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


def way_of(place: Place, known: str) -> tuple[str, str]:
    """How reading a damaged file ended, and what was said."""
    if not place.apart:
        return way_here(place, known)
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(HANGS)
        os.write(sender, json.dumps(way_here(place, known)).encode())
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as told:
        content = told.read()
    status = os.waitpid(child, 0)[1]
    way, said = json.loads(content) if content else ("crashed", f"a library in C died: status {status}")
    return way, said


def way_here(place: Place, known: str) -> tuple[str, str]:
    try:
        found = place.read()
    except Exception as error:
        message = _refusal(error)
        if message is None:
            return "traceback", f"{type(error).__name__}: {str(error)[:300]}"
        named = place.file.name in message or place.file.parent.name in message or "shard-" in message
        return "refused" if named or not place.named else "unnamed", message[:300]
    if found == known:
        return "unchanged", ""
    if place.redone and found == "none":
        return "refused", ""
    return ("silent" if place.verified else "other"), "read without an error"


def mutations(all_places: list[Place], rng: random.Random, until: float, most: int, found: Found) -> None:
    """Damage one file after another; the format that has had the least time is next."""
    known = [place.read() for place in all_places]
    contents = [place.file.read_bytes() for place in all_places]
    spent = [0.0] * len(all_places)
    for _ in itertools.takewhile(lambda _: time.monotonic() < until, range(most)):
        number = spent.index(min(spent))
        place, content = all_places[number], contents[number]
        begun = time.monotonic()
        changed = reshaped(content, rng) if place.sealed else damaged(content, rng)
        place.file.write_bytes(changed)
        way, said = way_of(place, known[number])
        covered = "with a digest" if place.verified or place.redone else "without one"
        found(f"damaged file {covered}, {place.name}", way, said, changed)
        place.file.write_bytes(content)
        spent[number] += time.monotonic() - begun
