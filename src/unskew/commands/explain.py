"""`unskew explain`: which features matter to a ranker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

import unskew
from unskew.commands.app import DATA_HELP, RANKER_HELP, Json, Seed, command
from unskew.commands.source import constant
from unskew.terminal import console, show_json, show_table

if TYPE_CHECKING:
    from unskew.data.judged.judged_set import JudgedSet
    from unskew.serving.explanation import Decision, Explanation
    from unskew.serving.saved_ranker import SavedRanker


@command
def explain(
    model: Annotated[Path, typer.Argument(help=RANKER_HELP)],
    data: Annotated[str, typer.Argument(help=f"{DATA_HELP} Default split: test. Or parquet files with candidates.")],
    query: Annotated[str | None, typer.Option(help="The query of two documents to compare.")] = None,
    documents: Annotated[str | None, typer.Option(help="Two documents of the query, comma-separated.")] = None,
    metric: Annotated[str, typer.Option(help="The metric whose loss measures importance.")] = constant(
        "serving.explanation:METRIC"
    ),
    by_order: Annotated[
        bool, typer.Option("--by-order", help="Measure the change of order instead of a metric; needs no labels.")
    ] = False,
    repeats: Annotated[int, typer.Option(help="Number of shuffles per feature.")] = 5,
    queries: Annotated[int, typer.Option(help="Maximum number of queries, drawn at random.")] = 500,
    out: Annotated[Path | None, typer.Option(help="Output folder for a figure and JSON.")] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Explain a ranker: which features matter, or which decided between two documents."""
    from unskew.serving.explanation import Decision, save_explanation
    from unskew.serving.explanation import explain as find_importance
    from unskew.serving.saved_ranker import open_ranker

    ranker = open_ranker(model)
    judged, labelled = _read(ranker, data)
    names = ranker.feature_names or tuple(f"feature {number}" for number in range(ranker.n_features))
    found: Explanation | Decision
    if query is not None:
        found = _decided(ranker, judged, names, query, documents, seed)
    else:
        chosen = np.random.default_rng(seed).permutation(judged.n_queries)[:queries]
        by = None if by_order or not labelled else metric
        some = judged.select(np.sort(chosen))
        found = find_importance(ranker.score, some, names, metric=by, repeats=repeats, seed=seed)
    if out is not None:
        save_explanation(found, out)
    if json:
        show_json(found.to_json())
    elif isinstance(found, Decision):
        title = f"{found.first} scores {found.scores[0]:.4f}, {found.second} {found.scores[1]:.4f}"
        show_table(title, ("feature", f"for {found.first}", found.first, found.second), found.rows())
    else:
        title = f"Loss of {found.measure} when a feature is shuffled, on {found.n_queries:,} queries"
        show_table(title, ("feature", "importance", "95% interval"), found.rows())
    if out is not None and not json:
        console.print(f"Figure and numbers in {out}", markup=False, highlight=False)


def _read(ranker: SavedRanker, data: str) -> tuple[JudgedSet, bool]:
    """The data, and whether they have relevance labels."""
    from unskew.data.judged.catalogue import load_split
    from unskew.serving.candidates import is_table, open_candidates

    if not is_table(data):
        judged = load_split(data, "test")
        ranker.for_judged(judged)
        return judged, True
    part = next(open_candidates(data, ranker).parts())
    starts = part.offsets[:-1]
    return unskew.JudgedSet(
        features=part.features,
        grades=np.zeros(len(part.features), dtype=np.float32),
        offsets=part.offsets,
        query_ids=np.array(part.queries.take(starts).to_pylist()),
        document_ids=np.array(part.documents.to_pylist()),
    ), False


def _decided(
    ranker: SavedRanker, judged: JudgedSet, names: tuple[str, ...], query: str, documents: str | None, seed: int
) -> Decision:
    from unskew.serving.explanation import decide

    wanted = [] if documents is None else [name.strip() for name in documents.split(",")]
    if len(wanted) != 2:
        raise ValueError("name two documents to compare: --documents FIRST,SECOND")
    places = np.flatnonzero(judged.query_ids.astype(str) == query)
    if not len(places):
        raise ValueError(f"there is no query '{query}' in the data; the first is '{judged.query_ids[0]}'")
    rows = slice(judged.offsets[places[0]], judged.offsets[places[0] + 1])
    ids = judged.document_ids[rows].astype(str).tolist()
    for name in wanted:
        if name not in ids:
            raise ValueError(f"query '{query}' has no document '{name}'; its documents: {', '.join(ids[:10])}")
    first, second = (ids.index(name) for name in wanted)
    labels = (wanted[0], wanted[1])
    return decide(ranker.score, judged.features[rows], first, second, names, labels=labels, seed=seed)
