"""A server that ranks: HTTP and JSON around one ranker, run by uvicorn.

    POST /rank        one query's candidates (see `requests`); answers them best first
    POST /rank/batch  {"queries": [...]}, several of them; answers {"rankings": [...]} in their order
    GET /model        the model: its card, features, ranges and lineage
    GET /health       whether it ranks
    GET /metrics      counts and seconds for Prometheus

Short requests are ranked at once, long ones by a few threads, so that they do not hold up the others. What cannot be
ranked is answered with the reason and status 400 (no JSON), 401 (no token), 404, 405, 413 (too large), 422 (other
candidates than in training), 503 (no time). The server listens on this machine alone unless you name another host.
"""

from __future__ import annotations

import asyncio
import gc
import hmac
import logging
import math
import time
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

try:
    import orjson
    import uvicorn
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"the server needs {error.name}: pip install 'unskew[serve]'") from error

import torch

from unskew.data.raw_columns import RawColumns
from unskew.data.transforms import Chain, Clip
from unskew.serving.card import model_card
from unskew.serving.exports import onnx_bytes, undo
from unskew.serving.onnx_file import EXTRA, OnnxRanker, missing_modules
from unskew.serving.requests import RequestError, Requests
from unskew.serving.saved_ranker import SavedRanker, as_model, open_ranker, ranker_of_onnx
from unskew.training.model import Model

LOCAL = ("127.0.0.1", "::1", "localhost")
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
log = logging.getLogger("unskew.serve")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
SHORT, QUICK = 65_536, 0.005  # bytes and seconds of a request that no thread is asked to rank
JSON, TEXT = b"application/json", b"text/plain; version=0.0.4; charset=utf-8"


ENDPOINTS = {"/rank": "POST", "/rank/batch": "POST", "/model": "GET", "/metrics": "GET", "/health": "GET"}


