"""The command that repeats a result, made from the arguments of its function."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from unskew.command_line.declarations import COMMANDS, Option, options_of
from unskew.texts import redacted


def command_line(name: str, given: Mapping[str, Any]) -> str:
    """A command as it is typed, from arguments by the name of the parameter or of the option.

    Defaults are left out. What no option sets is an option of training (`--set`).

    >>> command_line("auto", {"log": "my log", "out": "model", "steps": 60, "hidden": [8, 4], "grade": {"click": 1.0}})
    "unskew auto 'my log' --out model --grade click=1 --set steps=60 --set 'hidden=[8, 4]'"
    """
    options = options_of(name)
    rest = {key: value for key, value in given.items() if value is not None}
    extra = dict(rest.pop("options", {}))
    rest |= {key: extra.pop(key) for key in ("grade", "sum_grades") if key in extra}
    own = {key: rest.pop(key if key in rest else option.to, None) for key, option in options.items() if key != "set"}
    words = [str(own[key]) for key in COMMANDS[name].arguments if own[key] is not None]
    for key, option in options.items():
        value = rest | extra if key == "set" else own[key]
        if key not in COMMANDS[name].arguments and value is not None and value != option.default:
            words += _words(option, value)
    return redacted(shlex.join(["unskew", name, *words]))


def _words(option: Option, value: Any) -> list[str]:
    if option.kind is bool:
        return [option.flag.partition("/")[0]] if value else []
    if option.form is not None:
        values = option.form.write(value) if value else []
    else:
        values = [str(each) for each in (value if isinstance(value, list | tuple) else [value])]
    return [word for text in values for word in (option.flag, text)]
