"""Write counted lists to disk: shard by shard on this machine, or each shard by the Spark executor that has it.

On Spark the driver writes `log.json` last; the module `spark` says what executors need.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa

from unskew.data.clicks import ABOUT
from unskew.data.clicks.kept_users import UserLog
from unskew.data.clicks.shards import LogSchema, shard_file, write_shard
from unskew.data.clicks.storage import shard_name, write_about, write_shards
from unskew.data.object_storage import remote
from unskew.ingestion.engines import Engine, SparkEngine, named_errors
from unskew.ingestion.group import BUCKET_SIZE, Range, ranges, within
from unskew.ingestion.report import Dropped
from unskew.ingestion.shards import Schema, shard_log, sizes_of
from unskew.ingestion.spark import executor_files, found_by_executors, shared_folder

SHARD_CELLS = 2**24  # approximate numbers in a shard: four per entry of a pattern, and the features of each document
LIST_REASONS = ("duplicate", "shown_again", "shared_position")
TOTALS = ("impressions", "sessions", "clicks", "lists", "queries", "documents", "versions", "shards")
NOTED = (  # sessions with an empty position above the last document, with recorded examination; unrecorded impressions
    *("with_gaps", "recorded", "without_probability"),
)
FOUND = "number long, found string"  # schema of an executor's report of a shard
Progress = Callable[[int, int], None]
Shard = dict[str, Any]


@dataclass
class Steps:
    """Progress: each row of the event table counts three times: read, count, write."""

    progress: Progress | None
    total: int = 0
    done: int = 0

    def add(self, size: int) -> None:
        self.done += size
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)


class Counted:
    """Lists that an engine has counted, and running totals of those already returned."""

    def __init__(
        self, engine: Engine, patterns: ir.Table, documents: ir.Table, schema: Schema, dropped: Dropped, steps: Steps
    ):
        self.engine, self.patterns, self.documents = engine, patterns, documents
        self.schema, self.dropped, self.steps = schema, dropped, steps
        self.totals = dict.fromkeys((*TOTALS, *NOTED), 0)

    def __iter__(self) -> Iterator[UserLog]:
        """One log per range of queries."""
        parts = self._parts()
        total = sum(part.size for part in parts)
        for part in parts:
            patterns = self.engine.arrow(within(self.patterns, part).order_by("query_number", *self._order))
            listed = self.engine.arrow(within(self.documents, part).order_by("query", "version_number"))
            shard = shard_log(patterns, listed, self.schema, self.dropped)
            self.steps.add(self.steps.total // 3 * part.size // total)
            if shard is not None:
                self._add(sizes_of(shard.log))
                yield shard
        self._check()

    def write(self, target: Path, *, overwrite: bool, notes: Mapping[str, Any]) -> None:
        """Write everything as a log; `notes` is read after the last shard."""
        if not isinstance(self.engine, SparkEngine):
            write_shards(self, target, overwrite=overwrite, notes=notes)
            return
        place = ibis.row_number().over(group_by="query_number", order_by=self._order)
        patterns, documents = map(self.engine.frame, (self.patterns.mutate(place=place), self.documents))
        parts = self._parts()
        with write_on_executors(patterns, documents, parts, self.schema, target, overwrite, notes) as written:
            for shard in written:
                self.dropped.merge(*shard["dropped"])
                if "sizes" in shard:
                    self._add(shard["sizes"])
            self._check()
        self.steps.add(self.steps.total)

    @property
    def _order(self) -> list[str]:
        """Columns by which the patterns of a query are sorted."""
        return [
            "shown",
            *self.schema.shape.extras,
            *["period"] * bool(self.schema.shape.period),
            *["user"] * self.schema.shape.user,
        ]

    def _parts(self) -> list[Range]:
        """The range of queries of each shard."""
        patterns, documents = self.patterns, self.documents
        width = len(self.schema.shape.features) + 2
        lists = patterns.group_by("query_number").aggregate(size=(patterns.shown.length() * 4).sum())
        rows = documents.group_by("query_number").aggregate(size=documents.count() * width)
        return ranges(self.engine, lists.union(rows), SHARD_CELLS)

    def _add(self, sizes: Mapping[str, int]) -> None:
        self.totals = {name: total + sizes[name] for name, total in self.totals.items()}

    def _check(self) -> None:
        n_dropped = sum(self.dropped.counts.get(key, 0) for key in LIST_REASONS)
        self.dropped.refuse_if_most(LIST_REASONS, self.totals["impressions"] + n_dropped, "impressions")


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
