"""Ranking from files to files: candidates are read, scored and written part by part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unskew.data.files import scratch_folder
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import score_documents
from unskew.serving.candidates import Candidates, Part, open_candidates
from unskew.serving.query_order import database, find_apart, sort_by_query
from unskew.serving.rankings import check_ending, ranking_file, ranking_table, write_ranking
from unskew.serving.saved_ranker import SavedRanker

MEMORY = "1GB"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Ranked:
    """What was ranked."""

    documents: int
    queries: int


def rank_judged(ranker: SavedRanker, judged: JudgedSet, out: str | Path) -> Ranked:
    """Write the ranking of a judged set."""
    check_ending(out)
    write_ranking(judged, score_documents(ranker.for_judged(judged), judged), out, tag=ranker.name)
    return Ranked(judged.n_documents, judged.n_queries)


def rank_table(
    ranker: SavedRanker,
    place: str | Path,
    out: str | Path,
    *,
    query: str = "query",
    document: str = "document",
    sort: bool = False,
    memory: str = MEMORY,
    progress: Progress | None = None,
) -> Ranked:
    """Rank candidates of parquet files, which may exceed memory: the ranking is written as it grows.

    Documents of a query must stand together, as they are scored together.

    Args:
        place: a parquet file, a folder or a glob.
        query, document: names of the columns with ids.
        sort: put documents of a query together first, in a copy beside the output.
        memory: for looking at the order of queries and for sorting.
    """
    target = check_ending(out)
    candidates = open_candidates(place, ranker, query, document)
    with scratch_folder(target) as scratch:
        with database(scratch, memory) as connection:
            if sort:
                copy = scratch / "sorted.parquet"
                sort_by_query(connection, candidates.files, candidates.columns, copy)
                candidates = replace(candidates, files=(str(copy),), sorted=True)
            else:
                apart = find_apart(connection, candidates.files, query)
                if apart is not None:
                    raise ValueError(
                        f"query {apart.query} stands in several places, at {candidates.place(apart.row)}, and again at "
                        f"{candidates.place(apart.again)}: put its documents together, or rank with --sort"
                    )
        return _rank_parts(ranker, candidates, target, progress)


def score_part(ranker: SavedRanker, part: Part) -> np.ndarray:
    """One score a document."""
    grades = np.zeros(len(part.features), dtype=np.float32)  # nobody judged them, and nothing asks
    return score_documents(ranker.score, JudgedSet(features=part.features, grades=grades, offsets=part.offsets))


def _rank_parts(ranker: SavedRanker, candidates: Candidates, target: Path, progress: Progress | None) -> Ranked:
    total, documents, queries = sum(candidates.sizes), 0, 0
    with ranking_file(target, tag=ranker.name) as file:
        for part in candidates.parts():
            file.write(ranking_table(part.queries, part.documents, part.offsets, score_part(ranker, part)))
            documents += len(part.features)
            queries += len(part.offsets) - 1
            if progress is not None:
                progress(documents, total)
    return Ranked(documents, queries)
