"""Requests to rank: candidates as JSON, checked against what the ranker was trained on.

    {"query": "lamp", "candidates": [{"document": "a", "price": 9.5, "brand": "acme"}, {"document": "b", "price": 7}]}

A feature that is absent from some candidates, or null, is missing there; one that no candidate has is an error. What
the ranker does not use is ignored and named. Most requests take a short way through numpy. Sets and dates, and what the
short way refuses, go through a table with the rules of files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from unskew.data.columns import as_trained, listed, source_columns
from unskew.data.raw_columns import UNSEEN
from unskew.options import near
from unskew.serving.candidates import feature_columns
from unskew.serving.onnx_file import OnnxRanker
from unskew.serving.saved_ranker import SavedRanker, UnknownCounts

DOCUMENT, QUERY, CANDIDATES = "document", "query", "candidates"
NUMBERS, TEXTS = {float, int, bool, type(None)}, {str, type(None)}


class RequestError(ValueError):
    """A request that cannot be ranked, with the HTTP status of the answer."""

    def __init__(self, text: str, status: int = 422):
        super().__init__(text)
        self.status = status


class Requests:
    """Ranks requests with one ranker.

    Args:
        most: candidates of a request.
    """

    def __init__(self, ranker: SavedRanker, most: int = 10_000):
        self.ranker, self.most, self.counts = ranker, most, UnknownCounts(ranker)
        self.names = ranker.feature_names or tuple(f"f{number}" for number in range(ranker.n_features))
        self.codes = {  # code of each value, by name and column
            (name, self.names.index(name)): {None: np.nan} | {value: float(code) for code, value in enumerate(values)}
            for name, values in ranker.categories.items()
        }
        texts = [column for _, column in self.codes]
        self.numbers = np.setdiff1d(np.arange(len(self.names)), texts)
        names = [self.names[column] for column in self.numbers]
        self.numbers_of = itemgetter(*names) if len(names) > 1 else lambda row: tuple(row[name] for name in names)
        self.known = {*self.names, DOCUMENT}

    def rank(self, request: Any) -> dict[str, Any]:
        """The ranking of one query's candidates, best first, and how they differ from training."""
        if not isinstance(request, Mapping) or not isinstance(request.get(CANDIDATES), list):
            raise RequestError(f'send an object with a list of candidates: {{"{CANDIDATES}": [{{"price": 9.5}}]}}')
        rows: list[dict[str, Any]] = request[CANDIDATES]
        if not 0 < len(rows) <= self.most:
            raise RequestError(f"{len(rows):,} candidates: send from 1 to {self.most:,}")
        strange = set(request) - {QUERY, CANDIDATES}
        if strange:
            raise RequestError(f"unknown key '{min(strange)}'{near(min(strange), (QUERY, CANDIDATES))}")
        if set(map(type, rows)) != {dict}:
            row = next(number for number, row in enumerate(rows) if type(row) is not dict)
            raise RequestError(f"candidate {row}: send an object with its features, got {rows[row]!r:.40}")
        documents, ignored = self._documents(rows), self._ignored(rows)
        features = self._features(rows)
        counts = copy(self.counts)
        counts.add(features)
        scores = self._scores(request.get(QUERY), documents, features)
        if not np.isfinite(scores).all():
            raise RequestError("the ranker gave a score that is not finite: it is damaged", 500)
        order = np.argsort(-scores, kind="stable")  # equal scores keep their order
        pairs = zip(order.tolist(), scores[order].tolist(), strict=True)
        ranking = [{"document": documents[place], "score": score} for place, score in pairs]
        unlike = {"ignored": ignored, "filled": counts.filled(), "unseen": counts.unseen()}
        return {
            "query": request.get(QUERY),
            "ranking": ranking,
            **{name: each for name, each in unlike.items() if each},
        }

    def _scores(self, query: Any, documents: list[Any], features: NDArray[np.float32]) -> NDArray[np.float64]:
        if self.ranker.vocabulary is not None:
            return self.ranker.score_ids([str(query)] * len(documents), list(map(str, documents)), features).scores
        if isinstance(self.ranker.score, OnnxRanker) and self.ranker.score.flat:
            return self.ranker.score.score_rows(features).astype(np.float64)
        with torch.inference_mode():
            mask = torch.ones(1, len(features), dtype=torch.bool)
            return self.ranker.score(torch.from_numpy(features)[None], mask)[0].double().numpy()

    def _documents(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Ids of the candidates; their numbers if none has one."""
        ids = [row.get(DOCUMENT) for row in rows]
        if all(each is None for each in ids):
            return list(range(len(rows)))
        if set(map(type, ids)) <= {str, int} and len(set(ids)) == len(ids):
            return ids
        seen: dict[Any, int] = {}
        for row, each in enumerate(ids):
            if not isinstance(each, str | int) or isinstance(each, bool):
                raise RequestError(f"candidate {row}: '{DOCUMENT}' is {each!r:.40}: ids are text or whole numbers")
            if seen.setdefault(each, row) != row:
                raise RequestError(f"candidates {seen[each]} and {row} are both document {each!r}: send each once")
        return ids

    def _ignored(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Names that the ranker does not use."""
        usual = len(self.known)
        others = {name for row in rows if len(row) != usual or DOCUMENT not in row for name in row} - self.known
        sources = {name.partition("=")[0] for name in self.names if "=" in name}
        return sorted(others - sources)

    def _features(self, rows: Sequence[Mapping[str, Any]]) -> NDArray[np.float32]:
        """Raw features `[candidates, features]` in the order of training."""
        if not self.names:
            return np.zeros((len(rows), 0), dtype=np.float32)
        try:
            numbers = list(chain.from_iterable(map(self.numbers_of, rows)))
            texts = [[row[name] for row in rows] for name, _ in self.codes]
        except KeyError:
            return self._by_table(rows)  # some are missing, in sets, or named otherwise
        if not (set(map(type, numbers)) <= NUMBERS and set(map(type, chain(*texts))) <= TEXTS):
            return self._by_table(rows)
        matrix = np.empty((len(rows), len(self.names)), dtype=np.float32)
        try:
            with np.errstate(over="ignore"):
                matrix[:, self.numbers] = np.array(numbers, dtype=np.float32).reshape(len(rows), -1)  # None becomes NaN
        except OverflowError:
            return self._by_table(rows)
        for values, ((_, column), codes) in zip(texts, self.codes.items(), strict=True):
            matrix[:, column] = [codes.get(value, UNSEEN) for value in values]
        return self._finite(matrix)

    def _by_table(self, rows: Sequence[Mapping[str, Any]]) -> NDArray[np.float32]:
        """The same with the rules of files, whose errors name the column."""
        names = dict.fromkeys(name for row in rows for name in row if name != DOCUMENT)
        columns = {}
        for name in names:
            try:
                columns[name] = pa.array([row.get(name) for row in rows])
            except (pa.ArrowException, OverflowError) as error:
                reason = str(error).splitlines()[0]
                raise RequestError(f"'{name}': {reason}: send numbers or text, not both") from error
        table = pa.table(columns) if columns else pa.table({"": pa.nulls(len(rows))})
        missing = [name for name in self.names if not source_columns(table.schema, (name,))]
        if missing:
            hint = near(missing[0], set(names) - self.known)
            raise RequestError(f"no candidate has {listed(missing)}, which the ranker was trained on{hint}")
        try:
            if self.ranker.feature_names:
                feature_columns(table.schema, self.ranker, (DOCUMENT,), "the request")
            return self._finite(as_trained(table, self.names, self.ranker.categories))
        except ValueError as error:
            raise RequestError(str(error)) from error

    def _finite(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        if np.isinf(features).any():
            row, number = np.argwhere(np.isinf(features))[0]
            raise RequestError(f"candidate {row}: '{self.names[number]}' is not finite: send null if it is missing")
        return features
