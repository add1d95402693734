"""Rankings written to files: scores and ranks keyed by the original ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.data.judged_set import JudgedSet


def ranking_table(judged: JudgedSet, scores: NDArray[np.float64]) -> pa.Table:
    """One row a document: query, document, score, rank (1 = best), best first within each query."""
    query = np.repeat(np.arange(judged.n_queries), judged.sizes)
    order = np.lexsort((-scores, query))  # stable: equal scores keep the order of the data
    ranks = np.arange(judged.n_documents) - np.repeat(judged.offsets[:-1], judged.sizes) + 1
    return pa.table(
        {
            "query": pa.array(judged.query_ids[query[order]]),
            "document": pa.array(judged.document_ids[order]),
            "score": pa.array(scores[order]),
            "rank": pa.array(ranks),
        }
    )


def write_ranking(judged: JudgedSet, scores: NDArray[np.float64], path: str | Path, tag: str = "unskew") -> None:
    """Write a ranking as parquet, CSV or TREC run, by the ending of the file's name."""
    target = Path(path)
    if target.suffix not in WRITERS:
        raise ValueError(f"{target.name}: the ending must be one of {', '.join(WRITERS)}")
    scratch = target.with_name(f".{target.name}.part")
    try:
        WRITERS[target.suffix](ranking_table(judged, scores), scratch, tag)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def _write_trec(table: pa.Table, path: Path, tag: str) -> None:
    columns = [table[name].to_pylist() for name in ("query", "document", "rank", "score")]
    lines = (f"{q} Q0 {d} {rank} {score!r} {tag}\n" for q, d, rank, score in zip(*columns, strict=True))
    with path.open("w", encoding="utf-8") as file:
        file.writelines(lines)


WRITERS: dict[str, Callable[[pa.Table, Path, str], None]] = {
    ".parquet": lambda table, path, _: pq.write_table(table, path),
    ".csv": lambda table, path, _: pa_csv.write_csv(table, path),
    ".trec": _write_trec,
}
