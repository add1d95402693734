"""MLflow: a model as a run, with its parameters, curves, card and a model that MLflow serves.

An ONNX model is flat if a score depends on the document alone (float32 `[documents, features]` in, `[documents, 1]`
out); otherwise it takes lists and a mask. A pyfunc takes a table with the columns of the log. The signature says which.
Loss terms and validation are metrics by step, examination curves are metrics by position, counted from 1. The table of
a comparison is an artifact, and the means of each method are metrics.
"""

from __future__ import annotations

import importlib.util
import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from unskew.display import Displayed
from unskew.serving.card import card_json, card_markdown, model_card
from unskew.serving.exports import export_model
from unskew.serving.model_files import save_model
from unskew.serving.onnx_file import INPUT, OUTPUT
from unskew.serving.pyfunc import QUERY
from unskew.training.model import Model

LONGEST = 500  # characters of a parameter that every MLflow store accepts


def log_to_mlflow(
    model: Model,
    *,
    name: str = "model",
    flavour: str = "onnx",
    experiment: str | None = None,
    metrics: Mapping[str, float] | None = None,
    comparison: Displayed | None = None,
    tracking_uri: str | None = None,
) -> str:
    """Log a model to MLflow, in the active run or a new one, and return the id of the run.

    Args:
        name: name of the logged model.
        flavour: "onnx", or "pyfunc": a table of documents in, scores out, run by unskew.
        experiment: experiment of a new run; default: MLflow's.
        metrics: numbers to log besides those of training, such as means of `evaluate`.
        comparison: the result of `unskew.compare`.
        tracking_uri: MLflow server or folder; default: MLflow's own setting.
    """
    if importlib.util.find_spec("mlflow") is None:
        raise ModuleNotFoundError("mlflow is not installed: pip install 'unskew[mlflow]'")
    if flavour not in FLAVOURS:
        raise ValueError(f"unknown flavour '{flavour}': choose from {', '.join(FLAVOURS)}")
    import mlflow

    if tracking_uri is not None:
        mlflow.set_tracking_uri(tracking_uri)
    if experiment is not None:
        mlflow.set_experiment(experiment)
    active = mlflow.active_run()
    with nullcontext(active) if active is not None else mlflow.start_run() as run:
        _log(mlflow, model, metrics or {})
        if comparison is not None:
            _log_comparison(mlflow, comparison)
        FLAVOURS[flavour](model, name)
    return str(run.info.run_id)


def _log(mlflow: Any, model: Model, metrics: Mapping[str, float]) -> None:
    mlflow.log_params({key: str(value)[:LONGEST] for key, value in _parameters(model).items()})
    for row in model.history.rows:
        terms = {_key(key): float(value) for key, value in row.items() if key not in ("step", "stage", "seconds")}
        mlflow.log_metrics(terms, step=int(row["step"]))
    curve = model.examination()
    curves = {} if curve is None else {"examination": curve, **model.examinations()}
    for level, each in curves.items():
        for place, value in enumerate(each.tolist(), start=1):
            mlflow.log_metric(level if each is curve else f"examination/{_key(level)}", value, step=place)
    if model.history.best_value is not None:
        mlflow.log_metric("best_validation", model.history.best_value)
    mlflow.log_metrics({_key(key): float(value) for key, value in metrics.items()})
    card = model_card(model)
    mlflow.log_text(card_markdown(card), "README.md")
    mlflow.log_text(card_json(card), "card.json")


def _log_comparison(mlflow: Any, comparison: Displayed) -> None:
    """The table of a comparison, and its numbers by method."""
    table = comparison.to_table()
    mlflow.log_text(json.dumps(table.to_pylist(), indent=1, default=str) + "\n", "comparison.json")
    for row in table.to_pylist():
        numbers = {name: value for name, value in row.items() if isinstance(value, float)}
        mlflow.log_metrics({f"compare/{_key(row['method'])}/{_key(name)}": value for name, value in numbers.items()})


def _log_onnx(model: Model, name: str) -> None:
    import onnx
    from mlflow.onnx import log_model

    flat = model.ranker().pointwise
    n, number = model.n_features, np.dtype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        loaded = onnx.load(export_model(model, Path(folder) / "model.onnx", flat=flat).path)
    if flat:
        signature = _signature([(number, (-1, n), INPUT)], (number, (-1, 1), OUTPUT))
    else:
        mask = (np.dtype(bool), (-1, -1), "mask")
        signature = _signature([(number, (-1, -1, n), INPUT), mask], (number, (-1, -1), OUTPUT))
    log_model(loaded, name=name, signature=signature)


def _log_pyfunc(model: Model, name: str) -> None:
    from mlflow.models import ModelSignature
    from mlflow.pyfunc import log_model
    from mlflow.types import ColSpec, Schema

    inputs: list[Any] = [
        ColSpec("string" if feature in model.categories else "double", feature) for feature in model.feature_names
    ]
    signature = _signature([(np.dtype(np.float32), (-1, model.n_features))], (np.dtype(np.float64), (-1,)))
    if inputs:
        inputs.append(ColSpec("string", QUERY, required=not model.ranker().pointwise))
        signature = ModelSignature(inputs=Schema(inputs), outputs=Schema([ColSpec("double")]))
    with tempfile.TemporaryDirectory() as folder:
        saved = save_model(model, Path(folder) / "model")
        log_model(
            name=name,
            loader_module="unskew.serving.pyfunc",
            data_path=str(saved),
            signature=signature,
            pip_requirements=[f"unskew=={version('unskew')}"],
        )


def _signature(inputs: Sequence[tuple[Any, ...]], output: tuple[Any, ...]) -> Any:
    """Of tensors: type, shape and, if there are several, name."""
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    return ModelSignature(inputs=Schema([TensorSpec(*each) for each in inputs]), outputs=Schema([TensorSpec(*output)]))


FLAVOURS: dict[str, Callable[[Model, str], None]] = {"onnx": _log_onnx, "pyfunc": _log_pyfunc}


def _parameters(model: Model) -> dict[str, Any]:
    recipe = model.recipe
    return {
        "method": recipe.method,
        "ranker": recipe.ranker,
        **recipe.tree_options(),
        "network": recipe.network.kind,
        "hidden": recipe.network.hidden,
        "transform": recipe.transform,
        **recipe.settings.to_json(),
        **recipe.hyper_parameters,
    }


def _key(name: str) -> str:
    """A name that MLflow accepts for a metric: it refuses `@`."""
    return re.sub(r"[^\w\-. /]", "_", name.replace("@", "_at_"))
