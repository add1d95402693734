"""What a row of a table is: a shown document, a whole result page, or an event; and the shown documents of a sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.ingestion import role_names as names
from unskew.ingestion.roles import UNIQUE, Sample, find_keys, is_sparse
from unskew.ingestion.table_profile import PARALLEL, Flags, Integers, Values, delimiter_of, split_text

MOST_EVENTS = 60  # types of events
MOST_IDS = 10  # columns that are tried as a page or a document of events
VALUE_LISTS = ("score", "click", "outcome", "sponsored", "value")  # roles of lists that go with the documents


@dataclass
class Form:
    """The shown documents of a sample, and the options that say how a row becomes one."""

    name: str  # impressions, events or pages
    columns: dict[str, Values]
    options: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    one_a_page: frozenset[str] = frozenset()
    clicked: str | None = None  # the column of clicks, where the form tells it
    kinds: list[str] = field(default_factory=list)  # graded types of events
    problems: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)  # columns with a list per page
    sample: Sample | None = None  # its keys, and those that are missing, where clicks needed them
    missing: list[str] = field(default_factory=list)


def form_of(columns: Mapping[str, Values], given: Mapping[str, Any]) -> Form:
    """The form of a table, and its shown documents."""
    lists = _page_lists(columns, given)
    if lists is not None:
        return _pages(columns, *lists, given)
    event = _event_column(columns, given)
    if event is not None:
        return _events(dict(columns), *event, given)
    return Form("impressions", dict(columns))


def _page_lists(columns: Mapping[str, Values], given: Mapping[str, Any]) -> tuple[str, dict[str, Values]] | None:
    """The list of shown documents, and all lists that are as long; None: a row is not a result page."""
    asked, lists = given.get("document"), {}
    for name, values in columns.items():
        delimiter = delimiter_of(values)
        if values.kind == "list" or delimiter is not None:
            lists[name] = values if delimiter is None else split_text(values, delimiter)
    if asked is not None and asked not in lists:
        return None
    able = [name for name in lists if asked in (None, name) and _is_id_list(lists[name])]
    partners = {name: _parallel(lists, name) for name in able}
    signs: list[Callable[[str], Any]] = [  # that a list holds the shown documents, the surest first
        lambda n: names.match("document", n) and not any(names.match(role, n) for role in VALUE_LISTS),
        lambda n: len(partners[n]) > 1 and names.is_id(n),
        lambda n: n == asked,
        lambda n: names.match("position", n) == 0 and names.says("shown", n),
        lambda n: any(_is_flags(lists[other]) for other in partners[n]),
    ]
    named = list(dict.fromkeys(n for sign in signs for n in able if sign(n)))
    flat = names.best("position", (n for n in columns if columns[n].is_whole and n not in lists), 2)
    if not named or (flat and asked is None and len(partners[named[0]]) < 2):
        return None
    ranked = sorted(
        named,
        key=lambda n: (-(names.match("document", n) + 2 * names.is_id(n)), -len(partners[n]), _has_spaces(lists[n])),
    )
    return ranked[0], lists


def _is_id_list(values: Values) -> bool:
    """Whether the lists hold ids: text or whole numbers, several on a row, each once, and many over all rows."""
    lists = values.array
    inner = pc.list_flatten(lists)
    if not (pa.types.is_string(inner.type) or pa.types.is_large_string(inner.type) or pa.types.is_integer(inner.type)):
        return False
    sizes = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    if not len(inner) or sizes[sizes > 0].mean() < 1.5:
        return False
    rows = np.repeat(np.arange(len(sizes)), sizes)
    codes = Values(inner).codes
    distinct = len(np.unique(rows * (codes.max() + 2) + codes))
    return bool(distinct > 0.8 * len(codes) and codes.max() + 1 > sizes.max())


def _is_flags(values: Values) -> bool:
    return Values(pc.list_flatten(values.array)).is_binary


def _has_spaces(values: Values) -> bool:
    """Whether most of the texts have several words, as titles do and ids do not."""
    texts = [str(level) for level in Values(pc.list_flatten(values.array)).levels[:200]]
    return sum(" " in text for text in texts) > 0.3 * len(texts)


def _sizes(values: Values) -> Integers:
    return pc.list_value_length(values.array).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _parallel(lists: Mapping[str, Values], name: str) -> list[str]:
    """Lists that are as long as this one on most rows."""
    sizes = _sizes(lists[name])
    there = sizes > 0
    return [other for other, values in lists.items() if (_sizes(values) == sizes)[there].mean() >= PARALLEL]


def _pages(columns: Mapping[str, Values], document: str, lists: dict[str, Values], given: Mapping[str, Any]) -> Form:
    parallel = _parallel(lists, document)
    sizes = np.maximum(_sizes(lists[document]), 0)
    kept = sizes > 0
    for name in parallel:  # what disagrees is reported over all rows
        kept &= _sizes(lists[name]) == _sizes(lists[document])
    sizes = sizes[kept]
    rows = np.repeat(np.flatnonzero(kept), sizes)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    form = Form("pages", {}, {"form": "pages", "document": document})
    for name in parallel:
        flat = pc.list_flatten(lists[name].array.filter(pa.array(kept)))
        form.columns[name] = Values(flat) if name == document else _as_numbers(Values(flat))
    form.lists = parallel
    scalars = [name for name in columns if name not in lists]
    for name in scalars:
        form.columns[name] = columns[name].take(rows)
    form.columns["position"] = Values(pa.array(place))
    form.one_a_page = frozenset(scalars)
    event = _pages_event(columns, kept)
    if event is not None:
        name, shown = event
        form.options |= {"event": name, "impression_events": shown}
        form.reasons["event"] = f"rows with shown documents are {', '.join(shown)}"
    _clicks_of_pages(form, columns, lists, rows, kept, given)
    return form


def _as_numbers(values: Values) -> Values:
    """Numbers instead of text that holds only numbers, but not of ids."""
    if values.kind == "text" and values.is_numeric and not np.isnan(values.numbers[values.present]).any():
        return Values(pa.array(values.numbers))
    return values


def _pages_event(columns: Mapping[str, Values], has_list: Flags) -> tuple[str, list[str]] | None:
    """The column of event types, and those of result pages, if not every row is a page."""
    if has_list.all():
        return None
    for name in names.best("event", columns):
        values = columns[name]
        if values.kind != "text" or not 2 <= values.n_distinct <= MOST_EVENTS:
            continue
        shown = [str(values.levels[code]) for code in np.unique(values.codes[has_list]) if code >= 0]
        if (np.isin(values.codes, [values.levels.index(level) for level in shown]) == has_list).mean() > 0.9:
            return name, shown
    return None


def _clicks_of_pages(
    form: Form, columns: Mapping[str, Values], lists: Mapping[str, Values], rows: Integers, kept: Flags, given: Mapping
) -> None:
    """Clicks beside the documents, as ids of clicked documents, or as other rows that name page and document."""
    document = form.options["document"]
    ids = [None if v is None else str(v) for v in form.columns[document].array.to_pylist()]
    form.columns[document] = Values(pa.array(ids))
    asked = given.get("click")
    able = [n for n in form.lists if (n != document and form.columns[n].is_binary) or _counts(form.columns[n])]
    beside = [n for n in names.best("click", able) if n != document and not names.match("outcome", n)]
    if asked in form.lists or (asked is None and beside):
        form.clicked = asked if asked in form.lists else beside[0]
        return
    pages = np.unique(rows, return_inverse=True)[1].tolist()
    references, delimiter = [], delimiter_of(columns[document])
    for name in columns:
        targets = [] if name in form.lists else _targets(lists.get(name, columns[name]), kept, delimiter)
        flags = [entry in targets[page] for entry, page in zip(ids, pages, strict=True)] if targets else []
        hits = len({(page, entry) for page, entry, flag in zip(pages, ids, flags, strict=bool(targets)) if flag})
        n_targets = sum(map(len, targets))
        if n_targets < 5 or hits <= 0.5 * n_targets:
            continue
        references.append(name)
        form.columns[name] = Values(pa.array(flags))
        form.one_a_page -= {name}
        n_named = sum(map(bool, targets))
        unseen = 1 - len({page for page, flag in zip(pages, flags, strict=True) if flag}) / n_named
        if unseen > 0.001:
            form.problems.append(f"{name}: the document was not shown on {unseen:.0%} of the pages that name one")
    clicks = [n for n in references if n == asked] or [n for n in references if not names.match("outcome", n)]
    if clicks:
        form.clicked = names.best("click", clicks, 0)[0]
        form.reasons["click"] = "the id of a clicked document of the page"
        return
    _clicks_apart(form, columns, lists, kept)


def _counts(values: Values) -> bool:
    return values.is_whole and values.n_distinct < 30 and float(np.nanmin(values.numbers)) >= 0


def _targets(values: Values, kept: Flags, delimiter: str | None) -> list[set[str]]:
    """The ids that a column names on each page; text is split where the shown ids are."""
    if values.kind == "text" and delimiter is not None:
        values = split_text(values, delimiter)
    cells = values.array.filter(pa.array(kept)).to_pylist()
    named = [cell if isinstance(cell, list) else [cell] for cell in cells]
    return [{str(entry) for entry in cell if entry not in (None, "")} for cell in named]


def _clicks_apart(form: Form, columns: Mapping[str, Values], lists: Mapping[str, Values], kept: Flags) -> None:
    """Other rows that name a result page and one of its documents: the columns with both ids."""
    if kept.all() or "event" not in form.options:
        return
    document = form.options["document"]
    scalars = [n for n in columns if n not in lists and columns[n].kind in ("text", "whole")]
    texts = {name: np.array(list(map(str, columns[name].array.to_pylist()))) for name in scalars}
    others = {name: values[~kept & (columns[name].codes >= 0)] for name, values in texts.items()}

    def within(name: str, wanted: set[str]) -> bool:
        return bool(len(others[name])) and np.isin(others[name], list(wanted)).mean() > 0.5

    aims = [name for name in scalars if within(name, set(form.columns[document].array.to_pylist()) - {None})]
    keys = {name: set(texts[name][kept].tolist()) for name in scalars}
    pages = [name for name in names.best("session", scalars, 0) if kept.sum() == len(keys[name] - {"None"})]
    refs = [(page, name) for page in pages for name in scalars if name not in aims and within(name, keys[page])]
    refs.sort(key=lambda pair: (columns[pair[1]].present[kept].any(), pair[0] == pair[1]))
    if not aims or not refs:
        return
    session, clicked_session = refs[0]
    form.options |= {"session": session, "clicked_session": clicked_session, "clicked_document": aims[0]}
    form.reasons["session"] = "one per result page, and clicks refer to it"
    form.reasons["clicked_session"] = "rows of clicks name the page here"
    form.reasons["clicked_document"] = "rows of clicks name the document here"
    events = zip(texts[clicked_session].tolist(), texts[aims[0]].tolist(), strict=True)
    shown = (map(str, form.columns[name].array.to_pylist()) for name in (session, document))
    _mark_clicks(form, columns[form.options["event"]], ~kept, list(events), list(zip(*shown, strict=True)))


def _mark_clicks(form: Form, event: Values, others: Flags, events: Sequence[Any], shown: Sequence[Any]) -> None:
    """Which types of events are clicks, which are graded, and which shown documents were clicked.

    Args:
        others: rows that are not impressions.
        events: session and document of each row.
        shown: session and document of each shown document.
    """
    pairs: dict[str, set] = {}
    for row in np.flatnonzero(others & (event.codes >= 0)).tolist():
        pairs.setdefault(str(event.levels[event.codes[row]]), set()).add(events[row])
    places = set(shown)
    outcomes = [kind for kind in pairs if names.match("outcome", kind)]
    named = [kind for kind in pairs if names.says("opened", kind)]
    pairs = {k: found for k, found in pairs.items() if k in outcomes + named or len(found & places) > 0.5 * len(found)}
    rest = [kind for kind in pairs if kind not in outcomes and not names.match("dwell", kind)]
    click = max(named or rest or pairs, key=lambda kind: len(pairs[kind]), default=None)
    if click is None:
        return
    form.options["click_events"] = [click]
    form.reasons["click_events"] = "clicks" if named else "documents of the page, more often than any other type"
    some = 0.6 * len(pairs[click])  # what comes with fewer clicks is feedback; what comes with all is the click again
    parts = [kind for kind in pairs if 0.9 * len(pairs[kind]) < len(pairs[kind] & pairs[click]) < some]
    able = [kind for kind in pairs if kind in outcomes or kind in parts]
    able = [kind for kind in able if not names.match("dwell", kind) and not names.says("after", kind)]
    form.kinds = [kind for kind in able if kind != click and pairs[kind] != pairs[click]]
    form.clicked = "clicked (event)"
    form.columns[form.clicked] = Values(pa.array([key in pairs[click] for key in shown]))


def _event_column(columns: Mapping[str, Values], given: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """A column with types of events, and those that are impressions, by names or by values; None: there is none."""
    if given.get("click") is not None:
        return None
    asked = given.get("event")
    able = [
        n
        for n in ([asked] if asked else columns)
        if n in columns and columns[n].kind == "text" and 2 <= columns[n].n_distinct <= MOST_EVENTS
    ]
    for name in names.best("event", able, 0 if asked else 1):
        levels = [str(level) for level in columns[name].levels if level]
        if any(names.says("opened", level) for level in levels) and any(names.says("shown", level) for level in levels):
            exact = [level for level in levels if "impression" in names.words(level)]
            return name, exact or [level for level in levels if names.says("shown", level)]
    return _event_by_values(columns, able)


def _event_by_values(columns: Mapping[str, Values], able: Sequence[str]) -> tuple[str, list[str]] | None:
    """A column whose most frequent type shows documents, which rows of another type name again on the same page."""
    kinds = [name for name in able if columns[name].present.mean() > 0.99]
    ids = [
        n for n, v in columns.items() if v.kind == "text" or (v.kind == "whole" and (names.is_id(n) or is_sparse(v)))
    ]
    ids = [n for n in ids if n not in kinds and 20 < columns[n].n_distinct < 0.9 * len(columns[n].codes)]
    ids = sorted(ids, key=lambda name: -names.match("session", name) - names.match("document", name))[:MOST_IDS]
    for first, second in combinations(ids, 2) if kinds else ():
        known = columns[first].present & columns[second].present
        pairs = columns[first].codes * (columns[second].n_distinct + 2) + columns[second].codes
        seen = np.unique(pairs[known])
        if not len(seen) or not 0.3 * len(pairs) < len(seen) < 0.99 * known.sum():
            continue
        for name in kinds:
            codes = columns[name].codes
            shown = codes == np.bincount(codes[codes >= 0]).argmax()
            cells, counts = np.unique(pairs[known & shown], return_counts=True)
            if counts.sum() < 0.9 * shown.sum() or len(cells) < UNIQUE * counts.sum():
                continue
            others = [known & (codes == code) for code in np.unique(codes[known & ~shown])]
            if any(rows.sum() >= 10 and np.isin(pairs[rows], cells).mean() >= 0.8 for rows in others):
                return name, [str(columns[name].levels[int(codes[shown][0])])]
    return None


def _events(columns: dict[str, Values], event: str, shown: list[str], given: Mapping[str, Any]) -> Form:
    """Impressions among events, and which of them were clicked: same session and document."""
    values = columns[event]
    position = next(iter(names.best("position", (n for n in columns if columns[n].is_whole), 2)), None)
    if position is not None and len(shown) > 1:  # those that tell the position
        placed = columns[position].present
        shown = [k for k in shown if placed[values.codes == values.levels.index(k)].mean() > 0.5] or shown
    is_shown = np.isin(values.codes, [values.levels.index(level) for level in shown])
    form = Form("events", {}, {"form": "events", "event": event, "impression_events": shown})
    form.reasons["event"] = f"impressions are {', '.join(shown)}"
    kinds = [values.codes == code for code in np.unique(values.codes[~is_shown])]
    absent = [
        name
        for name, column in columns.items()
        if max((column.present[rows].mean() for rows in kinds), default=1.0) < 0.5 * column.present[is_shown].mean()
    ]
    kept = {name: column.filter(is_shown) for name, column in columns.items() if name != event}
    form.sample = Sample(kept, absent=frozenset(absent))
    form.missing = find_keys(form.sample, given)
    form.columns = form.sample.columns
    session, document = form.sample.keys("session"), form.sample.keys("document")
    if session and document:
        texts = [list(map(str, columns[name].array.to_pylist())) for name in (*session, *document)]
        keys = list(zip(*texts, strict=True))
        of_shown = [list(map(str, form.columns[name].array.to_pylist())) for name in (*session, *document)]
        _mark_clicks(form, values, ~is_shown, keys, list(zip(*of_shown, strict=True)))
    return form
