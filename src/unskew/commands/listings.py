"""Commands that show what there is, `methods`, and the whole pipeline, `demo`."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

from unskew.commands.app import Given, call
from unskew.reporting.terminal import console, show_json, show_table


def demo(given: Given) -> None:
    call("demo", given)  # it prints step by step
    if console.is_terminal and (sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)):
        webbrowser.open(Path(given["out"]).resolve().as_uri())


def methods(given: Given) -> None:
    from unskew.methods import METHODS, hyper_parameters

    defaults = {name: {key: o.default for key, o in hyper_parameters(m).items()} for name, m in METHODS.items()}
    if given["json"]:
        about = {name: {"paper": m.paper, "assumes": m.assumes, "needs": m.detail} for name, m in METHODS.items()}
        show_json({name: {**about[name], "hyper_parameters": defaults[name]} for name in METHODS})
        return
    rows = [
        (name, method.paper, method.assumes, "\n".join(f"{key}={value}" for key, value in defaults[name].items()))
        for name, method in METHODS.items()
    ]
    show_table("Methods", ("name", "paper", "assumes", "hyper-parameters (--set)"), rows, left=4)
