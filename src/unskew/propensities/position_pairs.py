r"""Position pairs: documents that were shown at two positions, and how they were clicked at each.

Such a document is equally relevant at both positions, so its clicks show the effect of the positions. For positions $k$
and $l$, $\hat c_k^{kl} = \sum_d \omega_d\, c_d(k)$ sums the clicks at $k$ of all documents shown at both; $c_d(k)$ are
the clicks of document $d$ at $k$, and the weight $\omega_d$ makes the $w_d(k)$ impressions there comparable with the
$w_d(l)$ at $l$. A document belongs to one query and is one version: the same page for another query, or with other
features, is another document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from unskew.data.clicks.click_log import ClickLog
from unskew.propensities.curve import NotIdentified, Vector

PAIRS_AT_ONCE = 2_000_000  # in memory while counting

Index = NDArray[np.int64]

# Weight of a click at one position, from the document's impressions there and at the other position.
WEIGHTINGS: dict[str, Callable[[Vector, Vector], Vector]] = {
    "documents": lambda own, other: 1 / own,  # noqa: ARG005  each document counts once (Agarwal et al.)
    "shared": lambda own, other: np.minimum(own, other) / own,  # each counts with its impressions at the rarer position
}


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Clicks of documents that were shown at two positions."""

    positions: Index  # [positions], those that occur
    n_impressions: Vector  # [positions]
    documents: Index  # [positions, positions], number shown at both; the diagonal: shown there
    shared: Vector  # [positions, positions], their impressions at the rarer position
    per_query: sparse.csr_array  # [queries, 2 x positions x positions]: clicks, then non-clicks, at the first of a pair

    @property
    def n_positions(self) -> int:
        return len(self.positions)

    def sums(self, flat: Vector) -> tuple[Vector, Vector]:
        """Clicks and non-clicks `[..., positions, positions]` from sums over rows of `per_query`."""
        both = flat.reshape(*flat.shape[:-1], 2, self.n_positions, self.n_positions)
        return both[..., 0, :, :], both[..., 1, :, :]

    def total(self) -> tuple[Vector, Vector]:
        """Clicks and non-clicks of all queries, `[positions, positions]`."""
        return self.sums(np.asarray(self.per_query.sum(axis=0), dtype=np.float64).reshape(-1))


@dataclass(frozen=True, eq=False)
class Coverage:
    """Which positions a log can compare, because the same documents were shown at both."""

    positions: Index  # [positions], those that occur
    documents: Index  # [positions, positions], number shown at both; the diagonal: shown there
    impressions: Vector  # [positions, positions], their impressions at the rarer position
    components: list[tuple[int, ...]]  # positions that are linked, the one with the top position first

    @property
    def connected(self) -> bool:
        """Whether every position can be compared with every other, directly or through others."""
        return len(self.components) == 1


def intervention_coverage(log: ClickLog, *, counted: NDArray[np.bool_] | None = None) -> Coverage:
    """The number of documents, and of their impressions, that link each pair of positions."""
    pairs = count_pairs(log, counted=counted)
    return Coverage(pairs.positions, pairs.documents, pairs.shared, components(pairs.documents > 0, pairs.positions))


def components(linked: NDArray[np.bool_], positions: Index, *, both_ways: bool = False) -> list[tuple[int, ...]]:
    """Groups of linked positions, directly or through others; `both_ways`: linked in both directions."""
    n_groups, group = csgraph.connected_components(linked, connection="strong" if both_ways else "weak")
    found = [tuple(positions[group == number].tolist()) for number in range(n_groups)]
    return sorted(found)


def count_pairs(
    log: ClickLog,
    *,
    weighting: str = "documents",
    counted: NDArray[np.bool_] | None = None,
    across_versions: bool = False,
) -> PairCounts:
    """Count clicks over all documents and positions of a log.

    Args:
        weighting: documents (each counts once) or shared (each counts with its impressions at the rarer position).
        counted: impressions that count, `[lists, docs]`; default: all.
        across_versions: also compare a document with itself after its features changed. If a better price moved it up,
            its relevance changed with the position, and the change is mistaken for examination.
    """
    if weighting not in WEIGHTINGS:
        raise ValueError(f"unknown weighting '{weighting}': choose one of {', '.join(WEIGHTINGS)}")
    cells = _count_cells(log, counted, across_versions=across_versions)
    n_positions = len(cells.positions)
    documents = np.diag(np.bincount(cells.places, minlength=n_positions))
    n_impressions = np.bincount(cells.places, weights=cells.shown, minlength=n_positions)
    shared = np.diag(n_impressions)
    parts = []
    for queries, rows in _slabs(cells):
        one, other = pairs_of_documents(cells.documents[rows])
        one, other = one + rows.start, other + rows.start
        pair = cells.places[one] * n_positions + cells.places[other]
        least = np.minimum(cells.shown[one], cells.shown[other])
        documents += _both_ways(np.bincount(pair, minlength=n_positions**2), n_positions)
        shared += _both_ways(np.bincount(pair, weights=least, minlength=n_positions**2), n_positions)
        parts.append(_sums_of_queries(cells, queries, one, other, WEIGHTINGS[weighting]))
    per_query = sparse.csr_array(sparse.vstack(parts, format="csr"))
    return PairCounts(cells.positions, n_impressions, documents, shared, per_query)


