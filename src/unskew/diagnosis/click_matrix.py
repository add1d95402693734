"""The click matrix of a log: click rates of each kind of document at each position.

Kinds are grades if documents are judged; see `click_kinds` for a log without judgements. The examination hypothesis
says that the matrix of click rates has rank one, which `click_rank` tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet
from unskew.display import Displayed, Screen, new_axes
from unskew.propensities.curve import NotIdentified
from unskew.propensities.position_pairs import counted_impressions
from unskew.reporting.drawing import heatmap

Matrix = NDArray[np.float64]
Index = NDArray[np.int64]

SMALLEST = 1e-9  # impressions


@dataclass(frozen=True, eq=False, repr=False)
class ClickMatrix(Displayed):
    """Clicks and impressions of each kind of document at each position; no cell is empty."""

    kinds: tuple[str, ...]  # rows: "grade 0", …
    positions: Index  # columns
    rates: Matrix  # [kinds, positions], clicks per impression
    impressions: Matrix  # [kinds, positions]
    dispersion: float = 1.0  # variance of clicks relative to independent clicks of equal rate; at least 1
    covariances: Matrix | None = None  # [kinds, positions, positions], of log rates, if they are not plain counts
    left_out: tuple[str, ...] = ()  # kinds and positions with an empty cell

    def draw(self, rates: Matrix, n_draws: int, rng: Generator) -> Matrix:
        """Draw rates `[draws, kinds, positions]` that could have been counted if these were the true ones."""
        if self.covariances is not None:
            noise = [rng.multivariate_normal(np.zeros(len(part)), part, n_draws) for part in self.covariances]
            return rates * np.exp(np.stack(noise, axis=1))
        tosses = np.maximum(np.rint(self.impressions / self.dispersion), 1).astype(np.int64)
        return rng.binomial(tosses, np.clip(rates, 0.0, 1.0), size=(n_draws, *tosses.shape)) / tosses

    def rows(self) -> list[dict[str, Any]]:
        """One row per cell, for tables and files."""
        return [
            {
                "kind": kind,
                "position": int(position),
                "impressions": float(self.impressions[row, column]),
                "rate": float(self.rates[row, column]),
            }
            for row, kind in enumerate(self.kinds)
            for column, position in enumerate(self.positions)
        ]

    def to_table(self) -> pa.Table:
        """One row per cell: kind of document, position (from 0), impressions, rate."""
        return pa.Table.from_pylist(self.rows())

    def screen(self) -> Screen:
        rows: list[list[str]] = []
        for kind, rates, shown in zip(self.kinds, self.rates, self.impressions, strict=True):
            rows += [[kind, *(f"{rate:.4f}" for rate in rates)], ["", *(f"({n:,.0f})" for n in shown)]]
        columns = ("", *(str(position + 1) for position in self.positions))
        return Screen("Clicks per impression (impressions), by kind of document and position from 1", columns, rows)

    def plot(self, ax: Any = None) -> Any:
        """Plot the rates; darker cells have more clicks."""
        axes = new_axes(ax)
        heatmap(axes, self.rates, [str(position + 1) for position in self.positions], list(self.kinds), 3)
        axes.set_xlabel("position")
        return axes


def click_matrix(
    log: ClickLog, grades: JudgedSet | ArrayLike, *, counted: NDArray[np.bool_] | None = None
) -> ClickMatrix:
    """Click rates of each grade at each position.

    Args:
        grades: judged data with the log's query and document ids, or one grade per document of the log (NaN: not
            judged).
        counted: impressions that count, `[lists, docs]`; default: all.
    """
    check_counts(log)
    grade_of_document = _grades_of(log, grades)
    chosen = counted_impressions(log, counted) & ~np.isnan(grade_of_document)[log.versions]
    if not chosen.any():
        raise NotIdentified("no shown document is judged: check that log and judgements use the same ids")
    kinds, kind = np.unique(grade_of_document[log.versions[chosen]], return_inverse=True)
    positions, place = np.unique(log.positions[chosen].astype(np.int64), return_inverse=True)
    cell = kind * len(positions) + place
    shown = np.broadcast_to(log.sessions[:, None], log.mask.shape)[chosen].astype(np.float64)
    clicks = log.clicks[chosen].astype(np.float64)
    queries = np.broadcast_to(log.queries[:, None], log.mask.shape)[chosen]
    shape = (len(kinds), len(positions))
    impressions = _sums_of_cells(cell, shown, shape)
    return _without_empty_cells(
        ClickMatrix(
            kinds=tuple(f"grade {grade:g}" for grade in kinds),
            positions=positions,
            rates=_sums_of_cells(cell, clicks, shape) / np.maximum(impressions, SMALLEST),
            impressions=impressions,
            dispersion=_dispersion(queries, cell, clicks, shown),
        )
    )


def check_counts(log: ClickLog) -> None:
    """Refuse graded feedback, which has no rates."""
    if log.graded:
        raise ValueError("the feedback of this log is graded, but click rates need binary clicks")


def _grades_of(log: ClickLog, grades: JudgedSet | ArrayLike) -> NDArray[np.float64]:
    """The grade of each version of a document of the log; NaN if it is not judged."""
    if not isinstance(grades, JudgedSet):
        values = np.asarray(grades, dtype=np.float64)
        if values.shape != (log.n_documents,):
            raise ValueError(f"grades have shape {values.shape}, but the log has {log.n_documents} documents: one each")
        return values[log.version_documents]
    owners = np.repeat(grades.query_ids, grades.sizes)
    known = dict(
        zip(zip(owners.tolist(), grades.document_ids.tolist(), strict=True), grades.grades.tolist(), strict=True)
    )
    wanted = zip(log.query_ids[log.document_queries].tolist(), log.document_ids.tolist(), strict=True)
    return np.array([known.get(key, np.nan) for key in wanted])[log.version_documents]


def _sums_of_cells(cell: Index, values: NDArray, shape: tuple[int, int]) -> Matrix:
    """Sums of values that each belong to a cell of a matrix of this shape."""
    return np.bincount(cell, weights=values, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)


def _dispersion(queries: Index, cell: Index, clicks: NDArray, shown: NDArray) -> float:
    """Variance of a cell's clicks between queries, relative to that of independent clicks of equal rate.

    Documents of one kind differ, so a cell varies more between queries than independent clicks would.
    """
    rate = np.bincount(cell, weights=clicks) / np.maximum(np.bincount(cell, weights=shown), SMALLEST)
    _, part = np.unique(queries * (int(cell.max()) + 1) + cell, return_inverse=True)
    surplus = np.bincount(part, weights=clicks - shown * rate[cell])
    variance = float((shown * rate[cell] * (1 - rate[cell])).sum())
    return max(1.0, float((surplus**2).sum()) / variance) if variance > 0 else 1.0


def _without_empty_cells(matrix: ClickMatrix) -> ClickMatrix:
    """Leave out kinds, or positions, that have an empty cell, the emptiest first."""
    empty = matrix.impressions == 0
    kinds, places = np.arange(len(matrix.kinds)), np.arange(len(matrix.positions))
    left_out: list[str] = []
    while (hole := empty[np.ix_(kinds, places)]).any():
        by_kind, by_place = hole.mean(axis=1), hole.mean(axis=0)
        if by_kind.max() >= by_place.max():
            left_out.append(matrix.kinds[kinds[by_kind.argmax()]])
            kinds = np.delete(kinds, by_kind.argmax())
        else:
            left_out.append(f"position {matrix.positions[places[by_place.argmax()]] + 1}")
            places = np.delete(places, by_place.argmax())
    if len(kinds) < 2 or len(places) < 2:
        raise NotIdentified(
            "a click matrix needs two kinds of documents that were both shown at two positions. Left out, because of "
            f"empty cells: {', '.join(left_out) or 'nothing'}"
        )
    part = np.ix_(kinds, places)
    return ClickMatrix(
        kinds=tuple(matrix.kinds[number] for number in kinds),
        positions=matrix.positions[places],
        rates=matrix.rates[part],
        impressions=matrix.impressions[part],
        dispersion=matrix.dispersion,
        left_out=tuple(left_out),
    )
