"""Tree files: write and read the formats of boosted trees that search engines load.

    lightgbm  .txt   LightGBM's text format, for LightGBM itself
              .json  `dump_model`, for Vespa
    xgboost   .json  `dump_model(dump_format="json")`, for the plugins of OpenSearch and Elasticsearch, and for Vespa
              .ubj   `save_model`, for Vespa and XGBoost itself

Every file contains the feature names. The codes of categories are in a second file, `FILE.categories.json`: for each
such feature its values, whose numbers, from 0, the engine must send. Files are read as data, without the tree library;
`.ubj` files can only be written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unskew.data.files import write_file
from unskew.data.untrusted import DEEPEST_TREE, parse_json, read_json
from unskew.networks.trees import Forest, Node, Split, from_lightgbm

FORMS: dict[str, tuple[str, ...]] = {"lightgbm": (".txt", ".json"), "xgboost": (".json", ".ubj")}


def categories_place(path: Path) -> Path:
    """The path of the category codes of these trees."""
    return path.with_name(f"{path.name}.categories.json")


def write_categories(path: Path, categories: Mapping[str, Sequence[str]]) -> str:
    """Write the codes of categories beside an exported file, none if there are no categories; gives a note."""
    codes = categories_place(path)
    if not categories:
        codes.unlink(missing_ok=True)  # codes of an earlier file
        return ""
    write_file(
        codes, _as_json({name: list(values) for name, values in categories.items()})
    )  # data: nothing is cut from it
    return f"; {codes.name} holds the codes of categories"


def read_categories(path: Path) -> dict[str, tuple[str, ...]]:
    """Values of each category of these trees, in the order of their codes; empty if there are no categories."""
    place = categories_place(path)
    if not place.is_file():
        return {}
    try:
        return {str(name): tuple(map(str, values)) for name, values in read_json(place).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{place} cannot be read ({error}): export the trees again") from error


def write_trees(booster: Any, kind: str, ending: str, missing: float = np.nan) -> bytes:
    """The booster as the content of a file.

    Args:
        missing: the value that the engine sends for a missing feature; in an XGBoost dump, missing values take the
            branch of this value.
    """
    return WRITERS[kind, ending](booster, missing)


def _as_json(content: Any) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def _xgboost_json(booster: Any, missing: float) -> bytes:
    trees = [json.loads(tree) for tree in booster.get_dump(dump_format="json")]
    if not np.isnan(missing):
        for tree in trees:
            _send_missing(tree, missing)
    return _as_json(trees)


def _send_missing(node: dict[str, Any], value: float) -> None:
    """Let missing values take the branch of this value, so that engines that omit it and engines that send it agree."""
    if "leaf" not in node:
        node["missing"] = node["yes"] if np.float32(value) < np.float32(node["split_condition"]) else node["no"]
        for child in node["children"]:
            _send_missing(child, value)


WRITERS: dict[tuple[str, str], Callable[[Any, float], bytes]] = {
    ("lightgbm", ".txt"): lambda booster, _: booster.model_to_string(num_iteration=-1).encode(),
    ("lightgbm", ".json"): lambda booster, _: _as_json(booster.dump_model(num_iteration=-1)),
    ("xgboost", ".json"): _xgboost_json,
    ("xgboost", ".ubj"): lambda booster, _: bytes(booster.save_raw("ubj")),
}


def read_trees(path: str | Path) -> Forest:
    """The trees of a `.txt` or `.json` file that `unskew export` wrote."""
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"{source} does not exist: write it with `unskew export MODEL --to {source}`")
    try:
        return parse_trees(source.read_bytes(), source.suffix)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise ValueError(f"{source} cannot be read as trees ({error}): export it again") from error


def parse_trees(content: bytes, ending: str, names: Sequence[str] | None = None) -> Forest:
    """The trees of a file's content.

    Args:
        names: names of all features, in order, for XGBoost's dump, which names only the features of its splits.
    """
    text = content.decode()
    return from_lightgbm(text) if ending == ".txt" else parse_dump(parse_json(text, DEEPEST_TREE), names)


def parse_dump(data: Any, names: Sequence[str] | None = None) -> Forest:
    """The trees of a JSON dump of LightGBM (an object) or XGBoost (a list)."""
    if isinstance(data, Mapping):
        known = tuple(data["feature_names"])
        return Forest(tuple(_from_lightgbm_dump(tree["tree_structure"]) for tree in data["tree_info"]), known)
    found = tuple(dict.fromkeys(name for tree in data for name in _split_names(tree)))
    order = {name: number for number, name in enumerate(names or found)}
    return Forest(tuple(_from_xgboost_dump(tree, order) for tree in data), tuple(order))


def _from_lightgbm_dump(node: Mapping[str, Any]) -> Node:
    if "leaf_value" in node:
        return float(node["leaf_value"])
    left, right = _from_lightgbm_dump(node["left_child"]), _from_lightgbm_dump(node["right_child"])
    if node["decision_type"] == "==":
        codes = frozenset(int(code) for code in str(node["threshold"]).split("||"))
        return Split(node["split_feature"], 0.0, False, left, right, codes)
    threshold = float(node["threshold"])
    goes_left = bool(node["default_left"]) if node["missing_type"] == "NaN" else threshold >= 0
    return Split(node["split_feature"], threshold, goes_left, left, right)


def _from_xgboost_dump(node: Mapping[str, Any], order: Mapping[str, int]) -> Node:
    if "leaf" in node:
        return float(node["leaf"])
    children = {child["nodeid"]: _from_xgboost_dump(child, order) for child in node["children"]}
    below = float(np.nextafter(np.float32(node["split_condition"]), np.float32(-np.inf)))  # yes if x < condition
    missing_left = node["missing"] == node["yes"]
    return Split(order[node["split"]], below, missing_left, children[node["yes"]], children[node["no"]])


def _split_names(node: Mapping[str, Any]) -> list[str]:
    if "leaf" in node:
        return []
    return [node["split"], *(name for child in node["children"] for name in _split_names(child))]
