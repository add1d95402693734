"""The report of a diagnosis: the verdict and one picture first, then answers, plots and tables.

Positions count from 1 in the report, and from 0 in a log.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from unskew.data.clicks.lineage import lineage_line
from unskew.diagnosis.advice import CANNOT, DOUBTFUL, TRAIN, TRY, Advice
from unskew.diagnosis.assemble import Diagnosis, Refusal
from unskew.diagnosis.click_rank import ClickRank
from unskew.diagnosis.findings import findings
from unskew.diagnosis.verdict import verdict
from unskew.propensities.curve import Curve
from unskew.reporting.drawing import STYLE, WIDTH, Drawn, Line, heatmap, line_figure
from unskew.reporting.page import Section, write_report
from unskew.reporting.sheets import Field, Sheet

TITLES = {
    TRAIN: "Worth training",
    TRY: "Possible, but with little to gain or no way to check it",
    DOUBTFUL: "Doubtful: the log contradicts an assumption, or cannot test it",
    CANNOT: "Cannot work on this log",
}
MOST_IN_MATRIX = 20  # positions in a heat map
HIGHEST = 3.0  # of a relative curve that is drawn
SMALLEST = 1e-12
WHAT_IT_IS = (
    "The click rate mixes the relevance of the documents at a position with the effect of the position. Curves show "
    "the effect of the position alone, relative to the first, if examination depends on the position only. Bands are "
    "intervals over queries. Positions count from 1."
)


def write_diagnosis(diagnosis: Diagnosis, path: str | Path, name: str, command: str) -> Path:
    """Write the page; it is self-contained."""
    judged = verdict(diagnosis)
    first, *others = _position_figures(diagnosis)
    sections = [
        Section("Verdict", list(judged.lines), figures=[first]),
        Section("What the log says", facts={found.question: found.answer for found in findings(diagnosis)}),
        *(
            Section(title, facts=_by_reason([entry for entry in judged.methods if entry.word == word]))
            for word, title in TITLES.items()
            if any(entry.word == word for entry in judged.methods)
        ),
        Section(
            "Positions",
            [WHAT_IT_IS],
            sheets=[_position_sheet(diagnosis), *_curve_sheet(diagnosis)],
            figures=others,
        ),
        *_coverage_section(diagnosis),
        *_matrix_section(diagnosis),
        *_leak_section(diagnosis),
        *_refusal_section(diagnosis),
        Section("Run it again", command=command),
    ]
    about = repr(diagnosis.log).removeprefix("ClickLog(").removesuffix(")")
    part = f" {diagnosis.part}." if diagnosis.part else ""
    lead = f"{about}. {lineage_line(diagnosis.lineage)}.{part}"
    return write_report(path, f"Diagnosis of {name}", sections, lead)


def _by_reason(entries: Sequence[Advice]) -> dict[str, str]:
    """Methods with the same reason as one entry."""
    methods: dict[str, list[str]] = {}
    for entry in entries:
        methods.setdefault(entry.reason, []).append(entry.method)
    return {", ".join(names): reason for reason, names in methods.items()}


def position_rows(diagnosis: Diagnosis) -> tuple[tuple[str, ...], list[list[str]]]:
    """Columns and rows of the table of positions, as text."""
    rates, curve = diagnosis.rates, diagnosis.curve
    strength = diagnosis.strength
    columns = ["position", "impressions", "click rate", f"{rates.level:.0%} interval"]
    if curve is not None:
        columns += [f"examination ({curve.estimator})", f"{curve.level:.0%} interval"]
    looked = diagnosis.recorded_curve
    if looked is not None:
        columns += ["recorded examination", f"{looked.level:.0%} interval"]
    if not isinstance(strength, Refusal):
        columns.append("relevance")
    rows = []
    for number, row in enumerate(rates.rows()):
        cells = [f"{row['position'] + 1}", f"{row['impressions']:,.0f}", f"{row['rate']:.4f}"]
        cells.append(_interval(row["low"], row["high"], 4))
        for known in (curve, looked):
            cells += [] if known is None else _curve_cells(known, row["position"])
        if not isinstance(strength, Refusal):
            cells.append(f"{strength.relevance[number]:.2f}" if number < len(strength.relevance) else "–")
        rows.append(cells)
    return tuple(columns), rows


def _curve_cells(curve: Curve, position: int) -> list[str]:
    place = int(np.searchsorted(curve.positions, position))
    if place == len(curve.positions) or curve.positions[place] != position:
        return ["–", "–"]
    return [f"{curve.values[place]:.3f}", _interval(curve.low[place], curve.high[place], 3)]


def _interval(low: float, high: float, digits: int) -> str:
    """Both ends, or a dash where there are too few impressions for an interval."""
    return f"{low:.{digits}f}–{high:.{digits}f}" if math.isfinite(low) and math.isfinite(high) else "–"


def _position_sheet(diagnosis: Diagnosis) -> Sheet:
    columns, rows = position_rows(diagnosis)
    note = (
        "Relevance: click rate divided by the examination curve, relative to the first position."
        if columns[-1] == "relevance"
        else ""
    )
    return _sheet("positions", "Clicks, examination and relevance by position", columns, rows, note)


def _position_figures(diagnosis: Diagnosis) -> list[Drawn]:
    """Plots by position; examination, where the log supports an estimate, is the first."""
    rates = diagnosis.rates
    shown: dict[str, Line] = {"click rate": ((rates.positions + 1).tolist(), rates.rates.tolist())}
    band: dict[str, Line] = {"click rate": (rates.low.tolist(), rates.high.tolist())}
    figures = [
        *_curve_figures(diagnosis),
        Drawn(
            "click rate",
            "Clicks per impression at each position, with intervals over queries",
            line_figure(shown, x_label="position", y_label="clicks per impression", bands=band),
        ),
    ]
    if not isinstance(diagnosis.strength, Refusal):
        strength = diagnosis.strength
        line: dict[str, Line] = {"relevance": ((strength.positions + 1).tolist(), strength.relevance.tolist())}
        of_line: dict[str, Line] = {"relevance": (strength.low.tolist(), np.minimum(strength.high, HIGHEST).tolist())}
        figure = line_figure(line, x_label="position", y_label="mean relevance, relative to the first", bands=of_line)
        title = "How well the logging policy ranked: click rate divided by examination"
        figures.append(Drawn("logger", title, figure))
    return figures


def _curve_figures(diagnosis: Diagnosis) -> list[Drawn]:
    """The estimated examination curves, and those that methods learn along with a ranker."""
    looked = {} if diagnosis.recorded_curve is None else {"recorded": diagnosis.recorded_curve}
    estimated = {name: curve for name, curve in diagnosis.curves.items() if isinstance(curve, Curve)} | looked
    learnt = {name: curve for name, curve in diagnosis.learnt.items() if not isinstance(curve, Refusal)}
    figures = []
    if estimated:
        lines = {name: _line(curve.positions + 1, curve.values) for name, curve in estimated.items()}
        bands = {name: _line(curve.low, curve.high) for name, curve in estimated.items()}
        rates = diagnosis.rates
        through = {"click rate": _line(rates.positions + 1, rates.rates / max(rates.rates[0], SMALLEST))}
        title = "Examination by position, from every estimator that this log supports; click rate for comparison"
        figures.append(Drawn("curves", title, _curves(lines, bands, through)))
    if learnt:
        lines = {name: _line(np.arange(len(curve.values)) + 1, curve.values) for name, curve in learnt.items()}
        bands = {name: _line(curve.low, curve.high) for name, curve in learnt.items()}
        best = diagnosis.curve
        references = ({} if best is None else {best.estimator: best}) | looked
        beside = {name: _line(curve.positions + 1, curve.values) for name, curve in references.items()}
        title = "Examination as methods learn it along with a ranker; it depends on their model of relevance"
        figures.append(Drawn("learnt", title, _curves(lines, bands, beside)))
    return figures


def _curves(lines: dict[str, Line], bands: dict[str, Line], reference: dict[str, Line]) -> Figure:
    return line_figure(
        lines, x_label="position", y_label="examination, relative to the first", bands=bands, reference=reference
    )


def _line(one: np.ndarray, other: np.ndarray) -> Line:
    """Two rows of numbers, clipped to the range of the plot."""
    return np.asarray(one).tolist(), np.clip(np.nan_to_num(other, posinf=HIGHEST), None, HIGHEST).tolist()


def _curve_sheet(diagnosis: Diagnosis) -> list[Sheet]:
    curves = {name: curve for name, curve in diagnosis.curves.items() if isinstance(curve, Curve)}
    if not curves:
        return []
    rows = []
    for position in diagnosis.rates.positions.tolist():
        cells = [str(position + 1)]
        for curve in curves.values():
            value, interval = _curve_cells(curve, position)
            cells.append(value if interval == "–" else f"{value} ({interval})")
        rows.append(cells)
    return [_sheet("curves", "Examination by estimator, with intervals over queries", ("position", *curves), rows)]


def _coverage_section(diagnosis: Diagnosis) -> list[Section]:
    coverage = diagnosis.coverage
    if isinstance(coverage, Refusal) or len(coverage.positions) < 2:
        return []
    n = min(len(coverage.positions), MOST_IN_MATRIX)
    documents = coverage.documents[:n, :n].astype(np.float64)
    np.fill_diagonal(documents, np.nan)  # documents shown at one position link nothing
    text = (
        "The number of documents that were shown at both positions of a pair. Without any, the two positions cannot be "
        "compared directly."
    )
    if not np.nansum(documents):
        return [Section("Links between positions", [text, "No document was shown at two positions."])]
    names = [str(position + 1) for position in coverage.positions[:n]]
    figure = _matrix_figure(documents, names, names, "position", 0)
    return [
        Section(
            "Links between positions", [text], figures=[Drawn("coverage", "Documents shown at both positions", figure)]
        )
    ]


def _matrix_section(diagnosis: Diagnosis) -> list[Section]:
    rank = diagnosis.rank
    if not isinstance(rank, ClickRank):
        return []
    matrix = rank.matrix
    n = min(len(matrix.positions), MOST_IN_MATRIX)
    columns = [str(position + 1) for position in matrix.positions[:n]]
    figure = _matrix_figure(matrix.rates[:, :n], columns, list(matrix.kinds), "group of documents", 3)
    rows = [
        [str(row["dimension"]), f"{row['rate_singular_value']:.3f}", f"{row['rate_share']:.2%}", _p(row["rate_p"])]
        for row in rank.rows()
    ]
    sheet = _sheet("rank", "Singular values of the click matrix", ("dimension", "value", "share", "p"), rows)
    text = (
        "Documents shown at several positions, grouped by click rate in one half of the sessions; rates are from "
        "the other half. If clicks were a product of a document factor and a position factor, the rows would be "
        "multiples of each other."
    )
    summary = rank.summary()
    if rank.scalar_is_enough:  # as far as this matrix can show: groups differ in click rate, not in features
        summary = f"The rates do not contradict this (p = {_p(rank.rates.p_values[0])}). This test ignores features."
    drawn = Drawn("click-matrix", "Clicks per impression by group of documents and position", figure)
    return [Section("The click matrix", [text, summary], sheets=[sheet], figures=[drawn])]


def _leak_section(diagnosis: Diagnosis) -> list[Section]:
    rows = []
    if not isinstance(diagnosis.position_leaks, Refusal):
        found = diagnosis.position_leaks.leaks or (diagnosis.position_leaks.closest,)
        word = "encodes the position" if diagnosis.position_leaks.leaks else "closest to the position"
        rows += [[leak.feature, word, f"{leak.agreement:.3f} of pairs in the shown order"] for leak in found]
    if not isinstance(diagnosis.click_leaks, Refusal):
        leaks = diagnosis.click_leaks
        word = "computed from clicks?" if leaks.leaks else "closest to clicks"
        for leak in leaks.leaks or (leaks.closest,):
            rows.append([leak.feature, word, f"correlation {leak.correlation:.3f}, at most {leaks.ceiling:.3f}"])
    if not rows:
        return []
    columns = ("feature", "suspicion", "evidence")
    return [
        Section("Features", sheets=[_sheet("features", "Features that leak, or come closest to it", columns, rows)])
    ]


def _refusal_section(diagnosis: Diagnosis) -> list[Section]:
    parts = {
        "users": diagnosis.users,
        "coverage": diagnosis.coverage,
        **{f"curve, {name}": curve for name, curve in diagnosis.curves.items()},
        "click matrix": diagnosis.rank,
        "coupling": diagnosis.coupling,
        "strength of the logging policy": diagnosis.strength,
        "shuffled lists": diagnosis.shuffled,
        **{f"learned curve, {name}": curve for name, curve in diagnosis.learnt.items()},
        "theorems of LBD": diagnosis.bounds,
        "features that encode the position": diagnosis.position_leaks,
        "features computed from clicks": diagnosis.click_leaks,
    }
    refused = {name: part.reason for name, part in parts.items() if isinstance(part, Refusal)}
    return [Section("What was not measured, and why", facts=refused)] if refused else []


def _matrix_figure(values: np.ndarray, columns: list[str], rows: list[str], y_label: str, digits: int) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 0.9 + 0.3 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        heatmap(axes, values, columns, rows, digits)
        axes.set_xlabel("position")
        axes.set_ylabel(y_label)
    return figure


def _sheet(name: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> Sheet:
    cells = tuple(tuple(Field(text, _number(text)) for text in row) for row in rows)
    return Sheet(name, title, tuple(columns), cells, note)


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", "").removesuffix("%"))
    except ValueError:
        return None


def _p(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}"
