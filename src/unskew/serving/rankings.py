"""Write rankings to files: scores and ranks with the original ids, part by part.

Files are written atomically: parts go to a temporary file, which is moved into place at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.data.clicks.lineage import with_lineage
from unskew.data.files import new_file
from unskew.data.judged.judged_set import JudgedSet


def ranking_table(queries: pa.Array, documents: pa.Array, offsets: NDArray[np.int64], scores: NDArray) -> pa.Table:
    """One row per document: query, document, score, rank (1 = best), best first within each query.

    Args:
        queries: the query id of each document `[documents]`; documents of a query are adjacent.
        offsets: start of each query, and the end `[queries + 1]`.
    """
    sizes = np.diff(offsets)
    order = np.lexsort((-scores, np.repeat(np.arange(len(sizes)), sizes)))  # stable: equal scores keep their order
    ranks = np.arange(len(scores)) - np.repeat(offsets[:-1], sizes) + 1
    return pa.table(
        {
            "query": queries,  # sorting moves documents only within their query
            "document": documents.take(pa.array(order)),
            "score": pa.array(scores[order]),
            "rank": pa.array(ranks),
        }
    )


def write_ranking(
    judged: JudgedSet,
    scores: NDArray[np.float64],
    path: str | Path,
    tag: str = "unskew",
    lineage: Mapping[str, Any] | None = None,
) -> None:
    """Write the ranking of a judged set as parquet, CSV or TREC run, by the file extension."""
    queries = pa.array(np.repeat(judged.query_ids, judged.sizes))
    with ranking_file(path, tag, lineage) as file:
        file.write(ranking_table(queries, pa.array(judged.document_ids), judged.offsets, scores))


class Writer(Protocol):
    """A writer to which tables are appended."""

    def write_table(self, table: pa.Table) -> None: ...
    def close(self) -> None: ...


class RankingFile:
    """A file that rankings are appended to."""

    def __init__(self, path: Path, kind: str, tag: str, lineage: Mapping[str, Any] | None = None):
        self.path, self.kind, self.tag, self.lineage = path, kind, tag, lineage or {}
        self.writer: Writer | None = None

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        table = with_lineage(table, self.lineage)
        if self.writer is None:
            self.writer = WRITERS[self.kind](self.path, table.schema, self.tag)
        self.writer.write_table(table)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


@contextmanager
def ranking_file(
    path: str | Path, tag: str = "unskew", lineage: Mapping[str, Any] | None = None
) -> Iterator[RankingFile]:
    """A file of rankings that is moved into place when the block ends without an error.

    Args:
        lineage: digests of the model and its log, for the metadata of parquet.
    """
    target = check_ending(path)
    with new_file(target) as scratch:
        file = RankingFile(scratch, target.suffix, tag, lineage)
        try:
            yield file
        finally:
            file.close()


class TrecWriter:
    """Lines of a TREC run: query, Q0, document, rank, score, tag."""

    def __init__(self, path: Path, tag: str):
        self.file = path.open("w", encoding="utf-8")
        self.tag = tag.replace(" ", "_")

    def write_table(self, table: pa.Table) -> None:
        for name in ("query", "document"):
            _refuse_spaces(table, name)
        columns = [table[name].to_pylist() for name in ("query", "document", "rank", "score")]
        self.file.writelines(
            f"{q} Q0 {d} {rank} {score!r} {self.tag}\n" for q, d, rank, score in zip(*columns, strict=True)
        )

    def close(self) -> None:
        self.file.close()


WRITERS: dict[str, Callable[[Path, pa.Schema, str], Writer]] = {
    ".parquet": lambda path, schema, _: pq.ParquetWriter(path, schema),
    ".csv": lambda path, schema, _: pa_csv.CSVWriter(path, schema),
    ".trec": lambda path, _, tag: TrecWriter(path, tag),
}


def check_ending(path: str | Path) -> Path:
    """Refuse a file with an unknown extension."""
    target = Path(path)
    if target.suffix not in WRITERS:
        raise ValueError(f"{target.name}: the extension must be one of {', '.join(WRITERS)}")
    return target


def _refuse_spaces(table: pa.Table, name: str) -> None:
    """Refuse ids with spaces, which separate the columns of a TREC run."""
    if not (pa.types.is_string(table[name].type) or pa.types.is_large_string(table[name].type)):
        return
    row = pc.index(pc.match_substring_regex(table[name], r"\s|^$"), True).as_py()
    if row >= 0:
        raise ValueError(
            f"{name} '{table[name][row]}' contains a space or is empty, which a TREC run cannot hold: write .parquet "
            "or .csv"
        )
