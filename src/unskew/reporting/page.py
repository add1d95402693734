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

VERDICTS = ("holds", "holds in part", "does not hold here", "cannot be tested here")
TEMPLATE = "report.html.j2"
CLASSES = dict(zip(VERDICTS, ("holds", "part", "not", "untested"), strict=True))


@dataclass(frozen=True)
class ClaimResult:
    """What became of a claim."""

    text: str
    verdict: str  # one of VERDICTS
    detail: str
    held: int = 0  # comparisons in which it held
    of: int = 0

    @property
    def words(self) -> str:
        """The verdict, with how often it held where that is neither always nor never."""
        return f"{self.verdict} ({self.held} of {self.of})" if 0 < self.held < self.of else self.verdict


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
