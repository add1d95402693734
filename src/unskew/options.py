"""Options: the one place that checks their names, types and ranges.

Annotations in a signature or a dataclass say which values an option accepts:

>>> check(0.0, Annotated[float, Limits(above=0)] | None, "learning_rate")
Traceback (most recent call last):
ValueError: learning_rate must be a number above 0, or none, got 0.0

Annotations other than numbers, text, lists and tables are not checked here; the part checks them itself.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
SINGULAR = {str: "text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "none"}
NOT_IN_FILES = {"in_files": False}  # metadata of a field that a file may not set
PLURAL = {str: "texts", int: "whole numbers", float: "numbers", bool: "true or false", NoneType: "none"}


@dataclass(frozen=True)
class Limits:
    """The range of a number."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    words: str = ""  # a description that replaces the generated one

    def hold(self, value: Any) -> bool:
        return self.least <= value <= self.most and self.above < value < self.below

    def described(self, number: str) -> str:
        low = f" above {self.above:g}" if self.above > -math.inf else f" from {self.least:g}"
        high = f" to {self.most:g}" if self.most < math.inf else f" and below {self.below:g}"
        return self.words or number + low + (high if min(self.most, self.below) < math.inf else "")


class NotEmpty:
    """A list with at least one entry."""


Count = Annotated[int, Limits(1)]
Probability = Annotated[float, Limits(0, 1)]
Probabilities = Annotated[Sequence[Probability], NotEmpty]
NotNegative = Annotated[float, Limits(0)]
Positive = Annotated[float, Limits(above=0)]
Share = Annotated[float, Limits(above=0, most=1, words="a share above 0 and at most 1")]


@dataclass(frozen=True)
class Option:
    """An argument that can be set by name."""

    name: str
    kind: Any
    default: Any = MISSING

    @property
    def needed(self) -> bool:
        return self.default is MISSING


def options_of(part: Callable[..., Any], *, keyword_only: bool = False) -> dict[str, Option]:
    """The options of a class or a function, read from its signature; with `**others`, also those of its base class.

    Args:
        keyword_only: leave out arguments that can be passed by position.
    """
    signature = inspect.signature(part)
    hints = _hints(part.__init__ if inspect.isclass(part) and not is_dataclass(part) else part)
    inherited: dict[str, Option] = {}
    if inspect.isclass(part) and any(entry.kind is entry.VAR_KEYWORD for entry in signature.parameters.values()):
        inherited = options_of(part.__mro__[1], keyword_only=keyword_only)
    return inherited | {
        name: Option(name, hints.get(name, Any), MISSING if entry.default is entry.empty else entry.default)
        for name, entry in signature.parameters.items()
        if entry.kind is entry.KEYWORD_ONLY or (not keyword_only and entry.kind is entry.POSITIONAL_OR_KEYWORD)
    }


def unknown_name(given: Iterable[str], known: Iterable[str]) -> str | None:
    """The first name that is not known."""
    choices = list(known)
    return next((name for name in given if name not in choices), None)


