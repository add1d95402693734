"""UnbiasedRanker: the contract of scikit-learn and of LGBMRanker."""

import json
import pickle

import lightgbm
import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from unskew import UnbiasedRanker, load_model, save_model
from unskew.serving.exports import export_model
from unskew.serving.rankings import rank_table
from unskew.serving.saved_ranker import open_ranker

FAST = {"steps": 20, "hidden": (8,)}
EXACT = {"steps": 200, "hidden": (8,), "weight_decay": 0.0}  # few queries would be held back otherwise


@pytest.fixture
def rows():
    """Thirty lists of four documents, one session each; the first feature is relevance."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    position = np.tile(np.arange(4), 30)
    clicks = (rng.random(120) < 1 / (1 + np.exp(-2 * X[:, 0])) / (1 + position)).astype(int)
    return X, clicks, np.full(30, 4), position


def test_a_clone_keeps_the_hyper_parameters():
    ranker = UnbiasedRanker("dla", seed=3, max_weight=7.0, hidden=(8,))
    assert clone(ranker).get_params() == {"method": "dla", "seed": 3, "max_weight": 7.0, "hidden": (8,)}


def test_a_name_that_no_method_knows_is_refused_at_once_and_one_that_the_method_lacks_in_fit(rows):
    for build in (UnbiasedRanker, UnbiasedRanker("dla").set_params):
        with pytest.raises(ValueError, match=r"parameter 'maximal_weight' \(did you mean 'max_weight'\?\)"):
            build(maximal_weight=3)
    X, clicks, group, position = rows
    with pytest.raises(ValueError, match=r"unknown option 'max_weight' for naive.*options of the method.*steps"):
        UnbiasedRanker("naive", max_weight=3).fit(X, clicks, group, position)


def test_names_of_lightgbm_xgboost_and_scikit_learn_have_one_meaning(rows):
    ranker = UnbiasedRanker("naive", random_state=3, early_stopping_rounds=5)
    assert ranker.get_params() == {"method": "naive", "seed": 3, "patience": 5}
    assert ranker.set_params(random_state=None).seed == 0
    with pytest.raises(ValueError, match="'random_state' and 'seed' are the same parameter"):
        ranker.set_params(random_state=1, seed=1)
    X, clicks, group, position = rows
    qid = np.repeat(np.arange(30), 4)
    ranker = UnbiasedRanker("naive", **FAST).fit(X, y=clicks, qid=qid, position=position)
    np.testing.assert_array_equal(
        ranker.predict(X, qid=qid), UnbiasedRanker("naive", **FAST).fit(X, clicks, group, position).predict(X)
    )
    with pytest.raises(ValueError, match="query and qid are two names of the same argument"):
        ranker.predict(X, qid=qid, query=qid)


def test_callbacks_of_lightgbm_set_patience_and_others_see_every_step(rows):
    X, clicks, group, position = rows
    steps = []
    stop, show = lightgbm.early_stopping(1, verbose=False), lightgbm.log_evaluation(10)
    judged = {"eval_set": [(X, clicks)], "eval_qid": [np.repeat(np.arange(30), 4)], "eval_at": [3]}
    callbacks = [stop, show, lambda report: steps.append(report.step)]
    ranker = UnbiasedRanker("naive", steps=400, validate_every=10, hidden=(8,))
    ranker.fit(X, clicks, group, position, **judged, callbacks=callbacks, progress=False)
    assert ranker.model_.recipe.settings.patience == 1
    assert ranker.model_.recipe.settings.metric == "ndcg@3"
    assert 0 < max(steps) < 400  # ended early
    with pytest.raises(ValueError, match="_RecordEvaluationCallback of LightGBM has no meaning here"):
        ranker.fit(X, clicks, group, position, callbacks=[lightgbm.record_evaluation({})])


def test_what_fit_assumes_is_a_warning(rows):
    X, clicks, group, position = rows
    ranker = UnbiasedRanker("naive", **FAST)
    expected = ranker.fit(X, clicks, group, position).predict(X)
    for arguments, text in (
        ({}, "position was not passed: .* in the order shown"),
        ({"position": position + 1}, "no position is 0: positions count from 1"),
    ):
        with pytest.warns(RuntimeWarning, match=text):
            np.testing.assert_array_equal(ranker.fit(X, clicks, group, **arguments).predict(X), expected)
    with pytest.warns(RuntimeWarning, match="neither group nor query was passed: all 120 rows are one list"):
        ranker.fit(X, clicks, position=np.arange(120))
    with pytest.raises(ValueError, match="pass either group"):  # no page shows so many documents
        ranker.fit(np.tile(X, (9, 1)), np.tile(clicks, 9), position=np.tile(position, 9))


def test_graded_feedback_trains_by_its_grades():
    X, purchases = np.tile(np.eye(3), (40, 1)), np.tile([0, 1, 5], 40)
    arguments = {"group": [3] * 40, "position": np.tile([0, 1, 2], 40)}
    ranker = UnbiasedRanker("naive", **EXACT)
    with pytest.warns(RuntimeWarning, match="y is graded feedback, not counts of clicks"):
        scores = ranker.fit(X, purchases, **arguments, progress=False).predict(np.eye(3))
    np.testing.assert_allclose(np.exp(scores[2] - scores[1]), 5, rtol=0.3)  # softmax shares of 5 and 1


@pytest.mark.parametrize("per_list", [True, False])
def test_sample_weights_are_those_of_lists_or_multiply_the_feedback_of_rows(per_list):
    X, clicks = np.tile(np.eye(2), (60, 1)), np.tile([1, 0, 0, 1], 30)  # either document is clicked in every other list
    weights = np.tile([3.0, 1.0], 30) if per_list else np.tile([3.0, 9.0, 9.0, 1.0], 30)
    ranker = UnbiasedRanker("naive", **EXACT)
    ranker.fit(X, clicks, [2] * 60, np.tile([0, 1], 60), sample_weight=weights, progress=False)
    scores = ranker.predict(np.eye(2))
    np.testing.assert_allclose(np.exp(scores[0] - scores[1]), 3, rtol=0.2)  # clicks of weight 3 against 1


def test_a_grid_over_methods_and_their_parameters_works_in_any_order(rows):
    X, clicks, _, position = rows
    table = pd.DataFrame(X, columns=list("abc")).assign(qid=np.repeat(np.arange(30), 4), position=position)
    grid = [{"method": ["naive"]}, {"max_weight": [2.0, 10.0], "method": ["dla"]}]
    search = GridSearchCV(UnbiasedRanker("naive", **FAST), grid, cv=GroupKFold(3), error_score="raise")
    search.fit(table, clicks, groups=table["qid"])
    assert len(search.cv_results_["params"]) == 3
    assert list(search.best_estimator_.feature_names_in_) == ["a", "b", "c"]
    values = cross_val_score(search.best_estimator_, table, clicks, groups=table["qid"], cv=GroupKFold(3))
    np.testing.assert_allclose(values.mean(), search.best_score_)
    with pytest.raises(ValueError, match="position and X's column 'position' are two names"):
        UnbiasedRanker("naive", **FAST).fit(table, clicks, position=position)


def test_optuna_searches_with_the_folds_of_scikit_learn(rows):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    X, clicks, _, position = rows
    table = pd.DataFrame(X, columns=list("abc")).assign(qid=np.repeat(np.arange(30), 4), position=position)

    def value(trial):
        ranker = UnbiasedRanker("dla", max_weight=trial.suggest_float("max_weight", 2, 20), **FAST)
        return cross_val_score(ranker, table, clicks, groups=table["qid"], cv=GroupKFold(2)).mean()

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(value, n_trials=2)
    assert study.best_value == max(trial.value for trial in study.trials) > 0


def test_text_in_a_numpy_array_is_a_category():
    brands = np.array(["acme", "bolt", None] * 40, dtype=object)
    X, clicks = np.column_stack([brands, np.arange(120) % 7]), (brands == "acme").astype(int)
    ranker = UnbiasedRanker("naive", **EXACT)
    ranker.fit(X, clicks, [3] * 40, np.tile([0, 1, 2], 40), progress=False)
    assert ranker.model_.categories == {"feature_0": ("acme", "bolt")}
    assert not hasattr(ranker, "feature_names_in_")
    scores = ranker.predict(X)
    assert scores[clicks == 1].min() > scores[clicks == 0].max()
    with pytest.raises(ValueError, match="holds double, but the ranker was fitted on text, such as 'acme'"):
        ranker.predict(np.ones((2, 2)))


def test_the_feature_that_decides_is_the_most_important(rows):
    X, _, group, position = rows
    first = (X[:, 0].reshape(30, 4) == X[:, 0].reshape(30, 4).max(1, keepdims=True)).reshape(-1).astype(int)
    ranker = UnbiasedRanker("naive", **EXACT).fit(X, first, group, position, progress=False)
    importances = ranker.feature_importances_
    assert importances.argmax() == 0
    assert (importances[0] > 3 * importances[1:]).all()
    found = ranker.explain(X, first, group, repeats=2)
    assert found.measure == "ndcg@10"
    assert found.features[0].low > 0


def test_shap_explains_predict(rows):
    shap = pytest.importorskip("shap")
    X, clicks, group, position = rows
    ranker = UnbiasedRanker("naive", **FAST).fit(pd.DataFrame(X, columns=list("abc")), clicks, group, position)
    shares = shap.Explainer(ranker.predict, pd.DataFrame(X, columns=list("abc")))(
        pd.DataFrame(X, columns=list("abc"))[:3]
    )
    np.testing.assert_allclose(shares.values.sum(1) + shares.base_values, ranker.predict(X[:3]), atol=1e-4)


# What scikit-learn checks and a ranker of clicks cannot pass, with the reason.
NOT_PASSED = {
    "check_no_attributes_set_in_init": "parameters of all methods are passed by keyword, so the signature has no names",
    "check_do_not_raise_errors_in_init_or_set_params": "a name that no method knows is refused at once",
    "check_sample_weight_equivalence_on_dense_data": "a list without weight is refused: leave out its rows",
    "check_sample_weight_equivalence_on_sparse_data": "a list without weight is refused: leave out its rows",
}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_all_checks_of_scikit_learn_pass_but_those_listed():
    results = check_estimator(UnbiasedRanker("naive", steps=2, hidden=(4,)), on_fail=None, on_skip=None)
    assert {found["check_name"] for found in results if found["status"] == "failed"} == set(NOT_PASSED)
    assert sum(found["status"] == "passed" for found in results) >= 44


def test_rows_of_a_list_may_come_in_any_order(rows):
    X, clicks, group, position = rows
    shuffled = np.concatenate([start + np.random.default_rng(start).permutation(4) for start in range(0, 120, 4)])
    one = UnbiasedRanker("two_tower", **FAST).fit(X, clicks, group, position)
    other = UnbiasedRanker("two_tower", **FAST).fit(X[shuffled], clicks[shuffled], group, position[shuffled])
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-5)


def test_query_ids_say_the_same_as_group_sizes(rows):
    X, clicks, group, position = rows
    query = np.repeat([f"q{number}" for number in range(30)], 4)
    by_size = UnbiasedRanker("two_tower", **FAST).fit(X, clicks, group, position)
    by_id = UnbiasedRanker("two_tower", **FAST).fit(X, clicks, position=position, query=query)
    np.testing.assert_array_equal(by_size.predict(X), by_id.predict(X))
    np.testing.assert_array_equal(by_id.predict(X, query=query), by_id.predict(X, group=group))


def test_counts_with_sessions_equal_repeated_sessions():
    X = np.array([[1.0], [0.0]])
    repeated = UnbiasedRanker("naive", **EXACT).fit(
        np.tile(X, (4, 1)), [1, 0, 1, 0, 0, 1, 0, 0], [2, 2, 2, 2], [0, 1] * 4
    )
    counted = UnbiasedRanker("naive", **EXACT).fit(X, [2, 1], [2], [0, 1], sessions=[4])
    # A constant changes no softmax.
    np.testing.assert_allclose(np.diff(repeated.predict(X)), np.diff(counted.predict(X)), atol=1e-4)


@pytest.mark.parametrize(
    "kind", [np.asarray, pd.DataFrame, pl.DataFrame, lambda X: pa.table({"abc"[i]: X[:, i] for i in range(3)})]
)
def test_any_table_goes_in(rows, kind):
    X, clicks, group, position = rows
    ranker = UnbiasedRanker("naive", **FAST).fit(kind(X), clicks, group, position)
    np.testing.assert_array_equal(
        ranker.predict(kind(X)), UnbiasedRanker("naive", **FAST).fit(X, clicks, group, position).predict(X)
    )


def test_raw_features_with_heavy_tails_counts_and_constants_go_in(rows):
    X, clicks, group, position = rows
    raw = np.column_stack([np.exp(8 * X[:, 0]), np.full(120, 5.0), np.round(1e6 * np.abs(X[:, 1]))])
    scores = UnbiasedRanker("dla", **FAST).fit(raw, clicks, group, position).predict(raw)
    assert np.isfinite(scores).all()
    assert scores.std() > 0


def test_a_grid_search_slices_query_ids(rows):
    X, clicks, _, position = rows
    query = np.repeat(np.arange(30), 4)
    with sklearn.config_context(enable_metadata_routing=True):
        ranker = UnbiasedRanker("dla", **FAST).set_fit_request(query=True, position=True).set_score_request(query=True)
        search = GridSearchCV(ranker, {"max_weight": [2.0, 10.0]}, cv=GroupKFold(3))
        search.fit(X, clicks, query=query, position=position, groups=query)
    assert search.best_params_["max_weight"] in (2.0, 10.0)
    assert 0 < search.best_score_ <= 1


def test_the_learnt_curve_is_relative_to_the_top(rows):
    X, clicks, group, position = rows
    ranker = UnbiasedRanker("two_tower", **FAST).fit(X, clicks, group, position)
    assert ranker.examination_.shape == (4,)
    assert ranker.examination_[0] == 1
    assert UnbiasedRanker("naive", **FAST).fit(X, clicks, group, position).examination_ is None


def test_an_eval_set_chooses_the_best_state(rows):
    X, clicks, group, position = rows
    grades = (X[:, 0] > 0).astype(int)
    ranker = UnbiasedRanker("dla", **FAST, validate_every=5).fit(
        X, clicks, group, position, eval_set=(X, grades, group)
    )
    best = max(value for _, value in ranker.history_.column("validation"))
    assert ranker.score(X, grades, group) == pytest.approx(best)


def test_a_click_log_goes_in(log, world):
    ranker = UnbiasedRanker("ipw", **FAST).fit(log)
    assert ranker.n_features_in_ == log.n_features
    assert ranker.predict(world.test.features, group=world.test.sizes).shape == (world.test.n_documents,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group": ["a"] * 120}, "the number of rows of each list"),
        ({"group": [4] * 29}, "group sizes add up to 116, but X has 120 rows"),
        ({"group": [4] * 30, "position": np.tile([2, 3, 4, 5], 30)}, "does the log count from 2"),
        ({"group": [4] * 30, "position": np.zeros(120)}, "two documents at position 0"),
        ({"group": [4] * 30, "sessions": [1] * 7}, "one per list .30. or one per row .120."),
    ],
)
def test_wrong_input_says_what_to_do(rows, arguments, message):
    X, clicks, _, position = rows
    with pytest.raises(ValueError, match=message):
        UnbiasedRanker(**FAST).fit(X, clicks, **{"position": position, **arguments})


TABLES = {
    "pandas": lambda columns: pd.DataFrame(columns),
    "polars": lambda columns: pl.DataFrame(columns),
    "pyarrow": lambda columns: pa.table(columns),
}


@pytest.mark.parametrize("kind", TABLES)
def test_names_of_columns_survive_to_model_onnx_and_ranking(rows, kind, tmp_path):
    X, clicks, group, position = rows
    columns = {name: X[:, number] for number, name in enumerate(("price", "stock", "age"))}
    turned = {name: columns[name] for name in ("age", "price", "stock")}
    ranker = UnbiasedRanker("naive", **FAST).fit(TABLES[kind](columns), clicks, group, position)
    assert ranker.model_.feature_names == ("price", "stock", "age")
    np.testing.assert_array_equal(ranker.predict(TABLES[kind](turned)), ranker.predict(X))

    model = save_model(ranker.model_, tmp_path / "model")
    onnx = tmp_path / "model.onnx"
    export_model(ranker.model_, onnx)
    names = onnxruntime.InferenceSession(str(onnx)).get_modelmeta().custom_metadata_map["feature_names"]
    assert json.loads(names) == ["price", "stock", "age"]
    candidates = pa.table({"query": np.zeros(120, int), "document": np.arange(120), **turned})
    pq.write_table(candidates, tmp_path / "candidates.parquet")
    for place in (model, onnx):
        rank_table(open_ranker(place), tmp_path / "candidates.parquet", tmp_path / f"{place.name}.ranking.parquet")
        ranking = pq.read_table(tmp_path / f"{place.name}.ranking.parquet").sort_by("document")
        np.testing.assert_allclose(ranking["score"].to_numpy(), ranker.predict(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.rename(columns={"b": "z"}), "X does not have column 'b'.*it has column 'z' instead"),
        (lambda table: table[["a", "c"]], "X does not have column 'b', which the ranker was fitted on$"),
        (lambda table: table.assign(y=1.0, z=2.0), "X has columns 'y', 'z', which the ranker was not fitted on"),
    ],
)
def test_missing_and_extra_columns_are_told_apart_by_name(rows, change, message):
    X, clicks, group, position = rows
    table = pd.DataFrame(X, columns=list("abc"))
    ranker = UnbiasedRanker("naive", **FAST).fit(table, clicks, group, position)
    with pytest.raises(ValueError, match=message):
        ranker.predict(change(table))
    with pytest.raises(ValueError, match=message):
        UnbiasedRanker("naive", **FAST).fit(table, clicks, group, position, eval_set=(change(table), clicks, group))


def test_text_in_columns_without_names_is_refused(rows):
    X, clicks, group, position = rows
    table = pd.DataFrame(X).assign(**{"3": "x"}).rename(columns={"3": 3})
    with pytest.raises(ValueError, match="column '3' of X holds text: use text as column names"):
        UnbiasedRanker(**FAST).fit(table, clicks, group, position)


def test_an_eval_set_as_lightgbm_takes_it(rows):
    X, clicks, group, position = rows
    grades = (X[:, 0] > 0).astype(int)
    ours = UnbiasedRanker("dla", **FAST).fit(X, clicks, group, position, eval_set=(X, grades, group))
    theirs = UnbiasedRanker("dla", **FAST).fit(X, clicks, group, position, eval_set=[(X, grades)], eval_group=[group])
    assert theirs.history_.best_value == ours.history_.best_value is not None
    with pytest.raises(ValueError, match="must be one set of judged queries"):
        UnbiasedRanker("dla", **FAST).fit(X, clicks, group, position, eval_set=[(X, grades, group)] * 2)


def test_a_fitted_ranker_can_be_pickled(rows):
    X, clicks, group, position = rows
    ranker = UnbiasedRanker("two_tower", **FAST).fit(X, clicks, group, position)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ranker)).predict(X), ranker.predict(X))


def test_hyper_parameters_may_be_arrays_and_numbers_of_numpy(rows, tmp_path):
    X, clicks, group, position = rows
    curve = np.array([1, 0.5, 0.4, 0.25])
    ranker = UnbiasedRanker("ipw", seed=np.int64(1), propensities=curve, max_weight=np.float32(3), **FAST)
    ranker.fit(X, clicks, group, position)
    np.testing.assert_allclose(ranker.examination_, curve, rtol=1e-6)
    again = load_model(save_model(ranker.model_, tmp_path / "model"))
    np.testing.assert_allclose(again.examination(), curve, rtol=1e-6)


def test_a_ranker_that_is_not_fitted_says_so(rows):
    X, clicks, group, _ = rows
    with pytest.raises(NotFittedError):
        UnbiasedRanker().score(X, clicks, group)


def test_what_a_method_lacks_is_said_with_what_to_do(rows):
    X, clicks, group, position = rows
    with pytest.raises(ValueError, match=r"pass judged data .*unskew.fit\(..., judged=...\)"):
        UnbiasedRanker("labelled", **FAST).fit(X, clicks, group, position)
    with pytest.raises(ValueError, match=r"If you know the propensities, pass them .* dla and two_tower learn them"):
        UnbiasedRanker("ipw", **FAST).fit(X, clicks, group, position)


def test_infinite_features_are_refused_with_row_and_column(rows):
    X, clicks, group, position = rows
    X = X.copy()
    X[17, 2] = np.inf
    with pytest.raises(ValueError, match="feature number 2 of row 17 is inf"):
        UnbiasedRanker(**FAST).fit(X, clicks, group, position)


def test_missing_features_are_filled_and_those_that_are_new_are_counted(rows):
    X, clicks, group, position = rows
    X = X.copy()
    X[::5, 2] = np.nan
    ranker = UnbiasedRanker("naive", **FAST).fit(X, clicks, group, position)
    assert np.isfinite(ranker.predict(X, group)).all()
    X[3, 0] = np.nan
    with pytest.warns(RuntimeWarning, match=r"columns that had none in training: number 0 \(1\)"):
        assert np.isfinite(ranker.predict(X, group)).all()


def test_predicting_with_other_features_is_refused(rows):
    X, clicks, group, position = rows
    ranker = UnbiasedRanker("naive", **FAST).fit(X, clicks, group, position)
    with pytest.raises(ValueError, match="X has 2 features, but UnbiasedRanker is expecting 3"):
        ranker.predict(X[:, :2])
    assert ranker.predict(X[:0]).shape == (0,)


@pytest.fixture
def showings(log):
    """The impressions of a simulated log, one row each, with ids, policy scores and interventions; one session each."""
    table = log.select(np.arange(200)).to_table(features=True).to_pandas()
    names = [name for name in table.columns if name.startswith("feature")]
    return table, table[names].to_numpy(np.float32)


def test_propensities_are_estimated_from_arrays_with_ids(showings, log):
    table, X = showings
    ids = {"query": table["query"], "session": table["list"], "document": table["document"]}
    ranker = UnbiasedRanker("ipw", **FAST).fit(
        X, table["clicks"], position=table["position"], sessions=table["sessions"], progress=False, **ids
    )
    expected = UnbiasedRanker("ipw", **FAST).fit(log.select(np.arange(200)), progress=False)
    np.testing.assert_allclose(ranker.examination_, expected.examination_, rtol=1e-6)
    assert ranker.model_.feature_names == ()


def test_bias_columns_policy_scores_and_interventions_go_in(showings):
    table, X = showings
    device = np.where(table["list"] % 2 == 0, "phone", "desk")
    one_per_list = np.where(np.arange(200) % 2 == 0, "phone", "desk")
    fitted = [
        UnbiasedRanker("two_tower", **FAST).fit(
            pd.DataFrame(X).rename(columns=str),
            table["clicks"],
            position=table["position"],
            sessions=table["sessions"],
            query=table["query"],
            session=table["list"],
            document=table["document"],
            bias={"device": values},
            policy_score=table["policy_score"],
            intervention=table["intervention"],
            progress=False,
        )
        for values in (device, one_per_list)
    ]
    assert dict(fitted[0].model_.problem.bias) == {"device": ("desk", "phone")}
    np.testing.assert_array_equal(fitted[0].predict(X), fitted[1].predict(X))


def test_progress_is_reported_to_the_callers_function(rows):
    X, clicks, group, position = rows
    reports = []
    UnbiasedRanker("naive", **FAST).fit(X, clicks, group, position, progress=reports.append)
    assert reports[-1].step == reports[-1].steps == 20


def brands(frame):
    """Lists of three in which the brand alone decides the click, as this kind of table."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "brand": rng.choice(["acme", "bolt"], 180),
            "size": pd.Categorical(rng.choice(["s", "l"], 180)),
            "new": rng.random(180) < 0.5,
            "price": rng.random(180),
        }
    )
    return frame(table), (table.brand == "acme").to_numpy().astype(int)


