"""Rank files: candidates are read, scored and written part by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from unskew.data.files import scratch_folder
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import score_documents
from unskew.serving.candidates import Candidates, Part, open_candidates
from unskew.serving.query_order import database, find_apart, sort_by_query
from unskew.serving.rankings import check_ending, ranking_file, ranking_table, write_ranking
from unskew.serving.saved_ranker import SavedRanker, ScoredIds, UnknownCounts

MEMORY = "1GB"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Ranked:
    """The counts of a ranking."""

    documents: int
    queries: int
    unknown: int = 0  # documents that a ranker of ids does not know
    filled: Mapping[str, int] = field(default_factory=dict)  # missing values, by column that had none in training
    unseen: Mapping[str, int] = field(default_factory=dict)  # values that training never saw, by categorical column
    ignored: tuple[str, ...] = ()  # columns that the ranker does not know
    lineage: Mapping[str, Any] = field(default_factory=dict)  # digests of the model and its log


def rank_judged(ranker: SavedRanker, judged: JudgedSet, out: str | Path, *, strict: bool = False) -> Ranked:
    """Write the ranking of a judged set; `strict` refuses missing values in columns that had none in training."""
    check_ending(out)
    counts = UnknownCounts(ranker, strict=strict)
    found = ranker.score_judged(judged)
    counts.add(judged.features)
    write_ranking(judged, found.scores, out, ranker.name, ranker.lineage)
    filled, unseen = counts.filled(), counts.unseen()
    return Ranked(judged.n_documents, judged.n_queries, found.unknown, filled, unseen, (), ranker.lineage)


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
) -> Ranked:
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
                        f"the rows of query {apart.query} are not adjacent, at {candidates.place(apart.row)} and again "
                        f"at {candidates.place(apart.again)}: sort the table by query, or rank with --sort"
                    )
        return _rank_parts(ranker, candidates, target, UnknownCounts(ranker, strict=strict), progress)


def score_part(ranker: SavedRanker, part: Part) -> ScoredIds:
    """One score per document."""
    if ranker.vocabulary is not None:
        return ranker.score_ids(part.queries, part.documents, part.features)
    grades = np.zeros(len(part.features), dtype=np.float32)  # unused
    judged = JudgedSet(features=part.features, grades=grades, offsets=part.offsets)
    return ScoredIds(score_documents(ranker.score, judged), 0)


def _rank_parts(
    ranker: SavedRanker, candidates: Candidates, target: Path, counts: UnknownCounts, progress: Progress | None
) -> Ranked:
    total, documents, queries, unknown = sum(candidates.sizes), 0, 0, 0
    with ranking_file(target, ranker.name, ranker.lineage) as file:
        for part in candidates.parts():
            counts.add(part.features)
            found = score_part(ranker, part)
            file.write(ranking_table(part.queries, part.documents, part.offsets, found.scores))
            unknown += found.unknown
            documents += len(part.features)
            queries += len(part.offsets) - 1
            if progress is not None:
                progress(documents, total)
    return Ranked(documents, queries, unknown, counts.filled(), counts.unseen(), candidates.ignored, ranker.lineage)
