"""The model card: training data, assumptions, evidence and limits of a model.

`README.md`, with front matter, is in the model's folder, as on the Hugging Face Hub; `card.json` has the same content
for programs. A card contains only what the model contains.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from unskew.data.clicks.lineage import lineage_line
from unskew.methods import hyper_parameters
from unskew.networks.registry import Network
from unskew.texts import for_markdown, redacted, shown
from unskew.training.model import MISSING, Model
from unskew.training.recipe import NETWORK_NAMES
from unskew.training.settings import Settings
from unskew.training.validation import CLICK_VALIDATIONS

Card = dict[str, Any]
TAGS = ("learning-to-rank", "unbiased-learning-to-rank")
PRODUCTION = "production"  # in the name of an average: a ranker that imitates it


def model_card(model: Model) -> Card:
    """The model card as plain values."""
    curve, history = model.examination(), model.history
    methods = [model.method, *(member.method for member in model.others)]
    names = model.feature_names or tuple(f"feature {number}" for number in range(model.n_features))
    fates = [column.became for column in model.columns()] or ["as it is"] * len(names)
    if model.trees is not None:
        fates = ["unchanged, including missing values"] * len(names)
    return {
        "library": "unskew",
        "version": version("unskew"),
        "method": model.name,
        "paper": "; ".join(dict.fromkeys(method.paper for method in methods)),
        "assumes": "; ".join(dict.fromkeys(method.assumes for method in methods)),
        "ranker": "boosted trees of LightGBM" if model.trees is not None else f"network '{model.problem.network.kind}'",
        "scores_depend_on": scores_depend_on(model),
        "lineage": model.lineage,
        "trained_on": dict(model.trained_on),
        "features": dict(zip(names, fates, strict=True)),
        "transform": model.recipe.transform,
        "hyper_parameters": dict(model.recipe.hyper_parameters),
        "examination": None if curve is None else curve.tolist(),
        "examination_by_level": {level: each.tolist() for level, each in model.examinations().items()},
        "evidence": {
            "validation": model.trained_on.get("validation"),
            "best_value": history.best_value,
            "best_step": history.best_step,
            "ending": history.ended,
            "of": "the method's network" if model.trees is not None else "the ranker",
            "warnings": list(history.warnings),
        },
        "limits": limits(model),
        "command": training_command(model),
    }


def scores_depend_on(model: Model) -> str | None:
    """Whether a score depends on the document alone or on the whole list; None: the method has no ranker."""
    try:
        return "document" if model.ranker().pointwise else "list"
    except ValueError:  # raised by click models that use positions only
        return None


def limits(model: Model) -> list[str]:
    """The known limits of the model."""
    found = [f"It is valid only if its assumption holds: {model.method.assumes}."]
    if model.others:
        found = [f"It is an average of the rankers of {model.name}, with their assumptions."]
        if PRODUCTION in model.name.split(" + "):
            found.append("One of them imitates the order of the production ranker from features.")
    if model.trained_on.get("validation") in (None, *CLICK_VALIDATIONS):
        found.append(
            "It was not validated on judgements: compare it with production before you serve it (`unskew compare`)."
        )
    never = model.trained_on.get("never_shown", [])
    if never:
        found.append(f"Positions never shown, counted from 1: {', '.join(str(place + 1) for place in never)}.")
    if scores_depend_on(model) is None:
        found.append("It predicts clicks but cannot rank: all documents get the same score.")
    if scores_depend_on(model) == "list":
        found.append("Scores are comparable only within a list: pass all candidates of a query together.")
    found.append("Values outside the range of training are extrapolated; see the table of features.")
    return found + [f"Training warned: {text}" for text in model.history.warnings]


def training_command(model: Model) -> str:
    """The command that trains it again, with all options that differ from the defaults (steps: if asked for)."""
    if model.others:
        return "unskew auto LOG --out MODEL"
    recipe, known = model.recipe, hyper_parameters(model.recipe.method_class)
    asked, optimizer = asdict(recipe.settings), recipe.settings.optimizer
    usual = {**asdict(Settings(optimizer=optimizer)), "optimizer": Settings().optimizer}
    default = Network(recipe.network.kind, outside=recipe.network.outside)
    options = {name: value for name, value in recipe.hyper_parameters.items() if value != known[name].default}
    options |= {name: value for name, value in asked.items() if name != "seed" and value != usual[name]}
    options |= {
        name: getattr(recipe.network, own)
        for name, own in NETWORK_NAMES.items()
        if getattr(recipe.network, own) != getattr(default if own != "kind" else Network(), own)
    }
    options |= recipe.tree_options()
    if recipe.transform != "automatic":
        options["transform"] = recipe.transform
    words = ["unskew", "train", "LOG", "--method", recipe.method, "--seed", str(recipe.settings.seed)]
    words += ["--ranker", recipe.ranker] if recipe.ranker != "network" else []
    for name, value in options.items():
        if value is not None:
            words += ["--set", f"{name}={_spelt(value)}"]
    return shlex.join([*words, "--out", "MODEL"])


def _spelt(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(_spelt(entry) for entry in value) if isinstance(value, list | tuple) else f"{value}"


def card_markdown(card: Card) -> str:
    """The card for people, with front matter."""
    trained = {name: value for name, value in card["trained_on"].items() if not isinstance(value, list | dict)}
    evidence = card["evidence"]
    if evidence["best_value"] is None:
        said = "None: training used no validation."
    else:
        value = f"{evidence['validation']} {evidence['best_value']:.4f}"
        said = f"{value} at step {evidence['best_step']}, of {evidence['of']}."
    if evidence["ending"]:
        said += f" Training {evidence['ending']}."
    tags = "\n".join(f"- {json.dumps(tag)}" for tag in (*TAGS, card["method"]))
    network = card["ranker"].startswith("network")
    transform = f"Transform: `{card['transform']}`." if network else "None: trees use raw features."
    features = _table(("feature", "transform"), list(card["features"].items()))
    if any("missing in" in fate for fate in card["features"].values()):
        features += f"\n\n{MISSING}"
    data = _table(("", ""), [(name.replace("_", " "), _shown(value)) for name, value in trained.items()])
    sections = {
        "Data": f"{lineage_line(card['lineage'])}.\n\n{data}",
        "Assumption": f"{card['assumes']}.",
        "Evidence on held-out data": said,
        "Limits": "\n".join(f"* {for_markdown(text)}" for text in card["limits"]),
        "Features": f"{transform}\n\n{features}",
    }
    if card["examination"] is not None:
        by_level = card["examination_by_level"]
        curves = zip(card["examination"], *by_level.values(), strict=True)
        rows = [(str(place), *(f"{value:.3f}" for value in values)) for place, values in enumerate(curves, start=1)]
        sections["Examination relative to the top"] = _table(("position", "examination", *by_level), rows)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", card["command"])), default=0))
    sections["Train it again"] = f"{fence}bash\n{shown(card['command'])}\n{fence}"
    return (
        f"---\nlibrary_name: unskew\ntags:\n{tags}\n---\n\n# Ranker learned from clicks by {card['method']}\n\n"
        f"Method: {card['method']} ({card['paper']}). Ranker: {card['ranker']}; a score depends on the "
        f"{card['scores_depend_on']}. Written by unskew {card['version']}.\n"
    ) + "".join(f"\n## {title}\n\n{text}\n" for title, text in sections.items())


def card_json(card: Card) -> str:
    """The card for programs."""
    return redacted(json.dumps(card, indent=2, default=str)) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first, *rest = [f"| {' | '.join(map(for_markdown, row))} |" for row in (header, *rows)]
    return "\n".join([first, "|" + "---|" * len(header), *rest])


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:,.10g}" if isinstance(value, int | float) else str(value)
