"""Write counted lists to disk: shard by shard on this machine, or each shard by the Spark executor that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir

from unskew.data.clicks.kept_users import UserLog
from unskew.data.clicks.storage import write_shards
from unskew.ingestion.engines import Engine, SparkEngine
from unskew.ingestion.group import Range, ranges, within
from unskew.ingestion.report import Dropped
from unskew.ingestion.shards import Schema, shard_log, sizes_of
from unskew.ingestion.spark_shards import write_on_executors

SHARD_CELLS = 2**24  # approximate numbers in a shard: four per entry of a pattern, and the features of each document
LIST_REASONS = ("duplicate", "shown_again", "shared_position")
Progress = Callable[[int, int], None]


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
        names = ("impressions", "sessions", "clicks", "lists", "queries", "documents", "versions", "shards")
        self.totals = dict.fromkeys(names, 0)
        self.recorded = 0  # sessions with recorded examination
        self.with_gaps = 0  # sessions whose list has an empty position above its last document
        self.without_probability = 0  # impressions whose display probability was not recorded

    def __iter__(self) -> Iterator[UserLog]:
        """One log per range of queries."""
        parts = self._parts()
        total = sum(part.size for part in parts)
        for part in parts:
            found = self.engine.arrow(within(self.patterns, part).order_by("query_number", *self._order))
            listed = self.engine.arrow(within(self.documents, part).order_by("query", "version_number"))
            shard = shard_log(found, listed, self.schema, self.dropped)
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
        self.recorded += sizes["recorded"]
        self.with_gaps += sizes["with_gaps"]
        self.without_probability += sizes["without_probability"]

    def _check(self) -> None:
        n_dropped = sum(self.dropped.counts.get(key, 0) for key in LIST_REASONS)
        self.dropped.refuse_if_most(LIST_REASONS, self.totals["impressions"] + n_dropped, "impressions")
