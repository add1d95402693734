"""Values as they are typed: each form reads words of the command line, and writes them again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from unskew.options import parse_grades

GRID = "method.name=value,value, e.g. lbd.penalty=0.1,1,10"


class Form(NamedTuple):
    """How a value is typed: `read` takes a word, or the words of an option that can be repeated."""

    read: Callable[[Any], Any]
    write: Callable[[Any], list[str]]  # one word per time that the option is given
    repeated: bool = False


def _pair(pair: str, what: str, example: str) -> tuple[str, str]:
    """Both sides of NAME=VALUE."""
    name, equals, text = pair.partition("=")
    if not equals or not name:
        raise ValueError(f"'{pair}' is not {what}: write {example}")
    return name, text


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse `name=value` pairs; a value is JSON if it parses, a list if comma-separated parts do, otherwise text."""
    given = (_pair(pair, "an option", "name=value, e.g. max_weight=10") for pair in pairs)
    return {name.replace("-", "_"): _value(text) for name, text in given}


def parse_grids(pairs: Sequence[str]) -> dict[str, dict[str, list[Any]]]:
    """`method.name=value,value` pairs: method -> hyper-parameter -> values to choose from."""
    grids: dict[str, dict[str, list[Any]]] = {}
    for pair in pairs:
        name, text = _pair(pair, "a grid", GRID)
        method, _, option = name.partition(".")
        if not (method and option and text):
            raise ValueError(f"'{pair}' is not a grid: write {GRID}")
        grids.setdefault(method, {})[option.replace("-", "_")] = [_value(value) for value in text.split(",")]
    return grids


def parse_folds(text: str) -> list[int]:
    """Comma-separated numbers of folds."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(f"--folds takes comma-separated numbers starting at 1, got '{text}'") from error


def share_or_name(text: str) -> float | str:
    """A share of the queries, or judged data."""
    try:
        return float(text)
    except ValueError:
        return text


def written(value: Any) -> str:
    """A value that `parse_options` reads as itself.

    >>> parse_options([f"x={written([8, 4])}", f"y={written('1')}", f"z={written(None)}"])
    {'x': [8, 4], 'y': '1', 'z': None}
    """
    if isinstance(value, str) and _value(value) == value:
        return value
    plain = list(value) if isinstance(value, tuple) else value
    return "none" if plain is None else json.dumps(plain, ensure_ascii=False)


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for candidate in (text, f"[{text}]"):
        try:
            return json.loads(candidate)
        except ValueError:
            continue
    return text


def _pairs(options: Mapping[str, Any]) -> list[str]:
    return [f"{name}={written(value)}" for name, value in options.items()]


def _written_grids(grids: Mapping[str, Mapping[str, Sequence[Any]]]) -> list[str]:
    return [f"{m}.{name}={','.join(map(written, each))}" for m, grid in grids.items() for name, each in grid.items()]


def _joined(values: str | Sequence[Any]) -> list[str]:
    return [values if isinstance(values, str) else ",".join(map(str, values))]


PAIRS = Form(parse_options, _pairs, repeated=True)
GRIDS = Form(parse_grids, _written_grids, repeated=True)
FILES = Form(
    lambda pairs: dict(_pair(pair, "a ranker for --scores", "NAME=FILE.parquet") for pair in pairs),
    lambda files: [f"{name}={file}" for name, file in files.items()],
    repeated=True,
)
GRADES = Form(parse_grades, lambda grades: [",".join(f"{kind}={weight:g}" for kind, weight in grades.items())])
FOLDS = Form(parse_folds, _joined)
NAMES = Form(lambda text: [name.strip() for name in text.split(",")], _joined)
DATA = Form(lambda text: [text] if "=" in text else text.split(","), _joined)  # train=FILE,valid=FILE,test=FILE is one
SHARE = Form(share_or_name, lambda value: [str(value)])
FRESH = Form(
    lambda labels: "all" in labels or labels,
    lambda labels: ["all"] if labels in (True, "all") else list(labels),
    repeated=True,
)
