"""Columns without a role: which are features, and which look like features but are the position, ids, or no numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unskew.ingestion import role_names as names
from unskew.ingestion.findings import NOTHING, Findings, percent, say_levels
from unskew.ingestion.roles import Sample, codes_of, seconds
from unskew.ingestion.table_profile import Facts, Values

SENTINELS = {sign * (10**digits - 1) for digits in range(1, 10) for sign in (1, -1)} | {-1, 2**31 - 1, -(2**31)}
PATTERNS = {
    "comma": re.compile(r"-?\d{1,3}(\.?\d{3})*,\d+"),
    "unit": re.compile(r"([^\w\s.,+-]{1,4}|[A-Z]{3}\s)\s?-?\d[\d.,]*|-?\d[\d.,]*\s?[^\d\s.,]{1,4}"),
}
MOST_CATEGORIES = 10_000
MOST_NUMBERED = 1_000  # categories that are whole numbers
LEAST_PAGES = 5  # so that a function of the position is no coincidence


def take_positions(sample: Sample, findings: Findings) -> None:
    """Columns that are the position, or a function of it, or follow it: never a feature."""
    position, page = sample.of("position"), sample.of("page")
    if position is None or sample.n < 2 or len(np.unique(sample.page)) < LEAST_PAGES:
        return
    place = position.numbers if page is None else position.numbers + 1e6 * page.numbers
    cells = codes_of([values for values in (position, page) if values is not None])
    for name in sample.free:
        values = sample.columns[name]
        able = values.is_numeric and not values.is_binary and values.n_distinct > 2 and name not in sample.one_a_page
        what = _of_position(values, position.numbers, place, cells) if able else None
        if what is not None:
            findings.tell(what[0], name=name, **what[1])
            sample.taken.add(name)


def _of_position(values: Values, position: Any, place: Any, cells: Any) -> tuple[str, dict[str, Any]] | None:
    """What a column has to do with the position, as a sentence and its values; None: nothing."""
    numbers = values.numbers
    known = ~np.isnan(numbers)
    if known.mean() < 0.5:
        return None
    n_cells = int(cells.max()) + 1
    low, high, above = (np.full(n_cells, start) for start in (np.inf, -np.inf, np.inf))
    np.minimum.at(low, cells[known], numbers[known])
    np.maximum.at(high, cells[known], numbers[known])
    np.minimum.at(above, cells, np.nan_to_num(place, nan=np.inf))
    there = np.isfinite(low)
    rows = np.bincount(cells[known], minlength=n_cells)
    if (low == high)[there].all() and there.sum() > 2 and np.median(rows[there]) >= LEAST_PAGES:
        same = np.ptp((numbers - position)[known]) == 0
        return "position", {"what": "the position" if same else "a function of the position"}
    share = max(float((numbers == position + shift)[known].mean()) for shift in (-1, 0, 1))
    if share > 0.6 and values.is_whole:
        return "production", {"share": share}
    order = np.argsort(above)[: int(there.sum())]
    return ("follows", {}) if len(order) > 2 and (low[order][1:] > high[order][:-1]).all() else None


def find_features(
    sample: Sample, findings: Findings, facts: Mapping[str, Facts], given: Sequence[str] | None, *, apart: bool
) -> None:
    """What becomes of the columns that are left: features, categories, or nothing.

    Args:
        apart: whether features are in another table.
    """
    for name in (name for name, values in sample.columns.items() if values.n_distinct == 0):
        findings.tell("no_value", name=name)
    for name in sample.free if given is None else (name for name in sample.free if name in given):
        values = sample.columns[name]
        if values.n_distinct < 2 and (values.is_numeric or values.present.all()):
            findings.tell("constant", name=name, value=values.levels[int(values.codes.max())])
        elif name in sample.one_a_page or not sample.varies(name):
            if values.is_numeric and not names.is_id(name) and seconds(values) is None and given is None:
                findings.tell("of_page", name=name)
        elif not apart and values.is_numeric:
            _look_at_numbers(values, findings, name, facts.get(name))
        elif not apart and values.kind == "text":
            _look_at_text(sample, findings, name)


def _look_at_text(sample: Sample, findings: Findings, name: str) -> None:
    values, document = sample.columns[name], sample.of("document")
    texts = [str(level).strip() for level in values.levels if level]
    for what, pattern in PATTERNS.items():
        if sum(bool(pattern.fullmatch(text)) for text in texts) > 0.8 * len(texts):
            findings.tell(what, name=name, value=texts[0])
            return
    shared = document is None or 2 * values.n_distinct <= document.n_distinct
    if shared and values.n_distinct <= MOST_CATEGORIES and not (names.is_id(name) and values.n_distinct > 100):
        findings.features.append(name)
        say_levels(values, name, findings)


def _look_at_numbers(values: Values, findings: Findings, name: str, facts: Facts | None) -> None:
    numbers = values.numbers[~np.isnan(values.numbers)]
    for word in _words(values):
        if word.strip().lower() not in NOTHING:
            findings.tell("word", name=name, value=word)
            return
        _say_missing(findings, "no_number", name, word)
    if values.is_whole and names.is_id(name) and not names.match("category", name) and not values.is_binary:
        findings.tell("id", name=name, count=values.n_distinct)
        return
    if np.isinf(numbers).any():
        _say_missing(findings, "infinite", name, "inf", percent(np.isinf(numbers).mean()))
        numbers = numbers[np.isfinite(numbers)]
    for sentinel in _sentinels(numbers, facts):
        _say_missing(findings, "sentinel", name, f"{sentinel:.0f}", percent((numbers == sentinel).mean()))
        numbers = numbers[numbers != sentinel]
    distinct, largest = len(np.unique(numbers)), np.abs(numbers).max(initial=0)
    if values.is_whole and largest > 2**24 and len(np.unique(numbers.astype(np.float32))) < distinct:
        findings.tell("large", name=name, value=largest)
        return
    if values.is_whole and not values.is_binary and names.match("category", name) and distinct <= MOST_NUMBERED:
        findings.tell("category", name=name, count=distinct)
        findings.categories.append(name)
    findings.features.append(name)


def _say_missing(findings: Findings, sentence: str, name: str, value: str, share: str = "") -> None:
    findings.tell(sentence, name=name, value=value, share=share)
    findings.missing.append(f"{name}={value}")


def _words(values: Values) -> list[str]:
    """What is no number in a column of text that holds mostly numbers."""
    if values.kind != "text":
        return []
    known = set(values.codes[~np.isnan(values.numbers)].tolist())
    finite = {code for code in known if str(values.levels[code]).strip().lower() not in NOTHING}
    return [str(level) for code, level in enumerate(values.levels) if level and code not in finite]


def _sentinels(numbers: Any, facts: Facts | None) -> list[float]:
    """The smallest or largest value, if it is one that stands for a missing value and far from all others."""
    distinct, counts = np.unique(numbers, return_counts=True)
    if len(distinct) < 4 or len(numbers) < 20:
        return []
    sentinels = []
    ends = () if facts is None else (facts.low, facts.high)  # over all rows: rare ones may not be in the sample
    for value in dict.fromkeys((distinct[0], distinct[-1], *(end for end in ends if end is not None))):
        rest = distinct[distinct != value]
        share = counts[distinct == value].sum() / len(numbers)
        alone = value == -1 and rest.min() >= 0
        far = abs(value) >= 99 and np.abs(value - rest).min() > 2 * np.ptp(rest)
        if value in SENTINELS and (alone or far) and (share > 0.001 or value not in distinct):
            sentinels.append(float(value))
    return sentinels
