"""The server: candidates as JSON in, a ranking out, and a reason for what cannot be ranked."""

import asyncio
import http.client
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import orjson
import pandas as pd
import pytest
import torch

from unskew import UnbiasedRanker, save_model
from unskew.serving.saved_ranker import SavedRanker
from unskew.serving.server import Server, served

ROWS = pd.DataFrame(
    {
        "price": [3.0, 1.0, np.nan, 2.0, 5.0, 4.0] * 10,
        "stock": [1, 0, 1, 1, 0, 1] * 10,
        "brand": ["acme", "bolt", "acme", None, "core", "bolt"] * 10,
    }
)


@pytest.fixture(scope="module")
def model():
    ranker = UnbiasedRanker("naive", steps=20, hidden=(8,), weight_decay=0.0)
    return ranker.fit(ROWS, [1, 0, 0, 1, 0, 0] * 10, [6] * 10, [0, 1, 2, 3, 4, 5] * 10, progress=False)


def app_of(model, **limits):
    return Server(SavedRanker.of(model.model_, "test"), {"lineage": {"model": "abc"}, "features": []}, **limits)


def ask(app, path, body=None, headers=(), parts=1):
    """Status and content of the answer of an ASGI application."""
    text = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
    given = [(b"host", b"test"), *headers]
    scope = {"type": "http", "method": "GET" if body is None else "POST", "path": path, "headers": given}
    size = -(-len(text) // parts) or 1
    messages = [
        {"type": "http.request", "body": text[start : start + size], "more_body": start + size < len(text)}
        for start in range(0, max(len(text), 1), size)
    ]
    sent = []

    async def receive():
        return messages.pop(0) if messages else await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    scope |= {"query_string": b"", "root_path": "", "scheme": "http", "server": ("test", 80), "http_version": "1.1"}
    asyncio.run(app(scope, receive, send))
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], orjson.loads(content) if content[:1] in b"{[" and content else content.decode()


def candidates(table=ROWS[:6]):
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{"document": f"d{number}", **row} for number, row in enumerate(rows)]


def test_a_request_is_ranked_as_the_model_ranks_its_table(model):
    status, answer = ask(app_of(model), "/rank", {"query": "lamp", "candidates": candidates()}, parts=3)
    scores = model.predict(ROWS[:6])
    assert status == 200
    assert [row["document"] for row in answer["ranking"]] == [f"d{number}" for number in np.argsort(-scores)]
    np.testing.assert_allclose([row["score"] for row in answer["ranking"]], np.sort(scores)[::-1], rtol=1e-5)
    assert answer["query"] == "lamp"
    assert set(answer) == {"query", "ranking"}  # nothing was unlike training


def test_what_is_unlike_training_is_named(model):
    rows = candidates()
    rows[0] |= {"brand": "zenith", "colour": "red"}
    rows[1]["stock"] = None
    del rows[2]["stock"]
    status, answer = ask(app_of(model), "/rank", {"candidates": rows})
    assert status == 200
    assert (answer["unseen"], answer["filled"], answer["ignored"]) == ({"brand": 1}, {"stock": 2}, ["colour"])
    table = pd.DataFrame(rows)[["price", "stock", "brand"]].astype({"price": float, "stock": float})
    with pytest.warns(RuntimeWarning, match="missing values filled"):
        scores = model.predict(table)
    np.testing.assert_allclose([row["score"] for row in answer["ranking"]], np.sort(scores)[::-1], rtol=1e-5)


def changed(**values):
    return [{**row, **values} for row in candidates()]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"{", 400, "the body is not JSON"),
        ([], 422, "send an object with a list of candidates"),
        ({"candidates": []}, 422, "0 candidates: send from 1 to 100"),
        ({"candidates": candidates() * 17}, 422, "102 candidates: send from 1 to 100"),
        ({"candidate": [], "candidates": [{}]}, 422, "unknown key 'candidate' (did you mean 'candidates'?)"),
        ({"candidates": [3]}, 422, "candidate 0: send an object with its features, got 3"),
        ({"candidates": [{"price": 1, "stocks": 1, "brand": "a"}]}, 422, "no candidate has column 'stock'"),
        ({"candidates": changed(price="3")}, 422, "column 'price' holds string, but the model was trained on numbers"),
        ({"candidates": [*changed(price="x", document=7)[:1], *candidates()]}, 422, "'price': "),
        ({"candidates": changed(price=1e300)}, 422, "candidate 0: 'price' is not finite"),
        ({"candidates": changed(price=[1])}, 422, "column 'price' holds list"),
        ({"candidates": changed(brand=1.5)}, 422, "column 'brand' holds double, but the model was trained on text"),
        ({"candidates": changed(document=True)}, 422, "candidate 0: 'document' is True: ids are text or whole numbers"),
        ({"candidates": changed(document="a")}, 422, "candidates 0 and 1 are both document 'a'"),
        ({"candidates": candidates(), "queries": "x" * 20_000}, 413, "the body is larger than 20,000 bytes"),
    ],
)
def test_what_cannot_be_ranked_is_answered_with_the_reason(model, body, status, text):
    app = app_of(model, most_candidates=100, largest_body=20_000)
    found, answer = ask(app, "/rank", body)
    assert (found, text in answer["error"]) == (status, True), answer


