"""Saved models: a folder of safetensors and JSON, data and never code.

    MODEL/model.json           method, hyper-parameters, sizes, feature transform, versions, training summary
    MODEL/weights.safetensors  networks, running estimates and the numbers of the transform, for every method
    MODEL/documents.parquet    for click models of ids: the documents that the model knows
    MODEL/history.json         loss terms and validation by step
    MODEL/trees.txt            LightGBM's text format, if trees rank (`ranker=trees`); read as data, without LightGBM
    MODEL/README.md, card.json training data, assumptions and evidence (see `card`); never read back

Folders are written atomically.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import pyarrow.parquet as pq
import torch
from pyarrow import ArrowException
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from unskew.data.clicks.vocabulary import Vocabulary
from unskew.data.files import file_digest, json_digest, new_folder, restore
from unskew.data.object_storage import fetched, remote
from unskew.data.raw_columns import from_spec
from unskew.data.untrusted import read_json, read_parquet
from unskew.extensions import find, outside_name
from unskew.methods import METHODS, Method
from unskew.networks.registry import RANKERS, Problem
from unskew.networks.trees import from_lightgbm
from unskew.serving.card import card_json, card_markdown, model_card
from unskew.training.boosting import SETTINGS, Boosting
from unskew.training.history import History
from unskew.training.model import Member, Model, member_name
from unskew.training.recipe import Recipe, old_tree_targets
from unskew.training.settings import Settings

FORMAT = "unskew-model"
VERSION = 2
ABOUT = "model.json"
VOCABULARY = "documents.parquet"
TREES = "trees.txt"
# By method, defaults of 0.2 that have changed: its files leave defaults out.
OLD_DEFAULTS: dict[str, dict[str, Any]] = {
    **{name: {"observation_rate": 3.0} for name in ("two_tower", "attention", "lbd")},
    "affine_softmax": {"observation_rate": 3.0, "stretch_rate": 3.0, "warm_up_steps": 100},
    "low_rank": {"observation_rate": 3.0},
    **{name: {"observation_rate": 3.0, "observed_by": "weights"} for name in ("dla", "cdla_ld")},
    "upe": {"max_weight": None},
}
# By method, options of 0.2 that have gone, and beginnings of the names of its weights that have changed.
OLD_OPTIONS = {"lbd": ("cancel_by", "penalize"), "vectorization": ("base_position",), "upe": ("scoring",)}
OLD_NAMES = {
    "lbd": {
        "centre.": "observation.mean.",
        **{f"observation.{name}": f"observation.positions.{name}" for name in ("logits", "levels", "slopes")},
    }
}
DAMAGES = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, SafetensorError, ArrowException)
DATA_FILES = ("weights.safetensors", "history.json", VOCABULARY, TREES)  # with digests


def save_model(model: Any, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a model, or that of a fitted `UnbiasedRanker`, to a new folder, atomically.

    `load_model` reads it; `export` writes it for other programs.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> model = unskew.fit("naive", log, steps=3, progress=False)
    >>> unskew.save_model(model, "model").name
    'model'
    """
    target, model = Path(folder), getattr(model, "model_", model)
    with new_folder(target, ABOUT, overwrite=overwrite) as scratch:
        save_file(model.tensors(), scratch / "weights.safetensors")
        _write_json(scratch / "history.json", model.history.to_json())
        card = model_card(model)
        (scratch / "README.md").write_text(card_markdown(card), encoding="utf-8")
        (scratch / "card.json").write_text(card_json(card), encoding="utf-8")
        if model.vocabulary is not None:
            pq.write_table(model.vocabulary.to_table(), scratch / VOCABULARY)
        if model.trees is not None:
            (scratch / TREES).write_text(model.trees, encoding="utf-8")
        digests = {name: file_digest(scratch / name) for name in DATA_FILES if (scratch / name).exists()}
        about = json.loads(json.dumps(_about(model) | {"digests": digests}))
        _write_json(scratch / ABOUT, about | {"digest": json_digest(about)})
    return target


