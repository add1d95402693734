"""Users by name: how people look and click."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from unskew.simulation.browsing import User
from unskew.simulation.coupled import Coupled, QueryContext
from unskew.simulation.independent import PageContext, PositionBased, RealClick, Trust
from unskew.simulation.sequential import Cascade, DependentClick, DynamicBayesian, UserBrowsing

USERS: dict[str, type[User]] = {
    "position_based": PositionBased,
    "trust": Trust,
    "real_click": RealClick,
    "cascade": Cascade,
    "dcm": DependentClick,
    "ubm": UserBrowsing,
    "dbn": DynamicBayesian,
    "coupled": Coupled,
    "query_context": QueryContext,
    "page_context": PageContext,
}


# What a hyper-parameter of a plain type must be; the others are checked where they are used.
PLAIN_TYPES: dict[str, tuple[type, str]] = {
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "str": (str, "text"),
}


def make_user(name: str, **hyper: Any) -> User:
    """The user of this name with these hyper-parameters."""
    return make("user", USERS, name, hyper)


def make(what: str, choices: Mapping[str, type], name: str, hyper: Mapping[str, Any]) -> Any:
    """One of the choices; an unknown name or hyper-parameter is refused with the known ones."""
    if name not in choices:
        raise ValueError(f"unknown {what} '{name}': choose one of {', '.join(choices)}")
    known = inspect.signature(choices[name]).parameters
    unknown = [key for key in hyper if key not in known]
    if unknown:
        raise ValueError(
            f"{what} '{name}' has no '{unknown[0]}': it takes {', '.join(known) if known else 'no hyper-parameters'}"
        )
    needed = [key for key, entry in known.items() if entry.default is entry.empty and key not in hyper]
    if needed:
        raise ValueError(f"{what} '{name}' needs a {needed[0]}: pass {needed[0]}=... from Python")
    for key, value in hyper.items():
        kind, words = PLAIN_TYPES.get(str(known[key].annotation), (object, ""))
        if not isinstance(value, kind):
            raise ValueError(f"{key} of {what} '{name}' must be {words}, got {value!r}")
    return choices[name](**hyper)


def describe(choices: Mapping[str, type], chosen: Any) -> dict[str, Any]:
    """Name and hyper-parameters of a choice, for the record."""
    names = [name for name, kind in choices.items() if kind is type(chosen)]
    settings = {key: getattr(chosen, key) for key in inspect.signature(type(chosen)).parameters if hasattr(chosen, key)}
    return {"name": names[0] if names else type(chosen).__name__, **settings}
