"""Shards on Spark: the executor that has the queries of a shard writes it; the driver writes `log.json` last.

The module `spark` says what executors need.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from unskew.data.clicks import ABOUT
from unskew.data.clicks.kept_users import UserLog
from unskew.data.clicks.shards import LogSchema, shard_file, write_shard
from unskew.data.clicks.storage import shard_name, write_about
from unskew.data.object_storage import remote
from unskew.ingestion.engine_errors import named_errors
from unskew.ingestion.group import BUCKET_SIZE, Range
from unskew.ingestion.report import Dropped
from unskew.ingestion.shards import Schema, shard_log, sizes_of
from unskew.ingestion.spark import executor_files, found_by_executors, shared_folder

FOUND = "number long, found string"  # schema of an executor's report of a shard
Shard = dict[str, Any]


@contextmanager
def write_on_executors(
    patterns: Any,
    documents: Any,
    parts: Sequence[Range],
    schema: Schema,
    target: Path,
    overwrite: bool,
    notes: Mapping[str, Any],
) -> Iterator[list[Shard]]:
    """A report of each written shard; the log is complete when the block ends without an error.

    Args:
        patterns, documents: Spark data frames; `place` orders the patterns of a query.
        notes: read and written when the block ends.
    """
    with shared_folder(target, ABOUT, overwrite=overwrite) as (here, place), named_errors([]):
        left, right = (_by_shard(frame, parts) for frame in (patterns, documents))
        found = found_by_executors(left.cogroup(right).applyInArrow(_writer(schema, place), FOUND))
        yield found
        written = [shard for shard in found if "counts" in shard]
        if not written:
            raise ValueError(f"{target}: there are no shards to write")
        for number, shard in enumerate(written):
            _rename(place, shard, number)
        write_about(here, written[0]["schema"], [shard["counts"] for shard in written], notes)


def _by_shard(frame: Any, parts: Sequence[Range]) -> Any:
    """Rows of a frame grouped by the number of their shard."""
    from pyspark.sql import functions

    buckets = [
        (bucket, number)
        for number, part in enumerate(parts)
        for bucket in range(part.first // BUCKET_SIZE, part.last // BUCKET_SIZE + 1)
    ]
    shards = functions.broadcast(frame.sparkSession.createDataFrame(buckets, "bucket long, shard long"))
    numbered = frame.selectExpr("*", f"query_number div {BUCKET_SIZE} AS bucket")
    joined = numbered.join(shards, "bucket").drop("bucket")
    return joined.toDF(*joined.columns).groupBy("shard")  # new columns, because lists and documents share their origin


def _writer(schema: Schema, place: str) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """The function that an executor runs on the patterns and documents of a shard."""

    def write(patterns: pa.Table, documents: pa.Table) -> pa.Table:
        number = documents["shard"][0].as_py()
        dropped = Dropped()
        try:
            shard = shard_log(
                patterns.sort_by([("query_number", "ascending"), ("place", "ascending")]),
                documents.sort_by([("query", "ascending"), ("version_number", "ascending")]),
                schema,
                dropped,
            )
            found: Shard = {"number": number, "dropped": [dropped.counts, dropped.examples]}
            found |= {} if shard is None else _write(shard, place, number)
        except (ValueError, OSError) as error:
            found = {"error": str(error)}
        return pa.table({"number": [number], "found": [json.dumps(found)]})

    return write


def _write(shard: UserLog, place: str, number: int) -> Shard:
    schema = LogSchema(shard.log)
    with executor_files(place) as folder:
        counts = write_shard(schema.admit(shard.log, number), folder / shard_name(number), shard.users)
    return {"counts": counts, "schema": schema.about(), "sizes": sizes_of(shard.log)}


def _rename(place: str, shard: Shard, number: int) -> None:
    """Renumber a shard after one of which nothing was left."""
    if shard["number"] == number:
        return
    there = remote(place)
    for table in shard["counts"]["digests"]:
        old, new = (shard_file(Path(place) / shard_name(each), table) for each in (shard["number"], number))
        if there is None:
            old.replace(new)
        else:
            there.rename(old.name, new.name)
