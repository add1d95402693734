"""Files of experiments: parse strict TOML into the dataclasses of `settings`.

One file is one experiment. An unknown key is an error that lists the known ones, and so is an undefined name. Whether a
method exists is checked only when its experiment is run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from unskew.comparison.settings import SimulationSettings
from unskew.data.judged.metrics import metric
from unskew.data.untrusted import parse_toml
from unskew.extensions import load_part
from unskew.options import build, near, unknown_name
from unskew.papers.settings import PaperExperiment

FILE_NAME = re.compile(r"\w[\w.\-]*")


def shipped() -> dict[str, Traversable]:
    """Files of the experiments that come with the package, by name."""
    folder = resources.files("unskew.papers").joinpath("experiments")
    files = [entry for entry in folder.iterdir() if entry.name.endswith(".toml")]
    return {file.name.removesuffix(".toml"): file for file in sorted(files, key=lambda file: file.name)}


def experiment_text(name: str) -> str:
    """The TOML of a shipped experiment, as a start for your own."""
    known = shipped()
    if name not in known:
        raise ValueError(f"unknown experiment '{name}'{near(name, known)}: choose one of {', '.join(known)}")
    return known[name].read_text(encoding="utf-8")


def experiment_source(name: str) -> str:
    """The TOML of a shipped experiment or of a file."""
    known = shipped()
    return known[name].read_text(encoding="utf-8") if name in known else _text(Path(name))


def load_experiment(name: str, *, allow_code: bool = False) -> PaperExperiment:
    """A shipped experiment by its name, or your own by the path of its file.

    Args:
        allow_code: methods, users and policies of the file may be `"module:Class"`.
    """
    known = shipped()
    if name in known:
        return parse_experiment(known[name].read_text(encoding="utf-8"), name)
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist: pass a TOML file, or one of {', '.join(known)}")
        return parse_experiment(_text(path), path.stem, allow_code=allow_code)
    raise ValueError(f"unknown experiment '{name}': choose one of {', '.join(known)}, or pass your own TOML file")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}): save it as UTF-8") from error


def parse_experiment(text: str, name: str, *, allow_code: bool = False) -> PaperExperiment:
    """An experiment from the text of its file."""
    try:
        table = parse_toml(text)
    except ValueError as error:
        raise ValueError(f"{name}.toml is not TOML: {error}") from error
    experiment = build(PaperExperiment, {"name": name, **table}, f"{name}.toml")
    _check(experiment)
    return _with_code(experiment, allow_code=allow_code)


def _with_code(experiment: PaperExperiment, *, allow_code: bool) -> PaperExperiment:
    """The experiment with `"module:Class"` replaced by the class, if that is allowed."""

    def loaded(changes: Any) -> Any:
        tables = {key: dict(value) for key, value in changes.items() if key in ("user", "policy")}
        for table in tables.values():
            if "name" in table:
                table["name"] = load_part(table["name"], allow_code=allow_code)
        return {**changes, **tables}

    simulation = experiment.simulation
    parts = loaded({"user": simulation.user, "policy": simulation.policy})
    return replace(
        experiment,
        simulation=replace(simulation, **parts),
        settings=tuple(replace(entry, simulation=loaded(entry.simulation)) for entry in experiment.settings),
        methods=tuple(
            replace(entry, method=load_part(entry.method, allow_code=allow_code)) for entry in experiment.methods
        ),
    )


def _check(experiment: PaperExperiment) -> None:
    """Refuse undefined names."""
    where = f"{experiment.name}.toml"
    for name in (*experiment.metrics, experiment.metric):
        metric(name)
    if experiment.metric not in experiment.metrics:
        raise ValueError(f"{where}: metric '{experiment.metric}' is not among metrics: add it")
    settings = _unique((entry.name for entry in experiment.settings), f"{where}: settings")
    labels = _unique((entry.label for entry in experiment.methods), f"{where}: methods")
    if experiment.selection == "best":
        _check_labels(experiment.baseline, labels, f"{where}: baseline")
    for claim in experiment.claims:
        if experiment.selection == "best" and claim.relation != "untestable":
            _check_labels((claim.label, *claim.than), labels, f"{where}: claim '{claim.text}'")
        _check_labels(claim.settings, settings, f"{where}: claim '{claim.text}'")
    for entry in experiment.expected:
        _check_labels([entry.setting] if entry.setting else [], settings, f"{where}: expected")
        short = [label for label, values in entry.values.items() if len(values) != len(entry.metrics)]
        if short:
            raise ValueError(f"{where}: expected values of '{short[0]}' need one number per metric: {entry.metrics}")
    for figure in experiment.figures:
        if not FILE_NAME.fullmatch(figure.file):
            raise ValueError(
                f"{where}: figure file '{figure.file}' is not a plain name: use letters, digits, '-', '_' and '.', "
                "so that it is written into --out"
            )
    for setting in experiment.settings:
        _check_simulation(experiment.simulation, setting.simulation, f"{where}: setting '{setting.name}'")


def _check_simulation(simulation: SimulationSettings, changes: Mapping[str, Any], where: str) -> None:
    known = [entry.name for entry in fields(SimulationSettings)]
    unknown = unknown_name(changes, known)
    if unknown is not None:
        hint = near(unknown, known)
        raise ValueError(f"{where}: unknown key '{unknown}' of simulation{hint}: choose from {', '.join(known)}")
    simulation.changed(dict(changes))


def _unique(names: Any, where: str) -> list[str]:
    texts = list(names)
    twice = [name for name in texts if texts.count(name) > 1]
    if twice:
        raise ValueError(f"{where}: '{twice[0]}' occurs twice")
    return texts


def _check_labels(labels: Any, known: list[str], where: str) -> None:
    unknown = [label for label in labels if label not in known]
    if unknown:
        raise ValueError(f"{where}: there is no '{unknown[0]}' among {', '.join(known) or 'none'}")
