"""How the cost of the main commands grows with lists, documents per list, features, and sessions of one query.

    python benchmarks/growth.py FOLDER --docs docs/scale.md

Each command runs in a fork of this process, which has everything imported; what it takes at the smallest of sizes is
subtracted, so only what grows is left. The exponent e of cost ~ size^e is the slope of log cost over log size at three
sizes, each four times the one before. FOLDER/rows.jsonl gets a row for each run; a repeated call goes on from there.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from campaign_commands import forked
from row_file import append_row, mend, read_rows
from unskew.cli import COMMANDS
from unskew.data.files import write_text

Sizes = dict[str, int]
FEW: Sizes = {"queries": 100, "sessions": 10, "documents": 10, "features": 10}
LEAST: Sizes = {"queries": 20, "sessions": 4, "documents": 4, "features": 2}
STEP = 4
# What grows, and the first of three sizes of each kind, beside those of FEW.
KINDS: dict[str, tuple[str, Sizes]] = {
    "lists": ("queries", {"queries": 200}),
    "documents per list": ("documents", {}),
    "features": ("features", {"queries": 200}),
    "sessions of one query": ("sessions", {"queries": 1, "sessions": 2000}),
}
FIXED = "--set steps=40 --quiet"
LINES = {
    "ingest": "ingest {0}/events.parquet --features {0}/features.parquet --out {0}/log --threads 1 --quiet --overwrite",
    "diagnose": "diagnose {0}/log --out {0}/report.html --quiet",
    "train": f"train {{0}}/log --method dla --out {{0}}/model --overwrite {FIXED}",
    "train, steps by default": "train {0}/log --method dla --out {0}/long --overwrite --quiet",
    "auto": f"auto {{0}}/log --out {{0}}/chosen --force --overwrite {FIXED}",
    "compare": f"compare {{0}}/log --methods naive,dla --seeds 1 --jobs 1 --out {{0}}/compared {FIXED}",
    "rank": "rank {0}/model {0}/features.parquet --out {0}/ranking.parquet --overwrite --quiet",
    "export": "export {0}/model --to {0}/model.onnx --overwrite",
    "serve": "serve {0}/model --port 0",
}
REQUESTS = 5  # per query; one each where there is one query with many sessions
LIMIT = 1.1
WHY = {}  # (command, kind): why its exponent is above the limit
BEGIN, END = "<!-- growth -->\n", "<!-- end of growth -->\n"


def generate(place: Path, size: Sizes) -> None:
    """Events and features: sessions with random orders of the documents of a query, and clicks that fade downwards."""
    rng = np.random.default_rng(0)
    n, docs = size["queries"] * size["sessions"], size["documents"]
    orders = rng.random((n, docs)).argsort(1)
    clicks = rng.random((n, docs)) < 0.5 / np.arange(1, docs + 1)
    queries = np.arange(n) % size["queries"]
    columns = {
        "session": np.repeat(np.arange(n), docs),
        "query": np.repeat(queries, docs),
        "document": (queries[:, None] * docs + orders).ravel(),
        "position": np.tile(np.arange(1, docs + 1), n),
        "clicked": clicks.astype(np.int8).ravel(),
    }
    pq.write_table(pa.table(columns), place / "events.parquet")
    rows = np.arange(size["queries"] * docs)
    known = {"query": rows // docs, "document": rows}
    values = {f"f{k}": rng.normal(size=len(rows)).astype(np.float32) for k in range(size["features"])}
    pq.write_table(pa.table({**known, **values}), place / "features.parquet")


def cpu_seconds(command: str, place: Path, size: Sizes) -> float:
    """User and system time of a command."""
    (place / "said").unlink(missing_ok=True)
    child = forked(LINES[command].format(place).split(), place / "said")
    if command == "serve":
        ask(place, size)
        os.kill(child, signal.SIGTERM)
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in ((143,) if command == "serve" else (0,)):
        raise RuntimeError(f"{command} ended with {code}: {(place / 'said').read_text()[-2000:]}")
    return used.ru_utime + used.ru_stime


def ask(place: Path, size: Sizes) -> None:
    """Send some requests for each query."""
    found = None
    while found is None:
        time.sleep(0.05)
        found = re.search(r"http://([\d.]+):(\d+)", (place / "said").read_text()) if (place / "said").exists() else None
    row = {f"f{k}": 0.5 for k in range(size["features"])}
    body = json.dumps({"candidates": [{"document": str(n), **row} for n in range(size["documents"])]})
    connection = http.client.HTTPConnection(found[1], int(found[2]))
    for _ in range(REQUESTS * size["queries"]):
        connection.request("POST", "/rank", body, {"Content-Type": "application/json"})
        connection.getresponse().read()
    connection.close()


def sizes(part: float) -> dict[str, Sizes]:
    """All sizes by name."""
    found = {"least": LEAST}
    for kind, (grows, first) in KINDS.items():
        for turn in range(3):
            size = {**FEW, **first}
            size = {name: max(2, round(value * part)) if value > 1 else 1 for name, value in size.items()}
            found[f"{kind} {turn}"] = {**size, grows: size[grows] * STEP**turn}
    return found


def exponent(costs: list[float]) -> float | None:
    """The slope of log cost over log size; None where nothing grows that could be measured."""
    if costs[-1] < NOISE:
        return None
    steps = np.arange(len(costs)) * np.log(STEP)
    kept = np.asarray(costs) > NOISE / 2
    return float(np.polyfit(steps[kept], np.log(np.asarray(costs)[kept]), 1)[0]) if kept.sum() > 1 else None


NOISE = 0.1  # CPU seconds


def table(rows: list[dict[str, Any]]) -> str:
    """Exponents and seconds by command and what grows."""
    seconds = {(row["command"], row["size"]): row["seconds"] for row in rows}
    every = {row["size"]: row["of"] for row in rows}
    lines = [f"| command | {' | '.join(KINDS)} |", f"|---|{'---|' * len(KINDS)}"]
    notes = []
    for command in LINES:
        cells = []
        for kind in KINDS:
            costs = [seconds.get((command, f"{kind} {turn}")) for turn in range(3)]
            if None in costs or (command, "least") not in seconds:
                cells.append("not measured")
                continue
            costs = [cost - seconds[command, "least"] for cost in costs]
            slope = exponent(costs)
            told = ", ".join(f"{max(cost, 0):.1f}" for cost in costs)
            cells.append(f"{'–' if slope is None else f'**{slope:.2f}**'} ({told})")
            if slope is not None and slope > LIMIT:
                notes.append(f"* {command}, {kind}: {WHY.get((command, kind), 'above 1.1, reason unknown')}")
        lines.append(f"| `{command}` | {' | '.join(cells)} |")
    told = [
        f"{kind} from {every[f'{kind} 0'][grows]:,} to {every[f'{kind} 2'][grows]:,} {grows}, with "
        f"{others(every[f'{kind} 0'], grows)}"
        for kind, (grows, _) in KINDS.items()
        if f"{kind} 2" in every
    ]
    total = sum(row["seconds"] for row in rows)
    about = (
        f"Exponents, and CPU seconds at three sizes less those at the smallest of logs; –: below {NOISE} s. "
        f"{'; '.join(told)}. Lists are in random orders, so that nearly all are distinct. "
        f"All {len(rows)} runs took {total / 60:.0f} core minutes."
    )
    return "\n".join([about, "", *lines, "", *notes, ""])


def others(size: Sizes, grows: str) -> str:
    return ", ".join(f"{value:,} {name}" for name, value in size.items() if name != grows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", type=float, default=1.0, help="of the sizes")
    parser.add_argument("--commands", default=";".join(LINES), help="separated by semicolons")
    parser.add_argument("--docs", type=Path, help="write the table into this page")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    file = chosen.folder / "rows.jsonl"
    mend(file)
    rows = read_rows(file)
    torch.set_num_threads(1)
    for module in ("onnx", "onnxruntime", "onnxscript", "matplotlib.pyplot", "torch.onnx", "uvicorn"):
        import_module(module)  # here, so that no fork needs to
    for declared in COMMANDS.values():
        import_module(f"unskew.{(declared.function or declared.run).partition(':')[0]}")
    for name, size in sizes(chosen.part).items():
        done = {row["command"] for row in rows if row["size"] == name}
        place = chosen.folder / name.replace(" ", "-")
        for command in chosen.commands.split(";"):
            if command in done:
                continue
            if not (place / "features.parquet").exists():
                place.mkdir(exist_ok=True)
                generate(place, size)
            row = {"size": name, "of": size, "command": command, "seconds": round(cpu_seconds(command, place, size), 3)}
            rows.append(row)
            append_row(file, row)
        shutil.rmtree(place, ignore_errors=True)
    if chosen.docs is not None:
        page = chosen.docs.read_text(encoding="utf-8")
        page += "" if BEGIN in page else f"\n## Growth\n\n{BEGIN}{END}"
        inside = re.compile(f"(?<={BEGIN}).*?(?={END})", re.DOTALL)
        write_text(chosen.docs, inside.sub(lambda _: table(rows), page))
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
