"""Logs, models and rankings on object storage, against a server of this machine."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.data.clicks.storage import open_log, read_log, write_log
from unskew.data.object_storage import remote

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}


def test_places_are_known_by_their_scheme():
    assert str(remote("s3:/bucket/log")) == "s3://bucket/log"  # as a Path spells it
    assert remote("runs/s3/log") is None


@pytest.fixture(scope="module")
def bucket():
    server = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[server,s3]'")
    running = server.ThreadedMotoServer("127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
            patch.setenv(name, value)
        from pyarrow import fs

        fs.S3FileSystem(endpoint_override=f"{host}:{port}", scheme="http", allow_bucket_creation=True).create_dir(
            "shop"
        )
        yield "s3://shop"
    running.stop()


def test_a_log_is_written_and_read_shard_by_shard(bucket, log, tmp_path):
    place = f"{bucket}/log"
    write_log(log, place, n_shards=3)
    local = write_log(log, tmp_path / "log", n_shards=3)
    assert read_log(place).digest == read_log(local).digest
    with pytest.raises(FileExistsError, match="exists: choose another path"):
        write_log(log, place)
    write_log(log, place, n_shards=2, overwrite=True)
    assert remote(place).names() == sorted(path.name for path in write_log(log, tmp_path / "two", n_shards=2).iterdir())
    options = {"steps": 4, "batch_size": 16, "progress": False}
    streamed = [unskew.fit("dla", open_log(where), **options) for where in (place, tmp_path / "two")]
    assert np.array_equal(*(model.examination() for model in streamed))


def test_what_was_cut_off_is_no_log(bucket, log):
    place = remote(f"{bucket}/cut")
    write_log(log, place.uri, n_shards=2)
    place.remove("log.json")
    with pytest.raises(FileNotFoundError, match="not a click log"):
        open_log(place.uri)
    with pytest.raises(FileExistsError, match="so it is not overwritten"):
        write_log(log, place.uri, overwrite=True)


def test_models_and_rankings_go_there_and_back(bucket, log, tmp_path):
    model = unskew.fit("two_tower", log, steps=3, progress=False)
    unskew.save_model(model, f"{bucket}/model")
    again = unskew.load_model(f"{bucket}/model")
    assert np.array_equal(again.examination(), model.examination())
    rng = np.random.default_rng(0)
    columns = {f"f{number}": rng.normal(size=12).astype(np.float32) for number in range(log.n_features)}
    table = pa.table({"query": [row // 4 for row in range(12)], "document": list(range(12))} | columns)
    pq.write_table(table, tmp_path / "table.parquet")
    unskew.rank(f"{bucket}/model", tmp_path / "table.parquet", f"{bucket}/ranking.parquet", progress=False)
    unskew.rank(model, tmp_path / "table.parquet", tmp_path / "ranking.parquet", progress=False)
    with remote(f"{bucket}/ranking.parquet")._opened[0].open_input_file("shop/ranking.parquet") as file:
        assert pq.read_table(file).equals(pq.read_table(tmp_path / "ranking.parquet"))


def test_events_are_ingested_to_object_storage(bucket, tmp_path):
    rows = [
        {"session": f"s{session}", "query": f"q{session % 3}", "document": f"d{place}", "position": place + 1}
        | {"clicked": int(place == session % 2), "price": float(place)}
        for session in range(12)
        for place in range(3)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "events.parquet")
    unskew.ingest(tmp_path / "events.parquet", f"{bucket}/ingested", progress=False)
    assert open_log(f"{bucket}/ingested").n_sessions == 12
