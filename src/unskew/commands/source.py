"""Defaults and names for help texts, read from the source of modules that are slow to import."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]


def constant(place: str) -> Any:
    """The value of `module:NAME` or `module:Class.name`; of a table by name, its names.

    >>> constant("evaluation.criteria:DEFAULT_CRITERION")
    'dr'
    >>> constant("simulation.interventions:INTERVENTIONS")
    ('swap_top', 'swap_neighbours', 'shuffle')
    """
    module, _, path = place.partition(":")
    *classes, name = path.split(".")
    body = _statements(module)
    for owner in classes:
        body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == owner)
    value = _assigned(body).get(name)
    if value is None:
        raise LookupError(f"unskew.{module} does not assign {path} at its top")
    return tuple(map(_literal, value.keys)) if isinstance(value, ast.Dict) else _literal(value)


@cache
def _statements(module: str) -> Sequence[ast.stmt]:
    return ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")).body


def _assigned(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """Names with the expressions assigned to them."""
    found: dict[str, ast.expr] = {}
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        found |= {target.id: value for target in targets if isinstance(target, ast.Name) and value is not None}
    return found


def _literal(value: ast.expr | None) -> Any:
    return None if value is None else ast.literal_eval(value)
