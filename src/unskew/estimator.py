"""UnbiasedRanker: fit and predict, as users of scikit-learn, LGBMRanker and XGBRanker expect.

Their names have one meaning here: `qid` is `query`, `random_state` is `seed`, `early_stopping_rounds` is `patience`.
What a call leaves open is assumed, and a warning says what.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from unskew.comparison.learning import AUTO, DEFAULT_METHOD, choose_and_fit, fit, warn_unless_better
from unskew.data.checks import check_features
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.log_from_arrays import lists_of_rows, vector
from unskew.data.clicks.shown_rows import LONGEST_LIST, ONE_LIST, ShownRows, assume
from unskew.data.columns import as_arrow, as_features, is_table, listed
from unskew.data.inputs import LogOrPlace, as_log
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import evaluate_scorer, score_documents
from unskew.methods import METHODS
from unskew.options import near
from unskew.reporting.terminal import Follow
from unskew.serving.distillation import documents_by_query
from unskew.serving.explanation import Explanation, explain
from unskew.serving.saved_ranker import SavedRanker, UnknownCounts
from unskew.simulation.truth import Simulation
from unskew.training.history import Report
from unskew.training.model import Model
from unskew.training.recipe import option_names, with_trees
from unskew.training.watching import Watch

SYNONYMS = {
    "random_state": "seed",
    "early_stopping_rounds": "patience",
    "n_estimators": "trees",
    "num_leaves": "leaves",
    "min_child_samples": "rows_in_leaf",
}
ROLE_COLUMNS = ("qid", "position")  # columns of a table X that are no features
EXPLAINED_LISTS = 200  # a fitted ranker keeps their features, for `feature_importances_`


class UnbiasedRanker(BaseEstimator):
    """A ranker learned from clicks.

    Use `unskew.fit` if you have a `ClickLog`; both train the same way.

    Pass raw features: the model chooses its feature transform from the training data. A table X may hold the list id
    and the position of each row as columns `qid` and `position`: they are no features, and cross-validation slices
    them with the rows, `cross_val_score(ranker, X, y, groups=X["qid"], cv=GroupKFold())`. Or route them as arguments:
    `sklearn.set_config(enable_metadata_routing=True)`, then
    `ranker.set_fit_request(qid=True, position=True).set_score_request(qid=True)`.

    Args:
        method: name of a method; `unskew methods` lists them. "auto", the default, chooses one by held-out clicks,
            which takes up to six trainings, and warns if the ranker is not known to be better than production.
            A name, such as "dla", trains once.
        seed: random seed; the same seed gives the same ranker. `random_state` is another name for it.
        hyper_parameters: of the method (`max_weight=10`), of training (`steps`, `learning_rate`, `patience`, …), of the
            network (`hidden`, `network="linear"` or "trees", …), and `transform`. `early_stopping_rounds` is another
            name for `patience`. With LightGBM's `n_estimators`, `num_leaves` or `min_child_samples` the ranker is trees
            of LightGBM, as with `network="trees"`, and `learning_rate` is theirs. A name that no method knows is
            refused here, one that the chosen method lacks in `fit`.

    Attributes:
        model_: the fitted model; save it with `unskew.save_model(ranker, folder)`.
        examination_: the learned examination curve relative to the top, if the method has one.
        feature_importances_: by how much the order of the training lists changes if a feature is shuffled.
        history_: loss terms and validation by step.
        verdict_: with `method="auto"`, the choice, its reason, and how it compares with production.

    >>> X, clicks = [[0.3], [0.1], [0.7], [0.2]], [1, 0, 1, 0]
    >>> ranker = UnbiasedRanker("naive", steps=3).fit(X, clicks, group=[2, 2], position=[0, 1, 0, 1])
    >>> ranker.predict(X).shape
    (4,)
    """

    def __init__(self, method: str = DEFAULT_METHOD, seed: int = 0, **hyper_parameters: Any):
        self.method = method
        self.seed = seed
        self.set_params(**hyper_parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        return {name: value for name, value in vars(self).items() if name[0] != "_" and name[-1] != "_"}

    def set_params(self, **params: Any) -> UnbiasedRanker:
        """Set hyper-parameters by name; a name that no method knows is refused."""
        own = params.get("method", self.method)
        known = {*_known_options(), *(option_names([own]) if isinstance(own, type) else ()), *SYNONYMS}
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"no method has the parameter '{name}'{near(name, known)}: `unskew methods` lists all")
            if name in SYNONYMS and SYNONYMS[name] in params:
                raise ValueError(f"'{name}' and '{SYNONYMS[name]}' are the same parameter: pass one of them")
            setattr(self, SYNONYMS.get(name, name), 0 if name == "random_state" and value is None else value)
        return self

    def fit(
        self,
        X: Any,
        y: Any = None,
        group: ArrayLike | None = None,
        position: ArrayLike | None = None,
        sessions: ArrayLike | None = None,
        *,
        query: Any = None,
        qid: Any = None,
        session: Any = None,
        document: Any = None,
        bias: Any = None,
        policy_score: ArrayLike | None = None,
        intervention: Any = None,
        interventions: LogOrPlace | None = None,
        sample_weight: Any = None,
        eval_set: Any = None,
        eval_group: Any = None,
        eval_qid: Any = None,
        eval_at: Sequence[int] | None = None,
        callbacks: Sequence[Callable[..., Any]] = (),
        progress: Follow = True,
        watch: Watch | None = None,
        clicks: Any = None,
    ) -> UnbiasedRanker:
        """Train on shown lists.

        Args:
            X: one feature row per shown document (numpy, pandas, polars or pyarrow), or a ClickLog or its path.
                Text is a category, in tables and in numpy arrays.
            y: clicks, 0 or 1 per row; counts, if `sessions` gives the number of times each list was shown; or graded
                feedback such as purchases and ratings. `clicks` is another name for it.
            group: number of rows per list, as in LightGBM; rows within a list may be in any order.
            position: position of each row, from 0 or from 1; default: the rows of a list are in shown order.
            sessions: number of times each list was shown: one value per list, or one per row, equal within a list.
            query: instead of `group`, the list id of each row. With `document`, the query id: then `group` or `session`
                distinguishes the showings of a query. `qid` is another name for it.
            session: instead of `group`, the id of the showing of each row.
            document: document id of each row. The same document of a query at several positions identifies
                propensities: `ipw` needs this unless you pass propensities.
            bias: columns besides position that may change examination (`{"device": values}`, or a table), one value
                per row or per list; text and whole numbers are levels.
            policy_score: the score by which each row was ranked in production.
            intervention: the intervention that changed the order ("shuffle", …, or "none"), per row or list.
            interventions: a log with randomized or swapped rankings, for methods that need one; default: the lists that
                `intervention` marks.
            sample_weight: one per list, or one per row. Equal in all rows of a list, it is the weight of the list;
                otherwise it multiplies the feedback of its row, so a click of weight 2 counts as two.
            eval_set: `(X, grades, group)` of judged queries, or a JudgedSet, to choose the best state by. "auto" cannot
                use it, nor `interventions` and `watch`: with one of them it trains `dla` and warns.
            eval_group: the group sizes if `eval_set` is `[(X, grades)]` as in LightGBM: `[group]`.
            eval_qid: instead of `eval_group`, the list id of each row, as in XGBoost: `[qid]`.
            eval_at: the cutoff of nDCG on `eval_set`, as in LightGBM: the first one counts.
            callbacks: callables that receive every step and every validation. Of LightGBM's, `early_stopping` sets
                `patience`, and `log_evaluation` shows the progress.
            progress: False for no bar, or a function that receives a `Report`; with "auto", the number of finished
                and of all trainings.
            watch: a callable that receives every step and every validation of a named method.
        """
        y, query = _one_of(y, clicks, "y and clicks"), _one_of(query, qid, "query and qid")
        named = True
        if isinstance(X, ClickLog | Simulation | str | Path):
            log = as_log(X)
        else:
            X, roles = _without_roles(X if hasattr(X, "__len__") else np.asarray(X))
            query = _one_of(query, None if group is not None else roles.get("qid"), "query and X's column 'qid'")
            position = _one_of(position, roles.get("position"), "position and X's column 'position'")
            named, X = is_table(X), _named_text(X)
            if getattr(X, "shape", (0, 1))[1:] == (0,) and document is None:
                raise ValueError(f"0 feature(s) (shape={X.shape}) while a minimum of 1 is required: pass features")
            known = (query, session, document, bias, policy_score, intervention, sample_weight)
            log = ShownRows(y, group, position, sessions, *known).log(X)
        asked, watch = _of_callbacks(callbacks, watch)
        if eval_at is not None:
            asked["metric"] = f"ndcg@{next(iter(eval_at))}"
        options = with_trees({**self.get_params(), **asked, "progress": progress})
        del options["method"]
        if options.get("ranker") == "trees" and "learning_rate" in options:
            options["tree_rate"] = options.pop("learning_rate")
        only_named: dict[str, Any] = {
            "interventions": interventions,
            "validate": None if eval_set is None else _judged(eval_set, eval_group, eval_qid, log),
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
        self.__dict__.pop("feature_names_in_", None)
        if named and log.feature_names:
            self.feature_names_in_ = np.array(log.feature_names, dtype=object)
        chosen_lists = np.random.default_rng(0).permutation(log.n_lists)[:EXPLAINED_LISTS]
        self._explained: JudgedSet | Explanation = documents_by_query(log.select(np.sort(chosen_lists)))
        return self

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """By how much the order of the training lists changes (1 − τ) if a feature is shuffled; `explain` says more."""
        check_is_fitted(self, "model_")
        if isinstance(self._explained, JudgedSet):
            names = tuple(map(str, range(self._explained.n_features)))
            self._explained = explain(self.model_.ranker(), self._explained, names, metric=None)
        by_name = {row.feature: row.mean for row in self._explained.features}
        return np.array([by_name[str(number)] for number in range(len(by_name))])

    def explain(
        self,
        X: Any,
        y: ArrayLike | None = None,
        group: Any = None,
        *,
        query: Any = None,
        qid: Any = None,
        **options: Any,
    ) -> Explanation:
        """Importance of each feature with its interval: the loss of nDCG@10 by the grades `y`, or else of order.

        Args:
            options: `repeats`, `seed` and `metric` of `unskew.explain`.
        """
        judged = self._lists_of(X, y, group, _one_of(query, qid, "query and qid"), needed=True)[0]
        options = {"metric": None, **options} if y is None else options
        return explain(self.model_.ranker(), judged, self.model_.feature_names, **options)

    def predict(
        self, X: Any, group: ArrayLike | None = None, *, query: Any = None, qid: Any = None
    ) -> NDArray[np.float64]:
        """One score per row; higher is better. Without lists, all rows are one list."""
        rows, order = self._lists_of(X, None, group, _one_of(query, qid, "query and qid"))
        scores = np.empty(rows.n_documents)
        scores[order] = score_documents(self.model_.ranker(), rows)
        return scores

    def score(
        self, X: Any, y: ArrayLike, group: ArrayLike | None = None, *, query: Any = None, qid: Any = None
    ) -> float:
        """Mean nDCG@10 of the ranking against `y`. Pass grades: with clicks it measures only agreement with clicks."""
        judged, _ = self._lists_of(X, y, group, _one_of(query, qid, "query and qid"), needed=True)
        return evaluate_scorer(self.model_.ranker(), judged, ("ndcg@10",), undefined="skip").mean("ndcg@10")

    def _lists_of(
        self, X: Any, y: Any, group: Any, query: Any, *, needed: bool = False
    ) -> tuple[JudgedSet, NDArray[np.int64]]:
        """Rows as lists, and the row of each of their documents; what nothing groups is one list."""
        check_is_fitted(self, "model_")
        X, roles = _without_roles(X)
        query = _one_of(query, None if group is not None else roles.get("qid"), "query and X's column 'qid'")
        matrix = self._matrix(X)
        lists = np.zeros(len(matrix), dtype=np.int64)
        if group is not None or query is not None or (needed and len(matrix) > LONGEST_LIST):
            _, lists = lists_of_rows(len(matrix), group, query)
        elif needed:
            assume(ONE_LIST.format(len(matrix)), stacklevel=3)
        order = np.argsort(lists, kind="stable")
        grades = np.zeros(len(matrix)) if y is None else vector(y)[order]
        return JudgedSet.from_arrays(matrix[order], grades, np.bincount(lists)), order

    def _matrix(self, X: Any) -> NDArray[np.float32]:
        """Features of the documents to rank, in the order of training."""
        names, categories = self.model_.feature_names, self.model_.categories
        matrix = _features(_named_text(X, names if categories else ()), names, categories)
        if matrix.shape[1] != self.n_features_in_:
            expected = f"{type(self).__name__} is expecting {self.n_features_in_} features as input"
            raise ValueError(f"X has {matrix.shape[1]} features, but {expected}")
        counts = UnknownCounts(SavedRanker.of(self.model_))
        counts.add(matrix)
        if columns := ", ".join(f"{name} ({count:,})" for name, count in counts.filled().items()):
            said = f"missing values filled in columns that had none in training: {columns}"
            warnings.warn(said, RuntimeWarning, stacklevel=3)  # there the ranker guesses
        return matrix

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        return tags


@cache
def _known_options() -> frozenset[str]:
    """The parameters that some method, training, a network, `fit` or `auto` knows."""
    of_fit = ("judged", "checkpoint", "start", "memory", "time", "production")
    return frozenset(["method", "seed", *of_fit, *option_names(METHODS.values())])


def _one_of(one: Any, other: Any, names: str) -> Any:
    """The value that was passed under one of two names."""
    if one is not None and other is not None:
        raise ValueError(f"{names} are two names of the same argument: pass one of them")
    return other if one is None else one


def _without_roles(X: Any) -> tuple[Any, dict[str, Any]]:
    """A table without the columns that are no features, and these."""
    names = list(X.column_names if isinstance(X, pa.Table | pa.RecordBatch) else X.columns) if is_table(X) else []
    found = [name for name in ROLE_COLUMNS if name in names]
    if not found:
        return X, {}
    table = as_arrow(X)
    return table.drop_columns(found), {name: table[name] for name in found}


def _named_text(X: Any, names: Sequence[str] = ()) -> Any:
    """A numpy array with text as a table, where text is a category.

    Args:
        names: of the columns, to have a table in any case.
    """
    if not isinstance(X, np.ndarray) or X.ndim != 2 or not (names or X.dtype.kind in "OUS"):
        return X
    columns = [_plain_column(X[:, number]) for number in range(X.shape[1])]
    if not names and all(column.dtype.kind == "f" for column in columns):
        return X
    if len(names) != len(columns):
        names = [f"feature_{number}" for number in range(len(columns))]
    return pa.table({name: pa.array(column, from_pandas=True) for name, column in zip(names, columns, strict=True)})


def _plain_column(values: NDArray) -> NDArray:
    """Numbers as float64, anything else as text with None for what is missing."""
    as_numbers = values.dtype.kind != "O" or not any(isinstance(value, str) for value in values)
    try:
        return values.astype(np.float64) if as_numbers else _texts(values)
    except ValueError:
        return _texts(values)


def _texts(values: NDArray) -> NDArray:
    return np.array([None if value is None or value != value else str(value) for value in values], dtype=object)


def _of_callbacks(callbacks: Sequence[Callable[..., Any]], watch: Watch | None) -> tuple[dict[str, Any], Watch | None]:
    """What callbacks ask for: settings of training, and one watcher that calls the others."""
    asked: dict[str, Any] = {}
    watchers = [] if watch is None else [watch]
    for callback in callbacks:
        if hasattr(callback, "stopping_rounds"):
            asked["patience"] = callback.stopping_rounds
        elif type(callback).__module__.startswith("lightgbm"):
            if not hasattr(callback, "period"):  # log_evaluation: a bar is shown in any case
                raise ValueError(f"{type(callback).__name__} of LightGBM has no meaning here: read ranker.history_")
        else:
            watchers.append(callback)

    def each(report: Report) -> None:
        for watcher in watchers:
            watcher(report)

    return asked, each if len(watchers) > 1 else watchers[0] if watchers else None


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


def _judged(eval_set: Any, eval_group: Any, eval_qid: Any, log: ClickLog) -> JudgedSet:
    if isinstance(eval_set, JudgedSet):
        return eval_set
    if isinstance(eval_set, list) and len(eval_set) == 1:  # LightGBM's form
        eval_set = eval_set[0]
    lists = [entry[0] if isinstance(entry, list) and len(entry) == 1 else entry for entry in (eval_group, eval_qid)]
    try:
        X, grades, *group = tuple(eval_set) if isinstance(eval_set, tuple) else (None,)
        (sizes,) = group or [lists[0]]
    except (TypeError, ValueError) as error:
        raise ValueError(
            "eval_set must be one set of judged queries: (X, grades, group), [(X, grades)] with eval_group=[group] or "
            "eval_qid=[qid], or a JudgedSet"
        ) from error
    X, roles = _without_roles(X)
    names = log.feature_names if log.categories else ()
    matrix = _features(_named_text(X, names), log.feature_names, log.categories)
    _, number = lists_of_rows(
        len(matrix), sizes, lists[1] if lists[1] is not None or sizes is not None else roles.get("qid")
    )
    order = np.argsort(number, kind="stable")
    return JudgedSet.from_arrays(matrix[order], vector(grades)[order], np.bincount(number))
