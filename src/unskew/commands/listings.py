"""`unskew methods` and `unskew data`: lists of methods and data sets."""

from __future__ import annotations

import unskew
from unskew.commands.app import Json, command
from unskew.terminal import cell, show_json, show_table


@command
def methods(json: Json = False) -> None:
    """List the methods with their papers, assumptions and hyper-parameters."""
    from unskew.methods import METHODS, hyper_parameters

    defaults = {
        name: {entry.name: entry.default for entry in hyper_parameters(method).values()}
        for name, method in METHODS.items()
    }
    if json:
        show_json(
            {
                name: {"paper": m.paper, "assumes": m.assumes, "needs": m.detail, "hyper_parameters": defaults[name]}
                for name, m in METHODS.items()
            }
        )
        return
    rows = [
        (name, method.paper, method.assumes, "\n".join(f"{key}={value}" for key, value in defaults[name].items()))
        for name, method in METHODS.items()
    ]
    show_table("Methods", ("name", "paper", "assumes", "hyper-parameters (--set)"), rows, left=4)


@command
def data(json: Json = False) -> None:
    """List the data sets of the catalogue, and which are available here."""
    rows = unskew.data_sets().rows
    if json:
        show_json([row._asdict() for row in rows])
    else:
        show_table("Data sets", rows[0]._fields, [[cell(value) for value in row] for row in rows])
