"""Diagnose a log, and write the report: the verdict and one picture first, then answers, plots and tables.

Positions count from 1 in the report, and from 0 in a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from unskew.command_line.repeating import command_line
from unskew.data.clicks.lineage import lineage_line
from unskew.data.clicks.within_memory import MEMORY
from unskew.data.files import check_place
from unskew.data.inputs import LogOrPlace, Place, as_part
from unskew.diagnosis.advice import TITLES
from unskew.diagnosis.assemble import Diagnosis, curve_cells, position_rows
from unskew.diagnosis.parts import PARTS, QUICK, Work
from unskew.display import Screen
from unskew.propensities.curve import Curve
from unskew.reporting.answers import all_known, attempt, known
from unskew.reporting.drawing import STYLE, WIDTH, Drawn, heatmap, line_figure
from unskew.reporting.sheets import Section, write_report
from unskew.reporting.terminal import Follow, counting_progress, followed

Lines = Mapping[str, tuple[np.ndarray, ...]]  # positions from 0, values, and both ends of their interval

MOST_IN_MATRIX = 20  # positions in a heat map
HIGHEST = 3.0  # of a relative curve that is drawn
SMALLEST = 1e-12
WHAT_IT_IS = (
    "The click rate mixes the relevance of the documents at a position with the effect of the position. Curves show "
    "the effect of the position alone, relative to the first, if examination depends on the position only. Bands are "
    "intervals over queries. Positions count from 1."
)


def diagnose(
    log: LogOrPlace,
    out: Place | None = None,
    *,
    quick: bool = False,
    users: str | None = None,
    cap: float | None = None,
    seed: int = 0,
    memory: str | None = MEMORY,
    progress: Follow = True,
) -> Diagnosis:
    """Diagnose a click log: what it identifies, and which methods are worth training on it.

    `drift` compares two logs, `estimate_propensities` estimates only the curve.

    Args:
        out: HTML file for the report.
        quick: skip what needs a trained model.
        users: the bias column that names users; it is counted, not used as bias.
        cap: maximum number of sessions per user; the excess has no weight and is counted.
        memory: limit for a log on disk; None: no limit. If the log needs more, a random sample of its queries is read.
        progress: False for no bar, or a function that receives the number of finished and of all parts.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> unskew.diagnose(log, quick=True, progress=False).to_table().num_rows
    10
    """
    if out is not None:
        check_place(Path(out), overwrite=True)
        if Path(out).is_dir():
            raise IsADirectoryError(
                f"{out} is a folder: pass a file for the report, such as {Path(out) / 'report.html'}"
            )
    clicks, part = as_part(log, memory)
    if not clicks.n_sessions or not clicks.mask.any():
        raise ValueError("the log is empty: there is nothing to diagnose")
    if users is not None and users not in clicks.bias:
        has = ", ".join(clicks.bias) if clicks.bias else "none; ingest the column with --bias COLUMN"
        raise ValueError(f"the log has no bias column '{users}' with users. Found: {has}")
    if cap is not None and users is None:
        raise ValueError("a cap needs the column with users: pass --users COLUMN (in Python users=…)")
    work = Work(clicks, users=users, cap=cap, seed=seed)
    with followed(progress, counting_progress, "diagnose", "parts") as report:
        _run(work, quick, report)
    name = str(log) if isinstance(log, str | Path) else "LOG"
    diagnosis = Diagnosis(log=work.log, **work.results, part="" if part is None else part.note, name=name)
    if out is not None:
        again = {"log": name, "quick": quick, "users": users, "cap": cap, "seed": seed, "memory": memory}
        write_diagnosis(diagnosis, out, name, command_line("diagnose", again))
    return diagnosis


def _run(work: Work, quick: bool, progress: Callable[..., None]) -> None:
    """Compute all parts, in order."""
    total = sum(1 if part.names is None else len([*part.names(work)]) for part in PARTS.values())
    done = 0

    def run(compute: Callable[[], Any]) -> Any:
        nonlocal done
        result, done = attempt(compute), done + 1
        progress(done, total)
        return result

    def skip(*_: Any) -> None:
        raise ValueError(QUICK)

    for name, part in PARTS.items():
        made = replace(part, compute=skip) if quick and part.fitted else part
        work.results[name] = made.results(work, run)


def write_diagnosis(diagnosis: Diagnosis, path: str | Path, name: str, command: str) -> Path:
    """Write the page; it is self-contained."""
    verdict = diagnosis.verdict
    first, *others = _position_figures(diagnosis)
    positions = [_position_sheet(diagnosis), *_curve_sheet(diagnosis)]
    sections = [
        Section("Verdict", list(verdict.lines), figures=[first]),
        Section("What the log says", facts={entry.question: entry.answer for entry in diagnosis.findings()}),
        *(
            Section(title, facts={names: reason for own, reason, names in verdict.by_reason() if own == word})
            for word, title in TITLES.items()
        ),
        Section("Positions", [WHAT_IT_IS], sheets=positions, figures=others),
        *_coverage_section(diagnosis),
        *_matrix_section(diagnosis),
        _leak_section(diagnosis),
        Section("What was not measured, and why", facts=diagnosis.refused()),
        Section("Run it again", command=command),
    ]
    about = repr(diagnosis.log).removeprefix("ClickLog(").removesuffix(")")
    part = f" {diagnosis.part}." if diagnosis.part else ""
    lead = f"{about}. {lineage_line(diagnosis.lineage)}.{part}"
    return write_report(path, f"Diagnosis of {name}", sections, lead)


def _position_sheet(diagnosis: Diagnosis) -> Screen:
    columns, rows = position_rows(diagnosis)
    text = "Relevance: click rate divided by the examination curve, relative to the first position."
    notes = [text] if columns[-1] == "relevance" else []
    return Screen("Clicks, examination and relevance by position", columns, rows, notes, name="positions")


def _position_figures(diagnosis: Diagnosis) -> list[Drawn]:
    """Plots by position; examination, where the log supports an estimate, is the first."""
    rates, strength = diagnosis.rates, known(diagnosis.strength)
    shown: Lines = {"click rate": (rates.positions, rates.rates, rates.low, rates.high)}
    title = "Clicks per impression at each position, with intervals over queries"
    figures = [*_curve_figures(diagnosis), _drawn("click rate", title, shown, "clicks per impression")]
    if strength is not None:
        high = np.minimum(strength.high, HIGHEST)
        lines: Lines = {"relevance": (strength.positions, strength.relevance, strength.low, high)}
        title = "How well the logging policy ranked: click rate divided by examination"
        figures.append(_drawn("logger", title, lines, "mean relevance, relative to the first"))
    return figures


def _curve_figures(diagnosis: Diagnosis) -> Iterator[Drawn]:
    """The estimated examination curves, and those that methods learn along with a ranker."""
    rates, best = diagnosis.rates, diagnosis.curve
    recorded = {} if diagnosis.recorded_curve is None else {"recorded": _line(diagnosis.recorded_curve)}
    estimated = {name: _line(curve) for name, curve in all_known(diagnosis.curves).items()} | recorded
    learnt = all_known(diagnosis.learnt)
    label = "examination, relative to the first"
    if estimated:
        title = "Examination by position, from every estimator that this log supports; click rate for comparison"
        clicks = _clipped(rates.rates / max(rates.rates[0], SMALLEST))
        yield _drawn("curves", title, estimated, label, {"click rate": (rates.positions, clicks)})
    if learnt:
        title = "Examination as methods learn it along with a ranker; it depends on their model of relevance"
        beside = ({} if best is None else {best.estimator: _line(best)}) | recorded
        lines = {name: _line(curve) for name, curve in learnt.items()}
        yield _drawn("learnt", title, lines, label, beside)


def _drawn(file: str, title: str, lines: Lines, y_label: str, beside: Lines | None = None) -> Drawn:
    """A plot of lines by position, with their intervals, and of others beside them."""
    figure = line_figure(
        {name: ((x + 1).tolist(), y.tolist()) for name, (x, y, *_) in lines.items()},
        x_label="position",
        y_label=y_label,
        bands={name: (low.tolist(), high.tolist()) for name, (*_, low, high) in lines.items()},
        reference={name: ((x + 1).tolist(), y.tolist()) for name, (x, y, *_) in (beside or {}).items()},
    )
    return Drawn(file, title, figure)


def _line(curve: Curve) -> tuple[np.ndarray, ...]:
    return curve.positions, *map(_clipped, (curve.values, curve.low, curve.high))


def _clipped(values: np.ndarray) -> np.ndarray:
    """Numbers in the range of the plot."""
    return np.clip(np.nan_to_num(values, posinf=HIGHEST), None, HIGHEST)


def _curve_sheet(diagnosis: Diagnosis) -> list[Screen]:
    curves = all_known(diagnosis.curves)
    if not curves:
        return []
    rows = []
    for position in diagnosis.rates.positions.tolist():
        cells = [str(position + 1)]
        for curve in curves.values():
            value, interval = curve_cells(curve, position)
            cells.append(value if interval == "–" else f"{value} ({interval})")
        rows.append(cells)
    title = "Examination by estimator, with intervals over queries"
    return [Screen(title, ("position", *curves), rows, name="curves")]


def _coverage_section(diagnosis: Diagnosis) -> Iterator[Section]:
    coverage = known(diagnosis.coverage)
    if coverage is None or len(coverage.positions) < 2:
        return
    n = min(len(coverage.positions), MOST_IN_MATRIX)
    documents = coverage.documents[:n, :n].astype(np.float64)
    np.fill_diagonal(documents, np.nan)  # documents shown at one position link nothing
    text = (
        "The number of documents that were shown at both positions of a pair. Without any, the two positions cannot be "
        "compared directly."
    )
    title = "Links between positions"
    if not np.nansum(documents):
        yield Section(title, [text, "No document was shown at two positions."])
        return
    names = [str(position + 1) for position in coverage.positions[:n]]
    figure = _matrix_figure(documents, names, names, "position", 0)
    yield Section(title, [text], figures=[Drawn("coverage", "Documents shown at both positions", figure)])


def _matrix_section(diagnosis: Diagnosis) -> Iterator[Section]:
    rank = known(diagnosis.rank)
    if rank is None:
        return
    matrix = rank.matrix
    n = min(len(matrix.positions), MOST_IN_MATRIX)
    columns = [str(position + 1) for position in matrix.positions[:n]]
    figure = _matrix_figure(matrix.rates[:, :n], columns, list(matrix.kinds), "group of documents", 3)
    sheet = replace(rank.screen(), notes=[], name="rank")
    text = (
        "Documents shown at several positions, grouped by click rate in one half of the sessions; rates are from "
        "the other half. If clicks were a product of a document factor and a position factor, the rows would be "
        "multiples of each other."
    )
    summary = rank.summary()
    if rank.scalar_is_enough:  # as far as this matrix can show: groups differ in click rate, not in features
        summary = f"The rates do not contradict this (p = {rank.rates.p_values[0]:.3f}). This test ignores features."
    drawn = Drawn("click-matrix", "Clicks per impression by group of documents and position", figure)
    yield Section("The click matrix", [text, summary], sheets=[sheet], figures=[drawn])


def _leak_section(diagnosis: Diagnosis) -> Section:
    rows = []
    of_position, of_clicks = known(diagnosis.position_leaks), known(diagnosis.click_leaks)
    if of_position is not None:
        word = "encodes the position" if of_position.leaks else "closest to the position"
        for leak in of_position.leaks or (of_position.closest,):
            rows.append([leak.feature, word, f"{leak.agreement:.3f} of pairs in the shown order"])
    if of_clicks is not None:
        word = "computed from clicks?" if of_clicks.leaks else "closest to clicks"
        for each in of_clicks.leaks or (of_clicks.closest,):
            rows.append([each.feature, word, f"correlation {each.correlation:.3f}, at most {of_clicks.ceiling:.3f}"])
    title, columns = "Features that leak, or come closest to it", ("feature", "suspicion", "evidence")
    return Section("Features", sheets=[Screen(title, columns, rows, name="features")] if rows else [])


def _matrix_figure(values: np.ndarray, columns: list[str], rows: list[str], y_label: str, digits: int) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 0.9 + 0.3 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        heatmap(axes, values, columns, rows, digits)
        axes.set_xlabel("position")
        axes.set_ylabel(y_label)
    return figure