def counted_impressions(log: ClickLog, counted: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """Impressions that count, without padding."""
    if counted is None:
        chosen = log.mask
    elif counted.shape != log.mask.shape:
        raise ValueError(f"counted has shape {counted.shape}, but the log has {log.mask.shape}: they must agree")
    else:
        chosen = log.mask & counted
    if not chosen.any():
        raise NotIdentified("no impression is counted: the log, or the selected part of it, is empty")
    return chosen


def spell(positions: Sequence[int] | Index) -> str:
    """Positions for a message, counted from 1: position 3, or positions 3, 5, 6."""
    return f"position{'s' if len(positions) > 1 else ''} {', '.join(str(position + 1) for position in positions)}"


def how_to_leave_out(first: int) -> str:
    """How to leave out this position and all below it in Python, where positions count from 0."""
    return f"in Python, where positions count from 0, exclude the last ones with counted=log.positions < {first}"


@dataclass(frozen=True, eq=False)
class _Cells:
    """One row per document and position where it was shown, sorted by query, document and position."""

    queries: Index  # counted from 0 without gaps
    documents: Index  # versions of documents, unless versions are compared with each other
    places: Index  # of `positions`
    clicks: Vector
    shown: Vector
    positions: Index


def _count_cells(log: ClickLog, counted: NDArray[np.bool_] | None, *, across_versions: bool) -> _Cells:
    chosen = counted_impressions(log, counted)
    numbers, owners = log.versions, log.version_queries
    if across_versions:
        numbers, owners = log.documents, log.document_queries
    positions, places = np.unique(log.positions[chosen].astype(np.int64), return_inverse=True)
    keys = numbers[chosen].astype(np.int64) * len(positions) + places
    cells, cell = np.unique(keys, return_inverse=True)
    shown = np.broadcast_to(log.sessions[:, None], log.mask.shape)[chosen]
    documents, place = np.divmod(cells, len(positions))
    _, queries = np.unique(owners[documents], return_inverse=True)
    order = np.argsort(queries, kind="stable")
    return _Cells(
        queries=queries[order],
        documents=documents[order],
        places=place[order],
        clicks=np.bincount(cell, weights=log.clicks[chosen])[order],
        shown=np.bincount(cell, weights=shown)[order],
        positions=positions,
    )


def _slabs(cells: _Cells) -> Iterator[tuple[range, slice]]:
    """Whole queries and their rows, in slabs whose pairs fit into memory."""
    starts = np.flatnonzero(np.diff(cells.queries, prepend=-1))  # first row of each query
    ends_of_pairs = np.cumsum(_n_later(cells.documents))
    pairs_before = np.concatenate([[0], ends_of_pairs])[starts]
    cuts = np.searchsorted(pairs_before, np.arange(0, int(ends_of_pairs[-1]) + 1, PAIRS_AT_ONCE))
    bounds = np.unique(np.concatenate([[0], cuts, [len(starts)]]))
    rows = np.concatenate([starts, [len(cells.queries)]])
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield range(first, last), slice(int(rows[first]), int(rows[last]))


def _n_later(documents: Index) -> Index:
    """The number of later rows of the same document, for each row."""
    new = np.flatnonzero(np.diff(documents, prepend=-1))
    sizes = np.diff(np.append(new, len(documents)))
    return np.repeat(new + sizes, sizes) - np.arange(len(documents)) - 1


def pairs_of_documents(documents: Index) -> tuple[Index, Index]:
    """Every pair of rows of the same document, the upper position first."""
    later = _n_later(documents)
    one = np.repeat(np.arange(len(documents)), later)
    first_pair = np.cumsum(later) - later
    return one, one + 1 + np.arange(len(one)) - first_pair[one]


def _both_ways(counts: NDArray, n_positions: int) -> NDArray:
    matrix = counts.reshape(n_positions, n_positions)
    return matrix + matrix.T


def _sums_of_queries(
    cells: _Cells, queries: range, one: Index, other: Index, weight: Callable[[Vector, Vector], Vector]
) -> sparse.csr_array:
    """Weighted clicks and non-clicks of pairs of rows, `[queries, 2 x positions x positions]`."""
    n_positions = len(cells.positions)
    here, there = np.concatenate([one, other]), np.concatenate([other, one])
    weights = weight(cells.shown[here], cells.shown[there])
    clicks = cells.clicks[here]
    pair = cells.places[here] * n_positions + cells.places[there]
    values = np.concatenate([weights * clicks, weights * (cells.shown[here] - clicks)])
    columns = np.concatenate([pair, pair + n_positions**2])
    rows = np.tile(cells.queries[here] - queries.start, 2)
    return sparse.csr_array(sparse.coo_array((values, (rows, columns)), shape=(len(queries), 2 * n_positions**2)))