@pytest.mark.parametrize("frame", [lambda table: table, pa.Table.from_pandas, pl.from_pandas])
def test_text_categories_and_booleans_of_a_table_are_features_as_they_are(frame):
    X, clicks = brands(frame)
    ranker = UnbiasedRanker("naive", **EXACT).fit(X, clicks, group=[3] * 60, position=[0, 1, 2] * 60, progress=False)
    assert ranker.model_.categories == {"brand": ("acme", "bolt"), "size": ("l", "s")}
    scores = ranker.predict(X)
    assert scores[clicks == 1].min() > scores[clicks == 0].max()
    other_order = brands(lambda table: table)[0][["price", "new", "size", "brand"]]
    np.testing.assert_allclose(ranker.predict(other_order), scores, rtol=1e-5)
    assert ranker.score(X, clicks, [3] * 60) == 1.0


def test_a_new_brand_is_ranked_and_numbers_in_place_of_text_are_refused():
    X, clicks = brands(lambda table: table)
    ranker = UnbiasedRanker("naive", steps=2, hidden=(4,)).fit(
        X, clicks, group=[3] * 60, position=[0, 1, 2] * 60, progress=False
    )
    assert np.isfinite(ranker.predict(X.assign(brand="zenith"))).all()
    with pytest.raises(ValueError, match="'brand' holds double, but the ranker was fitted on text, such as 'acme'"):
        ranker.predict(X.assign(brand=1.5))


def test_judged_queries_to_validate_on_may_hold_text():
    X, clicks = brands(lambda table: table)
    one_brand = X.assign(brand="bolt")  # whose number must be that of the log
    ranker = UnbiasedRanker("naive", steps=2, validate_every=1, hidden=(4,))
    ranker.fit(
        X, clicks, group=[3] * 60, position=[0, 1, 2] * 60, eval_set=(one_brand, clicks, [3] * 60), progress=False
    )
    assert len(ranker.history_.column("validation")) == 2
