"""Text from data and from outside: secrets are cut from it, and each form that holds it has one escaper.

A user, a feature or a query may be named anything: `<script>`, `=HYPERLINK(…)`, an escape sequence of a terminal. In
HTML Jinja escapes it, in JSON `json` does; every other form has its function here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from urllib.parse import unquote

CUT = "***"
SECRET = "password|passwd|passphrase|pwd|secret|token|api_?key|access_?key|private_?key|credential|signature"
IN_QUERY = rf"{SECRET}|user|username|uid|user_?id|sig|key|auth|code"  # names that hold a secret in the query of a URL
USER_INFO = re.compile(
    r"""(?i)\b([a-z][a-z0-9+.-]{0,20}:/+)(?:[^\s'"<>/@:]{0,99}:[^\s'"<>]{0,400}|[^\s'"<>/@]{1,400})@"""
)
QUERY_PART = re.compile(rf"""(?i)([?&;][\w.-]{{0,40}}(?:{IN_QUERY})=)[^\s&;'"<>]+""")
NAMED = re.compile(  # password=…, 'password': '…'
    rf"""(?ix) ( (?:{SECRET}) [\w.-]{{0,40}} (?: \s{{0,9}}=\s{{0,9}} | ["']\s{{0,9}}:\s{{0,9}}(?=["']) ) )
    (?: (?P<mark>["'])[^"']*["'] | [^\s&;,'"<>]+ )"""
)
BEARER = re.compile(r"\b[Bb]earer\s+[\w.~+/=-]{16,}|\bAKIA[0-9A-Z]{16}\b")
ENVIRONMENT = re.compile(r"(?i)password|passwd|secret|token|api_?key|access_?key|private_?key")  # names of variables
SHORTEST = 6  # characters of a value that is searched for as it is
_KNOWN: ContextVar[tuple[str, ...]] = ContextVar("known_secrets", default=())


def redacted(text: str) -> str:
    """Text without secrets: those of URLs and connection strings, and values that are known to be secret.

    >>> redacted("cannot reach postgresql://ann:apple@db/shop?user=ann&password=pear")
    'cannot reach postgresql://***@db/shop?user=***&password=***'
    """
    for value in (*_KNOWN.get(), *_of_environment()):
        text = text.replace(value, CUT)
    text = USER_INFO.sub(rf"\g<1>{CUT}@", text)
    text = QUERY_PART.sub(rf"\g<1>{CUT}", text)
    text = NAMED.sub(lambda found: f"{found[1]}{found['mark'] or ''}{CUT}{found['mark'] or ''}", text)
    return BEARER.sub(CUT, text)


@contextmanager
def secrets_of(words: Sequence[str]) -> Iterator[None]:
    """Know the secrets in these words, so that they are cut wherever a library repeats them, decoded too."""
    found: list[str] = []
    for word in map(str, words):
        for part in USER_INFO.finditer(word):
            found.append(part[0].removeprefix(part[1]).removesuffix("@").partition(":")[2])
        for pattern in (QUERY_PART, NAMED):
            found += [part[0].removeprefix(part[1]).strip("'\"") for part in pattern.finditer(word)]
    values = sorted({form for value in found for form in (value, unquote(value))}, key=len, reverse=True)
    before = _KNOWN.set(tuple(value for value in values if len(value) >= SHORTEST))
    try:
        yield
    finally:
        _KNOWN.reset(before)


def _of_environment() -> list[str]:
    return [value for name, value in os.environ.items() if len(value) >= SHORTEST and ENVIRONMENT.search(name)]


CONTROLS = {number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160)) if chr(number) not in "\n\t"}
CONTROLS |= {
    ord(mark): f"\\u{ord(mark):04x}" for mark in "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
}


def shown(text: str) -> str:
    """Text for a terminal or a drawing: without secrets; control characters are spelled out.

    >>> shown("\\x1b[2Jred")
    '\\\\x1b[2Jred'
    """
    return redacted(text).translate(CONTROLS)


def for_html(text: str) -> str:
    """Text for HTML that no template writes."""
    return escape(shown(text))


MARKS = {mark: f"\\{mark}" for mark in "\\`*[]|!"} | {"<": "&lt;", ">": "&gt;", "\n": " ", "\t": " "}
MARKDOWN = str.maketrans(MARKS)


def for_markdown(text: str) -> str:
    """Text within a line or a cell of Markdown.

    >>> print(for_markdown("<b>|a*b|"))
    &lt;b&gt;\\|a\\*b\\|
    """
    return re.sub(r"&(?=#?\w+;)", "&amp;", shown(text)).translate(MARKDOWN)


LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "–": "--", "±": r"$\pm$", "−": "$-$", "↑": "", "↓": ""}
LATEX |= {"≥": r"$\ge$", "≤": r"$\le$", "<": "$<$", ">": "$>$", "×": r"$\times$", "·": r"$\cdot$", "…": r"\dots{}"}
LATEX |= {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "^": r"\^{}",
    "~": r"\~{}",
    "\n": " ",
    "\t": " ",
}
GREEK = {"α": "alpha", "β": "beta", "γ": "gamma", "η": "eta", "θ": "theta", "λ": "lambda", "σ": "sigma", "τ": "tau"}
LATEX |= {letter: rf"$\{name}$" for letter, name in GREEK.items()}


def for_latex(text: str) -> str:
    """Text as TeX takes it.

    >>> print(for_latex("50% of $x_1$"))
    50\\% of \\$x\\_1\\$
    """
    return "".join(LATEX.get(character, character) for character in shown(text))


FORMULA = re.compile(r"\s*[=+\-@\t\r]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def is_formula(text: str) -> bool:
    """Whether a spreadsheet would compute a cell.

    >>> [is_formula(text) for text in ("=1+1", "@SUM(A1)", "-5", "a=b")]
    [True, True, False, False]
    """
    return bool(FORMULA.match(text)) and not NUMBER.fullmatch(text)


def for_spreadsheet(text: str) -> str:
    """A cell of CSV that a spreadsheet shows as it is; a formula gets an apostrophe before it.

    >>> for_spreadsheet("=1+1"), for_spreadsheet("boots")
    ("'=1+1", 'boots')
    """
    return f"'{text}" if is_formula(text) else text


def file_name(text: str) -> str:
    """A name for a file, from any text: letters, digits and `._-`; it names no other folder and no hidden file.

    >>> file_name("../a b"), file_name("click:phone")
    ('a-b', 'click-phone')
    """
    return re.sub(r"[^\w.-]+", "-", text)[:100].strip(".-") or "unnamed"
