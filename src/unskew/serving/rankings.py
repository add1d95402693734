"""Rank files: candidates are read, scored and written part by part, with the original ids.

Files are written atomically: parts go to a temporary file, which is moved into place at the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.data.clicks.lineage import lineage_line, with_lineage
from unskew.data.columns import listed
from unskew.data.files import new_file, scratch_folder
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.memory import parse_memory
from unskew.display import MOST_ROWS, Displayed, Screen
from unskew.evaluation.evaluate import score_documents
from unskew.serving.candidates import Candidates, Part, open_candidates
from unskew.serving.query_order import adjacent, database, find_apart, sort_by_query
from unskew.serving.saved_ranker import SavedRanker, ScoredIds, UnknownCounts
from unskew.texts import for_spreadsheet

MEMORY = "1GB"
UNKNOWN = (
    "{} documents are not in the log that the model learned from: they are ranked by their URL and query where the "
    "model knows these, otherwise as average documents"
)
Progress = Callable[[int, int], None]


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
    with ranking_file(path, tag, lineage) as write:
        write(ranking_table(queries, pa.array(judged.document_ids), judged.offsets, scores))


@contextmanager
def ranking_file(
    path: str | Path, tag: str = "unskew", lineage: Mapping[str, Any] | None = None
) -> Iterator[Callable[[pa.Table], None]]:
    """A function that appends to a file of rankings, which is moved into place when the block ends without an error.

    Args:
        lineage: digests of the model and its log, for the metadata of parquet.
    """
    target = check_ending(path)
    with new_file(target) as scratch, ExitStack() as stack:
        writers: list[Any] = []

        def write(table: pa.Table) -> None:
            table = with_lineage(table, lineage or {})
            if not writers:
                writers.append(stack.enter_context(closing(WRITERS[target.suffix](scratch, table.schema, tag))))
            writers[0].write_table(table)

        yield write


class TrecWriter:
    """Lines of a TREC run: query, Q0, document, rank, score, tag."""

    def __init__(self, path: Path, tag: str):
        self.file = path.open("w", encoding="utf-8")
        self.tag = tag.replace(" ", "_")

    def write_table(self, table: pa.Table) -> None:
        for name in ("query", "document"):
            refuse_spaces(table, name)
        columns = [table[name].to_pylist() for name in ("query", "document", "rank", "score")]
        self.file.writelines(
            f"{q} Q0 {d} {rank} {score!r} {self.tag}\n" for q, d, rank, score in zip(*columns, strict=True)
        )

    def close(self) -> None:
        self.file.close()


class CsvWriter:
    """Rows of CSV; ids that a spreadsheet would compute get an apostrophe, and are counted."""

    def __init__(self, path: Path, schema: pa.Schema):
        self.file, self.changed, self.name = pa_csv.CSVWriter(path, schema), 0, path

    def write_table(self, table: pa.Table) -> None:
        for place, column in enumerate(table.schema):
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                texts = table[place].to_pylist()
                safe = [text if text is None else for_spreadsheet(text) for text in texts]
                self.changed += sum(text != old for text, old in zip(safe, texts, strict=True))
                table = table.set_column(place, column, pa.array(safe, column.type))
        self.file.write_table(table)

    def close(self) -> None:
        self.file.close()
        if self.changed:
            warnings.warn(
                f"{self.changed:,} ids begin like formulas of a spreadsheet: an apostrophe was put before each; for "
                "the ids as they are, write another format",
                RuntimeWarning,
                stacklevel=2,
            )


WRITERS: dict[str, Callable[[Path, pa.Schema, str], Any]] = {
    ".parquet": lambda path, schema, _: pq.ParquetWriter(path, schema),
    ".csv": lambda path, schema, _: CsvWriter(path, schema),
    ".trec": lambda path, _, tag: TrecWriter(path, tag),
}


def check_ending(path: str | Path) -> Path:
    """Refuse a file with an unknown extension."""
    target = Path(path)
    if target.suffix not in WRITERS:
        raise ValueError(f"{target.name}: the extension must be one of {', '.join(WRITERS)}")
    return target


def refuse_spaces(table: pa.Table, name: str, form: str = "a TREC run", others: str = ".parquet or .csv") -> None:
    """Refuse ids with spaces, which separate the columns of TREC's files."""
    if not (pa.types.is_string(table[name].type) or pa.types.is_large_string(table[name].type)):
        return
    row = pc.index(pc.match_substring_regex(table[name], r"\s|^$"), True).as_py()
    if row >= 0:
        raise ValueError(
            f"{name} '{table[name][row]}' contains a space or is empty, which {form} cannot hold: write {others}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Ranking(Displayed):
    """Documents of queries with scores and ranks."""

    n_documents: int
    n_queries: int
    n_unknown: int = 0  # documents that a ranker of ids does not know
    filled: Mapping[str, int] = field(default_factory=dict)  # missing values, by column that had none in training
    unseen: Mapping[str, int] = field(default_factory=dict)  # values that training never saw, by categorical column
    ignored: tuple[str, ...] = ()  # columns that the ranker does not know
    lineage: Mapping[str, Any] = field(default_factory=dict)  # digests of the model and its log
    out: Path | None = None  # file of the ranking; None: it is in memory only
    kept: pa.Table | None = None

    @cached_property
    def _table(self) -> pa.Table:
        if self.kept is not None:
            return self.kept
        if self.out is None or self.out.suffix != ".parquet":
            raise ValueError(
                f"{self.out} is a file for other programs: to get a table, rank to a .parquet file or leave out=None"
            )
        return pq.read_table(self.out)

    def to_table(self) -> pa.Table:
        """One row per document: query, document, score, rank (1 = best), best first within each query."""
        return self._table

    def to_json(self) -> dict[str, Any]:
        counts = {"documents": self.n_documents, "queries": self.n_queries, "unknown": self.n_unknown}
        unlike_training = {"filled": dict(self.filled), "unseen": dict(self.unseen), "ignored": list(self.ignored)}
        return {**counts, **unlike_training, "lineage": dict(self.lineage)}

    def screen(self) -> Screen:
        place = "" if self.out is None else f" in {self.out}"
        title = f"{self.n_documents:,} documents of {self.n_queries:,} queries ranked{place}"
        notes = [f"{lineage_line(self.lineage)}."] if self.lineage else []
        notes += [UNKNOWN.format(f"{self.n_unknown:,}")] if self.n_unknown else []
        if self.ignored:
            notes.append(f"Ignored, because the model does not use them: {listed(self.ignored)}")
        notes += [f"'{name}' has {count:,} values that training never saw" for name, count in self.unseen.items()]
        notes += [
            f"'{name}' has {count:,} missing values, which were filled: it had none in training (strict refuses them)"
            for name, count in self.filled.items()
        ]
        if self.kept is None:
            return Screen(title, notes=notes)
        head = self.kept.slice(0, MOST_ROWS).to_pylist()
        rows = [[str(row["query"]), str(row["document"]), f"{row['score']:.4f}", str(row["rank"])] for row in head]
        return Screen(title, ("query", "document", "score", "rank"), rows, notes, left=2, n_rows=self.kept.num_rows)


def rank_judged(ranker: SavedRanker, judged: JudgedSet, out: str | Path, *, strict: bool = False) -> Ranking:
    """Write the ranking of a judged set; `strict` refuses missing values in columns that had none in training."""
    check_ending(out)
    counts = UnknownCounts(ranker, strict=strict)
    found = ranker.score_judged(judged)
    counts.add(judged.features)
    write_ranking(judged, found.scores, out, ranker.name, ranker.lineage)
    filled, unseen = counts.filled(), counts.unseen()
    return Ranking(judged.n_documents, judged.n_queries, found.unknown, filled, unseen, (), ranker.lineage)


def rank_table(
    ranker: SavedRanker,
    place: str | Path,
    out: str | Path,
    *,
    query: str = "query",
    document: str = "document",
    sort: bool = False,
    memory: str = MEMORY,
    strict: bool = False,
    progress: Progress | None = None,
) -> Ranking:
    """Rank candidates of parquet files, which may be larger than memory; the ranking is written part by part.

    Documents of a query must be adjacent, because they are scored together.

    Args:
        place: a parquet file, a folder or a glob.
        query, document: names of the id columns.
        sort: sort by query first, in a copy next to the output.
        memory: limit for checking the order of queries and for sorting.
        strict: refuse missing values in columns that had none in training, instead of filling and counting them.
    """
    target = check_ending(out)
    candidates = open_candidates(place, ranker, query, document)
    counts = UnknownCounts(ranker, strict=strict)
    parse_memory(memory)  # refused even if nothing needs it
    if not sort and adjacent(candidates.files, query):
        return _rank_parts(ranker, candidates, target, counts, progress)
    with scratch_folder(target) as scratch:
        with database(scratch, memory) as connection:
            if sort:
                copy = scratch / "sorted.parquet"
                sort_by_query(connection, candidates.files, candidates.columns, copy)
                candidates = replace(candidates, files=(str(copy),), sorted=True)
            else:
                apart = find_apart(connection, candidates.files, query)
                if apart is not None:
                    name, first, again = apart
                    raise ValueError(
                        f"the rows of query {name} are not adjacent, at {candidates.place(first)} and again at "
                        f"{candidates.place(again)}: sort the table by query, or rank with --sort"
                    )
        return _rank_parts(ranker, candidates, target, counts, progress)


def score_part(ranker: SavedRanker, part: Part) -> ScoredIds:
    """One score per document."""
    if ranker.vocabulary is not None:
        return ranker.score_ids(part.queries, part.documents, part.features)
    judged = JudgedSet.from_arrays(part.features, np.zeros(len(part.features)), np.diff(part.offsets))
    return ScoredIds(score_documents(ranker.score, judged), 0)


def _rank_parts(
    ranker: SavedRanker, candidates: Candidates, target: Path, counts: UnknownCounts, progress: Progress | None
) -> Ranking:
    total, documents, queries, unknown = sum(candidates.sizes), 0, 0, 0
    with ranking_file(target, ranker.name, ranker.lineage) as write:
        for part in candidates.parts():
            counts.add(part.features)
            found = score_part(ranker, part)
            write(ranking_table(part.queries, part.documents, part.offsets, found.scores))
            unknown += found.unknown
            documents += len(part.features)
            queries += len(part.offsets) - 1
            if progress is not None:
                progress(documents, total)
    return Ranking(documents, queries, unknown, counts.filled(), counts.unseen(), candidates.ignored, ranker.lineage)
