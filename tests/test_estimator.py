"""UnbiasedRanker: the contract of scikit-learn and of LGBMRanker."""

import json
import pickle

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
from sklearn.model_selection import GridSearchCV, GroupKFold

from unskew import UnbiasedRanker, load_model, save_model
from unskew.serving.exports import export_model
from unskew.serving.rankings import rank_table
from unskew.serving.saved_ranker import open_ranker

FAST = {"steps": 20, "hidden": (8,)}


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


def test_an_unknown_option_names_the_known_ones(rows):
    X, clicks, group, _ = rows
    with pytest.raises(
        ValueError,
        match=r"unknown option .maximal_weight. for dla .did you mean .max_weight.*options of the method.*steps",
    ):
        UnbiasedRanker("dla", maximal_weight=3).fit(X, clicks, group)


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
    same = FAST | {"weight_decay": 1.0}  # the usual one depends on the number of queries
    repeated = UnbiasedRanker("naive", **same).fit(np.tile(X, (4, 1)), [1, 0, 1, 0, 0, 1, 0, 0], group=[2, 2, 2, 2])
    counted = UnbiasedRanker("naive", **same).fit(X, [2, 1], group=[2], sessions=[4])
    np.testing.assert_allclose(np.diff(repeated.predict(X)), np.diff(counted.predict(X)), atol=1e-5)


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
    assert UnbiasedRanker("naive", **FAST).fit(X, clicks, group).examination_ is None


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
        ({}, "pass either group .* or query"),
        ({"group": [4] * 30, "position": np.tile([1, 2, 3, 4], 30)}, "does the log count from 1"),
        ({"group": [4] * 30, "position": np.zeros(120)}, "two documents at position 0"),
        ({"group": [4] * 30, "sessions": [1] * 7}, "one per list .30. or one per row .120."),
    ],
)
def test_wrong_input_says_what_to_do(rows, arguments, message):
    X, clicks, _, _ = rows
    with pytest.raises(ValueError, match=message):
        UnbiasedRanker(**FAST).fit(X, clicks, **arguments)


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
    X, clicks, group, _ = rows
    table = pd.DataFrame(X, columns=list("abc"))
    ranker = UnbiasedRanker("naive", **FAST).fit(table, clicks, group)
    with pytest.raises(ValueError, match=message):
        ranker.predict(change(table))
    with pytest.raises(ValueError, match=message):
        UnbiasedRanker("naive", **FAST).fit(table, clicks, group, eval_set=(change(table), clicks, group))


def test_text_in_columns_without_names_is_refused(rows):
    X, clicks, group, _ = rows
    table = pd.DataFrame(X).assign(**{"3": "x"}).rename(columns={"3": 3})
    with pytest.raises(ValueError, match="column '3' of X holds text: use text as column names"):
        UnbiasedRanker(**FAST).fit(table, clicks, group)


def test_an_eval_set_as_lightgbm_takes_it(rows):
    X, clicks, group, position = rows
    grades = (X[:, 0] > 0).astype(int)
    ours = UnbiasedRanker("dla", **FAST).fit(X, clicks, group, position, eval_set=(X, grades, group))
    theirs = UnbiasedRanker("dla", **FAST).fit(X, clicks, group, position, eval_set=[(X, grades)], eval_group=[group])
    assert theirs.history_.best_value == ours.history_.best_value is not None
    with pytest.raises(ValueError, match="must be one set of judged queries"):
        UnbiasedRanker("dla", **FAST).fit(X, clicks, group, eval_set=[(X, grades, group)] * 2)


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
    X, clicks, group, _ = rows
    X = X.copy()
    X[17, 2] = np.inf
    with pytest.raises(ValueError, match="feature number 2 of row 17 is inf"):
        UnbiasedRanker(**FAST).fit(X, clicks, group)


def test_missing_features_are_filled_and_those_that_are_new_are_counted(rows):
    X, clicks, group, _ = rows
    X = X.copy()
    X[::5, 2] = np.nan
    ranker = UnbiasedRanker("naive", **FAST).fit(X, clicks, group)
    assert np.isfinite(ranker.predict(X, group)).all()
    X[3, 0] = np.nan
    with pytest.warns(RuntimeWarning, match=r"columns that had none in training: number 0 \(1\)"):
        assert np.isfinite(ranker.predict(X, group)).all()


def test_predicting_with_other_features_is_refused(rows):
    X, clicks, group, _ = rows
    ranker = UnbiasedRanker("naive", **FAST).fit(X, clicks, group)
    with pytest.raises(ValueError, match="X has 2 features, but the ranker was fitted on 3"):
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
    ranker = UnbiasedRanker("naive", steps=100, hidden=(4,)).fit(X, clicks, group=[3] * 60, progress=False)
    assert ranker.model_.categories == {"brand": ("acme", "bolt"), "size": ("l", "s")}
    scores = ranker.predict(X)
    assert scores[clicks == 1].min() > scores[clicks == 0].max()
    other_order = brands(lambda table: table)[0][["price", "new", "size", "brand"]]
    np.testing.assert_allclose(ranker.predict(other_order), scores, rtol=1e-5)
    assert ranker.score(X, clicks, [3] * 60) == 1.0


def test_a_new_brand_is_ranked_and_numbers_in_place_of_text_are_refused():
    X, clicks = brands(lambda table: table)
    ranker = UnbiasedRanker("naive", steps=2, hidden=(4,)).fit(X, clicks, group=[3] * 60, progress=False)
    assert np.isfinite(ranker.predict(X.assign(brand="zenith"))).all()
    with pytest.raises(ValueError, match="'brand' holds double, but the ranker was fitted on text, such as 'acme'"):
        ranker.predict(X.assign(brand=1.5))


def test_judged_queries_to_validate_on_may_hold_text():
    X, clicks = brands(lambda table: table)
    one_brand = X.assign(brand="bolt")  # whose number must be that of the log
    ranker = UnbiasedRanker("naive", steps=2, validate_every=1, hidden=(4,))
    ranker.fit(X, clicks, group=[3] * 60, eval_set=(one_brand, clicks, [3] * 60), progress=False)
    assert len(ranker.history_.column("validation")) == 2