class Server:
    """The endpoints of one ranker."""

    def __init__(
        self,
        ranker: SavedRanker,
        about: dict[str, Any],
        *,
        token: str | None = None,
        most_candidates: int = 10_000,
        largest_body: int = 16_000_000,
        timeout: float = 10.0,
        threads: int = 2,
    ):
        self.requests, self.about, self.token, self.timeout = Requests(ranker, most_candidates), about, token, timeout
        self.largest, self.slowest = largest_body, math.inf
        self.pool = ThreadPoolExecutor(threads, "rank")
        self.registry = CollectorRegistry()
        self.answers = Counter("unskew_answers", "Answers", ["path", "status"], registry=self.registry)
        self.documents = Counter("unskew_documents", "Ranked documents", registry=self.registry)
        self.unlike = Counter("unskew_unlike_training", "Values", ["kind", "column"], registry=self.registry)
        self.seconds = Histogram(
            "unskew_seconds", "Seconds per answer", ["path"], buckets=SECONDS, registry=self.registry
        )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """The application, to be run by any ASGI server: an answer to a request, which is counted."""
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, not {scope['type']}")
        started, path = time.perf_counter(), scope["path"] if scope["path"] in ENDPOINTS else "other"
        try:
            status, content = 200, await self._answer(scope, receive)
        except RequestError as error:
            status, content = error.status, orjson.dumps({"error": str(error)})
        except TimeoutError:
            late = f"no answer within {self.timeout:g} s: send fewer candidates, or later"
            status, content = 503, orjson.dumps({"error": late})
        except ConnectionError:
            status, content = 499, b""
        except Exception:
            log.exception("%s failed", path)
            status, content = 500, orjson.dumps({"error": "the server failed; its log says why"})
        self.answers.labels(path, status).inc()
        self.seconds.labels(path).observe(time.perf_counter() - started)
        kind = TEXT if path == "/metrics" and status == 200 else JSON
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, scope: Message, receive: Receive) -> bytes:
        path, headers = scope["path"], dict(scope["headers"])
        if path not in ENDPOINTS:
            raise RequestError(f"there is no {path}: the server has {', '.join(ENDPOINTS)}", 404)
        if scope["method"] != ENDPOINTS[path]:
            raise RequestError(f"send {ENDPOINTS[path]} {path}", 405)
        if path == "/health":
            return orjson.dumps({"status": "ok", "model": self.about["lineage"].get("model", "")})
        given = headers.get(b"authorization", b"")
        if self.token is not None and not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            raise RequestError("send the token: Authorization: Bearer TOKEN", 401)
        if path == "/model":
            return orjson.dumps(self.about, default=str)
        if path == "/metrics":
            return generate_latest(self.registry)
        body = await self._body(int(headers.get(b"content-length", b"0")), receive)
        rank = self._rank_one if path == "/rank" else self._rank_batch
        if len(body) < SHORT and self.slowest < QUICK:
            return self._timed(rank, body)
        answer = asyncio.get_running_loop().run_in_executor(self.pool, self._timed, rank, body)
        return await asyncio.wait_for(answer, self.timeout)

    def _timed(self, rank: Callable[[bytes], bytes], body: bytes) -> bytes:
        """The answer; how long short ones took decides who ranks the next."""
        started = time.perf_counter()
        answer = rank(body)
        if len(body) < SHORT:
            seconds = time.perf_counter() - started
            self.slowest = seconds if self.slowest == math.inf else max(seconds, 0.9 * self.slowest)
        return answer

    async def _body(self, size: int, receive: Receive) -> bytes:
        parts: list[bytes] = []
        async with asyncio.timeout(self.timeout):
            more = True
            while more and size <= self.largest:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ConnectionError
                parts.append(message.get("body", b""))
                more, size = message.get("more_body", False), max(size, sum(map(len, parts)))
        if size > self.largest:
            raise RequestError(f"the body is larger than {self.largest:,} bytes: send fewer candidates", 413)
        return b"".join(parts)

    def _rank_one(self, body: bytes) -> bytes:
        return orjson.dumps(self._ranked(_parsed(body)))

    def _rank_batch(self, body: bytes) -> bytes:
        given = _parsed(body)
        queries = given.get("queries") if isinstance(given, dict) else None
        if not isinstance(queries, list) or not queries:
            raise RequestError('send {"queries": [{"query": …, "candidates": […]}, …]}')
        counts = [len(query.get("candidates") or ()) if isinstance(query, dict) else 0 for query in queries]
        if sum(counts) > self.requests.most:
            raise RequestError(f"{sum(counts):,} candidates in all: send at most {self.requests.most:,}")
        rankings = []
        for number, query in enumerate(queries):
            try:
                rankings.append(self._ranked(query))
            except RequestError as error:
                raise RequestError(f"query {number}: {error}", error.status) from error
        return orjson.dumps({"rankings": rankings})

    def _ranked(self, request: Any) -> dict[str, Any]:
        answer = self.requests.rank(request)
        self.documents.inc(len(answer["ranking"]))
        for kind in ("filled", "unseen"):
            for column, count in answer.get(kind, {}).items():
                self.unlike.labels(kind, column).inc(count)
        return answer


