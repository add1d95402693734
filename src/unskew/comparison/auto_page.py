"""The report of `auto`: the choice against production first, then the curve, and the models compared."""

from __future__ import annotations

from pathlib import Path

from unskew.comparison.automatic import AutoVerdict
from unskew.comparison.choice import MEMBERS
from unskew.data.clicks.lineage import lineage_line
from unskew.evaluation.criteria import CRITERIA
from unskew.reporting.drawing import Drawn, interval_figure, line_figure
from unskew.reporting.sheets import Field, Section, Sheet, signed, write_report
from unskew.training.model import Model


def write_auto(found: AutoVerdict, place: Path, log: str, command: str, model: Model | None = None) -> Path:
    """Write the page.

    Args:
        model: the chosen model, whose examination curves are drawn.
    """
    curves = None if model is None else curve_figure(model)
    against = production_figure(found)
    sections = [
        Section(
            f"Choice: {found.method}",
            [f"{found.reason}.", found.against_production, *(found.stakes.lines if found.stakes else [])],
            figures=[figure for figure in (against, curves) if figure is not None],
        ),
        *([Section("How to be more certain", found.surer)] if found.surer else []),
        Section("What the log can tell", found.log),
        Section("Models considered", sheets=[*([step_sheet(found)] if found.steps else []), advice_sheet(found)]),
        Section("Run it again", command=command),
    ]
    part = f" {found.part}." if found.part else ""
    lineage = "" if model is None else f" {lineage_line(model.lineage)}."
    return write_report(place, "A ranker chosen without labels", sections, f"Log: {log}.{lineage}{part}")


def production_figure(found: AutoVerdict) -> Drawn | None:
    """The choice against production by each criterion that could compare them; None if none could."""
    rivals = [one for one in found.standings if one.difference is not None]
    if not rivals:
        return None
    rows = [
        (CRITERIA[name].title, one.difference or 0.0, one.least, one.most)
        for name, one in zip(found.criteria, rivals, strict=True)
    ]
    title = f"{found.method} against production on other held-out queries, with 95% intervals over queries"
    return Drawn("production", title, interval_figure(rows, "difference from production"))


def curve_figure(model: Model) -> Drawn | None:
    """The learned examination curve, and one per level of a bias column; None if the method has none."""
    curve = model.examination()
    if curve is None:
        return None
    curves = {"all": curve, **model.examinations()}
    lines = {name: ([float(k + 1) for k in range(len(each))], each.tolist()) for name, each in curves.items()}
    figure = line_figure(lines, x_label="position", y_label="examination, relative to the top")
    return Drawn("examination", f"Examination by position, as learned by {model.recipe.method}", figure)


def advice_sheet(found: AutoVerdict) -> Sheet:
    """The methods that were considered, and what the diagnosis says about each."""
    rows = tuple((Field(entry.method), Field(entry.word), Field(entry.reason)) for entry in found.tried)
    return Sheet("tried", "Methods", ("method", "diagnosis", "reason"), rows)


def step_sheet(found: AutoVerdict) -> Sheet:
    """The models that were compared by held-out clicks, from the simplest upwards."""
    rows = tuple(
        (
            Field(step.method),
            Field(MEMBERS[step.method].part),
            Field(step.over),
            Field(signed(step.gain), step.gain),
            Field(f"{signed(step.low)} to {signed(step.high)}", step.low),
            Field("yes" if step.accepted else "no"),
        )
        for step in found.steps
    )
    columns = ("model", "adds", "to", "gain per click", "interval", "accepted")
    note = (
        "Gain: how much better the larger model predicts the place of a click in its list, in log-likelihood per click "
        "of queries that it did not learn from, with 95% intervals over queries, for all models of a level together. A "
        "model is accepted if its interval is above 0."
    )
    return Sheet("steps", "Models compared by held-out clicks", columns, rows, note)
