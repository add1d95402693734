"""MLflow: a model as a run, with its parameters, curves, card and an ONNX model that MLflow serves.

The ONNX model is flat where a score depends on the document alone (float32 `[documents, features]` in, `[documents, 1]`
out), else it takes lists and a mask; its signature says which. Loss terms and validation are metrics by step, the curve
of examination is a metric by position, counted from 1.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unskew.model import Model
from unskew.serving.card import card_json, card_markdown, model_card
from unskew.serving.export import export_model
from unskew.serving.flat_onnx import INPUT, OUTPUT

LONGEST = 500  # characters of a parameter that every store of MLflow takes


def log_to_mlflow(
    model: Model,
    *,
    name: str = "model",
    experiment: str | None = None,
    metrics: Mapping[str, float] | None = None,
    tracking_uri: str | None = None,
) -> str:
    """Log a model to MLflow, within the run that is active or a new one; gives the id of the run.

    Args:
        name: of the logged model.
        experiment: of a new run; default: MLflow's.
        metrics: numbers to log beside those of training, such as means of `evaluate` or of `compare`.
        tracking_uri: where to log to; default: MLflow's own setting.
    """
    if importlib.util.find_spec("mlflow") is None:
        raise ModuleNotFoundError("logging to MLflow needs mlflow: pip install 'unskew[mlflow]'")
    import mlflow

    if tracking_uri is not None:
        mlflow.set_tracking_uri(tracking_uri)
    if experiment is not None:
        mlflow.set_experiment(experiment)
    active = mlflow.active_run()
    if active is not None:
        _log(mlflow, model, name, metrics or {})
        return str(active.info.run_id)
    with mlflow.start_run() as run:
        _log(mlflow, model, name, metrics or {})
        return str(run.info.run_id)


def _log(mlflow: Any, model: Model, name: str, metrics: Mapping[str, float]) -> None:
    mlflow.log_params({key: str(value)[:LONGEST] for key, value in _parameters(model).items()})
    for row in model.history.rows:
        terms = {_key(key): float(value) for key, value in row.items() if key not in ("step", "stage", "seconds")}
        mlflow.log_metrics(terms, step=int(row["step"]))
    curve = model.examination()
    for place, value in enumerate([] if curve is None else curve.tolist(), start=1):
        mlflow.log_metric("examination", value, step=place)
    if model.history.best_value is not None:
        mlflow.log_metric("best_validation", model.history.best_value)
    mlflow.log_metrics({_key(key): float(value) for key, value in metrics.items()})
    card = model_card(model)
    mlflow.log_text(card_markdown(card), "README.md")
    mlflow.log_text(card_json(card), "card.json")
    _log_onnx(model, name)


def _log_onnx(model: Model, name: str) -> None:
    import onnx
    from mlflow.onnx import log_model

    flat = model.ranker().pointwise
    with tempfile.TemporaryDirectory() as folder:
        exported = export_model(model, Path(folder) / "model.onnx", flat=flat)
        loaded = onnx.load(exported.path)
    log_model(loaded, name=name, signature=_signature(model, flat=flat))


def _signature(model: Model, *, flat: bool) -> Any:
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    n, number = model.problem.n_features, np.dtype(np.float32)
    if flat:
        inputs, outputs = [TensorSpec(number, (-1, n), INPUT)], [TensorSpec(number, (-1, 1), OUTPUT)]
    else:
        mask = TensorSpec(np.dtype(bool), (-1, -1), "mask")
        inputs, outputs = [TensorSpec(number, (-1, -1, n), INPUT), mask], [TensorSpec(number, (-1, -1), OUTPUT)]
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs))


def _parameters(model: Model) -> dict[str, Any]:
    recipe = model.recipe
    return {
        "method": recipe.method,
        "ranker": recipe.ranker,
        "network": recipe.network.kind,
        "hidden": recipe.network.hidden,
        "transform": recipe.transform,
        **recipe.settings.to_json(),
        **recipe.hyper_parameters,
    }


def _key(name: str) -> str:
    """A name that MLflow takes for a metric: it refuses `@`."""
    return "".join(
        letter if letter.isalnum() or letter in "_-. /" else "_at_" if letter == "@" else "_" for letter in name
    )
