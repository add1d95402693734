"""Options: names, types and ranges, read from annotations."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from unskew.options import Limits, NotEmpty, build, check, described, fits, options_of


@pytest.mark.parametrize(
    ("kind", "good", "bad", "words"),
    [
        (int, 3, 3.0, "a whole number"),
        (int, np.int64(3), True, "a whole number"),
        (float, 3, float("nan"), "a number"),
        (bool, True, 1, "true or false"),
        (str | None, None, 3, "text or none"),
        (Annotated[int, Limits(1)] | None, None, 0, "a whole number from 1, or none"),
        (Annotated[float, Limits(above=0, most=1)], 1, 0, "a number above 0 to 1"),
        (Literal["sum", "mean"], "sum", "max", "one of sum, mean"),
        (tuple[str, ...], ["a"], ["a", 1], "a list of texts"),
        (dict[str, list[float]], {"a": [1]}, {"a": ["b"]}, "a table of lists of numbers"),
        (dict[str, Annotated[list[Any], NotEmpty]], {"a": [1]}, {"a": []}, "a table of lists, none of them empty"),
    ],
)
def test_a_value_fits_its_annotation_or_is_refused_in_words(kind, good, bad, words):
    assert fits(good, kind)
    assert described(kind) == words
    with pytest.raises(ValueError, match=f"x must be {words}, got"):
        check(bad, kind, "x")


def test_numbers_of_numpy_become_pythons_own():
    assert type(check(np.float32(0.5), float, "x")) is float
    assert check(np.array([1, 2]), list[int], "x") == [1, 2]


def test_options_are_read_from_a_signature():
    class Part:
        def __init__(self, size, *, rate: float, kind: str = "a"):
            pass

    found = options_of(Part, keyword_only=True)
    assert [(entry.name, entry.kind, entry.needed) for entry in found.values()] == [
        ("rate", float, True),
        ("kind", str, False),
    ]


@dataclass(frozen=True)
class Inner:
    name: str
    size: int = 1


@dataclass(frozen=True)
class Outer:
    inner: tuple[Inner, ...] = ()
    by_name: dict[str, Inner] = field(default_factory=dict)


def test_a_dataclass_is_built_from_nested_tables():
    found = build(Outer, {"inner": [{"name": "a"}], "by_name": {"x": {"name": "b", "size": 2}}}, "f.toml")
    assert found == Outer((Inner("a"),), {"x": Inner("b", 2)})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"inner": [{"names": "a"}]},
            r"inner 1: unknown key 'names' \(did you mean 'name'\?\): choose from name, size",
        ),
        ({"inner": [{}]}, "f.toml, inner 1: 'name' is missing"),
        ({"inner": {"name": "a"}}, r"f.toml, inner must be a list of tables, as in \[\[inner\]\]"),
        ({"by_name": [1]}, r"f.toml, by_name must be a table of tables, as in \[by_name.NAME\]"),
        ({"by_name": {"x": {"name": 1}}}, "f.toml, by_name.x, name must be text, got 1"),
    ],
)
def test_mistakes_in_tables_are_named(table, message):
    with pytest.raises(ValueError, match=message):
        build(Outer, table, "f.toml")
