"""JudgedSet: all judged documents of a data set in one matrix, grouped by query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import ArrayLike, NDArray

from unskew.display import Displayed, Screen
from unskew.lists import JudgedLists, shared_tensor


@dataclass(frozen=True, eq=False)
class JudgedSet(Displayed):
    """Judged documents with grades, query by query.

    `load` and `read_letor` read one; a `ClickLog` has clicks in place of grades.

    Documents of query `q` are the rows `offsets[q]:offsets[q + 1]`. Ids are integers if all of them are, otherwise
    strings. Documents without an id are numbered within their query.

    >>> JudgedSet.from_arrays([[0.3], [0.1], [0.7]], grades=[2, 0, 1], group=[2, 1])
    JudgedSet(2 queries, 3 documents, 1 features)
    """

    features: NDArray[np.float32]  # [documents, features]
    grades: NDArray[np.float32]  # [documents]
    offsets: NDArray[np.int64]  # [queries + 1]
    query_ids: NDArray = field(default=None)  # type: ignore[arg-type]  # [queries]
    document_ids: NDArray = field(default=None)  # type: ignore[arg-type]  # [documents]
    name: str = ""
    feature_names: tuple[str, ...] = ()  # empty: features are known by their number
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # names of text values, by feature

    def __post_init__(self) -> None:
        self._check_offsets()
        if self.query_ids is None:
            object.__setattr__(self, "query_ids", np.arange(self.n_queries))
        if self.document_ids is None:
            numbers = np.arange(self.n_documents) - np.repeat(self.offsets[:-1], self.sizes)
            object.__setattr__(self, "document_ids", numbers)
        self._check()

    @classmethod
    def from_arrays(cls, X: ArrayLike, grades: ArrayLike, group: ArrayLike, name: str = "") -> JudgedSet:
        """A set from a feature matrix, one grade per row and the number of rows per query, as in LightGBM."""
        sizes = np.asarray(group)
        if sizes.ndim != 1 or (len(sizes) and sizes.dtype.kind not in "iu"):
            raise ValueError(f"group must be whole numbers of rows per query, got {sizes.dtype} of shape {sizes.shape}")
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return cls(
            features=np.ascontiguousarray(X, dtype=np.float32),
            grades=np.asarray(grades, dtype=np.float32),
            offsets=offsets,
            name=name,
        )

    @property
    def n_queries(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_documents(self) -> int:
        return self.features.shape[0]

    @property
    def n_features(self) -> int:
        return self.features.shape[1]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Documents of each query."""
        return np.diff(self.offsets)

    @property
    def max_grade(self) -> float:
        return float(self.grades.max(initial=0.0))

    def select(self, queries: ArrayLike) -> JudgedSet:
        """The set of these queries only, by index or boolean mask, in the order given."""
        chosen = chosen_numbers(queries, self.n_queries, "queries")
        rows, offsets = ragged_rows(self.offsets, chosen)
        return self._part(rows, offsets, self.query_ids[chosen])

    def _part(self, rows: NDArray, offsets: NDArray[np.int64], query_ids: NDArray) -> JudgedSet:
        of_rows = {name: getattr(self, name)[rows] for name in ("features", "grades", "document_ids")}
        return replace(self, **of_rows, offsets=offsets, query_ids=query_ids)

    def select_documents(self, chosen: NDArray[np.bool_]) -> JudgedSet:
        """The set with these documents only, `[documents]`; queries without documents are removed."""
        owners = np.repeat(np.arange(self.n_queries), self.sizes)
        sizes = np.bincount(owners[chosen], minlength=self.n_queries)
        offsets = np.concatenate([[0], np.cumsum(sizes[sizes > 0])]).astype(np.int64)
        return self._part(chosen, offsets, self.query_ids[sizes > 0])

    def with_features(
        self,
        names: Sequence[str],
        categories: Mapping[str, tuple[str, ...]] | None = None,
        context: Sequence[str] = (),
    ) -> JudgedSet:
        """The set with these features, in this order, and categories numbered as in `categories`.

        A set without feature names is returned unchanged. Unknown text becomes -1.

        Args:
            context: those of the features that describe users and moments: if the set lacks one, it is missing (NaN).
        """
        if not names or not self.feature_names:
            return self
        unknown = tuple(name for name in names if name in context and name not in self.feature_names)
        if unknown:
            empty = np.full((self.n_documents, len(unknown)), np.nan, dtype=np.float32)
            wide = np.concatenate([self.features, empty], axis=1)
            texts = {name: () for name in unknown if name in (categories or {})}
            named, known = (*self.feature_names, *unknown), {**self.categories, **texts}
            return replace(self, features=wide, feature_names=named, categories=known).with_features(names, categories)
        missing = [name for name in names if name not in self.feature_names]
        if missing:
            raise ValueError(
                f"{self.name or 'the judged data'} lacks the feature '{missing[0]}': add the column, or join a table "
                f"of features. Found: {', '.join(self.feature_names)}"
            )
        features = self.features[:, [self.feature_names.index(name) for name in names]]
        wanted = {name: values for name, values in (categories or {}).items() if name in names}
        for column, name in enumerate(names):
            if (name in wanted) != (name in self.categories):
                kinds = ("text", "numbers") if name in self.categories else ("numbers", "text")
                raise ValueError(
                    f"feature '{name}' is {kinds[0]} in {self.name or 'the judged data'}, but {kinds[1]} in the log"
                )
            if name in wanted:
                features[:, column] = _renumbered(features[:, column], self.categories[name], wanted[name])
        return replace(self, features=features, feature_names=tuple(names), categories=wanted)

    def lists(self, queries: ArrayLike | None = None, n_docs: int | None = None) -> JudgedLists:
        """These queries (default: all) as padded tensors, as wide as the longest query or `n_docs`."""
        chosen = np.arange(self.n_queries) if queries is None else chosen_numbers(queries, self.n_queries, "queries")
        rows, mask = padded_rows(self.offsets, chosen, n_docs)
        features = shared_tensor(self.features)[torch.from_numpy(rows)]
        features[~torch.from_numpy(mask)] = 0.0
        grades = np.where(mask, self.grades[rows], np.float32(0))
        return JudgedLists(features=features, mask=torch.from_numpy(mask), grades=torch.from_numpy(grades))

    def batches(self, max_documents: int = 65_536) -> Iterator[tuple[NDArray[np.int64], JudgedLists]]:
        """All queries in batches of similar length, each with the indices of its queries.

        Sorting by length keeps padding small.
        """
        order = np.argsort(self.sizes, kind="stable")
        sizes = self.sizes[order]
        start = 0
        while start < len(order):
            ahead = sizes[start : start + max_documents]
            widths = ahead * np.arange(1, len(ahead) + 1)
            n = max(1, int(np.searchsorted(widths, max_documents, side="right")))
            yield order[start : start + n], self.lists(order[start : start + n])
            start += n

    def __repr__(self) -> str:
        label = f"{self.name}: " if self.name else ""
        return (
            f"JudgedSet({label}{self.n_queries:,} queries, {self.n_documents:,} documents, {self.n_features} features)"
        )

    def to_table(self) -> pa.Table:
        """One row per document: query, document, grade and the features; categories as text."""
        columns: dict[str, Any] = {
            "query": np.repeat(self.query_ids, self.sizes),
            "document": self.document_ids,
            "grade": self.grades,
        }
        names = self.feature_names or tuple(f"feature_{number}" for number in range(self.n_features))
        for number, name in enumerate(names):
            values, levels = self.features[:, number], self.categories.get(name)
            known = None if levels is None else [levels[int(code)] if code >= 0 else None for code in values]
            columns[name] = values if known is None else pa.array(known, pa.string())
        return pa.table(columns)

    def screen(self) -> Screen:
        grades, counts = np.unique(self.grades, return_counts=True)
        rows = [
            (f"{grade:g}", f"{count:,}", f"{count / self.n_documents:.1%}")
            for grade, count in zip(grades, counts, strict=True)
        ]
        return Screen(repr(self), ("grade", "documents", "share"), rows, left=0)

    def _check_offsets(self) -> None:
        if self.features.ndim != 2:
            raise ValueError(f"features must be a matrix [documents, features], got shape {self.features.shape}")
        sizes = np.diff(self.offsets)
        if len(self.offsets) == 0 or self.offsets[0] != 0 or (sizes < 0).any() or self.offsets[-1] != self.n_documents:
            raise ValueError(
                f"query sizes {sizes[:10].tolist()}{' …' * (len(sizes) > 10)} add up to {sizes.sum()}, but there are "
                f"{self.n_documents} rows: the group sizes must cover every row once"
            )

    def _check(self) -> None:
        if self.grades.shape != (self.n_documents,):
            raise ValueError(f"{self.n_documents} rows of features, but grades {self.grades.shape}: pass one per row")
        if not np.isfinite(self.grades).all():
            row = int(np.argmin(np.isfinite(self.grades)))
            raise ValueError(f"the grade of row {row} is {self.grades[row]}: grades must be finite; drop the row")
        if len(self.document_ids) != self.n_documents or len(self.query_ids) != self.n_queries:
            raise ValueError("ids do not match: pass one document id per row and one query id per query")


