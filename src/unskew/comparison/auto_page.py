"""The report of `auto`: the choice against production first, then the curve, and the models compared."""

from __future__ import annotations

from pathlib import Path

from unskew.comparison.automatic import Chosen
from unskew.data.clicks.lineage import lineage_line
from unskew.evaluation.criteria import CRITERIA
from unskew.reporting.drawing import Drawn, interval_figure, position_figure
from unskew.reporting.sheets import Section, write_report


def write_auto(chosen: Chosen, place: Path, log: str, command: str) -> Path:
    """Write the page."""
    found, model = chosen.verdict, chosen.model
    figures = []
    rivals = [one for one in found.standings if one.difference is not None]
    if rivals:
        rows = [
            (CRITERIA[name].title, one.difference or 0.0, one.least, one.most)
            for name, one in zip(found.criteria, rivals, strict=True)
        ]
        title = f"{found.method} against production on other held-out queries, with 95% intervals over queries"
        figures.append(Drawn("production", title, interval_figure(rows, "difference from production")))
    curve = model.examination()
    if curve is not None:
        title = f"Examination by position, as learned by {model.recipe.method}"
        figures.append(Drawn("examination", title, position_figure({"all": curve, **model.examinations()})))
    reasons = [f"{found.reason}.", found.against_production, *(found.stakes.lines if found.stakes else [])]
    sections = [
        Section(f"Choice: {found.method}", reasons, figures=figures),
        *([Section("How to be more certain", found.surer)] if found.surer else []),
        Section("What the log can tell", found.log),
        Section("Models considered", sheets=[*([found.climb] if found.steps else []), found.considered]),
        Section("Run it again", command=command),
    ]
    part = f" {found.part}." if found.part else ""
    lead = f"Log: {log}. {lineage_line(model.lineage)}.{part}"
    return write_report(place, "A ranker chosen without labels", sections, lead)
