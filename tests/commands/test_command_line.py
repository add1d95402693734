"""Commands are declared as data: every option exists, and a printed command parses again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from unskew.cli import COMMANDS, command_of
from unskew.command_line.declarations import Option, options_of
from unskew.command_line.repeating import command_line
from unskew.command_line.signatures import parameters
from unskew.command_line.values import DATA, FILES, FOLDS, FRESH, GRADES, GRIDS, NAMES, PAIRS, SHARE

SAMPLES: dict[Any, Any] = {bool: True, int: 3, float: 0.25, str: "two words", Path: Path("a b")}
SAMPLES |= {list[str]: ["one", "two"], list[Path]: [Path("one"), Path("two")]}
FORMS = {
    PAIRS: {"steps": 60, "hidden": [8, 4], "name": "1"},
    GRIDS: {"lbd": {"penalty": [0.1, 1]}},
    FILES: {"a": "b c"},
    GRADES: {"click": 1.0, "buy": 5.0},
    FOLDS: [1, 2],
    NAMES: ["a", "b"],
    DATA: ["a", "b"],
    SHARE: 0.25,
    FRESH: ["dla", "naive"],
}


def sample(option: Option) -> Any:
    return SAMPLES[option.kind] if option.form is None else FORMS[option.form]


def parsed(line: str) -> dict[str, Any]:
    """The values of a command line, by the name of the option."""
    program, name, *words = shlex.split(line)
    assert program == "unskew"
    single = typer.Typer()
    single.command(name)(command_of(name))
    options = options_of(name)
    given = typer.main.get_command(single).make_context(name, words).params
    return {
        key: value if value is None or (form := options[key].form) is None else form.read(value)
        for key, value in given.items()
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_a_printed_command_is_read_as_it_was_given(name: str) -> None:
    values = {key: sample(option) for key, option in options_of(name).items()}
    given = {key: value for key, value in values.items() if key != "set"}
    assert parsed(command_line(name, {**given, "options": values["set"]} if "set" in values else given)) == values


@pytest.mark.parametrize("name", COMMANDS)
def test_a_printed_command_may_be_given_by_the_parameters_of_its_function(name: str) -> None:
    options = {key: option for key, option in options_of(name).items() if key != "set"}
    by_parameter = {option.to: sample(option) for option in options.values()}
    assert parsed(command_line(name, by_parameter)).items() >= {k: sample(o) for k, o in options.items()}.items()


def test_only_what_differs_from_the_defaults_is_printed() -> None:
    assert command_line("diagnose", {"log": "log", "quick": False, "seed": 0, "cap": None}) == "unskew diagnose log"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_text_and_a_parameter(name: str) -> None:
    command = COMMANDS[name]
    assert command.summary
    assert all(option.help for option in options_of(name).values())
    renamed = {option.to for option in command.options.values() if option.to}
    assert renamed <= {known for place in (command.function, *command.sources) if place for known in parameters(place)}