def _renumbered(numbers: NDArray[np.float32], old: Sequence[str], new: Sequence[str]) -> NDArray[np.float32]:
    """Category numbers of one vocabulary as those of another; -1 (`raw_columns.UNSEEN`) for values it does not have."""
    places = {text: float(number) for number, text in enumerate(new)}
    table = np.array([places.get(text, -1.0) for text in old] + [np.nan], dtype=np.float32)
    return table[np.where(np.isnan(numbers), len(old), np.nan_to_num(numbers)).astype(np.int64)]


def chosen_numbers(chosen: ArrayLike, n: int, what: str) -> NDArray[np.int64]:
    """The chosen numbers, from numbers or from a boolean mask."""
    numbers = np.asarray(chosen)
    if numbers.dtype == bool:
        if numbers.shape != (n,):
            raise ValueError(f"the mask has shape {numbers.shape}, but there are {n} {what}: pass one value each")
        return np.flatnonzero(numbers)
    return numbers.reshape(-1).astype(np.int64)


def ragged_rows(offsets: NDArray[np.int64], chosen: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the chosen groups, concatenated, and the offsets of the groups among them."""
    sizes = np.diff(offsets)[chosen]
    new_offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rows = np.arange(new_offsets[-1]) + np.repeat(offsets[:-1][chosen] - new_offsets[:-1], sizes)
    return rows, new_offsets


def padded_rows(
    offsets: NDArray[np.int64], chosen: NDArray, width: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Row numbers `[groups, width]` of the chosen groups, and their mask; padding points at row 0."""
    sizes = np.diff(offsets)[chosen]
    width = int(sizes.max(initial=0)) if width is None else width
    columns = np.arange(width)
    mask = columns[None, :] < sizes[:, None]
    rows = np.where(mask, offsets[:-1][chosen][:, None] + columns[None, :], 0)
    return rows, mask