def test_a_batch_is_ranked_query_by_query_and_an_error_names_its_query(model):
    app, query = app_of(model, most_candidates=12), {"query": "q", "candidates": candidates()}
    status, answer = ask(app, "/rank/batch", {"queries": [query, query]})
    assert status == 200
    assert answer["rankings"] == [ask(app, "/rank", query)[1]] * 2
    assert ask(app, "/rank/batch", {"queries": [query] * 3}) == (
        422,
        {"error": "18 candidates in all: send at most 12"},
    )
    status, answer = ask(app, "/rank/batch", {"queries": [query, {}]})
    assert (status, answer["error"][:8]) == (422, "query 1:")


def test_all_but_health_need_the_token(model):
    app = app_of(model, token="secret")
    assert ask(app, "/health") == (200, {"status": "ok", "model": "abc"})
    for path in ("/model", "/metrics"):
        assert ask(app, path)[0] == 401
        assert ask(app, path, headers=[(b"authorization", b"Bearer wrong")])[0] == 401
        assert ask(app, path, headers=[(b"authorization", b"Bearer secret")])[0] == 200
    assert ask(app, "/rank", {"candidates": candidates()})[0] == 401


def test_metrics_count_answers_documents_and_what_is_unlike_training(model):
    app = app_of(model)
    for _ in range(2):
        ask(app, "/rank", {"candidates": changed(brand="zenith")})
    ask(app, "/rank", b"{")
    text = ask(app, "/metrics")[1]
    assert 'unskew_answers_total{path="/rank",status="200"} 2.0' in text
    assert 'unskew_answers_total{path="/rank",status="400"} 1.0' in text
    assert "unskew_documents_total 12.0" in text
    assert 'unskew_unlike_training_total{column="brand",kind="unseen"} 12.0' in text


def test_a_request_that_takes_too_long_is_answered(model):
    def slow(features, mask):
        time.sleep(0.4)
        return features[..., 0]

    ranker = SavedRanker(slow, "slow", 1, ("price",))
    app = Server(ranker, {"lineage": {}}, timeout=0.05)
    status, answer = ask(app, "/rank", {"candidates": [{"price": 1}]})
    assert (status, answer["error"][:21]) == (503, "no answer within 0.05")


@pytest.mark.long
def test_the_model_page_has_card_features_and_ranges_and_onnxruntime_runs_the_ranker(model):
    ranker, about = served(model)
    assert about["engine"] == "onnxruntime"
    assert about["card"]["method"] == "naive"
    price, _, brand = about["features"]
    assert (brand["kind"], brand["values"]) == ("category", ["acme", "bolt", "core"])
    mean, deviation = np.nanmean(ROWS.price), np.nanstd(ROWS.price)  # the transform clips beyond 10 deviations
    np.testing.assert_allclose(price["range"], [mean - 10 * deviation, mean + 10 * deviation], rtol=1e-4)
    app = Server(ranker, about)
    assert [row["document"] for row in ask(app, "/rank", {"candidates": candidates()})[1]["ranking"]] == [
        row["document"] for row in ask(app_of(model), "/rank", {"candidates": candidates()})[1]["ranking"]
    ]


def start(place):
    """`unskew serve` as a process, and its address."""
    command = [sys.executable, "-m", "unskew", "serve", str(place), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    line = process.stderr.readline()
    return process, re.search(r"http://127\.0\.0\.1:\d+", line)[0]


def post(address, body):
    with urllib.request.urlopen(urllib.request.Request(f"{address}/rank", orjson.dumps(body)), timeout=60) as answer:
        return orjson.loads(answer.read())


@pytest.mark.slow
def test_kills_during_load_give_no_wrong_answer_and_a_stop_finishes_what_was_asked(model, tmp_path):
    place = save_model(model, tmp_path / "model")
    body = {"candidates": candidates()}
    scores = np.sort(model.predict(ROWS[:6]))[::-1]
    found, failed, done = [], [], threading.Event()

    def load(address):
        while not done.is_set():
            try:
                found.append([row["score"] for row in post(address, body)["ranking"]])
            except (urllib.error.URLError, ConnectionError, http.client.HTTPException):
                failed.append(done.is_set())
                done.wait(0.05)

    for end in (signal.SIGKILL, signal.SIGTERM):
        process, address = start(place)
        done.clear()
        clients = [threading.Thread(target=load, args=(address,)) for _ in range(8)]
        for client in clients:
            client.start()
        before = len(found)
        while len(found) < before + 200:
            time.sleep(0.05)
        process.send_signal(end)
        assert process.wait(30) in (-end, 128 + end)
        done.set()
        for client in clients:
            client.join()
        process.stderr.close()
    np.testing.assert_allclose(np.array(found), np.tile(scores, (len(found), 1)), rtol=1e-4)
    assert failed


def test_scores_of_a_listwise_ranker_see_the_whole_list(model):
    def against_the_best(features, mask):
        return features[..., 0] - features[..., 0].amax(-1, keepdim=True)

    app = Server(SavedRanker(against_the_best, "list", 1, ("price",)), {"lineage": {}})
    answer = ask(app, "/rank", {"candidates": [{"price": 1}, {"price": 3}]})[1]
    assert [(row["document"], row["score"]) for row in answer["ranking"]] == [(1, 0.0), (0, -2.0)]
    assert torch.is_grad_enabled()
