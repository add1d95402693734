"""Specs: build transforms from plain data. A spec can only name the classes listed here, so loading runs no code."""

from __future__ import annotations

from collections.abc import Callable

from unskew.data.raw_columns import RawColumns
from unskew.data.transforms import (
    Chain,
    Clip,
    HeavyTailLog,
    Identity,
    MinMax,
    PerQueryMinMax,
    Reciprocal,
    SignedLog,
    Spec,
    Standard,
    Transform,
)

KINDS: dict[str, Callable[..., Transform]] = {
    kind.kind: kind for kind in (Identity, SignedLog, Clip, Reciprocal, PerQueryMinMax, Standard, MinMax, HeavyTailLog)
}
AROUND = (Chain.kind, RawColumns.kind)


def from_spec(spec: Spec) -> Transform:
    """The transform that gave this spec, before its `state_dict` is loaded."""
    settings = dict(spec)
    kind = settings.pop("kind", None)
    if kind == Chain.kind:
        return Chain([from_spec(step) for step in settings["steps"]])
    if kind == RawColumns.kind:
        return RawColumns(from_spec(settings.pop("inner")), **settings)
    if kind not in KINDS:
        raise ValueError(f"unknown kind of feature transform '{kind}': choose from {', '.join([*KINDS, *AROUND])}")
    return KINDS[kind](**settings)
