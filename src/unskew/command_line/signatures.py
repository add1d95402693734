"""What a function's source says: its parameters with their help, its summary, and constants. Nothing is imported."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parents[1]
NEEDED = ...  # the default of a parameter that has none


class Parameter(NamedTuple):
    """A parameter of a function: its annotation, its default, and its text under `Args:`."""

    kind: str
    default: Any
    help: str


@cache
def parameters(place: str) -> dict[str, Parameter]:
    """The parameters of `module:function`, or the fields of a dataclass, by name."""
    module, _, name = place.partition(":")
    owner = _definition(module, name)
    helps = _helps(ast.get_docstring(owner) or "")
    if isinstance(owner, ast.ClassDef):
        fields = [node for node in owner.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
        rows: list[tuple[str, ast.expr | None, ast.expr | None]]
        fields = [node for node in fields if "ClassVar" not in ast.unparse(node.annotation)]
        rows = [(ast.unparse(node.target), node.annotation, _default(node.value)) for node in fields]
        bases = [ast.unparse(base) for base in owner.bases]
        inherited = {name: each for base in bases for name, each in parameters(f"{module}:{base}").items()}
    else:
        inherited = {}
        given = owner.args
        places = [*given.posonlyargs, *given.args]
        defaults = [*[None] * (len(places) - len(given.defaults)), *given.defaults, *given.kw_defaults]
        pairs = zip([*places, *given.kwonlyargs], defaults, strict=True)
        rows = [(entry.arg, entry.annotation, default) for entry, default in pairs]
    return inherited | {
        name: Parameter(
            ast.unparse(kind) if kind else "",
            NEEDED if default is None else _value(module, default),
            helps.get(name, ""),
        )
        for name, kind, default in rows
    }


def _default(value: ast.expr | None) -> ast.expr | None:
    """The default of a field of a dataclass; None for what a function makes."""
    return ast.Constant(None) if isinstance(value, ast.Call) else value


def summary(place: str) -> str:
    """The first paragraph of a docstring, as one line; the source need not be parsed for it."""
    module, _, name = place.partition(":")
    docstring = re.search(rf'^def {name}\(.*?"""(.*?)(?:\n\n|""")', _source(module), re.MULTILINE | re.DOTALL)
    return " ".join(docstring[1].split()) if docstring else ""


def constant(place: str) -> Any:
    """The value of `module:NAME` or `module:Class.name`; of a table by name, its names.

    >>> constant("evaluation.criteria:DEFAULT_CRITERION")
    'dr'
    >>> constant("simulation.display:INTERVENTIONS")
    ('swap_top', 'swap_neighbours', 'shuffle')
    """
    module, _, path = place.partition(":")
    return _value(module, ast.parse(path, mode="eval").body)


def _value(module: str, node: ast.expr) -> Any:
    """The value of an expression: a literal, or a name that this module assigns or imports."""
    if isinstance(node, ast.Dict):
        return tuple(_value(module, key) for key in node.keys if key is not None)
    if not isinstance(node, ast.Name | ast.Attribute):
        return ast.literal_eval(node)
    first, *rest = ast.unparse(node).split(".")
    body = _body(module)
    source = _imports(module).get(first)
    if source is not None:
        inside = (PACKAGE / source.replace(".", "/") / f"{first}.py").exists()
        return constant(f"{source}.{first}:{'.'.join(rest)}" if inside else f"{source}:{'.'.join([first, *rest])}")
    for name in rest:
        body = next(entry.body for entry in body if isinstance(entry, ast.ClassDef) and entry.name == first)
        first = name
    for entry in body:
        target = entry.targets[0] if isinstance(entry, ast.Assign) else getattr(entry, "target", None)
        if isinstance(target, ast.Name) and target.id == first:
            return _value(module, entry.value)  # type: ignore[attr-defined]
        if isinstance(target, ast.Tuple) and first in map(ast.unparse, target.elts):
            return _value(module, entry.value.elts[[*map(ast.unparse, target.elts)].index(first)])  # type: ignore
    raise LookupError(f"unskew.{module} does not assign {ast.unparse(node)} at its top")


def _definition(module: str, name: str) -> ast.FunctionDef | ast.ClassDef:
    kinds = (ast.FunctionDef, ast.ClassDef)
    own = [node for node in _body(module) if isinstance(node, kinds) and node.name == name]
    return own[-1] if own else _definition(_imports(module)[name], name)  # the last one, after overloads


@cache
def _body(module: str) -> Sequence[ast.stmt]:
    return ast.parse(_source(module)).body


def _source(module: str) -> str:
    path = PACKAGE / module.replace(".", "/")
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


@cache
def _imports(module: str) -> dict[str, str]:
    """The modules of this package from which names are imported."""
    nodes = [(node, node.module or "") for node in _body(module) if isinstance(node, ast.ImportFrom)]
    own = [(node, source.removeprefix("unskew.")) for node, source in nodes if source.startswith("unskew.")]
    return {alias.name: source for node, source in own for alias in node.names if alias.asname is None}


def _helps(documentation: str) -> dict[str, str]:
    """The texts under `Args:`, by name, as sentences."""
    section = re.search(r"^Args:\n((?:    .*\n?|\n)*)", inspect.cleandoc(documentation), re.MULTILINE)
    texts: dict[str, str] = {}
    for entry in re.split(r"\n(?=    \w)", section[1].rstrip() if section else ""):
        names, _, text = entry.strip().partition(":")
        words = " ".join(text.split())
        texts |= {name.strip(): words[:1].upper() + words[1:] for name in names.split(",")}
    return texts
