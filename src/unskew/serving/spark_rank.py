"""Ranking on Spark: executors score whole queries with the model as an ONNX file, and write parts of the ranking.

The ranking is a folder of parquet files with the same rows that `rank` writes on one machine; documents of a query are
adjacent, best first, and equal scores keep the order of the table. `_SUCCESS` is written last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.data.clicks.lineage import with_lineage
from unskew.data.columns import source_columns
from unskew.data.object_storage import fetched
from unskew.ingestion.engines import named_errors
from unskew.ingestion.spark import executor_files, found_by_executors, shared_folder, spark_session
from unskew.serving.candidates import Candidates, feature_columns, whole_queries
from unskew.serving.exports import onnx_bytes
from unskew.serving.model_files import load_model
from unskew.serving.onnx_file import OnnxRanker
from unskew.serving.rankings import Ranking, ranking_table, score_part
from unskew.serving.saved_ranker import TREE_ENDINGS, SavedRanker, UnknownCounts, ranker_of_onnx, ranks_by_ids
from unskew.training.model import Model

DONE = "_SUCCESS"
FOUND = "number long, found string"


def rank_on_spark(
    ranker: Model | str | Path,
    place: str,
    out: str | Path,
    *,
    query: str = "query",
    document: str = "document",
    strict: bool = False,
    overwrite: bool = False,
    master: str | None = None,
) -> Ranking:
    """Rank candidates in parquet files, in any order, and write a folder of parquet files.

    Args:
        place: a path or glob that Spark accepts.
        master: URL of the cluster; None: as Spark is configured.
    """
    if Path(out).suffix != ".parquet":
        raise ValueError(f"{out}: Spark writes a folder of parquet files: use a name that ends in .parquet")
    shipped = ship(ranker)
    session = spark_session(master)
    with named_errors([]):
        frame = session.read.parquet(place)
    candidates, ignored = _candidates(frame, opened(shipped), query, document, place)
    order = [query, "_metadata.file_path", "_metadata.row_index"]  # the order of rows with equal scores
    with shared_folder(Path(out), DONE, overwrite=overwrite) as (here, there), named_errors([]):
        rows = frame.select(*candidates.columns, *order[1:]).repartition(query)
        rows = rows.sortWithinPartitions(query, "file_path", "row_index").drop("file_path", "row_index")
        task = _ranks(shipped, candidates, there, strict=strict)
        found = found_by_executors(rows.mapInArrow(task, FOUND))
        total = {name: sum(entry[name] for entry in found) for name in ("documents", "queries")}
        if not total["documents"]:
            raise ValueError(f"{place} has no rows: there is nothing to rank")
        (here / DONE).write_text("")
    counts = UnknownCounts(opened(shipped))
    for entry in found:
        counts.missing += np.array(entry["missing"], dtype=np.int64)
        counts.new += np.array(entry["new"], dtype=np.int64)
    filled, unseen, lineage = counts.filled(), counts.unseen(), opened(shipped).lineage
    return Ranking(total["documents"], total["queries"], 0, filled, unseen, ignored, lineage)


def ship(ranker: Model | str | Path) -> bytes:
    """The ONNX file for the executors, from a model, its path, or an exported file."""
    if isinstance(ranker, str | Path):
        with fetched(ranker) as place:
            if place.suffix == ".onnx":
                return place.read_bytes()
            if place.suffix in TREE_ENDINGS:
                raise ValueError(f"{place.name}: trees cannot run on Spark: rank without --engine spark")
            ranker = load_model(place)
    if ranks_by_ids(ranker):
        raise ValueError(f"{ranker.name} ranks by document ids, which ONNX cannot: rank without --engine spark")
    return onnx_bytes(ranker)


def opened(shipped: bytes) -> SavedRanker:
    return ranker_of_onnx(OnnxRanker(shipped, threads=1), "the model")


def _candidates(
    frame: Any, ranker: SavedRanker, query: str, document: str, place: str
) -> tuple[Candidates, tuple[str, ...]]:
    """Names of columns, and those that the ranker does not use."""
    from pyspark.sql.pandas.types import to_arrow_schema

    for option, name in {"query": query, "document": document}.items():
        if name not in frame.columns:
            raise ValueError(f"{place}: no column '{name}': pass the {option} column with --{option}")
    schema = to_arrow_schema(frame.schema)
    features = feature_columns(schema, ranker, (query, document), place)
    read = source_columns(schema, features)
    ignored = tuple(name for name in frame.columns if name not in (query, document, *read))
    return Candidates((), query, document, features, read, ranker.categories, sorted=True), ignored


def _ranks(
    shipped: bytes, candidates: Candidates, place: str, *, strict: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that an executor runs on a partition: rank its queries, write them, and report."""

    def rank(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        try:
            found = _rank(batches, shipped, candidates, place, number, strict=strict)
        except (ValueError, OSError) as error:
            found = {"error": str(error)}
        yield pa.RecordBatch.from_pydict({"number": [number], "found": [json.dumps(found)]})

    return rank


def _rank(
    batches: Iterable[pa.RecordBatch], shipped: bytes, candidates: Candidates, place: str, number: int, *, strict: bool
) -> dict[str, Any]:
    ranker = opened(shipped)
    counts = UnknownCounts(ranker, strict=strict)
    n_documents = n_queries = 0
    writer: pq.ParquetWriter | None = None
    tables = (pa.table(batch) for batch in batches if batch.num_rows)
    with executor_files(place) as folder:
        for table in whole_queries(tables, candidates.query):
            part = candidates.part(table)
            counts.add(part.features)
            scores = score_part(ranker, part).scores
            ranking = ranking_table(part.queries, part.documents, part.offsets, scores)
            ranking = with_lineage(ranking, ranker.lineage)
            writer = writer or pq.ParquetWriter(folder / f"part-{number:05d}.parquet", ranking.schema)
            writer.write_table(ranking)
            n_documents += len(scores)
            n_queries += len(part.offsets) - 1
        if writer is not None:
            writer.close()
    found = {"documents": n_documents, "queries": n_queries}
    return {**found, "missing": counts.missing.tolist(), "new": counts.new.tolist()}
