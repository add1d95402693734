"""The command that a report prints repeats its run."""

import shlex

from unskew.comparison.outputs import command_text


def test_a_printed_command_has_every_option_and_repeats_those_with_several_values():
    text = command_text("compare", "log", set=["steps=60", "hidden=8,4"], held_out=0.3, test=None, scores=["a=b c.csv"])
    words = ["unskew", "compare", "log", "--set", "steps=60", "--set", "hidden=8,4", "--held-out", "0.3"]
    assert shlex.split(text) == [*words, "--scores", "a=b c.csv"]
