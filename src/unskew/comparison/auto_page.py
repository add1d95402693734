"""The report of `auto`: one page on what the log can tell, what was tried, why this one, and how sure that is."""

from __future__ import annotations

from pathlib import Path

from unskew.comparison.automatic import AutoVerdict
from unskew.evaluation.criteria import CRITERIA
from unskew.model import Model
from unskew.reporting.drawing import Drawn, line_figure
from unskew.reporting.page import Section, write_report
from unskew.reporting.sheets import NOTHING, Field, Sheet


def write_auto(found: AutoVerdict, place: Path, log: str, command: str, model: Model | None = None) -> Path:
    """Write the page.

    Args:
        model: the chosen one, whose examination curves are drawn.
    """
    sections = [
        Section("What was chosen", [f"{found.method}: {found.reason}."]),
        Section("Is it better than production?", [found.against_production]),
        Section("What the log can tell", [*found.log, *([found.coupling] if found.coupling else [])]),
        Section("What was tried", sheets=[advice_sheet(found), *([means_sheet(found)] if found.means else [])]),
    ]
    curves = None if model is None else curve_figure(model)
    if curves is not None:
        sections.append(Section("What it learnt of examination", figures=[curves]))
    if found.surer:
        sections.append(Section("What would make it surer", found.surer))
    sections.append(Section("To repeat it", command=command))
    return write_report(place, "A ranker chosen without labels", sections, f"Log: {log}.")


def curve_figure(model: Model) -> Drawn | None:
    """The learnt examination curve, and one per level of a bias column; None where the method has none."""
    curve = model.examination()
    if curve is None:
        return None
    curves = {"all": curve, **model.examinations()}
    lines = {name: ([float(k + 1) for k in range(len(each))], each.tolist()) for name, each in curves.items()}
    figure = line_figure(lines, x_label="position", y_label="examination, relative to the top")
    return Drawn("examination", f"Examination as learnt by {model.recipe.method}", figure)


def advice_sheet(found: AutoVerdict) -> Sheet:
    """The methods that were tried, and what the diagnosis says of each."""
    rows = tuple((Field(entry.method), Field(entry.word), Field(entry.reason)) for entry in found.tried)
    return Sheet("tried", "Methods", ("method", "diagnosis", "reason"), rows)


def means_sheet(found: AutoVerdict) -> Sheet:
    """Criteria of each method on the queries that chose."""
    names = [name for name in CRITERIA if any(name in values for values in found.means.values())]
    rows = tuple(
        (
            Field(method),
            *(Field(f"{values[name]:.4f}", values[name]) if name in values else Field(NOTHING) for name in names),
        )
        for method, values in found.means.items()
    )
    note = "Means over the held-out queries that chose; not every criterion counts on every log."
    return Sheet("criteria", "Criteria on held-out clicks", ("", *(CRITERIA[name].title for name in names)), rows, note)
