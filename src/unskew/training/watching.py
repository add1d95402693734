"""Watching: a callable that receives every step of training and every validation.

The argument `watch` of `fit`, `UnbiasedRanker.fit` and `reproduce` is any callable of a `Report`: its terms are those
of the step or, if `report.validation` is a number, means since the previous validation. `TensorBoard` and `MLflow` are
ready to use. A watcher with a method `of_run(title)` returns a separate watcher for each run of an experiment; it is
sent to worker processes, so it must be picklable.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unskew.training.history import Report

Watch = Callable[[Report], None]


def of_run(watch: Watch | None, title: str) -> Watch | None:
    """The watcher of one run: a separate one, if the watcher has `of_run`."""
    divide = getattr(watch, "of_run", None)
    return watch if divide is None else divide(title)


class TensorBoard:
    """Write loss terms and validation for TensorBoard (`pip install 'unskew[tensorboard]'`).

    Pass it to `fit` as `watch`.

    Args:
        folder: for the event files; each run of an experiment has its own subfolder.
        every: record the loss every this many steps.

    >>> unskew.fit("dla", log, watch=unskew.TensorBoard("boards"))  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path, every: int = 10):
        _need("tensorboard")
        self.folder = Path(folder)
        self.every = every
        self._writer: Any = None

    def __call__(self, report: Report) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(self.folder)
        for name, value in _values(report, self.every).items():
            self._writer.add_scalar(name, value, report.step)
        if report.step == report.steps:
            self._writer.flush()

    def of_run(self, title: str) -> TensorBoard:
        return TensorBoard(self.folder / re.sub(r"[^\w=.-]+", "-", title), self.every)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_writer": None}


class MLflow:
    """Log loss terms and validation to MLflow (`pip install 'unskew[mlflow]'`), one MLflow run per training.

    Pass it to `fit` as `watch`.

    Args:
        experiment: name of the MLflow experiment.
        tracking_uri: MLflow server or folder; default: MLflow's own setting.
        every: record the loss every this many steps.

    >>> unskew.fit("dla", log, watch=unskew.MLflow("search"))  # doctest: +SKIP
    """

    def __init__(
        self, experiment: str = "unskew", tracking_uri: str | None = None, every: int = 10, title: str | None = None
    ):
        _need("mlflow")
        self.experiment, self.tracking_uri, self.every, self.title = experiment, tracking_uri, every, title
        self._client: Any = None
        self._run_id = ""

    def __call__(self, report: Report) -> None:
        if self._client is None:
            self._start()
        for name, value in _values(report, self.every).items():
            self._client.log_metric(self._run_id, name, value, step=report.step)
        if report.step == report.steps:
            self._client.set_terminated(self._run_id)

    def of_run(self, title: str) -> MLflow:
        return MLflow(self.experiment, self.tracking_uri, self.every, title)

    def _start(self) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient(self.tracking_uri)
        found = self._client.get_experiment_by_name(self.experiment)
        number = self._client.create_experiment(self.experiment) if found is None else found.experiment_id
        self._run_id = self._client.create_run(number, run_name=self.title).info.run_id

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_run_id": ""}


def _values(report: Report, every: int) -> dict[str, float]:
    if report.validation is not None:
        return {"validation": report.validation}
    return {f"loss/{name}": value for name, value in report.terms.items()} if report.step % every == 0 else {}


def _need(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ModuleNotFoundError(f"{module} is not installed: pip install 'unskew[{module}]'")
