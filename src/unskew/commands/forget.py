"""`unskew forget`: remove users from a log."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import unskew
from unskew.commands.app import Json, command
from unskew.terminal import console, show_json


@command
def forget(
    log: Annotated[Path, typer.Argument(help="A click log with users as a bias column.")],
    users: Annotated[Path, typer.Option(help="A text file with one user per line.")],
    column: Annotated[str | None, typer.Option(help="The bias column with user ids. Default: user, user_id, …")] = None,
    json: Json = False,
) -> None:
    """Remove all rows of the given users from a click log, atomically."""
    done = unskew.forget(log, users, column=column)
    if json:
        show_json({"log": log, **asdict(done)})
        return
    console.print(
        f"{done.users:,} users forgotten ({done.not_found:,} are not in the log): {done.lists:,} lists, "
        f"{done.sessions:,.0f} sessions, {done.clicks:,.0f} clicks, {done.queries:,} queries that nobody else asked",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
