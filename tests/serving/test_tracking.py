"""MLflow: parameters, curves, card and an ONNX model in a local store of files."""

import numpy as np
import pytest

from unskew import ClickLog, Recipe, fit
from unskew.serving.tracking import log_to_mlflow


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    log = ClickLog.from_arrays(rng.standard_normal((40, 3)), rng.integers(0, 2, 40), group=[4] * 10)
    return fit(Recipe.of("dla", steps=5, hidden=(4,)), log, validate=0.3)


def test_without_mlflow_it_says_what_to_install(model, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'unskew\[mlflow\]'"):
        log_to_mlflow(model)


@pytest.mark.filterwarnings("ignore")
def test_a_run_has_parameters_curves_card_and_a_model_with_its_signature(model, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run_id = log_to_mlflow(
        model, experiment="shop", metrics={"ndcg@10": 0.5}, tracking_uri=(tmp_path / "store").as_uri()
    )
    client = mlflow.MlflowClient()
    run = client.get_run(run_id)
    assert (run.data.params["method"], run.data.params["steps"]) == ("dla", "5")
    assert run.data.metrics["ndcg_at_10"] == 0.5
    assert len(client.get_metric_history(run_id, "examination")) == 4  # one per position
    assert {"README.md", "card.json"} <= {entry.path for entry in client.list_artifacts(run_id)}
    (logged,) = mlflow.search_logged_models(experiment_ids=[run.info.experiment_id], output_format="list")
    signature = mlflow.models.get_model_info(logged.model_uri).signature
    assert [(spec.name, spec.shape) for spec in signature.inputs] == [("features", (-1, 3))]