def load_model(folder: str | Path, parts: Sequence[Any] = ()) -> Model:
    """Read a model that `save_model` wrote. This never runs code from the folder, and imports nothing for it.

    Args:
        parts: your own classes that the model was trained with: its method, its network.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> model = unskew.fit("naive", log, steps=3, progress=False)
    >>> unskew.load_model(unskew.save_model(model, "model")).recipe == model.recipe
    True
    """
    if remote(folder) is not None:
        with fetched(folder) as local:
            return load_model(local, parts)
    path = Path(folder)
    restore(path)
    about = _read_json(path / ABOUT)
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        raise ValueError(
            f"{path / ABOUT} has format {about.get('format')!r}, version {about.get('version')!r}, but "
            f"this release reads {FORMAT!r}, version {VERSION}: train the model again"
        )
    _verify(path, about)
    with _reading(path / "weights.safetensors"):
        tensors = load_file(path / "weights.safetensors")
    try:
        return _build(path, about, tensors, {outside_name(part): part for part in parts})
    except (*DAMAGES, RuntimeError, OverflowError) as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path / ABOUT} does not describe a model ({error}): save the model again") from error


def needed_parts(folder: str | Path) -> list[str]:
    """The user-defined classes that a saved model names, as `module:Class`; nothing is imported."""
    about = _read_json(Path(folder) / ABOUT)
    described = [about, *about.get("others", [])]
    networks = [each.get("problem", {}).get("network", {}).get("kind") for each in described]
    named = [name for pair in zip((each.get("method") for each in described), networks, strict=True) for name in pair]
    return [name for name in dict.fromkeys(named) if isinstance(name, str) and ":" in name]


