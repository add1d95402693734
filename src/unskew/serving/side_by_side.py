r"""One page for a meeting: production's order and a ranker's side by side, query by query, with the clicks behind them.

Each document has its click rate as it would be at the top (clicks divided by examination, as `judgements` has it) with
its interval. The **gain** of a query is the change of its discounted clicks, $\sum_d r_d (1/\log_2(1 + k'_d) -
1/\log_2(1 + k_d))$ for corrected rates $r_d$ and ranks $k$ (production) and $k'$ (the ranker), down to rank 10. The
features that **moved** a document are those whose replacement by the values of other documents of its query changes its
score most.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.lineage import SHORT, lineage_line
from unskew.data.clicks.within_memory import MEMORY
from unskew.data.files import check_place
from unskew.data.inputs import LogOrPlace, Place, as_part
from unskew.data.judged.judged_set import JudgedSet
from unskew.display import Displayed, Screen
from unskew.evaluation.evaluate import score_documents
from unskew.evaluation.held_out import HeldOut
from unskew.evaluation.production import production_of_log
from unskew.propensities.curve import NotIdentified
from unskew.propensities.estimate import estimate_propensities
from unskew.reporting.drawing import Drawn, line_figure
from unskew.reporting.sheets import write_page
from unskew.serving.model_files import load_model
from unskew.serving.ratings import judgements
from unskew.serving.saved_ranker import SavedRanker, as_ranker
from unskew.training.model import Model

CUTOFF = 10
TOP = 3  # ranks whose change is counted
DEEPEST = 50  # documents below this rank in both orders are left out
SHIFTS = (1, 2)  # each feature is replaced by that of the next document, and of the one after it
FEATURES_SHOWN = 3
FEATURES_TRIED = 24  # of all, those with the largest effect on the first queries
SAMPLE = 5_000  # documents on which they are chosen
Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class SideBySide(Displayed):
    """Two orders of each query, and what the clicks say of them."""

    queries: pa.Table  # query, sessions, top_changed, exposure_moved, gain, gain_error, width
    documents: pa.Table  # query, document, before, after (ranks), rate, low, high, raw, impressions, moved
    notes: tuple[str, ...] = ()
    curves: Mapping[str, Vector] = field(default_factory=dict)
    learning: tuple[tuple[int, float], ...] = ()  # step, validation
    out: Path | None = None

    def to_table(self) -> pa.Table:
        """One row per query: sessions, whether its top three change, exposure that moves, gain with its error."""
        return self.queries

    def to_json(self) -> dict[str, Any]:
        return {"out": None if self.out is None else str(self.out), "notes": list(self.notes), **self._summary()}

    def _summary(self) -> dict[str, float]:
        gain, error = (self.queries[name].to_numpy() for name in ("gain", "gain_error"))
        return {
            "queries": len(self.queries),
            "documents": len(self.documents),
            "top_changed": float(self.queries["top_changed"].to_numpy().mean()) if len(self.queries) else 0.0,
            "winners": int((gain > 1.96 * error).sum()),
            "losers": int((gain < -1.96 * error).sum()),
        }

    def screen(self) -> Screen:
        told = self._summary()
        lines = [
            f"The top {TOP} change in {told['top_changed']:.0%} of the queries.",
            f"By corrected clicks {told['winners']:,} queries gain and {told['losers']:,} lose beyond their intervals.",
            *self.notes,
        ]
        return Screen(f"{told['queries']:,} queries, {told['documents']:,} documents side by side", notes=lines)


def look(
    ranker: Any,
    log: LogOrPlace,
    out: Place | None = None,
    *,
    production: str | None = None,
    queries: int = 10_000,
    memory: str | None = MEMORY,
    overwrite: bool = False,
) -> SideBySide:
    """Show production's order and a ranker's side by side on one page, query by query, with the clicks behind them.

    `evaluate` and `compare` give numbers over all queries; this page shows single ones, for people.

    Args:
        ranker: a model, its folder, or an exported file.
        out: the page, one `.html` file that loads nothing; None: only the tables.
        production: the production ranker: since=DATE, score=COLUMN or logger=COLUMN:VALUE. Default: the shown order.
        queries: maximum number of queries, those with the most sessions.
        memory: limit for a log on disk; None: no limit. Of a larger log, a random sample of its queries is read.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> model = unskew.fit("naive", log, steps=3, progress=False)
    >>> unskew.look(model, log).to_table().column_names[:3]
    ['query', 'sessions', 'top_changed']
    """
    if out is not None:
        if Path(out).suffix != ".html":
            raise ValueError(f"{out}: the page is an .html file")
        check_place(Path(out), overwrite=overwrite)
    if isinstance(ranker, str | Path) and Path(ranker).is_dir():
        ranker = load_model(ranker)  # it also has a curve and a history
    saved, fitted = as_ranker(ranker), getattr(ranker, "model_", ranker)
    model = fitted if isinstance(fitted, Model) else None
    whole, _ = as_part(log, memory)
    shown, notes = _busiest(whole, queries)
    curves, curve, about = _curves(model, whole)
    page = _side_by_side(saved, shown, production_of_log(shown, production).scores, curve)
    notes = [*notes, *about, *_lineage_notes(saved, whole)]
    learning = () if model is None else tuple(model.history.column("validation"))
    result = SideBySide(*page, tuple(notes), curves, learning, None if out is None else Path(out))
    if out is not None:
        _write(result, Path(out), saved.name)
    return result


def _busiest(log: ClickLog, most: int) -> tuple[ClickLog, list[str]]:
    """The log of the queries with the most sessions, without feature changes: each document as it was shown most."""
    sessions = np.bincount(log.queries, log.sessions, len(log.query_ids))
    n_shown = int((sessions > 0).sum())
    if not n_shown:
        raise ValueError("the log shows no document: there is nothing to look at")
    notes = [] if n_shown <= most else [f"The {most:,} queries of {n_shown:,} with the most sessions."]
    return (log if n_shown <= most else log.of_queries(np.sort(np.argsort(-sessions, kind="stable")[:most]))), notes


def _curves(model: Model | None, log: ClickLog) -> tuple[dict[str, Vector], Vector, list[str]]:
    """Curves to draw, the one to correct clicks with, and where it comes from."""
    own = None if model is None else model.examination()
    if model is not None and own is not None and len(own) >= log.n_positions:
        return {"all": own, **model.examinations()}, own[: log.n_positions], ["Examination is the model's."]
    try:
        curve = estimate_propensities(log.without_features(), n_bootstrap=0).propensities(log.n_positions)
        return {"all": curve}, curve, ["Examination is estimated from the log."]
    except NotIdentified as error:
        return {}, np.ones(log.n_positions), [f"Click rates are not corrected for position: {error}."]


def _lineage_notes(saved: SavedRanker, log: ClickLog) -> list[str]:
    source = (saved.lineage.get("log") or {}).get("digest")
    same = source is not None and source == log.lineage.digest
    notes = [f"{lineage_line(saved.lineage)}; clicks of log {log.lineage.digest[:SHORT]}."] if saved.lineage else []
    return [*notes, *(["The ranker was trained on these clicks, so gains flatter it."] if same else [])]


def _side_by_side(saved: SavedRanker, log: ClickLog, production: Vector, curve: Vector) -> tuple[pa.Table, pa.Table]:
    """The tables of queries and documents."""
    shown = HeldOut(log)
    versions, queries = shown.candidates()
    documents = shown.log.version_documents[versions]
    impressions = shown.impressions
    times = np.bincount(impressions.documents, impressions.sessions, len(shown.log.features))[versions]
    last = np.lexsort((-times, documents))  # of several versions of a document, the one that was shown most
    kept = np.sort(last[np.diff(documents[last], prepend=-1) != 0])
    versions, queries, documents = versions[kept], queries[kept], documents[kept]
    lists = JudgedSet.from_arrays(shown.log.features[versions], np.zeros(len(versions)), np.bincount(queries))
    scores = np.asarray(score_documents(saved.for_judged(lists), lists), np.float64)
    before, after = (_ranks(each, queries) for each in (production[documents], scores))
    ratings = judgements(log, curve=curve).to_table()
    row = np.searchsorted(np.unique(log.documents[log.mask]), documents)
    rate, low, high, clicks, times = (
        ratings[name].to_numpy()[row] for name in ("rating", "low", "high", "clicks", "impressions")
    )
    moved = _moved(saved, lists, scores)
    exposure = [np.where(rank < CUTOFF, 1 / np.log2(2.0 + rank), 0.0) for rank in (before, after)]
    change, error = exposure[1] - exposure[0], (high - low) / 3.92
    n_queries = shown.n_queries

    def total(values: NDArray) -> Vector:
        return np.bincount(queries, values, n_queries).astype(np.float64)

    top = total(((after < TOP) != (before < TOP)) | ((after < TOP) & (before != after))) > 0
    table = pa.table(
        {
            "query": pa.array([str(each) for each in shown.query_ids]),
            "sessions": shown.sessions,
            "top_changed": top,
            "exposure_moved": total(np.abs(change)) / 2,
            "gain": total(change * rate),
            "gain_error": np.sqrt(total((change * error) ** 2)),
            "width": total((high - low) * (after < CUTOFF)) / np.maximum(total(after < CUTOFF), 1),
        }
    )
    deep = (before < DEEPEST) | (after < DEEPEST)
    order = np.lexsort((after, queries))
    order = order[deep[order]]
    columns = {"before": before + 1, "after": after + 1, "rate": rate, "low": low, "high": high}
    columns |= {"raw": clicks / times, "impressions": times}
    return table, pa.table(
        {
            "query": queries[order],
            "document": pa.array([str(each) for each in log.document_ids[documents[order]]]),
            **{name: values[order] for name, values in columns.items()},
            "moved": pa.array([moved[number] for number in order.tolist()]),
        }
    )


def _ranks(scores: Vector, queries: NDArray) -> NDArray[np.int64]:
    """The rank of each document in its query, from 0; those without a score come last."""
    order = np.lexsort((-scores, queries))  # NaN is last
    starts = np.flatnonzero(np.diff(queries[order], prepend=-1))
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return ranks


def _moved(saved: SavedRanker, lists: JudgedSet, scores: Vector) -> list[str]:
    """The features with the largest effect on each document, as text: name, value, and the direction."""
    if not lists.n_features:
        return [""] * lists.n_documents
    names = saved.feature_names or tuple(f"feature {number}" for number in range(lists.n_features))
    some = min(lists.n_queries, max(1, int(np.searchsorted(lists.offsets, SAMPLE, side="right")) - 1))
    part = lists.select(np.arange(some))
    size = [np.abs(_effect(saved, part, scores[: part.n_documents], number)).mean() for number in range(len(names))]
    tried = np.argsort(-np.array(size), kind="stable")[:FEATURES_TRIED]
    effects = np.stack([_effect(saved, lists, scores, number) for number in tried.tolist()])
    best = np.argsort(-np.abs(effects), axis=0, kind="stable")[:FEATURES_SHOWN]
    return [
        ", ".join(
            f"{'+' if effects[place, number] > 0 else '−'} {names[tried[place]]} "
            f"{_value(saved, names[tried[place]], lists.features[number, tried[place]])}"
            for place in best[:, number].tolist()
            if effects[place, number]
        )
        for number in range(lists.n_documents)
    ]


def _value(saved: SavedRanker, name: str, value: float) -> str:
    """A value of a feature, by its name if it is a category."""
    if np.isnan(value):
        return "missing"
    levels = saved.categories.get(name)
    if levels is not None:
        return levels[int(value)] if 0 <= value < len(levels) else "new"
    return f"{value:.4g}"


def _effect(saved: SavedRanker, lists: JudgedSet, scores: Vector, column: int) -> Vector:
    """How much of each score is lost when the documents of a query exchange their values of a feature."""
    place = np.arange(lists.n_documents) - np.repeat(lists.offsets[:-1], lists.sizes)
    first, sizes = np.repeat(lists.offsets[:-1], lists.sizes), np.repeat(lists.sizes, lists.sizes)
    lost = np.zeros(lists.n_documents)
    for shift in SHIFTS:
        features = lists.features.copy()
        features[:, column] = lists.features[first + (place + shift) % sizes, column]
        lost += scores - score_documents(saved.score, JudgedSet(features, lists.grades, lists.offsets))
    return lost / len(SHIFTS)


def _write(result: SideBySide, out: Path, name: str) -> None:
    """The page. What comes from the log is compressed JSON, which a browser shows as text and never as HTML."""
    columns = {
        name: {key: _plain(table[key]) for key in table.column_names}
        for name, table in (("queries", result.queries), ("documents", result.documents))
    }
    packed = gzip.compress(json.dumps(columns, allow_nan=False, separators=(",", ":")).encode(), mtime=0)
    figures = []
    if result.curves:
        lines: Any = {key: ([*range(1, len(curve) + 1)], curve.tolist()) for key, curve in result.curves.items()}
        figure = line_figure(lines, x_label="position", y_label="examination, relative to the top")
        figures.append(Drawn("examination", "How often each position is examined, relative to the top", figure))
    if result.learning:
        lines = {"held-out value": tuple(zip(*result.learning, strict=True))}
        figures.append(Drawn("learning", "Learning curve", line_figure(lines, x_label="step", y_label="validation")))
    write_page(
        out,
        "look.html.j2",
        title=f"Production and {name}, side by side",
        notes=[*result.screen().notes],
        figures=figures,
        top=TOP,
        data=base64.b64encode(packed).decode(),
    )


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Values for JSON; numbers with four digits."""
    if pa.types.is_floating(column.type):
        return [0.0 if not np.isfinite(value) else float(f"{value:.4g}") for value in column.to_numpy()]
    if pa.types.is_boolean(column.type):
        return [int(value) for value in column.to_pylist()]
    return column.to_pylist()
