"""User models by name: how people examine and click."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unskew.extensions import find, name_of
from unskew.options import check, near, options_of, unknown_name
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


def make_user(name: User | str | type[User] | Mapping[str, Any], **hyper: Any) -> User:
    """The user of this name, of this class, or of a table as in experiment files; a user itself unchanged."""
    return make("user", USERS, name, hyper)


def make(what: str, choices: Mapping[str, type], part: Any, hyper: Mapping[str, Any]) -> Any:
    """One of the choices; the error for an unknown name or hyper-parameter lists the known ones.

    Args:
        part: a name, a class, or a table with a name and hyper-parameters; anything else is returned unchanged.
    """
    if isinstance(part, Mapping):
        if "name" not in part:
            names = ", ".join(choices)
            raise ValueError(f"{what} {dict(part)} has no name: write {{'name': NAME, ...}} with one of {names}")
        hyper = {key: value for key, value in part.items() if key != "name"} | dict(hyper)
        part = part["name"]
    if not isinstance(part, str | type):
        return part
    found, name = find(what, choices, part), name_of(choices, part)
    known = options_of(found)
    unknown = unknown_name(hyper, known)
    if unknown is not None:
        takes = ", ".join(known) or "no hyper-parameters"
        raise ValueError(f"{what} '{name}' has no option '{unknown}'{near(unknown, known)}; it accepts {takes}")
    needed = next((key for key, entry in known.items() if entry.needed and key not in hyper), None)
    if needed is not None:
        raise ValueError(f"{what} '{name}' needs a {needed}: pass {needed}=... in Python")
    for key, value in hyper.items():
        check(value, known[key].kind, f"{key} of {what} '{name}'")
    return found(**hyper)


def describe(choices: Mapping[str, type], chosen: Any) -> dict[str, Any]:
    """Name and hyper-parameters of a choice, to store them."""
    settings = {key: getattr(chosen, key) for key in options_of(type(chosen)) if hasattr(chosen, key)}
    return {"name": name_of(choices, type(chosen)), **settings}
