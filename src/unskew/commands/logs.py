"""Commands that make and compare logs: `simulate`, `ingest`, `forget`, `drift` and `readout`."""

from __future__ import annotations

from typing import Any

import typer

import unskew
from unskew.command_line.declarations import options_of
from unskew.command_line.signatures import constant
from unskew.commands.app import Given, call, print_result
from unskew.extensions import load_part
from unskew.ingestion.schema import check_schema
from unskew.ingestion.settings import Tables, as_options, parse_window, read_columns
from unskew.ingestion.settings import settings as settings_of

TABLES = ("features", "queries", "clicks")
STILL_THERE = 3  # exit code: a user who was to be forgotten is in a file
NOT_SETTINGS = ("source", "out", "yes", "columns", "dry_run", "overwrite", "json", "quiet", *TABLES)


def simulate(given: Given) -> Any:
    from unskew.simulation.policies import make_policy
    from unskew.simulation.users import make_user

    coupled = {} if given["coupling"] is None else {"coupling": given["coupling"]}
    policy, user = (load_part(given[name], allow_code=given["allow_code"]) for name in ("policy", "user"))
    made = {
        "policy": make_policy(policy, **given["policy_set"] or {}),
        "user": make_user(user, **(given["user_set"] or {}) | coupled),
    }
    return call("simulate", given, **made)


def ingest(given: Given) -> Any:
    """Wrong names are answered before anything slow is imported."""
    tables = {name: given[name] for name in TABLES}
    options = options_of("ingest")
    settings = {options[name].to: given[name] for name in options if name not in NOT_SETTINGS}
    settings["window"] = None if given["window"] is None else parse_window(given["window"])
    is_public = given["form"] in constant("data.public_logs.forms:CLICKS")
    if not is_public and (given["yes"] or (given["out"] is None and not given["dry_run"])):
        proposed = _proposed(given, tables, settings)
        if proposed is None:
            return None
        settings |= proposed
    elif not is_public:
        names, roles, _ = settings_of(given["columns"], settings)
        check_schema(Tables(given["source"], **tables, **names), roles)
    if given["out"] is None and not given["dry_run"]:
        raise ValueError("pass --out FOLDER to write the log, or --dry-run to preview it")
    if given["dry_run"]:
        preview = unskew.preview_ingest(given["source"], columns=given["columns"], **tables, **settings)
        print_result(preview, given, "Nothing was written. Run it without --dry-run to write the log.")
        return None
    return call("ingest", given, **settings)


def _proposed(given: Given, tables: Given, settings: Given) -> Given | None:
    """The options proposed for a table, which is printed; None: that is all, because nothing is to be written."""
    from unskew.ingestion.proposal import proposal_of

    names, _, how = settings_of(given["columns"], settings)
    options = options_of("ingest")
    typed = [
        name for name in options if name not in NOT_SETTINGS and given[name] not in (None, [], options[name].default)
    ]
    asked = {options[name].to: given[name] for name in typed}
    asked = ({} if given["columns"] is None else as_options(read_columns(given["columns"]))) | asked
    proposal = proposal_of(Tables(given["source"], **tables, **names), asked, how.memory, how.threads)
    if not given["json"] or not given["yes"]:
        end = "Nothing was written. Run the command, or add --yes --out log to this one."
        print_result(proposal, given, "" if given["yes"] else end)
    if not given["yes"]:
        return None
    if proposal.questions:
        raise ValueError("only you can decide:\n" + "\n".join(f"- {text}" for text in proposal.questions))
    return {name: value for name, value in proposal.options.items() if name not in asked}


def forget(given: Given) -> None:
    done = call("forget", given)
    print_result(done, given, files={"log": given["log"]})
    if given["check"] and done.found:
        raise typer.Exit(STILL_THERE)


def drift(given: Given) -> Any:
    read = unskew.open_log if given["stream"] else unskew.read_log
    return call("drift", given, a=read(given["log_a"]), b=read(given["log_b"]))


def readout(given: Given) -> Any:
    from unskew.data.clicks.windows import window

    place = given["curve"]
    curve = None if place is None else unskew.load_model(place).examination()
    if place is not None and curve is None:
        raise ValueError(f"{place} has no examination curve: pass a model trained with dla, two_tower or ipw")
    grades = {kind: float(weight) for kind, weight in (given["grade"] or {}).items()}
    log = (unskew.open_log if given["stream"] else unskew.read_log)(given["log"])
    return call("readout", given, log=window(log, given["since"], given["until"]), curve=curve, grades=grades or None)