def near(name: str, known: Iterable[str]) -> str:
    """A "did you mean" hint to end a sentence with; empty if no name is similar."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def check_choice(name: str, known: Iterable[str], what: str) -> None:
    """Refuse a name that is not one of the known ones.

    >>> check_choice("drr", ["dr", "score_likelihood"], "criterion")
    Traceback (most recent call last):
    ValueError: unknown criterion 'drr' (did you mean 'dr'?): choose one of dr, score_likelihood
    """
    choices = list(known)
    if name not in choices:
        raise ValueError(f"unknown {what} '{name}'{near(name, choices)}: choose one of {', '.join(choices)}")


def check(value: Any, kind: Any, where: str) -> Any:
    """The value as plain Python numbers and lists, or an error that says what it must be."""
    value = plain(value)
    if not fits(value, kind):
        hint = near(value, get_args(kind)) if get_origin(kind) is Literal and isinstance(value, str) else ""
        raise ValueError(f"{where} must be {described(kind)}, got {value!r}{hint}")
    return value


def check_fields(part: Any) -> None:
    """Refuse values of a dataclass that the annotations of its fields do not allow: its `__post_init__`."""
    for name, option in options_of(type(part)).items():
        check(getattr(part, name), option.kind, name)


def build(kind: type[T], table: Any, where: str) -> T:
    """A dataclass from a table in a file, field by field; unknown keys are refused."""
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table, got {table!r}")
    hints = _hints(kind)
    entries = {entry.name: entry for entry in fields(kind) if entry.metadata != NOT_IN_FILES}  # type: ignore[arg-type]
    unknown = unknown_name(table, entries)
    if unknown is not None:
        raise ValueError(f"{where}: unknown key '{unknown}'{near(unknown, entries)}: choose from {', '.join(entries)}")
    for name, entry in entries.items():
        if entry.default is MISSING and entry.default_factory is MISSING and name not in table:
            raise ValueError(f"{where}: '{name}' is missing")
    return kind(**{name: _built(hints[name], value, name, f"{where}, {name}") for name, value in table.items()})


def _built(kind: Any, value: Any, name: str, where: str) -> Any:
    """A value of a field: a dataclass, a list or a table of them, or a plain one."""
    inner: Any = next((part for part in get_args(kind) if is_dataclass(part)), None)
    if is_dataclass(kind):
        return build(kind, value, where)  # type: ignore[arg-type]
    if inner is not None and get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{where} must be a list of tables, as in [[{name}]]")
        return tuple(build(inner, entry, f"{where} {number}") for number, entry in enumerate(value, start=1))
    if inner is not None and get_origin(kind) is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be a table of tables, as in [{name}.NAME]")
        return {key: build(inner, entry, f"{where}.{key}") for key, entry in value.items()}
    checked = check(value, kind, where)
    return tuple(checked) if get_origin(kind) is tuple else checked


def fits(value: Any, kind: Any) -> bool:
    """Whether a value matches an annotation."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        rules = [rule for rule in inner[1:] if isinstance(rule, Limits)]
        empty = any(rule is NotEmpty for rule in inner[1:]) and not value
        return fits(value, inner[0]) and not empty and all(rule.hold(value) for rule in rules)
    if origin in (Union, UnionType):
        return any(fits(value, entry) for entry in inner)
    if origin is Literal:
        return value in inner
    if origin is type:
        return isinstance(value, type)
    if origin in (tuple, list, Sequence):
        return isinstance(value, list | tuple) and all(fits(entry, inner[0]) for entry in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(fits(entry, inner[1]) for entry in value.values())
    if kind in (int, float):
        number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
        return number and math.isfinite(value)
    return isinstance(value, kind) if kind in SINGULAR else True  # the part checks other kinds itself


def described(kind: Any, *, several: bool = False) -> str:
    """A kind of value in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        words = described(inner[0], several=several)
        limits = next((rule for rule in inner[1:] if isinstance(rule, Limits)), None)
        return words if limits is None else limits.described(words)
    if origin in (Union, UnionType):
        parts = [described(entry, several=several) for entry in inner]
        limited = any(get_origin(entry) is Annotated for entry in inner)
        return (", or " if limited else " or ").join(parts)
    if origin is type:
        return "classes" if several else "a class"
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin in (tuple, list, Sequence, dict, Mapping):
        name = "table" if origin in (dict, Mapping) else "list"
        of = inner[-1] if origin in (dict, Mapping) else inner[0]
        words = ("" if of is Any else f" of {described(of, several=True)}") + _empty_words(of)
        return f"{name}s{words}" if several else f"a {name}{words}"
    return (PLURAL if several else SINGULAR).get(kind, "of its kind")


def plain(value: Any) -> Any:
    """The same value as plain Python numbers and lists, which JSON can hold, unlike those of numpy and torch."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def parse_grades(text: str) -> dict[str, float]:
    """Parse weights by event type.

    >>> parse_grades("click=1,add_to_cart=3,purchase=5")
    {'click': 1.0, 'add_to_cart': 3.0, 'purchase': 5.0}
    """
    grades = {}
    for part in text.split(","):
        kind, _, weight = (entry.strip() for entry in part.rpartition("="))
        try:
            grades[kind] = float(weight)
        except ValueError:
            kind = ""
        if not kind or not 0 <= grades[kind] < float("inf"):
            raise ValueError(f"'{part}' is not a grade: write KIND=WEIGHT, such as click=1,add_to_cart=3,purchase=5")
    return grades


def _empty_words(kind: Any) -> str:
    return ", none of them empty" if get_origin(kind) is Annotated and NotEmpty in get_args(kind)[1:] else ""


def _hints(part: Any) -> dict[str, Any]:
    """Annotations; empty if a name in them cannot be resolved, such as one imported only for type checkers."""
    try:
        return get_type_hints(part, include_extras=True)
    except (NameError, TypeError):
        return {}