def _build(path: Path, about: Mapping[str, Any], tensors: Mapping[str, Tensor], outside: Mapping[str, Any]) -> Model:
    """The model that `model.json` describes, if the tensors match it."""
    recipe, problem, method = _built(path, about, "method", tensors, outside)
    _check_sizes(path, "transform", lambda: from_spec(about["transform"]["spec"]), tensors)
    transform = from_spec(about["transform"]["spec"])
    _fill(path, "transform", transform, tensors)
    others = tuple(
        Member(*_built(path, {**about, **each}, member_name(number), tensors, outside))
        for number, each in enumerate(about.get("others", []))
    )
    weights = tuple(float(weight) for weight in about.get("weights", ()))
    if len(weights) != (1 + len(others) if others else 0):
        raise ValueError("an average needs one weight per ranker")
    names = about["feature_names"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("feature_names is not a list of names")
    history, vocabulary, trees = History(), None, None
    if (place := path / "history.json").exists():
        with _reading(place):
            history = History.from_json(_read_json(place))
    if method.uses_ids:
        with _reading(place := path / VOCABULARY):
            vocabulary = Vocabulary.from_table(read_parquet(place))
    if recipe.ranker == "trees":
        with _reading(place := path / TREES):
            trees = place.read_text(encoding="utf-8")
            from_lightgbm(trees)
    return Model(
        recipe=recipe,
        problem=problem,
        method=method.eval(),
        transform=transform.eval(),
        history=history,
        feature_names=tuple(names),
        categories={name: tuple(values) for name, values in about.get("categories", {}).items()},
        trained_on=about["trained_on"],
        vocabulary=vocabulary,
        trees=trees,
        others=others,
        weights=weights,
    )


def _built(
    path: Path, about: Mapping[str, Any], part: str, tensors: Mapping[str, Tensor], outside: Mapping[str, Any]
) -> tuple[Recipe, Problem, Method]:
    """A method as it was saved, with its problem."""
    method_class = _part("method", METHODS, about["method"], outside, path)
    network = _part("network", RANKERS, about["problem"]["network"]["kind"], outside, path)
    problem = Problem.from_json(about["problem"], network)
    tensors = _renamed(tensors, f"{part}.", OLD_NAMES.get(about["method"], {}))
    hyper = {**OLD_DEFAULTS.get(about["method"], {}), **about["hyper_parameters"]}
    recipe = Recipe(
        about["method"],
        {name: value for name, value in hyper.items() if name not in OLD_OPTIONS.get(about["method"], ())},
        Settings.from_json(about["settings"]),
        problem.network,
        about["transform"]["name"],
        about.get("ranker", "network"),
        Boosting(**about["boosting"]) if "boosting" in about else SETTINGS,
        about.get("tree_targets", old_tree_targets(about.get("ranker", "network"))),
        method_class,
    ).resolved()
    _check_sizes(path, part, lambda: method_class(problem, **recipe.hyper_parameters), tensors)
    method = method_class(problem, **recipe.hyper_parameters)
    _fill(path, part, method, tensors)
    return recipe, problem, method.eval()


def _renamed(tensors: Mapping[str, Tensor], part: str, names: Mapping[str, str]) -> dict[str, Tensor]:
    """Weights of a part under the names that they have now."""

    def now(name: str) -> str:
        old = next((old for old in names if name.startswith(part + old)), None)
        return name if old is None else part + names[old] + name.removeprefix(part + old)

    return {now(name): value for name, value in tensors.items()}


def _fill(path: Path, part: str, module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    state = _state(tensors, part)
    for name, value in state.items():
        # A fill value may be NaN: then the transform itself handles missing values.
        if not bool(value.isfinite().all()) and not (part == "transform" and name == "fill"):
            raise ValueError(f"{path}: '{part}.{name}' holds values that are not finite: train or copy the model again")
    module.load_state_dict(state)


def _state(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{part}."): value for name, value in tensors.items() if name.startswith(f"{part}.")}


def _check_sizes(path: Path, part: str, build: Callable[[], nn.Module], tensors: Mapping[str, Tensor]) -> None:
    """Refuse a description whose sizes differ from the weights, before anything is allocated."""
    try:
        with torch.device("meta"):
            wanted = {name: tuple(value.shape) for name, value in build().state_dict().items()}
    except RuntimeError as error:
        if "meta" in str(error):  # a user-defined class that reads values when it is built
            return
        raise
    found = {name: tuple(value.shape) for name, value in _state(tensors, part).items()}
    if wanted != found:
        name = sorted(wanted.items() ^ found.items())[0][0]
        raise ValueError(
            f"{path}: weights do not match model.json: {part}.{name} has shape {found.get(name)}, but must have "
            f"{wanted.get(name)}. If an earlier version of unskew saved this model, train it again"
        )


def _verify(path: Path, about: Mapping[str, Any]) -> None:
    """Refuse a model whose files do not match their digests, before anything is built from them."""
    if about.get("digest") != json_digest({name: value for name, value in about.items() if name != "digest"}):
        raise ValueError(f"{path / ABOUT} does not match its digest: it is damaged or was edited; save the model again")
    digests = about.get("digests")
    if not isinstance(digests, dict) or not {"weights.safetensors"} <= set(digests) <= set(DATA_FILES):
        raise ValueError(f"{path / ABOUT} is damaged (its digests): save the model again")
    for name, digest in digests.items():
        if not (path / name).is_file() or file_digest(path / name) != digest:
            raise ValueError(
                f"{path / name} cannot be read (its content does not match its SHA-256 digest): save the model again"
            )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Names the file in an error about its content."""
    try:
        yield
    except DAMAGES as error:
        raise ValueError(f"{path} cannot be read ({error}): save the model again") from error


def _part(what: str, choices: Mapping[str, Any], name: str, outside: Mapping[str, Any], path: Path) -> Any:
    """The class that a model names: built in, registered, or passed by the caller."""
    if name in outside:
        return outside[name]
    if ":" in name:
        short = name.rpartition(":")[2]
        raise ValueError(
            f"{path} needs the {what} {name}, which is not part of unskew and is not imported automatically: import "
            f"{short} and pass it, load_model(path, parts=[{short}])"
        )
    return find(what, choices, name)


def _about(model: Model) -> dict[str, Any]:
    curve = model.examination()
    trees = {"boosting": asdict(model.recipe.boosting), "tree_targets": model.recipe.tree_targets}
    average = {"others": [_method_entries(member) for member in model.others], "weights": list(model.weights)}
    return {
        "format": FORMAT,
        "version": VERSION,
        **_method_entries(model),
        "ranker": model.recipe.ranker,
        **({} if model.recipe.ranker == "network" else trees),
        "transform": {"name": model.recipe.transform, "spec": model.transform.spec()},
        "feature_names": list(model.feature_names),
        "categories": {name: list(values) for name, values in model.categories.items()},
        "examination": None if curve is None else curve.tolist(),
        "trained_on": dict(model.trained_on),
        "best_step": model.history.best_step,
        "best_value": model.history.best_value,
        "seconds": model.history.seconds,
        "versions": {
            "unskew": version("unskew"),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "python": platform.python_version(),
        },
        **(average if model.others else {}),
    }


def _method_entries(model: Model | Member) -> dict[str, Any]:
    return {
        "method": model.recipe.method,
        "hyper_parameters": dict(model.recipe.hyper_parameters),
        "settings": model.recipe.settings.to_json(),
        "problem": model.problem.to_json(),
    }


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} is not a saved model: it has no {path.name}")
    with _reading(path):
        data = read_json(path)
    if not isinstance(data, dict):
        raise ValueError(f"{path} is damaged (not a JSON object): save the model again")
    return data
