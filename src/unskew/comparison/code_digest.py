"""A digest of the code that decides numbers, to recognize rows from another version of the code.

It covers the program, not its text: comments, layout, docstrings and the wording of errors, warnings and log lines may
change without changing the digest.
"""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

# Code that decides a number in a row.
DECIDES = (
    "lists",
    "extensions",
    "processes",
    "data",
    "simulation",
    "networks",
    "methods",
    "evaluation",
    "training",
    "propensities",
    "comparison/held_out",
    "comparison/outside",
    "comparison/sources",
    "comparison/tasks",
    "papers/few_labels",
    "papers/tasks",
)
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
TELLS = ("warn", "debug", "info", "warning", "error", "exception")  # methods of `warnings` and of loggers


@cache
def code_digest() -> str:
    """A hash of the code that decides results."""
    root = Path(__file__).parents[1]
    files = [root / f"{name}.py" for name in DECIDES if (root / f"{name}.py").is_file()]
    for name in DECIDES:
        files += (root / name).rglob("*.py") if (root / name).is_dir() else []
    digest = hashlib.sha256()
    for file in sorted(files):
        program = program_of(file.read_text(encoding="utf-8"))
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + program.encode() + b"\0")
    return digest.hexdigest()[:12]


def program_of(source: str) -> str:
    """The program of a module without comments, docstrings and the wording of messages.

    >>> program_of('def half(x):  # of x\\n    "The half."\\n    return x / 2')
    'def half(x):\\n    return x / 2'
    """
    tree = ast.parse(source)
    for node in list(ast.walk(tree)):
        _silence(node)
    return ast.unparse(tree)


def _silence(node: ast.AST) -> None:
    """Remove texts for people from one node, but keep the class of an error."""
    if isinstance(node, WITH_DOCSTRING):
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            node.body = node.body[1:] or [ast.Pass()]
    elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        node.exc.args, node.exc.keywords = [], []
    elif isinstance(node, ast.Assert):
        node.msg = None
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TELLS:
        node.args = node.args[1:]  # `warnings.warn(text)`, `logger.info(text)`
