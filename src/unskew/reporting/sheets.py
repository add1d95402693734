"""Tables to be shown, as Markdown, LaTeX and in the report: one self-contained HTML page.

`write_report` turns sections of text, verdicts, figures and tables into a page that loads nothing from elsewhere.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined

from unskew.data.files import new_file
from unskew.reporting.drawing import Drawn
from unskew.texts import file_name, for_latex, for_markdown, shown

NOTHING = "–"
MARKED = re.compile(r"(.*?)(?: ([+−]{1,2}))?", flags=re.DOTALL)
PRINTED = {"ndcg": "nDCG", "dcg": "DCG", "err": "ERR", "arp": "ARP", "mrr": "MRR", "ap": "AP", "p": "P", "rbp": "RBP"}
METRIC = re.compile(r"\b(ndcg|dcg|err|arp|mrr|rbp|ap(?=@)|p(?=@))\b")


@dataclass(frozen=True)
class Field:
    """The text of a cell, and the number it is sorted by."""

    text: str
    value: float | None = None
    best: bool = False


def text_fields(texts: Sequence[str]) -> tuple[Field, ...]:
    """Texts as cells; those that are numbers are sorted as such."""

    def value(text: str) -> float | None:
        try:
            return float(text.replace(",", "").removesuffix("%"))
        except ValueError:
            return None

    return tuple(Field(text, value(text)) for text in texts)


@dataclass(frozen=True)
class Sheet:
    """A table to be shown; the first column is text."""

    name: str  # of its files
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Field, ...], ...]
    note: str = ""

    @property
    def is_text(self) -> list[bool]:
        """Which columns hold no number at all."""
        return [all(row[place].value is None for row in self.rows) for place in range(len(self.columns))]

    def to_table(self) -> pa.Table:
        """The table as Arrow has it: numbers where a column has some, else the texts."""
        columns = {}
        for place, (name, text) in enumerate(zip(self.columns, self.is_text, strict=True)):
            fields = [row[place] for row in self.rows]
            columns[name] = pa.array([field.text if text else field.value for field in fields])
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """The same as a pandas data frame."""
        return self.to_table().to_pandas()


def markdown(sheet: Sheet) -> str:
    """The table in Markdown."""
    lines = [
        f"**{for_markdown(sheet.title)}**",
        "",
        _line(map(for_markdown, sheet.columns)),
        _line(["---" if text else "---:" for text in sheet.is_text]),
    ]
    for row in sheet.rows:
        texts = (for_markdown(cell.text) for cell in row)
        lines.append(_line(f"**{text}**" if cell.best else text for cell, text in zip(row, texts, strict=True)))
    return "\n".join([*lines, *(["", for_markdown(sheet.note)] if sheet.note else [])]) + "\n"


def latex(sheet: Sheet) -> str:
    """The table in LaTeX; it needs `\\usepackage{booktabs}`. Marks are superscripts, metrics as papers print them."""
    rows = [
        " & ".join(rf"\textbf{{{_escaped(cell.text)}}}" if cell.best else _escaped(cell.text) for cell in row) + r" \\"
        for row in sheet.rows
    ]
    return (
        "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\begin{{tabular}}{{{''.join('l' if text else 'r' for text in sheet.is_text)}}}",
                r"\toprule",
                " & ".join(map(_escaped, map(_printed, sheet.columns))) + r" \\",
                r"\midrule",
                *rows,
                r"\bottomrule",
                r"\end{tabular}",
                rf"\caption{{{_escaped(_printed(' '.join([sheet.title + '.', sheet.note]).strip()))}}}",
                rf"\label{{tab:{file_name(sheet.name)}}}",
                r"\end{table}",
            ]
        )
        + "\n"
    )


def signed(difference: float) -> str:
    """A difference with its sign."""
    return f"{difference:+.4f}".replace("-", "−")


def interval_text(low: float | None, high: float | None) -> str:
    """An interval of a difference; nothing if there is none."""
    return NOTHING if low is None or high is None else f"{signed(low)} to {signed(high)}"


def p_value(value: float | None) -> Field:
    """A p-value as it is shown; nothing if there is none."""
    if value is None or math.isnan(value):
        return Field(NOTHING)
    return Field("< .001" if value < 0.001 else f"{value:.3f}", value)


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
    sheets: Sequence[Sheet] = ()
    command: str = ""


def write_report(path: str | Path, title: str, sections: Sequence[Section], lead: str = "") -> Path:
    """Write a report as a self-contained page, atomically."""
    return write_page(path, TEMPLATE, title=title, lead=lead, sections=sections, classes=CLASSES)


def write_page(path: str | Path, template: str, **values: Any) -> Path:
    """Fill a template of this package and write the page, atomically. Text in `values` is escaped."""
    environment = Environment(
        loader=PackageLoader("unskew.reporting", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.finalize = lambda value: shown(value) if type(value) is str else value
    page = environment.get_template(template).render(**values)
    with new_file(Path(path)) as scratch:
        scratch.write_text(page, encoding="utf-8")
    return Path(path)
