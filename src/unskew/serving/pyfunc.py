"""A model as an MLflow pyfunc: a table of documents in, one score per document out.

MLflow finds `_load_pyfunc` by the name of this module, and passes it the folder of the saved model: it stores data, not
pickled code. Columns are those of the log, with text for categories; a `query` column groups documents into lists, and
without one all rows are one list.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.columns import as_arrow, as_trained, is_table
from unskew.data.grouping import number_ids
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import score_documents
from unskew.serving.candidates import feature_columns
from unskew.serving.saved_ranker import SavedRanker, open_ranker

QUERY = "query"


class RankingModel:
    """The model that `mlflow.pyfunc.load_model` runs."""

    def __init__(self, ranker: SavedRanker):
        self.ranker = ranker

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> NDArray[np.float64]:  # noqa: ARG002
        """One score per row: of a table, or of a matrix `[documents, features]` in the order of training."""
        lists = np.zeros(len(model_input), dtype=np.int64)
        if is_table(model_input):
            table = as_arrow(model_input)
            names = feature_columns(table.schema, self.ranker, (QUERY,), "the input")
            features = as_trained(table, names, self.ranker.categories)
            if QUERY in table.column_names:
                lists = number_ids(table[QUERY].to_numpy(zero_copy_only=False))[1]
        else:
            features = np.asarray(model_input, dtype=np.float32)
        order = np.argsort(lists, kind="stable")
        judged = JudgedSet.from_arrays(features[order], np.zeros(len(features)), np.bincount(lists))
        found = np.empty(len(features))
        found[order] = score_documents(self.ranker.for_judged(judged), judged)
        return found


def _load_pyfunc(path: str) -> RankingModel:
    return RankingModel(open_ranker(Path(path)))
