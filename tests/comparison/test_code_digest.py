"""The digest of the code that decides numbers: of the program, not of its words."""

from pathlib import Path

import pytest

import unskew
from unskew.comparison.code_digest import DECIDES, program_of

SOURCE = '''
"""Halves."""
import warnings

def half(x):
    """The half of x."""
    if x < 0:
        raise ValueError(f"x is {x}: pass at least 0")
    if x > 9:
        warnings.warn(f"{x} is much", RuntimeWarning, stacklevel=2)
    logger.info("half of %s", x)
    kind = "half"
    assert x >= 0, "checked above"
    return x / 2 if kind == "half" else x
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Halves.", "Half of a number."),
        ("The half of x.", "Half."),
        ("x is {x}: pass at least 0", "give 0 or more"),
        ("{x} is much", "very much"),
        ("half of %s", "halving %s"),
        ("checked above", "never"),
        ("return", "# so it is\n    return"),
        ("x / 2", "(x / 2)"),
    ],
)
def test_words_do_not_count(old, new):
    assert old in SOURCE
    assert program_of(SOURCE.replace(old, new)) == program_of(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x / 2", "x / 3"),
        ("x > 9", "x > 8"),
        ('kind = "half"', 'kind = "whole"'),
        ("ValueError", "TypeError"),
        ("RuntimeWarning", "UserWarning"),
        ("def half(x)", "def half(x, y=1)"),
    ],
)
def test_whatever_may_change_a_number_counts(old, new):
    assert old in SOURCE
    assert program_of(SOURCE.replace(old, new)) != program_of(SOURCE)


def test_every_part_that_decides_is_there():
    root = Path(unskew.__file__).parent
    assert [name for name in DECIDES if not ((root / name).is_dir() or (root / f"{name}.py").is_file())] == []
