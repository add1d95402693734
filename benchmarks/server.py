"""What `unskew serve` adds: seconds of answers over HTTP beside onnxruntime alone on the same candidates.

    python benchmarks/server.py OUT --page docs/serving.md    the table, and into the page
    python benchmarks/server.py OUT --load 180                a load test of so many seconds, with a kill halfway

The ranker is `naive` with its default network on 18 numbers, some missing, and two categories. A client is a thread of
another process with one open connection that sends a request as soon as the last one is answered. All sizes and
numbers of clients are measured in each of several turns; a figure is the median of the turns. Beside them, in each
turn: onnxruntime on arrays that are ready, and orjson and numpy, which turn the same body into those arrays.
"""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import orjson
import pandas as pd

import unskew
from unskew.serving.onnx_file import OnnxRanker

N_NUMBERS, BRANDS, SHOPS = 18, 200, 10
SIZES, CLIENTS = (10, 100, 1000), (1, 8, 64)
TURNS, REQUESTS = 5, 300  # requests of all clients together, per turn
START, END = "<!-- server: written by benchmarks/server.py -->", "<!-- end of server -->"
Seconds = list[float]
Row = dict[str, float]


def candidates(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Raw columns: numbers, a tenth of them missing in one column, and text."""
    numbers = {f"number_{column}": rng.standard_normal(n).round(4) for column in range(N_NUMBERS)}
    numbers["number_0"][rng.random(n) < 0.1] = np.nan
    texts = {"brand": rng.integers(BRANDS, size=n), "shop": rng.integers(SHOPS, size=n)}
    return pd.DataFrame(numbers | {name: [f"{name} {code}" for code in codes] for name, codes in texts.items()})


def train() -> unskew.Model:
    """A ranker of these columns; what it learned does not matter."""
    rows, positions = candidates(5_000, np.random.default_rng(0)), np.tile(np.arange(10), 500)
    ranker = unskew.UnbiasedRanker("naive", steps=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the shown order is chance
        return ranker.fit(rows, rows.number_1 > positions, [10] * 500, positions, progress=False).model_


def body_of(rows: pd.DataFrame) -> bytes:
    """The request."""
    records = rows.astype(object).where(rows.notna(), None).to_dict("records")
    return orjson.dumps({"query": "q", "candidates": [{"document": f"d{n}", **row} for n, row in enumerate(records)]})


def arrays_of(body: bytes) -> dict[str, np.ndarray]:
    """The inputs of the ONNX file, by orjson and numpy alone."""
    rows = orjson.loads(body)["candidates"]
    names = [f"number_{column}" for column in range(N_NUMBERS)]
    numbers = np.array([[row[name] for name in names] for row in rows], dtype=np.float32)
    return {"features": numbers, "texts": np.array([[row["brand"], row["shop"]] for row in rows], dtype=object)}


@contextmanager
def server_of(place: Path) -> Iterator[tuple[subprocess.Popen, int]]:
    """`unskew serve` as a process, and its port."""
    command = [sys.executable, "-m", "unskew", "serve", str(place), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stderr.readline())
        assert found is not None
        yield process, int(found[1])
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


class Client:
    """A connection that stays open."""

    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, request: bytes) -> bytes:
        """The body of an answer with status 200."""
        self.socket.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._more()
        head, _, content = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        size = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
        while len(content) < size:
            content += self._more()
        return content

    def _more(self) -> bytes:
        part = self.socket.recv(2**20)
        if not part:
            raise ConnectionError("the server closed the connection")
        return part


def request_of(body: bytes) -> bytes:
    return b"POST /rank HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def seconds_of(port: int, body: bytes, n_clients: int, n_requests: int) -> Seconds:
    """Seconds of each answer."""
    request, ready = request_of(body), threading.Barrier(n_clients)
    seconds: list[Seconds] = [[] for _ in range(n_clients)]

    def run(own: Seconds) -> None:
        client = Client(port)
        client.post(request)
        ready.wait()
        own += [timed(lambda: client.post(request)) for _ in range(-(-n_requests // n_clients))]
        client.socket.close()

    threads = [threading.Thread(target=run, args=(own,)) for own in seconds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [each for own in seconds for each in own]


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def turn(port: int, bare: OnnxRanker, bodies: dict[int, bytes], n_requests: int) -> Row:
    """p50 and p99 in milliseconds by number of candidates and of clients; beside them what runs without a server."""
    found: Row = {}
    for size, body in bodies.items():
        client, request, inputs = Client(port), request_of(body), arrays_of(body)
        ways = {  # one after the other, so that what else the machine does slows all of them
            "1": lambda client=client, request=request: client.post(request),
            "arrays": lambda body=body: arrays_of(body),
            "onnxruntime": lambda inputs=inputs: bare.session.run(None, inputs),
        }
        seconds: dict[str, Seconds] = {name: [] for name in ways}
        for _ in range(n_requests):
            for name, way in ways.items():
                seconds[name].append(timed(way))
        client.socket.close()
        seconds |= {str(n): seconds_of(port, body, n, n_requests) for n in CLIENTS if n > 1}
        for name, values in seconds.items():
            for percent in (50, 99):
                found[f"{size} {name} p{percent}"] = float(np.percentile(values, percent)) * 1_000
        added = found[f"{size} 1 p50"] - found[f"{size} onnxruntime p50"]
        found[f"{size} added"] = added / found[f"{size} arrays p50"]
    return found


def table_of(rows: list[Row]) -> str:
    """Medians of all turns as Markdown."""
    middle = {name: median(row[name] for row in rows) for name in rows[0]}
    names = [*map(str, CLIENTS), "onnxruntime", "arrays"]
    heads = [f"{n} client" + "s" * (n > 1) for n in CLIENTS] + ["onnxruntime alone", "orjson and numpy"]
    lines = [" | ".join(["| candidates", *heads, "added / orjson and numpy |"]), "|---:" * (len(heads) + 2) + "|"]
    for size in SIZES:
        cells = [f"{middle[f'{size} {name} p50']:.2f}, {middle[f'{size} {name} p99']:.2f}" for name in names]
        lines.append(" | ".join([f"| {size:,}", *cells, f"{middle[f'{size} added']:.1f} x |"]))
    return "\n".join(lines)


def load(place: Path, body: bytes, expected: bytes, seconds: float) -> str:
    """Eight clients for so long, with a kill halfway and a new server; what was answered, and what was wrong."""
    request, counts, lock = request_of(body), dict.fromkeys(("right", "wrong", "lost"), 0), threading.Lock()
    end, ports = time.monotonic() + seconds, [0]

    def run() -> None:
        client: Client | None = None
        while time.monotonic() < end:
            try:
                client = client or Client(ports[-1])
                kind = "right" if client.post(request) == expected else "wrong"
            except OSError:  # the server was killed
                client, kind = None, "lost"
                time.sleep(0.05)
            with lock:
                counts[kind] += 1

    died = 0
    threads = [threading.Thread(target=run) for _ in range(8)]
    for half in (1, 2):
        with server_of(place) as (process, port):
            ports.append(port)
            if half == 1:
                for thread in threads:
                    thread.start()
            while time.monotonic() < end - seconds / 2 * (2 - half):
                time.sleep(0.05)
                died += process.poll() is not None
            if half == 2:
                for thread in threads:
                    thread.join()
    right, wrong, lost = (f"{counts[kind]:,}" for kind in ("right", "wrong", "lost"))
    return f"{right} right answers, {wrong} wrong; {lost} failed around the kill; the server ended {died} times"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--load", type=float, default=0, help="seconds of a load test in place of the table")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    place, flat = given.out / "model", given.out / "flat.onnx"
    if not flat.exists():
        unskew.save_model(train(), place, overwrite=True)
        unskew.export(place, flat, flat=True)
    rng = np.random.default_rng(1)
    bodies = {size: body_of(candidates(size, rng)) for size in SIZES}
    if given.load:
        with server_of(place) as (_, port):
            expected = Client(port).post(request_of(bodies[100]))
        print(load(place, bodies[100], expected, given.load))
        return
    with server_of(place) as (_, port):
        rows = [turn(port, OnnxRanker(flat, threads=1), bodies, given.requests) for _ in range(given.turns)]
    print(table_of(rows))
    if given.page is not None:
        text = given.page.read_text(encoding="utf-8")
        before, after = text.split(START)[0], text.split(END)[1]
        given.page.write_text(f"{before}{START}\n{table_of(rows)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
