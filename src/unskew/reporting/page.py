"""The report: one page that holds everything and fetches nothing.

`write_report` puts sections of text, tables, figures and verdicts onto a page; anything that has such parts can use it.
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
    """What became of a claim."""

    text: str
    verdict: str  # one of VERDICTS
    detail: str
    held: int = 0  # comparisons in which it held
    failed: int = 0  # comparisons in which the opposite held
    of: int = 0

    @property
    def words(self) -> str:
        """The verdict, with what its comparisons said where they do not agree."""
        undecided = self.of - self.held - self.failed
        if max(self.held, self.failed, undecided) == self.of:
            return self.verdict
        return f"{self.verdict} (of {self.of}: {self.held} hold, {self.failed} fail, {undecided} undecided)"


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a report; its pieces appear in the order of the fields."""

    title: str
    paragraphs: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    verdicts: Sequence[ClaimResult] = ()
    sheets: Sequence[Sheet] = ()
    figures: Sequence[Drawn] = ()


def write_report(path: str | Path, title: str, sections: Sequence[Section], lead: str = "") -> Path:
    """Write a self-contained page; it appears whole or not at all."""
    target = Path(path)
    environment = Environment(
        loader=PackageLoader("unskew.reporting", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    page = environment.get_template(TEMPLATE).render(title=title, lead=lead, sections=sections, classes=CLASSES)
    with new_file(target) as scratch:
        scratch.write_text(page, encoding="utf-8")
    return target
