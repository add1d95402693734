"""Object storage that fails every tenth request, or all from some request on; a small S3 server of this process."""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from campaign_files import FAST, digest_of_log, digest_of_model, small_judged
from unskew.commands.app import _refusal
from unskew.data.clicks.storage import read_log, write_log
from unskew.data.judged.tables import read_judged_table
from unskew.serving.model_files import save_model
from unskew.simulation.simulate import simulate
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe

BUCKET = "s3://shop"
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
KEYS |= {"AWS_EC2_METADATA_DISABLED": "true"}


class Storage(ThreadingHTTPServer):
    """Objects in memory; `fails` says of the number of a request whether it fails."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, bytes] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.requests = 0
        self.fails: Callable[[int], bool] = lambda _: False
        self.rng = random.Random(0)


class Handler(BaseHTTPRequestHandler):
    """The requests that pyarrow sends: objects, uploads in parts, lists."""

    server: Storage
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def _request(self) -> None:
        address = urlsplit(self.path)
        key, query = unquote(address.path).lstrip("/"), parse_qs(address.query, keep_blank_values=True)
        body = self._body()
        self.server.requests += 1
        if self.server.fails(self.server.requests):
            kind = self.server.rng.randrange(3)
            if kind == 0:  # the connection is cut
                self.close_connection = True
                self.connection.close()
            else:
                self._answer((500, 503)[kind - 1], b"<Error><Code>InternalError</Code></Error>")
            return
        getattr(self, f"_{self.command.lower()}")(key, query, body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _request

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            content = unchunked(self.rfile)
        else:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return unchunked(BytesIO(content)) if "aws-chunked" in self.headers.get("Content-Encoding", "") else content

    def _answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _get(self, key: str, query: dict[str, list[str]], _: bytes) -> None:
        if "/" not in key.rstrip("/"):
            return self._listed(query)
        content = self.server.objects.get(key)
        if content is None:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        wanted = self.headers.get("Range")
        if wanted is None:
            return self._answer(200, content, ETag='"e"')
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last or len(content)) + 1]
        about = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
        return self._answer(206, part, ETag='"e"', Content_Range=about)

    def _listed(self, query: dict[str, list[str]]) -> None:
        prefix, cut = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        names = sorted(key.removeprefix("shop/") for key in self.server.objects)
        names = [name for name in names if name.startswith(prefix)]
        folders = {
            prefix + name.removeprefix(prefix).partition(cut)[0] + cut
            for name in names
            if cut and cut in name.removeprefix(prefix)
        }
        files = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(self.server.objects[f'shop/{name}'])}</Size>"
            "<LastModified>2026-11-10T00:00:00.000Z</LastModified></Contents>"
            for name in names
            if not cut or cut not in name.removeprefix(prefix)
        )
        inside = "".join(
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders)
        )
        about = f"<KeyCount>{len(names)}</KeyCount><IsTruncated>false</IsTruncated>"
        self._answer(200, f"<ListBucketResult>{about}{files}{inside}</ListBucketResult>".encode())

    def _head(self, key: str, _: dict[str, list[str]], __: bytes) -> None:
        content = self.server.objects.get(key) if "/" in key.rstrip("/") else b""
        if content is None:
            return self._answer(404)
        return self._answer(200, content, ETag='"e"', Last_Modified="Tue, 10 Nov 2026 00:00:00 GMT")

    def _put(self, key: str, query: dict[str, list[str]], body: bytes) -> None:
        if "partNumber" in query:
            self.server.parts[query["uploadId"][0]][int(query["partNumber"][0])] = body
        else:
            self.server.objects[key] = body
        self._answer(200, ETag='"e"')

    def _post(self, key: str, query: dict[str, list[str]], _: bytes) -> None:
        if "uploads" in query:
            name = uuid.uuid4().hex
            self.server.parts[name] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            return self._answer(200, text.encode())
        parts = self.server.parts.get(query["uploadId"][0])
        if parts is None:
            return self._answer(404, b"<Error><Code>NoSuchUpload</Code></Error>")
        self.server.objects[key] = b"".join(parts[number] for number in sorted(parts))
        return self._answer(200, b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")

    def _delete(self, key: str, query: dict[str, list[str]], _: bytes) -> None:
        if "uploadId" in query:
            self.server.parts.pop(query["uploadId"][0], None)
        else:
            self.server.objects.pop(key, None)
        self._answer(204)


def unchunked(stream: Any) -> bytes:
    """The content of chunks, and what follows them, to an empty line."""
    content = b""
    while size := int(stream.readline().split(b";")[0], 16):
        content += stream.read(size)
        stream.readline()
    while stream.readline().strip():  # checksums
        pass
    return content


@contextmanager
def served() -> Iterator[Storage]:
    """The server, with the variables that lead to it."""
    server = Storage()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    before = dict(os.environ)
    os.environ.update({**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}"})
    try:
        yield server
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.shutdown()


def storage(
    folder: Path, rng: random.Random, until: float, most: int, found: Callable[..., Any], tried: int = 0
) -> None:
    """Logs, models and rankings are written and read while requests fail; then the same without failures."""
    (folder / "judged.csv").write_text(small_judged())
    judged = read_judged_table(folder / "judged.csv")
    log = simulate(judged, "random", "position_based", sessions=6, n_shown=6).log
    model = fit_recipe(Recipe.of("dla", **FAST), log)
    actions: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "log written": (
            lambda: write_log(log, f"{BUCKET}/log", n_shards=2, overwrite=True),
            lambda: digest_of_log(read_log(f"{BUCKET}/log")),
        ),
        "model written": (
            lambda: save_model(model, f"{BUCKET}/model", overwrite=True),
            lambda: digest_of_model(f"{BUCKET}/model"),
        ),
    }
    for what in ("log", "model"):
        actions[f"{what} read"] = (actions[f"{what} written"][1], actions[f"{what} written"][1])
    with served() as server:
        known = {}
        for what in ("log", "model"):
            actions[f"{what} written"][0]()
            known[what] = actions[f"{what} written"][1]()
        for number in range(tried, most):
            if time.monotonic() > until:
                return
            name = list(actions)[number % len(actions)]
            act, read = actions[name]
            outage = number // len(actions) % 2
            begin = server.requests + rng.randrange(1, 40 if outage else 11)
            server.fails = (
                (lambda n, begin=begin: n >= begin) if outage else (lambda n, begin=begin: n % 10 == begin % 10)
            )
            what, said = way_of(act, read, known[name.partition(" ")[0]], server, reads=name.endswith("read"))
            found(
                f"object storage {'fails from a request on' if outage else 'fails every tenth request'}, {name}",
                what,
                said,
            )


def way_of(
    act: Callable[[], Any], read: Callable[[], Any], known: str, server: Storage, *, reads: bool
) -> tuple[str, str]:
    """How an action ended while requests failed; afterwards the old or the new stands, or nothing that is whole."""
    way, said = "unchanged", ""
    try:
        result = act()
        if reads and result != known:
            return "silent", "read otherwise"
    except Exception as error:
        said = _refusal(error) or ""
        way = "refused" if said else "traceback"
        said = said or f"{type(error).__name__}: {error}"
    server.fails = lambda _: False
    try:
        if read() != known:
            return "silent", f"other content. {said}"
    except Exception as error:
        if reads or way == "unchanged" or _refusal(error) is None:
            return "silent", f"{way}, then {error!r}"
        try:  # an upload was cut off: what is left is no log, and the same command finishes it
            act()
        except Exception as again:
            return "silent", f"{way}, then {again!r}"
        return (way if read() == known else "silent"), said
    return way, said
