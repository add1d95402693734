"""A server that ranks: HTTP and JSON around one ranker, on Starlette and uvicorn.

    POST /rank        one query's candidates (see `requests`); answers them best first
    POST /rank/batch  {"queries": [...]}, several of them; answers {"rankings": [...]} in their order
    GET /model        the model: its card, features, ranges and lineage
    GET /health       whether it ranks
    GET /metrics      counts and seconds for Prometheus

Requests are ranked by a few threads, so that a long one does not hold up the others. What cannot be ranked is answered
with the reason and status 400 (no JSON), 401 (no token), 413 (too large), 422 (other candidates than in training), 503
(no time). The server listens on this machine alone unless you name another host.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

try:
    import orjson
    import uvicorn
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route
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
Endpoint = Callable[[Request], Awaitable[Response]]


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
        self.largest = largest_body
        self.pool = ThreadPoolExecutor(threads, "rank")
        self.registry = CollectorRegistry()
        self.answers = Counter("unskew_answers", "Answers", ["path", "status"], registry=self.registry)
        self.documents = Counter("unskew_documents", "Ranked documents", registry=self.registry)
        self.unlike = Counter("unskew_unlike_training", "Values", ["kind", "column"], registry=self.registry)
        self.seconds = Histogram(
            "unskew_seconds", "Seconds per answer", ["path"], buckets=SECONDS, registry=self.registry
        )

    def app(self) -> Starlette:
        """The application, to be run by any ASGI server."""
        posts = {"/rank": self._one, "/rank/batch": self._batch}
        gets = {"/model": self._model, "/metrics": self._metrics}
        routes = [Route(path, self._watched(path, end), methods=["POST"]) for path, end in posts.items()]
        routes += [Route(path, self._watched(path, end), methods=["GET"]) for path, end in gets.items()]
        routes.append(Route("/health", self._health, methods=["GET"]))
        return Starlette(routes=routes)

    def _watched(self, path: str, endpoint: Endpoint) -> Endpoint:
        """The endpoint behind the token, with its errors as answers, counted."""

        async def watched(request: Request) -> Response:
            started = time.perf_counter()
            try:
                self._check_token(request)
                answer = await endpoint(request)
            except RequestError as error:
                answer = _json({"error": str(error)}, error.status)
            except TimeoutError:
                answer = _json({"error": f"no answer within {self.timeout:g} s: send fewer candidates, or later"}, 503)
            except ClientDisconnect:
                answer = Response(status_code=499)
            except Exception:
                log.exception("%s failed", path)
                answer = _json({"error": "the server failed; its log says why"}, 500)
            self.answers.labels(path, answer.status_code).inc()
            self.seconds.labels(path).observe(time.perf_counter() - started)
            return answer

        return watched

    def _check_token(self, request: Request) -> None:
        given = request.headers.get("authorization", "")
        if self.token is not None and not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            raise RequestError("send the token: Authorization: Bearer TOKEN", 401)

    async def _one(self, request: Request) -> Response:
        return await self._in_thread(self._rank_one, await self._body(request))

    async def _batch(self, request: Request) -> Response:
        return await self._in_thread(self._rank_batch, await self._body(request))

    async def _in_thread(self, rank: Callable[[bytes], bytes], body: bytes) -> Response:
        answered = asyncio.get_running_loop().run_in_executor(self.pool, rank, body)
        return Response(await asyncio.wait_for(answered, self.timeout), media_type="application/json")

    async def _body(self, request: Request) -> bytes:
        parts, size = [], 0
        async with asyncio.timeout(self.timeout):
            if int(request.headers.get("content-length", "0")) > self.largest:
                raise RequestError(f"the body is larger than {self.largest:,} bytes: send fewer candidates", 413)
            async for part in request.stream():
                size += len(part)
                if size > self.largest:
                    raise RequestError(f"the body is larger than {self.largest:,} bytes: send fewer candidates", 413)
                parts.append(part)
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
        self.documents.inc(len(answer.documents))
        for kind in ("filled", "unseen"):
            for column, count in getattr(answer, kind).items():
                self.unlike.labels(kind, column).inc(count)
        return answer.to_json()

    async def _model(self, request: Request) -> Response:  # noqa: ARG002
        return _json(self.about)

    async def _metrics(self, request: Request) -> Response:  # noqa: ARG002
        return Response(generate_latest(self.registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _health(self, request: Request) -> Response:  # noqa: ARG002
        return _json({"status": "ok", "model": self.about["lineage"].get("model", "")})


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
        server.app(),
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        http="httptools",
        ws="none",
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=math.ceil(timeout),
    )
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


def _json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content, default=str), status, media_type="application/json")
