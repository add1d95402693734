"""MLflow: parameters, curves, card and an ONNX model in a local store of files."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from unskew import ClickLog, Recipe, fit, rank, save_model
from unskew.display import Displayed
from unskew.serving.pyfunc import _load_pyfunc
from unskew.serving.tracking import log_to_mlflow


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    log = ClickLog.from_arrays(rng.standard_normal((40, 3)), rng.integers(0, 2, 40), group=[4] * 10)
    return fit(Recipe.of("dla", steps=5, hidden=(4,)), log, validate=0.3)


class Compared(Displayed):
    """What `unskew.compare` gives, as far as it is logged."""

    def to_table(self):
        return pa.table({"method": ["dla", "naive"], "repetitions": [5, 5], "ips": [0.25, None]})


@pytest.fixture(scope="module")
def shop_log():
    rng = np.random.default_rng(1)
    table = pa.table({"price": rng.random(40), "colour": rng.integers(0, 2, 40)})
    log = ClickLog.from_arrays(table, rng.integers(0, 2, 40), group=[4] * 10)
    return replace(log, categories={"colour": ("blue", "red")})


@pytest.mark.parametrize("network", ["tabular", "listwise"])
def test_a_pyfunc_scores_a_table_as_rank_does(shop_log, network, tmp_path):
    model = fit(Recipe.of("dla", steps=5, hidden=(4,), network=network), shop_log)
    save_model(model, tmp_path / "model")
    table = pa.table(
        {
            "query": ["b", "a", "b", "a"],
            "document": [1, 2, 3, 4],
            "colour": ["red", None, "green", "blue"],
            "price": [0.1, 0.2, None, 0.9],
        }
    )
    found = _load_pyfunc(str(tmp_path / "model")).predict(table.drop("document"))
    expected = rank(model, table, sort=True, progress=False).to_table().sort_by("document")["score"].to_numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with pytest.raises(ValueError, match="are missing: price"):
        _load_pyfunc(str(tmp_path / "model")).predict(table.drop("price"))


@pytest.mark.filterwarnings("ignore")
def test_mlflow_loads_the_pyfunc_and_scores_by_its_signature(shop_log, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is not installed (pip install 'unskew[mlflow]')")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    model = fit(Recipe.of("dla", steps=5, hidden=(4,)), shop_log)
    store = (tmp_path / "store").as_uri()
    run_id = log_to_mlflow(model, experiment="shop", flavour="pyfunc", tracking_uri=store)
    experiment = mlflow.get_run(run_id).info.experiment_id
    (logged,) = mlflow.search_logged_models(experiment_ids=[experiment], output_format="list")
    assert mlflow.models.get_model_info(logged.model_uri).signature.inputs.input_names() == [
        "price",
        "colour",
        "query",
    ]
    rows = pa.table({"price": [0.5, 0.1], "colour": ["red", "blue"]}).to_pandas()
    found = mlflow.pyfunc.load_model(logged.model_uri).predict(rows)
    save_model(model, tmp_path / "model")
    np.testing.assert_allclose(found, _load_pyfunc(str(tmp_path / "model")).predict(rows))


def test_a_flavour_that_there_is_not_is_refused(model, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(ValueError, match="unknown flavour 'pickle': choose from onnx, pyfunc"):
        log_to_mlflow(model, flavour="pickle")


def test_without_mlflow_it_says_what_to_install(model, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'unskew\[mlflow\]'"):
        log_to_mlflow(model)


@pytest.mark.filterwarnings("ignore")
def test_a_run_has_parameters_curves_card_and_a_model_with_its_signature(model, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is not installed (pip install 'unskew[mlflow]')")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run_id = log_to_mlflow(
        model,
        experiment="shop",
        metrics={"ndcg@10": 0.5},
        comparison=Compared(),
        tracking_uri=(tmp_path / "store").as_uri(),
    )
    client = mlflow.MlflowClient()
    run = client.get_run(run_id)
    assert (run.data.params["method"], run.data.params["steps"]) == ("dla", "5")
    assert run.data.metrics["ndcg_at_10"] == 0.5
    assert len(client.get_metric_history(run_id, "examination")) == 4  # one per position
    assert run.data.metrics["compare/dla/ips"] == 0.25
    assert {"README.md", "card.json", "comparison.json"} <= {entry.path for entry in client.list_artifacts(run_id)}
    (logged,) = mlflow.search_logged_models(experiment_ids=[run.info.experiment_id], output_format="list")
    signature = mlflow.models.get_model_info(logged.model_uri).signature
    assert [(spec.name, spec.shape) for spec in signature.inputs] == [("features", (-1, 3))]
