"""The report: one self-contained HTML page.

`write_report` turns sections of text, verdicts, figures and tables into a page that loads nothing from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from unskew.data.files import new_file
from unskew.reporting.drawing import Drawn
from unskew.reporting.sheets import Sheet

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
    """Write a self-contained page, atomically."""
    target = Path(path)
    environment = Environment(
        loader=PackageLoader("unskew.reporting", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    page = environment.get_template(TEMPLATE).render(title=title, lead=lead, sections=sections, classes=CLASSES)
    with new_file(target) as scratch:
        scratch.write_text(page, encoding="utf-8")
    return target