def serve(
    ranker: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: str | Path | None = None,
    most_candidates: int = 10_000,
    largest_body: int = 16_000_000,
    timeout: float = 10.0,
    threads: int = 2,
) -> None:
    """Serve a ranker over HTTP until the process is stopped: POST /rank takes a query's candidates as JSON.

    `rank` ranks files; `export` writes the ranker for another server.

    Args:
        ranker: a model, a fitted `UnbiasedRanker`, or the path of a saved model, of an `.onnx` file or of trees.
        host: address to listen on; the default is this machine alone.
        port: port to listen on; 0 for any that is free.
        token_file: file with a token that every request must send, except those to /health.
        most_candidates: maximum number of candidates per request.
        largest_body: maximum bytes of a request.
        timeout: seconds until a request is answered with an error, and for open ones when the server stops.
        threads: number of requests that are ranked at the same time.

    >>> serve("no model")
    Traceback (most recent call last):
    FileNotFoundError: no model is not a saved model: it has no model.json
    """
    token = None if token_file is None else Path(token_file).read_text(encoding="utf-8").strip()
    if token == "":
        raise ValueError(f"{token_file} is empty: write the token into it")
    scorer, about = served(ranker)
    limits: dict[str, Any] = {"most_candidates": most_candidates, "largest_body": largest_body, "timeout": timeout}
    server = Server(scorer, about, token=token, threads=threads, **limits)
    if host not in LOCAL and token is None:
        log.warning("everyone who reaches %s can rank: pass a token file, or put a proxy in front", host)
    settings = uvicorn.Config(
        server,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        http="httptools",
        ws="none",
        lifespan="off",
        interface="asgi3",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(timeout),
    )
    gc.freeze()  # collections would look through all modules while somebody waits,
    gc.set_threshold(50_000)  # and at the objects of each request, which go without them
    _Uvicorn(settings, scorer.name, about["engine"]).run()


class _Uvicorn(uvicorn.Server):
    """uvicorn that says where it listens, also if the port was 0."""

    def __init__(self, settings: uvicorn.Config, name: str, engine: str):
        super().__init__(settings)
        self.name, self.engine = name, engine

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            log.warning("%s (%s) listens on http://%s:%d; stop it with Ctrl-C", self.name, self.engine, host, port)


def served(ranker: Any) -> tuple[SavedRanker, dict[str, Any]]:
    """The ranker, run by onnxruntime where it can be, and what /model says of it."""
    is_file = isinstance(ranker, str | Path) and Path(ranker).suffix in (".onnx", ".txt", ".json")
    if isinstance(ranker, SavedRanker) or is_file:
        scorer = ranker if isinstance(ranker, SavedRanker) else open_ranker(ranker)
        return scorer, _about(scorer, "onnxruntime" if isinstance(scorer.score, OnnxRanker) else "torch", None)
    model = as_model(ranker)
    name = Path(ranker).name if isinstance(ranker, str | Path) else model.name
    scorer, engine = SavedRanker.of(model, name), "torch"
    if model.trees is not None:
        engine = "torch" if model.ranker().ranker.booster is None else "LightGBM"
    elif scorer.vocabulary is None and scorer.n_features and not missing_modules(EXTRA):
        scorer, engine = (
            ranker_of_onnx(OnnxRanker(onnx_bytes(model, flat=model.ranker().pointwise)), name),
            "onnxruntime",
        )
    return scorer, _about(scorer, engine, model)


def _about(ranker: SavedRanker, engine: str, model: Model | None) -> dict[str, Any]:
    names = ranker.feature_names or [f"f{number}" for number in range(ranker.n_features)]
    ranges = {} if model is None else _ranges(model)
    missing = ranker.missing_in_training
    features = [
        {
            "name": name,
            "kind": "category" if name in ranker.categories else "number",
            "missing_in_training": None if missing is None else number in missing,
            **({"values": list(ranker.categories[name])} if name in ranker.categories else {}),
            **({"range": ranges[number]} if number in ranges else {}),
        }
        for number, name in enumerate(names)
    ]
    card = None if model is None else model_card(model)
    return {"name": ranker.name, "engine": engine, "features": features, "lineage": dict(ranker.lineage), "card": card}


def _ranges(model: Model) -> dict[int, list[float]]:
    """The values of a number that the transform tells apart: beyond them it clips."""
    step = model.transform
    if not isinstance(step, RawColumns) or not isinstance(inner := step.inner, Chain):
        return {}
    if not isinstance(clip := inner.steps[-1], Clip):
        return {}
    bound = clip.bound
    ends = [undo(inner, torch.full((len(step.numbers),), sign * bound)).tolist() for sign in (-1.0, 1.0)]
    return {int(column): [low, high] for column, low, high in zip(step.numbers, *ends, strict=True)}


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body is not JSON: {error}", 400) from error
