"""Tables to be shown, as Markdown, LaTeX and in the report: one self-contained HTML page.

`write_report` turns sections of text, verdicts, figures and tables into a page that loads nothing from elsewhere.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from unskew.data.files import new_file
from unskew.display import Best, Screen, number
from unskew.reporting.drawing import Drawn
from unskew.texts import file_name, for_latex, for_markdown, shown

NOTHING = "–"
MARKED = re.compile(r"(.*?)(?: ([+−]{1,2}))?", flags=re.DOTALL)
PRINTED = {"ndcg": "nDCG", "dcg": "DCG", "err": "ERR", "arp": "ARP", "mrr": "MRR", "ap": "AP", "p": "P", "rbp": "RBP"}
METRIC = re.compile(r"\b(ndcg|dcg|err|arp|mrr|rbp|ap(?=@)|p(?=@))\b")


def markdown(sheet: Screen) -> str:
    """The table in Markdown."""
    lines = [_line(map(for_markdown, sheet.columns)), _line(["---" if text else "---:" for text in sheet.is_text])]
    for row in sheet.rows:
        lines.append(
            _line(f"**{for_markdown(cell)}**" if isinstance(cell, Best) else for_markdown(cell) for cell in row)
        )
    notes = [line for note in sheet.notes for line in ("", for_markdown(note))]
    return "\n".join([f"**{for_markdown(sheet.title)}**", "", *lines, *notes]) + "\n"


def latex(sheet: Screen) -> str:
    """The table in LaTeX; it needs `\\usepackage{booktabs}`. Marks are superscripts, metrics as papers print them."""

    def line(cells: Iterable[str]) -> str:
        bold = (rf"\textbf{{{_escaped(cell)}}}" if isinstance(cell, Best) else _escaped(cell) for cell in cells)
        return " & ".join(bold) + r" \\"

    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{{''.join('l' if text else 'r' for text in sheet.is_text)}}}",
        r"\toprule",
        line(map(_printed, sheet.columns)),
        r"\midrule",
        *map(line, sheet.rows),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{_escaped(_printed(' '.join([sheet.title + '.', *sheet.notes])))}}}",
        rf"\label{{tab:{file_name(sheet.name)}}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def signed(difference: float) -> str:
    """A difference with its sign."""
    return f"{difference:+.4f}".replace("-", "−")


def interval_text(low: float | None, high: float | None) -> str:
    """An interval of a difference; nothing if there is none."""
    return NOTHING if low is None or high is None else f"{signed(low)} to {signed(high)}"


def shown_number(value: float | None, form: str = ".4f") -> str:
    """A number in this format; nothing if there is none."""
    return NOTHING if value is None or math.isnan(value) else format(value, form)


def p_value(value: float | None) -> str:
    """A p-value as it is shown; nothing if there is none."""
    return "< .001" if value is not None and value < 0.001 else shown_number(value, ".3f")


def directed(measure: str, higher_is_better: bool) -> str:
    """A measure with the direction of its better end."""
    return f"{measure} {'↑' if higher_is_better else '↓'}"


def options_text(options: Mapping[str, object]) -> str:
    """Options as a reader likes them: `penalty 0.1, cancel 0.2`."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    return ", ".join(f"{name} {text}" for name, text in texts.items())


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """Text as TeX takes it; a mark at its end becomes a superscript."""
    body, mark = MARKED.fullmatch(text).groups()  # type: ignore[union-attr]
    raised = f"$^{{{mark.replace('−', '-')}}}$" if mark else ""
    return for_latex(body).strip() + raised


def _printed(text: str) -> str:
    """Metrics as papers print them: nDCG@10."""
    return METRIC.sub(lambda name: PRINTED[name[1].lower()], text)


VERDICTS = HOLDS, FAILS, UNDECIDED, UNTESTED = "holds", "fails", "undecided", "cannot be tested here"
TEMPLATE = "report.html.j2"
CLASSES = dict(zip(VERDICTS, ("holds", "not", "part", "untested"), strict=True))


@dataclass(frozen=True)
class ClaimResult:
    """A claim and its verdict."""

    text: str
    verdict: str  # one of VERDICTS
    detail: str
    held: int = 0  # comparisons in which it held
    failed: int = 0  # comparisons in which the opposite held
    of: int = 0

    @property
    def words(self) -> str:
        """The verdict, with the counts of its comparisons where they disagree."""
        undecided = self.of - self.held - self.failed
        if max(self.held, self.failed, undecided) == self.of:
            return self.verdict
        return f"{self.verdict} (of {self.of}: {self.held} hold, {self.failed} fail, {undecided} undecided)"


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a report. Its pieces appear in the order of the fields: what was found and a picture, then tables."""

    title: str
    paragraphs: Sequence[str] = ()
    verdicts: Sequence[ClaimResult] = ()
    figures: Sequence[Drawn] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    sheets: Sequence[Screen] = ()
    command: str = ""


def write_report(path: str | Path, title: str, sections: Sequence[Section], lead: str = "") -> Path:
    """Write a report as a self-contained page, atomically; sections with nothing but a title are left out."""
    sections = [section for section in sections if any(getattr(section, part.name) for part in fields(section)[1:])]
    how = {"classes": CLASSES, "number": number, "is_best": lambda cell: isinstance(cell, Best)}
    return write_page(path, TEMPLATE, title=title, lead=lead, sections=sections, **how)


def write_page(path: str | Path, template: str, **values: Any) -> Path:
    """Fill a template of this package and write the page, atomically. Text in `values` is escaped."""
    environment = Environment(
        loader=PackageLoader("unskew.reporting", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.finalize = lambda value: shown(value) if type(value) in (str, Best) else value
    page = environment.get_template(template).render(**values)
    with new_file(Path(path)) as scratch:
        scratch.write_text(page, encoding="utf-8")
    return Path(path)
