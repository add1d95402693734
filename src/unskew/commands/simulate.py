"""`unskew simulate`: clicks of simulated users on judged data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import unskew
from unskew.commands.app import DATA_HELP, AllowCode, Json, Overwrite, Quiet, Seed, command
from unskew.commands.source import constant
from unskew.parts import load_part
from unskew.terminal import console, parse_options, show_json, show_table

if TYPE_CHECKING:
    from unskew.data.clicks.click_log import ClickLog

POLICIES = ", ".join(constant("simulation.policies:POLICIES"))
USERS = ", ".join(constant("simulation.users:USERS"))
INTERVENTIONS = ", ".join(constant("simulation.interventions:INTERVENTIONS"))


@command
def simulate(
    data: Annotated[str, typer.Argument(help=f"{DATA_HELP} Default split: train.")],
    out: Annotated[Path, typer.Option(help="Output folder for the log; the truth is written next to it.")],
    policy: Annotated[str, typer.Option(help=f"The logging policy: {POLICIES}.")] = "svm",
    user: Annotated[str, typer.Option(help=f"The user model: {USERS}.")] = "position_based",
    sessions: Annotated[int, typer.Option(help="Sessions per query.")] = 128,
    coupling: Annotated[float | None, typer.Option(help="How much examination depends on the document.")] = None,
    intervene: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SHARE", help=f"Randomize a share of sessions: {INTERVENTIONS}."),
    ] = None,
    policy_set: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Set an option of the policy.")
    ] = None,
    user_set: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Set an option of the user.")] = None,
    n_shown: Annotated[int, typer.Option(help="Documents shown per list.")] = 10,
    joint: Annotated[bool, typer.Option("--joint", help="Keep which documents were clicked together.")] = False,
    drop_clickless: Annotated[
        bool, typer.Option("--drop-clickless", help="Leave out sessions without a click.")
    ] = False,
    record: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Record examination: share=1 for all sessions; misses, false_alarms, interest, on_click.",
        ),
    ] = None,
    display_probabilities: Annotated[
        bool,
        typer.Option(
            "--display-probabilities",
            help="Log the probability with which the policy shows each document at its position.",
        ),
    ] = False,
    allow_code: AllowCode = False,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Simulate users who click on judged data, and write the click log."""
    from unskew.simulation.policies import make_policy
    from unskew.simulation.users import make_user

    coupled = {} if coupling is None else {"coupling": coupling}
    shows = make_policy(load_part(policy, allow_code=allow_code), **parse_options(policy_set or []))
    clicks = make_user(load_part(user, allow_code=allow_code), **parse_options(user_set or []) | coupled)
    simulation = unskew.simulate(
        data,
        shows,
        clicks,
        sessions=sessions,
        n_shown=n_shown,
        interventions=parse_options(intervene or []),
        joint=joint,
        drop_clickless=drop_clickless,
        record=parse_options(record) if record else None,
        display_probabilities=display_probabilities,
        seed=seed,
        out=out,
        overwrite=overwrite,
        progress=not (quiet or json),
    )
    _show_log(simulation.log, out, json)


def _show_log(log: ClickLog, out: Path, json: bool) -> None:
    rates = log.click_rates()
    if json:
        show_json(
            {
                "log": out,
                "sessions": log.n_sessions,
                "clicks": log.n_clicks,
                "lists": log.n_lists,
                "joint": log.joint,
                "compaction": log.compaction,
                "click_rates": [float(rate) for rate in rates],
            }
        )
        return
    console.print(f"{log!r}\nwritten to {out}; {log.compaction:,.1f} sessions per row", markup=False, highlight=False)
    rows = [(str(place + 1), f"{rate:.4f}") for place, rate in enumerate(rates)]
    show_table("Clicks per impression by position (from 1)", ("position", "rate"), rows)
