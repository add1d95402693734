"""Further formats for `campaign_files`, and which format each module of the package reads: a new one needs an entry."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import torch

import unskew
from campaign_files import FAST, Place, digest_of_log, digest_of_model, places
from unskew.comparison.outside import read_scores
from unskew.comparison.rows import Outcome, write_row
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.forgetting import _tables
from unskew.data.clicks.storage import open_log, read_log
from unskew.data.files import _writer
from unskew.data.judged.cache import ArrayCache
from unskew.data.judged.tables import read_judged_table
from unskew.data.public_logs.baidu_ultr import read_baidu_clicks
from unskew.data.public_logs.id_pages import read_trec_sessions
from unskew.data.public_logs.metarank import read_metarank
from unskew.data.public_logs.tiangong_st import read_tiangong_clicks, read_tiangong_features
from unskew.data.public_logs.ultre2 import read_ultre2_clicks
from unskew.evaluation.runs import RUN, read_values
from unskew.monitoring.tuning import Trials
from unskew.monitoring.tuning import _read as read_trials
from unskew.serving.model_files import save_model
from unskew.serving.requests import Requests
from unskew.serving.saved_ranker import open_ranker
from unskew.simulation.simulate import simulate
from unskew.simulation.truth import read_truth
from unskew.training.boosting import Boosting
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe

READS = re.compile(  # a call that reads a file, or what was in one
    r"\.read_text\(|\.read_bytes\(|open\(\"rb\"|gzip\.open|pq\.read_|ParquetFile\(|safe_open\(|load_file\(|np\.load\("
    r"|onnx\.load\(|InferenceSession\(|\.read_csv\(|read_parquet\(|json\.loads\(.*read|orjson\.loads|tomllib\.loads"
    r"|read_json\(|read_feather|iterparse|numbered_lines\("
)
OWN = "what the same process has just written"
CODE = "source or settings of the machine, no data"
DIGEST = "the digest of any file"
LINES = "lines of text without a form: any text is one"
# What the modules that read files read: a format of `every_place` (or its beginning), or why there is none.
MODULES: Mapping[str, str] = {
    "comparison/code_digest.py": CODE,
    "comparison/learning.py": OWN,
    "comparison/outside.py": "scores",
    "comparison/outputs.py": CODE,
    "comparison/plan.py": DIGEST,
    "comparison/rows.py": "row of an experiment",
    "command_line/signatures.py": CODE,
    "__init__.py": CODE,
    "extensions.py": CODE,
    "data/clicks/click_log.py": "impressions",
    "data/clicks/forgetting.py": LINES,
    "data/clicks/shards.py": "log, ",
    "data/clicks/storage.py": "log, log.json",
    "data/clicks/traces.py": "folder of forget --check",
    "data/files.py": "lock",
    "data/judged/cache.py": "cache",
    "data/judged/letor_text.py": "LETOR",
    "data/judged/tables.py": "judged",
    "data/object_storage.py": LINES,
    "data/public_logs/baidu_ultr.py": "Baidu-ULTR",
    "data/public_logs/id_pages.py": "TREC Session",
    "data/public_logs/metarank.py": "Metarank",
    "data/public_logs/tiangong_st.py": "TianGong-ST",
    "data/public_logs/ultre2.py": "ULTRE-2",
    "data/public_logs/result_pages.py": "ULTRE-2",
    "data/untrusted.py": "log, log.json",
    "evaluation/runs.py": "TREC run",
    "ingestion/engines.py": "events, ",
    "ingestion/schema.py": "events, ",
    "ingestion/sources.py": "events, ",
    "monitoring/tuning.py": "tuning",
    "papers/experiment_files.py": "experiment .toml",
    "serving/candidates.py": "candidates",
    "serving/model_files.py": "model, ",
    "serving/onnx_file.py": "ONNX",
    "serving/query_order.py": "candidates",
    "serving/rankings.py": OWN,
    "serving/saved_ranker.py": "trees",
    "serving/scoring.py": OWN,
    "serving/server.py": "request",
    "serving/spark_rank.py": OWN,
    "serving/tracking.py": OWN,
    "serving/tree_files.py": "trees",
    "simulation/truth.py": "truth",
    "training/checkpoint.py": "checkpoint",
    "training/distributed.py": "checkpoint",
}


def every_place(folder: Path, *, engines: bool = True) -> list[Place]:
    """One of every file format; `engines`: with those of ONNX, LightGBM and DuckDB."""
    first = places(folder, onnx=engines)
    more = folder / "more"
    more.mkdir()
    log = read_log(folder / "log")
    truth = Path(f"{simulated(folder, more)}.truth.parquet")
    of_truth = Place("truth", truth, lambda: repr(read_truth(more / "shown")), verified=False)
    return [
        *first,
        of_truth,
        *tables(more, log),
        *notes(more),
        *public_logs(more),
        *(engine_files(more, log) if engines else []),
    ]


def simulated(folder: Path, more: Path) -> Path:
    """A simulated log, beside its truth."""
    done = simulate(read_judged_table(folder / "judged.csv"), "random", "position_based", sessions=6, n_shown=6)
    return done.save(more / "shown")


def tables(folder: Path, log: ClickLog) -> list[Place]:
    """Tables that commands take: users of a log, impressions, scores, candidates; and the body of a request."""
    events, users = folder / "people.parquet", folder / "users"
    unskew.events(log, events)
    shown = pq.read_table(events)
    sessions = shown["session_id"].combine_chunks().dictionary_encode().indices.to_pylist()
    pq.write_table(shown.append_column("user", pa.array([f"u{number % 7}" for number in sessions])), events)
    unskew.ingest(events, users, user="user", keep_users=True, progress=False)
    impressions, scores, candidates = (folder / f"{name}.parquet" for name in ("rows", "scores", "candidates"))
    pq.write_table(log.to_table(features=True), impressions)
    judged = pyarrow.csv.read_csv(folder.parent / "judged.csv")
    pq.write_table(judged.drop_columns(["grade"]), candidates)
    pq.write_table(judged.select(["query", "document"]).append_column("score", judged["a"]), scores)
    request = folder / "request.json"
    rows = judged.slice(0, 4).select(["document", "a", "b"]).rename_columns(["document", "f0", "f1"]).to_pylist()
    request.write_text(json.dumps({"query": "q0", "candidates": rows}))
    ranker = Requests(open_ranker(folder.parent / "model"))
    columns = {"sessions": "sessions", "click": "clicks", "session": "list"}
    return [
        *(
            Place(
                f"log, {file.name.partition('.')[2]}",
                file,
                lambda: repr([t.to_pydict() for t in _tables(open_log(users))]),
            )
            for file in users.glob("*.users.parquet")
        ),
        Place("impressions", impressions, lambda: digest_of_log(ClickLog.from_parquet(impressions, **columns)), False),
        Place("scores", scores, lambda: repr(sorted(read_scores(scores).items())), verified=False),
        Place("candidates", candidates, lambda: _ranked(folder.parent / "model", candidates), verified=False),
        Place(
            "request",
            request,
            lambda: repr(ranker.rank(orjson.loads(request.read_bytes()))),
            False,
            named=False,
        ),
    ]


def _ranked(model: Path, candidates: Path) -> str:
    out = candidates.with_name("ranking.parquet")
    unskew.rank(model, candidates, out, overwrite=True, progress=False)
    return repr(pq.read_table(out).to_pydict())


def notes(folder: Path) -> list[Place]:
    """What the package keeps for itself: trials of a tuning, cached arrays, a lock; and a folder to be searched."""
    tuning, lock, cache, searched = (
        folder / ".tuning",
        folder / ".lock",
        ArrayCache(folder / "cache"),
        folder / "search",
    )
    with Trials.opened(tuning, 3, "d", None) as trials:
        for _ in range(3):
            trials(lambda: [(1, 0.5), (2, 0.25)])
    lock.write_text(json.dumps({"process": 7, "host": "here", "since": "2026-11-10"}))
    cache.store("key", {"a": np.arange(12.0), "b": np.arange(5)})
    searched.mkdir()
    (searched / "people.txt").write_text("somebody\n")
    for name, content in {
        "notes.json.gz": gzip.compress(b'{"name": "anna"}', mtime=0),
        "anna.html": b"<p>anna</p>",
    }.items():
        (searched / name).write_bytes(content)
    pq.write_table(pa.table({"user": ["anna", "ben"]}), searched / "table.parquet")
    row = Outcome({"ndcg@10": np.arange(5.0)}, np.arange(5), {"validation": 0.5})
    write_row(searched, "row", {}, row)

    def cached() -> str:
        arrays = cache.load("key")
        return "none" if arrays is None else repr({name: values.tolist() for name, values in arrays.items()})

    def traces() -> str:
        found = unskew.forget(searched, {"anna", "ben"}, check=True)
        return repr((sorted(found.found), sorted(found.unread)))

    return [
        Place("tuning", tuning, lambda: str(read_trials(tuning, "d") or "none"), redone=True),
        Place("lock", lock, lambda: _writer(lock.read_bytes()), verified=False),
        *(
            Place(f"cache, {file.name}", file, cached, redone=True)
            for file in sorted((folder / "cache" / "arrays" / "key").iterdir())
        ),
        *(
            Place(f"folder of forget --check, {file.suffix[1:]}", file, traces, verified=False)
            for file in sorted(searched.iterdir())
            if file.name != "people.txt"
        ),
    ]


def public_logs(folder: Path) -> list[Place]:
    """Files of the layouts of public logs."""
    results = "".join(f'<result rank="{n}"><url>u</url><docid>d{n}</docid><vtype>30</vtype></result>' for n in (1, 2))
    page = f"<query>text</query><query_id>q1</query_id><results>{results}</results>"
    pages = f'<interaction num="1">{page}<clicked><click num="1"><rank>2</rank><docid>d</docid></click></clicked>'
    texts = {
        "sessions.xml": f"""<?xml version="1.0" encoding="utf-8"?>
            <sessions><session num="1">{pages}</interaction></session></sessions>""".replace("\n", ""),
        "features.tsv": "query\tdocument\tbm25\tage\nq1\td1\t1.5\t10\nq1\td2\t2.5\t20\n",
        "trec.txt": "7\t70\t[5, 6, 9]\t[1, 2, 1]\t[0, 1, 0]\n7\t71\t[6, 5, 8]\t[1, 1, 1]\t[0, 0, 0]\n",
        "lists.txt": "1:5 6 7\n2:6 7 5\n",
        "clicks.txt": "1:0 1 0\n2:1 0 0\n",
        "vectors.txt": "5 0:1.5 1:2\n6 0:1 1:0.5\n7 0:3\n",
        "run.txt": "".join(f"q{n % 3} Q0 d{n} {n // 3 + 1} {9 - n} mine\n" for n in range(9)),
        "metarank.jsonl": "".join(json.dumps(each) + "\n" for each in metarank_events()),
    }
    files = {name: folder / name for name in (*texts, "baidu.parquet")}
    for name, text in texts.items():
        files[name].write_text(text)
    lists = {
        "position": [[1, 2], [1, 2]],
        "click": [[0, 1], [1, 0]],
        "media_type": [[3, 0], [0, 3]],
        "bm25": [[1.5, 2.5]] * 2,
    }
    ids = {"query_id": ["7", "8"], "query_length": [2, 3], "text_md5": [["a", "b"], ["b", "a"]]}
    pq.write_table(pa.table({**ids, **lists}), files["baidu.parquet"])

    def ultre() -> pa.Table:
        return read_ultre2_clicks(files["lists.txt"], files["clicks.txt"], [files["vectors.txt"]])

    def tiangong() -> Any:
        features = read_tiangong_features(files["features.tsv"])
        return read_tiangong_clicks(files["sessions.xml"], features)

    def told(read: Callable[[], Any]) -> Callable[[], str]:
        def text() -> str:
            found = read()
            return repr(found.to_pydict() if isinstance(found, pa.Table) else found)

        return text

    readers: dict[str, tuple[str, Callable[[], Any]]] = {
        "TianGong-ST, sessions": ("sessions.xml", tiangong),
        "TianGong-ST, features": ("features.tsv", tiangong),
        "TREC Session": ("trec.txt", lambda: read_trec_sessions(files["trec.txt"])),
        "TREC run": ("run.txt", lambda: read_values(files["run.txt"], RUN, 4)),
        "Metarank": ("metarank.jsonl", lambda: read_metarank(files["metarank.jsonl"]).events),
        "Baidu-ULTR": ("baidu.parquet", lambda: read_baidu_clicks(files["baidu.parquet"])),
        **{f"ULTRE-2, {name}": (f"{name}.txt", ultre) for name in ("lists", "clicks", "vectors")},
    }
    return [Place(name, files[file], told(read), verified=False) for name, (file, read) in readers.items()]


def metarank_events() -> list[dict[str, Any]]:
    """Two items, a ranking of them, and a click."""
    begun = {"timestamp": "1700000000000", "fields": []}
    items = [
        {"event": "item", **begun, "item": name, "fields": [{"name": "price", "value": price}]}
        for name, price in (("a", 1.0), ("b", 2.0))
    ]
    ranking = {"event": "ranking", **begun, "id": "r", "user": "u", "items": [{"id": "b"}, {"id": "a"}]}
    return [*items, ranking, {"event": "interaction", **begun, "item": "a", "type": "click", "ranking": "r"}]


def engine_files(folder: Path, log: ClickLog) -> list[Place]:
    """Trees, alone and in a model, and a database: read by libraries in C, so each in a process of its own."""
    import duckdb

    model = fit_recipe(Recipe.of("dla", **FAST), log)
    files = [folder / "trees.txt", folder / "trees.json"]
    for file in files:
        unskew.export(model, file, form="lightgbm", log=log, boosting=Boosting(5, 7), least_agreement=-1.0)
    grown = save_model(fit_recipe(Recipe.of("dla", ranker="trees", **FAST), log), folder / "grown")
    database = folder / "events.duckdb"
    table = pq.read_table(folder.parent / "events.parquet")
    with duckdb.connect(str(database)) as opened:
        opened.register("shown", table)
        opened.execute("CREATE TABLE events AS SELECT * FROM shown")
    rows = torch.linspace(-2, 2, 10).reshape(1, 5, 2)

    def scores(file: Path) -> Callable[[], str]:
        return lambda: repr(open_ranker(file).score(rows, torch.ones(1, 5, dtype=torch.bool)).tolist())

    def ingested() -> str:
        unskew.ingest(database, folder / "ingested", events_table="events", overwrite=True, progress=False)
        return read_log(folder / "ingested").digest

    return [
        *(Place(f"trees{file.suffix}", file, scores(file), verified=False, apart=True) for file in files),
        Place("model, trees.txt", grown / "trees.txt", lambda: digest_of_model(grown)),
        Place("events, duckdb", database, ingested, verified=False, apart=True),
    ]
