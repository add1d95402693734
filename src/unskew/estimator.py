"""UnbiasedRanker: fit and predict, as users of scikit-learn and LGBMRanker expect."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from unskew.data.checks import check_features
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.log_from_arrays import vector
from unskew.data.clicks.shown_rows import ShownRows, list_of_rows
from unskew.data.columns import as_features, listed
from unskew.data.inputs import LogOrPlace, as_log
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.raw_columns import missing_in_training
from unskew.evaluation.evaluate import evaluate_scorer, score_documents
from unskew.learning import AUTO, DEFAULT_METHOD, choose_and_fit, fit, warn_unless_better
from unskew.reporting.terminal import Follow
from unskew.simulation.truth import Simulation
from unskew.training.model import Model
from unskew.training.watching import Watch


class UnbiasedRanker(BaseEstimator):
    """A ranker learned from clicks.

    Use `unskew.fit` if you have a `ClickLog`; both train the same way.

    Pass raw features: the model chooses its feature transform from the training data. For cross-validation, let
    scikit-learn slice `query` and `position`: `sklearn.set_config(enable_metadata_routing=True)`, then
    `ranker.set_fit_request(query=True, position=True).set_score_request(query=True)` and, as splitter, `GroupKFold`.

    Args:
        method: name of a method; `unskew methods` lists them. "auto", the default, chooses one by held-out clicks,
            which takes up to six trainings, and warns if the ranker is not known to be better than production.
            A name, such as "dla", trains once.
        seed: random seed; the same seed gives the same ranker.
        hyper_parameters: of the method (`max_weight=10`), of training (`steps`, `learning_rate`, `patience`, …), of the
            network (`hidden`, `network="linear"`, …), and `transform`.

    Attributes:
        model_: the fitted model; save it with `unskew.save_model(ranker.model_, folder)`.
        examination_: the learned examination curve relative to the top, if the method has one.
        history_: loss terms and validation by step.
        verdict_: with `method="auto"`, the choice, its reason, and how it compares with production.

    >>> X, clicks = [[0.3], [0.1], [0.7], [0.2]], [1, 0, 1, 0]
    >>> ranker = UnbiasedRanker("naive", steps=3).fit(X, clicks, group=[2, 2])
    >>> ranker.predict(X).shape
    (4,)
    """

    def __init__(self, method: str = DEFAULT_METHOD, seed: int = 0, **hyper_parameters: Any):
        self.method = method
        self.seed = seed
        self.hyper_parameters = hyper_parameters

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        return {"method": self.method, "seed": self.seed, **self.hyper_parameters}

    def set_params(self, **params: Any) -> UnbiasedRanker:
        for name, value in params.items():
            if name in ("method", "seed"):
                setattr(self, name, value)
            else:
                self.hyper_parameters = {**self.hyper_parameters, name: value}
        return self

    def fit(
        self,
        X: Any,
        clicks: ArrayLike | None = None,
        group: ArrayLike | None = None,
        position: ArrayLike | None = None,
        sessions: ArrayLike | None = None,
        *,
        query: Any = None,
        session: Any = None,
        document: Any = None,
        bias: Any = None,
        policy_score: ArrayLike | None = None,
        intervention: Any = None,
        interventions: LogOrPlace | None = None,
        eval_set: Any = None,
        eval_group: Any = None,
        progress: Follow = True,
        watch: Watch | None = None,
    ) -> UnbiasedRanker:
        """Train on shown lists.

        Args:
            X: one feature row per shown document (numpy, pandas, polars or pyarrow), or a ClickLog or its path.
                Tables may have text, categorical and boolean columns.
            clicks: 0 or 1 per row, or counts if `sessions` gives the number of times each list was shown.
            group: number of rows per list, as in LightGBM; rows within a list may be in any order.
            position: position of each row, from 0; default: the rows of a list are in shown order.
            sessions: number of times each list was shown: one value per list, or one per row, equal within a list.
            query: instead of `group`, the list id of each row; cross-validation can slice it. With `document`, the
                query id: then `group` or `session` distinguishes the showings of a query.
            session: instead of `group`, the id of the showing of each row.
            document: document id of each row. The same document of a query at several positions identifies
                propensities: `ipw` needs this unless you pass propensities.
            bias: columns besides position that may change examination (`{"device": values}`, or a table), one value
                per row or per list; text and whole numbers are levels.
            policy_score: the score by which each row was ranked in production.
            intervention: the intervention that changed the order ("shuffle", …, or "none"), per row or list.
            interventions: a log with randomized or swapped rankings, for methods that need one; default: the lists that
                `intervention` marks.
            eval_set: `(X, grades, group)` of judged queries, or a JudgedSet, to choose the best state by. "auto" cannot
                use it, nor `interventions` and `watch`: with one of them it trains `dla` and warns.
            eval_group: the group sizes if `eval_set` is `[(X, grades)]` as in LightGBM: `[group]`.
            progress: False for no bar, or a function that receives a `Report`; with "auto", the number of finished
                and of all trainings.
            watch: a callable that receives every step and every validation of a named method.
        """
        if isinstance(X, ClickLog | Simulation | str | Path):
            log = as_log(X)
        else:
            known = (query, session, document, bias, policy_score, intervention)
            log = ShownRows(clicks, group, position, sessions, *known).log(X)
        names = log.feature_names
        options = {**self.hyper_parameters, "seed": self.seed, "progress": progress}
        only_named: dict[str, Any] = {
            "interventions": interventions,
            "validate": None if eval_set is None else _judged(eval_set, eval_group, log),
            "watch": watch,
        }
        if isinstance(self.method, str) and self.method == AUTO:
            chosen = choose_and_fit(log, only_named=only_named, **options)
            self.model_: Model = chosen.model
            self.verdict_ = chosen.verdict
            warn_unless_better(chosen)
        else:
            self.model_ = fit(self.method, log, **only_named, **options)
            self.__dict__.pop("verdict_", None)
        self.history_ = self.model_.history
        self.examination_ = self.model_.examination()
        self.n_features_in_ = log.n_features
        if names:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def predict(self, X: Any, group: ArrayLike | None = None, *, query: Any = None) -> NDArray[np.float64]:
        """One score per row; higher is better. Without `group` or `query` all rows are one list."""
        matrix = self._matrix(X)
        if len(matrix) == 0:
            return np.zeros(0)
        lists = list_of_rows(len(matrix), group, query) if group is not None or query is not None else None
        order = np.arange(len(matrix)) if lists is None else np.argsort(lists, kind="stable")
        sizes = np.array([len(matrix)]) if lists is None else np.bincount(lists)
        scores = np.empty(len(matrix))
        rows = JudgedSet.from_arrays(matrix[order], np.zeros(len(matrix)), sizes)
        scores[order] = score_documents(self.model_.ranker(), rows)
        return scores

    def score(self, X: Any, y: ArrayLike, group: ArrayLike | None = None, *, query: Any = None) -> float:
        """Mean nDCG@10 of the ranking against `y`. Pass grades: with clicks it measures only agreement with clicks."""
        matrix = self._matrix(X)
        lists = list_of_rows(len(matrix), group, query)
        order = np.argsort(lists, kind="stable")
        judged = JudgedSet.from_arrays(matrix[order], vector(y)[order], np.bincount(lists))
        return evaluate_scorer(self.model_.ranker(), judged, ("ndcg@10",), undefined="skip").mean("ndcg@10")

    def _matrix(self, X: Any) -> NDArray[np.float32]:
        """Features of the documents to rank, in the order of training."""
        check_is_fitted(self, "model_")
        matrix = _features(X, tuple(getattr(self, "feature_names_in_", ())), self.model_.categories)
        if matrix.shape[1] != self.n_features_in_:
            raise ValueError(f"X has {matrix.shape[1]} features, but the ranker was fitted on {self.n_features_in_}")
        self._count_missing(matrix)
        return matrix

    def _count_missing(self, matrix: NDArray[np.float32]) -> None:
        """Warn of columns that have missing values but had none in training: there the ranker guesses."""
        missing = np.isnan(matrix).sum(axis=0)
        missing[missing_in_training(self.model_.transform) or []] = 0
        if missing.any():
            names = getattr(self, "feature_names_in_", None)
            columns = ", ".join(
                f"{f'number {column}' if names is None else names[column]} ({missing[column]:,})"
                for column in np.flatnonzero(missing)
            )
            warnings.warn(
                f"missing values filled in columns that had none in training: {columns}", RuntimeWarning, stacklevel=4
            )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _features(X: Any, fitted: tuple[str, ...], categories: Mapping[str, tuple[str, ...]]) -> NDArray[np.float32]:
    """Features of rows, in the order of the fitted names; columns of a table are found by name."""
    matrix, names, _ = as_features(X, categories)
    check_features(matrix, names, what="row")
    if not names or not fitted or names == fitted:
        return matrix
    missing = [name for name in fitted if name not in names]
    extra = [name for name in names if name not in fitted]
    if missing:
        raise ValueError(
            f"X does not have {listed(missing)}, which the ranker was fitted on"
            + (f"; it has {listed(extra)} instead" if extra else "")
        )
    if extra:
        raise ValueError(
            f"X has {listed(extra)}, which the ranker was not fitted on: pass X[list(ranker.feature_names_in_)]"
        )
    return matrix[:, [names.index(name) for name in fitted]]


def _judged(eval_set: Any, eval_group: Any, log: ClickLog) -> JudgedSet:
    if isinstance(eval_set, JudgedSet):
        return eval_set
    if isinstance(eval_set, list) and len(eval_set) == 1:  # LightGBM's form
        eval_set = eval_set[0]
    if eval_group is not None and isinstance(eval_set, tuple) and len(eval_set) == 2 and len(eval_group) == 1:
        eval_set = (*eval_set, eval_group[0])
    try:
        X, grades, group = eval_set
    except (TypeError, ValueError) as error:
        raise ValueError(
            "eval_set must be one set of judged queries: (X, grades, group), [(X, grades)] with eval_group=[group], "
            "or a JudgedSet"
        ) from error
    matrix = _features(X, log.feature_names, log.categories)
    return JudgedSet.from_arrays(matrix, vector(grades), vector(group))
