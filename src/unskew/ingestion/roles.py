"""The role of every column, guessed from names and values in a sample of whole result pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.build import shown_order
from unskew.ingestion import role_names as names
from unskew.ingestion.table_profile import Flags, Integers, Values

UNIQUE = 0.95  # share of rows that must not share their position, or their document, with another row of the page
IN_ORDER = 0.9  # share of neighbors in order: sponsored and shuffled documents do not follow the score
LEAST_PAIRS = 50  # neighboring documents needed to say that a column orders the lists
LIKE = 0.15  # share of documents that pages of a query have in common, above chance
LEAST_PAGES = 20  # pairs of pages needed to say that they show the same documents
CHANCE = 1e-6  # if all rows with a value being clicked is less likely than this, the value comes after the click
MOST_COUNTERS = 8  # columns that are tried as the number of a search
MOST_ARMS = 10  # levels of an intervention without a name
MOST_LEVELS = 30  # of a column that may change examination
SINCE, UNTIL = 6e8, 2.6e9  # seconds since 1970 of plausible times
SCALES = (1.0, 1e3, 1e6, 1e9)  # seconds, milliseconds, microseconds, nanoseconds


@dataclass(frozen=True)
class Role:
    """What a column is, why, and what is lost if that is wrong."""

    role: str
    value: str  # as in the option
    reason: str
    cost: str = ""


COSTS = {
    "session": "result pages are merged or split, and counts are wrong",
    "query": "documents are compared with those of other searches",
    "document": "clicks belong to the wrong documents",
    "position": "every correction of position bias is wrong",
    "page": "documents of later pages count as shown at the top",
    "page_size": "documents of later pages have wrong positions",
    "click": "the ranker learns from something else",
    "event": "impressions or clicks are lost",
    "time": "time windows and the order of events are wrong",
    "user": "robots are not capped, or people are taken for robots",
    "grade": "the ranker learns from the wrong feedback",
    "bias": "examination differs between groups of rows, unnoticed",
    "intervention": "randomized pages count as production's order",
    "policy_score": "production's order is a feature, or a feature is lost",
    "display_probability": "estimators weigh impressions wrongly",
    "seen": "recorded examination is not used",
    "context": "the ranker does not know the user or the moment",
    "feature": "the ranker lacks it, or learns from something unknown when it ranks",
}


@dataclass
class Sample:
    """Shown documents, one row each, with their roles as they are found."""

    columns: dict[str, Values]
    one_a_page: frozenset[str] = frozenset()  # columns that came with one value per result page
    page: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    order: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # rows page by page, from the top
    roles: dict[str, Role] = field(default_factory=dict)
    lists: dict[str, dict[str, str]] = field(default_factory=dict)  # roles of several columns, each with its reason
    taken: set[str] = field(default_factory=set)
    absent: frozenset[str] = frozenset()  # columns that events other than impressions lack
    follows: list[str] = field(default_factory=list)  # columns that order nearly all pages
    doubts: set[str] = field(default_factory=set)  # questions that only you can answer
    repeated: float = 0.0  # share of rows that repeat another

    @property
    def n(self) -> int:
        return len(next(iter(self.columns.values())).array) if self.columns else 0

    def value(self, role: str) -> str | None:
        return self.roles[role].value if role in self.roles else None

    def of(self, role: str) -> Values | None:
        """The values of a role with a single column."""
        return self.columns.get(self.value(role) or "")

    def keys(self, role: str) -> list[str]:
        """The columns that are a role together."""
        value = self.value(role) or ""
        return [name for name in ([value] if value in self.columns else value.split(",")) if name in self.columns]

    def give(self, role: str, value: str, reason: str) -> None:
        self.roles[role] = Role(role, value, reason, COSTS.get(role, ""))
        self.taken |= {value, *value.split(",")}

    def leave(self, role: str) -> None:
        """Take a role from its column."""
        if role in self.roles:
            value = self.roles.pop(role).value
            self.taken -= {value, *value.split(",")}

    def add(self, role: str, name: str, reason: str) -> None:
        self.lists.setdefault(role, {})[name] = reason
        self.taken.add(name)

    @property
    def free(self) -> list[str]:
        return [name for name, values in self.columns.items() if name not in self.taken and values.kind != "list"]

    @property
    def clicked(self) -> Flags | None:
        values = self.of("click")
        return None if values is None else values.is_set

    def rate(self, name: str) -> str:
        """The share of rows in which a flag is set."""
        return f"{self.columns[name].is_set.mean():.1%}"

    def varies(self, name: str) -> bool:
        """Whether a column differs within result pages with several documents."""
        codes, page = self.columns[name].codes[self.order], self.page[self.order]
        changes = np.bincount(page[1:][(codes[1:] != codes[:-1]) & (page[1:] == page[:-1])], minlength=page.max() + 1)
        several = np.bincount(page) > 1
        return bool(several.any()) and float((changes[several] > 0).mean()) > 0.01

    @property
    def upper(self) -> Flags:
        """Whether each row is in the upper half of its page, in the order of pages."""
        page = self.page[self.order]
        return shown_order(page) < np.bincount(page)[page] / 2


def codes_of(columns: Sequence[Values]) -> Integers:
    """One number per distinct row of these columns, from 0."""
    total = np.zeros(len(columns[0].codes), np.int64) if columns else np.zeros(0, np.int64)
    for values in columns:
        _, total = np.unique(total * (int(values.codes.max(initial=0)) + 2) + values.codes + 1, return_inverse=True)
    return total


def seconds(values: Values) -> NDArray[np.float64] | None:
    """Times as seconds since 1970; None: these are no times. Units may be mixed."""
    if values.kind == "time":
        return values.numbers
    if values.kind == "text":
        some = [level for level in values.levels[:50] if level]
        if not some or not all(re.match(r"\d{4}-\d\d-\d\d", level) for level in some):
            return None
        return np.array([*map(_iso_seconds, values.levels), np.nan])[values.codes]
    if not values.is_numeric or values.kind == "flag":
        return None
    numbers = values.numbers
    times = np.full(len(numbers), np.nan)
    for scale in SCALES:
        plausible = (numbers / scale >= SINCE) & (numbers / scale <= UNTIL)
        times = np.where(np.isnan(times) & plausible, numbers / scale, times)
    present = ~np.isnan(numbers)
    return times if present.any() and (~np.isnan(times))[present].mean() > 0.5 else None


def _iso_seconds(text: str) -> float:
    plain = re.sub(r"(Z|[+-]\d\d:?\d\d| UTC)$", "", text)
    try:
        return float(np.datetime64(plain, "us").astype(np.int64) / 1e6)
    except ValueError:
        return np.nan


def _is_count(values: Values) -> bool:
    return values.is_whole and values.n_distinct <= 100 and float(np.nanmin(values.numbers)) == 0.0


def _is_outcome(name: str) -> bool:
    return bool(names.match("outcome", name)) and not names.is_id(name)


def _is_document(sample: Sample, name: str, values: Values) -> bool:
    able = values.kind in ("text", "whole", "other") or (values.kind == "decimal" and values.is_whole)
    others = ("position", "session", "query", "user", "page", "score")
    once = name in sample.one_a_page or values.n_distinct < 2
    return able and not once and not any(names.match(role, name) >= 2 for role in others)


def _is_query(_: Sample, name: str, values: Values) -> bool:
    return values.kind in ("text", "whole", "other") and not (names.match("session", name) >= 2 and names.is_id(name))


def _is_user(_: Sample, name: str, values: Values) -> bool:
    return values.n_distinct > 5 and (values.kind == "text" or names.is_id(name) or is_sparse(values))


def _is_click(sample: Sample, name: str, values: Values) -> bool:
    beside = name not in sample.one_a_page and not names.is_id(name) and not names.match("outcome", name)
    state = names.match("click", name) < 3 and values.n_distinct > 1 and is_state(sample, values.is_set, ("document",))
    before = names.says("before", name) or state  # a column called `clicked` and nothing else is believed
    return beside and not before and (values.is_binary or _is_count(values))


def _is_seen(sample: Sample, name: str, values: Values) -> bool:
    clicked = sample.clicked
    able = values.is_binary or (values.is_numeric and float(np.nanmin(values.numbers)) >= 0)
    if not able or clicked is None or clicked.all() or not clicked.any() or not sample.varies(name):
        return False
    return bool(values.is_set[clicked].mean() > max(0.8, values.is_set[~clicked].mean()) and (~values.is_set).any())


def _is_probability(_: Sample, __: str, values: Values) -> bool:
    return values.is_numeric and float(np.nanmin(values.numbers)) > 0 and float(np.nanmax(values.numbers)) <= 1


def _is_rank(sample: Sample, name: str, values: Values) -> bool:
    able = values.is_whole and not names.is_id(name) and name not in sample.one_a_page
    return able and float(np.nanmin(values.numbers)) >= 0


def _is_page(_: Sample, name: str, values: Values) -> bool:
    return values.is_whole and not names.is_id(name) and 2 <= values.n_distinct <= 200


@dataclass(frozen=True)
class Rule:
    """How the column of a role is found: its name fits at least this well, and its values are possible."""

    least: int
    able: Callable[[Sample, str, Values], bool]
    reason: str  # of the column that was chosen, with its {count} of values or its {rate} of set flags
    first: Callable[[int, str, Values], Any] = lambda fit, name, values: -fit  # the lowest is chosen  # noqa: ARG005


RULES = {
    "document": Rule(
        1,
        _is_document,
        "{count:,} ids",
        lambda fit, name, values: (
            not names.is_id(name) and fit < 2,
            sum(" " in str(level) for level in values.levels[:500]) > 100,
            -fit - names.is_id(name),
            -values.n_distinct,
        ),
    ),
    "page": Rule(2, _is_page, "whole numbers"),
    "query": Rule(
        2,
        _is_query,
        "{count:,} values",
        lambda fit, name, values: (-fit, values.kind != "text" or names.is_id(name)),
    ),
    "user": Rule(2, _is_user, "{count:,} ids", lambda fit, name, _: (not names.is_id(name), -fit)),
    "click": Rule(1, _is_click, "{rate} of rows"),
    "seen": Rule(1, _is_seen, "nonzero on {rate} of rows"),
    "display_probability": Rule(1, _is_probability, "above 0, at most 1"),
}


def _find(sample: Sample, role: str) -> None:
    """Give a role to the column that its rule chooses."""
    if role in sample.roles:
        return
    rule, fits = RULES[role], {name: names.match(role, name) for name in sample.free}
    able = [n for n, fit in fits.items() if fit >= rule.least and rule.able(sample, n, sample.columns[n])]
    if able:
        name = min(able, key=lambda name: rule.first(fits[name], name, sample.columns[name]))
        reason = rule.reason.format(count=sample.columns[name].n_distinct, rate=sample.rate(name))
        sample.give(role, name, f"{reason}, and so named")


def find_keys(sample: Sample, given: Mapping[str, Any]) -> list[str]:
    """Session, query, document, position, page and time; returns what could not be found."""
    _drop_repeats(sample)
    for role in ("session", "query", "document", "position", "page", "time", "click", "user", "policy_score", "event"):
        if isinstance(given.get(role), str):
            sample.give(role, given[role], "you named it")
    _find_time(sample)
    _find(sample, "page")
    for role in ("query", "user"):
        _find(sample, role)
    missing = _find_layout(sample)
    set_pages(sample)
    _find_document(sample)
    _find_query(sample)
    _find_user(sample)
    set_pages(sample)
    needed = ("session", "query", "document", "position")
    return [role for role in needed if role not in sample.roles or role in missing]


def _drop_repeats(sample: Sample) -> None:
    """Drop rows that equal another, and note their share."""
    rows = codes_of([values for values in sample.columns.values() if values.kind != "list"])
    _, first = np.unique(rows, return_index=True)
    sample.repeated = 1 - len(first) / max(len(rows), 1)
    if sample.repeated:
        sample.columns = {name: values.take(np.sort(first)) for name, values in sample.columns.items()}


def set_pages(sample: Sample) -> None:
    """Result pages: a session and a query together, in the order of positions."""
    keys = [sample.columns[name] for role in ("session", "query") for name in sample.keys(role)]
    sample.page = codes_of(keys) if keys else np.zeros(sample.n, np.int64)
    position, page = sample.of("position"), sample.of("page")
    places = np.arange(sample.n, dtype=np.float64) if position is None else np.nan_to_num(position.numbers)
    if position is not None and page is not None:
        places = places + np.nan_to_num(page.numbers) * (places.max(initial=0) + 1)
    sample.order = np.lexsort((places, sample.page))


def _find_time(sample: Sample) -> None:
    if "time" in sample.roles:
        return
    typed = [name for name in sample.free if sample.columns[name].kind in ("time", "text")]
    able = [n for n in sample.free if n in typed or names.match("time", n) or _is_recent(sample.columns[n])]
    times = [name for name in able if seconds(sample.columns[name]) is not None]
    full = [name for name in times if sample.columns[name].present.mean() > 0.9]
    ranked = names.best("time", full) or [name for name in full if name in typed] or full
    if ranked:
        named = ", and so named" * bool(names.match("time", ranked[0]))
        sample.give("time", ranked[0], f"{'times' if ranked[0] in typed else 'numbers since 1970'}{named}")
    sample.taken |= set(times)  # another time is neither an id nor a feature


def _is_recent(values: Values) -> bool:
    """Whether whole numbers are all times since 2005, within three years of each other: too unlikely for ids."""
    times = seconds(values) if values.is_whole and values.n_distinct > 5 else None
    if times is None or np.isnan(times[values.present]).any():
        return False
    return bool(np.nanmin(times) > 1.1e9 and np.nanmax(times) < 2.1e9 and np.ptp(times[values.present]) < 1e8)


def _clash(sample: Sample, keys: Sequence[str]) -> float:
    """Share of rows that share their document or their position with another row of their result page."""
    present = np.logical_and.reduce([sample.columns[name].present for name in keys])
    page = codes_of([sample.columns[name] for name in keys])[present]
    position, number, document = (sample.of(role) for role in ("position", "page", "document"))
    places = [] if position is None or position.n_distinct < 2 else [position, *([] if number is None else [number])]
    worst = 0.0
    for within in ([] if document is None else [document], places):
        if within:
            count = len(np.unique(page * np.int64(sample.n + 1) + codes_of(within)[present]))
            worst = max(worst, 1 - count / max(len(page), 1))
    return worst


def _find_layout(sample: Sample) -> list[str]:
    """Session and position together: on a page of the right session, positions begin at the first, each once."""
    ranked = [] if "position" in sample.roles else _positions(sample)
    if not ranked and "position" not in sample.roles:
        _find(sample, "document")  # no position tells result pages apart
    told = {name: "whole numbers, and so named" for name in ranked if names.match("position", name)}
    for place in ranked if "session" not in sample.roles else []:
        sample.give("position", place, told.get(place, "1, 2, 3, … on each result page (by values)"))
        if _find_session(sample, IN_ORDER):
            return []
        sample.leave("position")
    if ranked:
        sample.give("position", ranked[0], told.get(ranked[0], "1, 2, 3, … on most pages (by values)"))
    return [] if _find_session(sample, IN_ORDER) or _find_session(sample, 0.0) else ["session"]


def _positions(sample: Sample) -> list[str]:
    """Columns that may be the position: those so named, then those that count down from 0 or 1."""
    free = [name for name in sample.free if name not in sample.one_a_page]
    able = [name for name in names.best("position", free) if _is_rank(sample, name, sample.columns[name])]
    others = [n for n in free if n not in able and _counts_down(sample.columns[n]) and not names.match("counter", n)]
    return sorted([*able, *others], key=lambda name: bool(sample.columns[name].present.mean() < 0.98))


def _counts_down(values: Values) -> bool:
    """Whether the values are whole numbers from 0 or 1, each of which is as frequent as the one before, or less."""
    if not values.is_whole or not 3 <= values.n_distinct <= 1_000 or values.present.mean() < 0.9:
        return False
    numbers, counts = np.unique(values.numbers[np.isfinite(values.numbers)], return_counts=True)
    dense = numbers[0] in (0.0, 1.0) and len(numbers) >= 0.9 * np.ptp(numbers)
    return bool(dense and (counts[1:] <= 1.15 * counts[:-1] + 5).all())


def _begins(sample: Sample, keys: Sequence[str]) -> float:
    """Share of the result pages of these keys whose first row is at the first position of all."""
    position, number = sample.of("position"), sample.of("page")
    if position is None or position.n_distinct < 2:
        return 1.0
    places = position.numbers if number is None else position.numbers + 1e6 * number.numbers
    page = codes_of([sample.columns[name] for name in keys])
    first = np.full(int(page.max(initial=0)) + 1, np.inf)
    np.minimum.at(first, page, np.nan_to_num(places, nan=np.inf))
    return float((first <= np.nanmin(places)).mean())


def _find_session(sample: Sample, begins: float) -> bool:
    """The session: a column, or two together, whose pages show no two documents at one position.

    Args:
        begins: the share of pages that must begin at the first position; if 0, names alone decide.
    """
    if "session" in sample.roles:
        return True
    query, time, user = (sample.keys(role) for role in ("query", "time", "user"))

    def fits(*keys: str) -> bool:
        present = np.logical_and.reduce([sample.columns[name].present for name in keys])
        whole = begins == 0 or present.mean() > 0.5
        return whole and _clash(sample, [*keys, *query]) <= 1 - UNIQUE and _begins(sample, [*keys, *query]) >= begins

    def give_pair(firsts: Sequence[str], others: Sequence[str]) -> bool:
        for name, more in product(firsts, others):
            if more != name and fits(name, more) and not _splits(sample, [name, *query], more):
                sample.give("session", f"{name},{more}", "together they distinguish result pages; one alone does not")
                return True
        return False

    able = [n for n in sample.free if n not in {*query, *sample.absent} and _may_be_id(sample, n)]
    named = [n for n in names.best("session", able, 2) if names.is_id(n) or not _is_other(n)]
    # The finest ids distinguish one showing of a query from the next.
    fine = {name: sample.columns[name].n_distinct for name in named}
    named.sort(key=lambda name: (-names.is_id(name) - (names.match("session", name) == 3), -fine[name]))
    counters = [n for n in sample.free if sample.columns[n].is_whole and n not in named and names.match("page", n) < 2]
    counters = [n for n in counters if names.match("counter", n) or begins]
    counters.sort(key=lambda name: (-names.match("counter", name), not _counts_down(sample.columns[name])))
    for name in named:
        if fits(name):
            if query and begins and _clash(sample, [name]) > 1 - UNIQUE:  # several searches: their number tells more
                query = []
                if give_pair([name], [n for n in counters if names.match("counter", n)]):
                    return True
            sample.give("session", name, "every position and document occurs once, and so named")
            return True
    others: list[str] = []
    if begins and "position" in sample.roles:
        roles = ("user", "document", "click", "outcome", "score", "query")
        others = [n for n in able if n not in named and sample.columns[n].n_distinct > 5]
        others = [n for n in others if names.is_id(n) or _looks_like_id(sample.columns[n])]
        others.sort(key=lambda name: -names.is_id(name) - 2 * names.match("session", name))
        for name in others:
            if not any(names.match(role, name) >= 2 for role in roles) and fits(name):
                sample.give("session", name, "every position occurs once on its pages, from the first (by values)")
                return True
    if give_pair([*named, *user, *others], [*counters[:MOST_COUNTERS], *time]):
        return True
    if begins:
        return False
    if named or user:
        reason = "its name; but values repeat" if named else "there is no other id, but this is a user"
        sample.give("session", [*named, *user][0], reason)
    elif time and query and fits(time[0]):
        sample.give("session", time[0], "no column looks like the session")
    return "session" in sample.roles and bool(named or user)


def _may_be_id(sample: Sample, name: str) -> bool:
    """Whether a column can be the id of a page: text or whole numbers, of more than a few levels."""
    values = sample.columns[name]
    return values.kind in ("text", "other") or (values.kind == "whole" and (names.is_id(name) or values.n_distinct > 5))


def _is_other(name: str) -> bool:
    return names.match("query", name) == 3 or names.match("document", name) >= 2


def _splits(sample: Sample, keys: Sequence[str], more: str) -> bool:
    """Whether a column would cut result pages into rows: it is as fine as the documents."""
    page = codes_of([sample.columns[name] for name in (*keys, more)])
    return len(np.unique(page)) > 0.6 * len(page) and not sample.one_a_page


def _find_document(sample: Sample) -> None:
    """The document: an id that differs between the rows of a page, and returns on other pages; a name helps."""
    if "document" in sample.roles:
        return

    def once(name: str) -> bool:
        codes = sample.columns[name].codes
        twice = 1 - len(np.unique(sample.page * (int(codes.max()) + 2) + codes)) / max(sample.n, 1)
        return bool(twice <= 1 - UNIQUE and sample.columns[name].present.mean() > IN_ORDER)

    able = [n for n in sample.free if _is_document(sample, n, sample.columns[n]) and n not in sample.absent]
    wide = np.bincount(sample.page).max(initial=0) if sample.n else 0

    def fits(name: str) -> bool:
        values = sample.columns[name]
        is_id = names.is_id(name) or _looks_like_id(values)
        return bool(names.match("document", name)) or (is_id and wide < values.n_distinct < 0.9 * sample.n)

    def rank(name: str) -> Any:
        return RULES["document"].first(names.match("document", name), name, sample.columns[name])

    ranked = sorted(filter(fits, able), key=rank)
    chosen = next((name for name in ranked if "session" not in sample.roles or once(name)), None)
    if chosen is None:
        _find(sample, "document")
        return
    named = ", and so named" if names.match("document", chosen) else " that differ on a page and return on others"
    sample.give("document", chosen, f"{sample.columns[chosen].n_distinct:,} ids{named}")


def _looks_like_id(values: Values) -> bool:
    return values.kind in ("text", "other") or is_sparse(values)


def is_sparse(values: Values) -> bool:
    """Whether whole numbers look like ids: large, and either close together, or few of those between their ends."""
    known = values.numbers[np.isfinite(values.numbers)]
    if values.kind != "whole" or not len(known) or known.min() < 1e4:
        return False
    return bool(np.ptp(known) > 5 * values.n_distinct or known.min() > 10 * np.ptp(known))


def overlap(sample: Sample, keys: Sequence[str]) -> tuple[float, int]:
    """How many more documents two pages with the same value share than two others; and the number of such pairs."""
    document = sample.of("document")
    if document is None or not sample.n:
        return 0.0, 0
    n_pages, n_codes = int(sample.page.max()) + 1, int(document.codes.max()) + 2
    value = np.zeros(n_pages, np.int64)
    value[sample.page] = codes_of([sample.columns[name] for name in keys])
    known = np.ones(n_pages, bool)
    known[sample.page] = np.logical_and.reduce([sample.columns[name].present for name in keys])
    pages = np.flatnonzero(known)
    pages = pages[np.argsort(value[pages], kind="stable")]
    shown = np.sort(sample.page * n_codes + document.codes)

    def shared(first: Integers, second: Integers) -> float:
        other = np.full(n_pages, -1)
        other[first] = second
        rows = other[sample.page] >= 0
        wanted = other[sample.page][rows] * n_codes + document.codes[rows]
        found = shown[np.minimum(np.searchsorted(shown, wanted), len(shown) - 1)] == wanted
        return float(found.mean()) if rows.any() else 0.0

    same = value[pages[1:]] == value[pages[:-1]]
    if not same.any():
        return 0.0, 0
    chance = shared(pages, np.random.default_rng(0).permutation(pages))
    return shared(pages[:-1][same], pages[1:][same]) - chance, int(same.sum())


def _of_page(sample: Sample) -> list[str]:
    """Free columns with one value on a page, and several over all."""
    able = [n for n in sample.free if len(np.unique(sample.columns[n].codes)) > 1]
    return [name for name in able if name in sample.one_a_page or not sample.varies(name)]


def _find_query(sample: Sample) -> None:
    """The query: the column of a page that tells best which documents are shown; a name helps, but does not decide."""
    named = sample.value("query")
    if named is not None and (sample.roles["query"].reason == "you named it" or named not in sample.columns):
        return
    sample.leave("query")
    document = sample.of("document")
    ids = set() if document is None else set(document.levels)
    gains: dict[str, float] = {}
    for name in _of_page(sample):
        values, fit = sample.columns[name], names.match("query", name)
        if values.kind not in ("text", "whole", "other") or values.n_distinct < 5 or names.match("experiment", name):
            continue
        gain, pairs = overlap(sample, [name])
        if gain > LIKE and pairs >= LEAST_PAGES:
            count = values.kind == "whole" and not names.is_id(name) and not fit
            shown = len(ids & set(values.levels)) > 0.9 * values.n_distinct  # documents that a page starts from
            gains[name] = gain + 0.05 * fit + 0.15 * shown - count
    alike = [name for name in gains if gains[name] > max(gains.values()) - 0.05]
    best = min(alike, key=lambda name: (sample.columns[name].n_distinct, -gains[name]), default=None)
    sure = named is None or (best is not None and bool(names.match("query", best)))
    if best is not None and not sure and best != named:
        gain, pairs = overlap(sample, [named or best])
        if gain > LIKE or pairs < LEAST_PAGES:  # what is so named may be true
            best = None
        else:
            told = "tells which documents are shown: pass --query"
            sample.doubts.add(f"{named} is named like the query, but {best} {told}")
    if best is not None:
        sample.give("query", best, "pages with the same value show the same documents (by values)")
    elif named is not None:
        sample.give("query", named, f"{sample.columns[named].n_distinct:,} values, and so named")
    else:
        _find_search(sample)


def _find_search(sample: Sample) -> None:
    """The query of a page without a text: the columns that define the search."""
    able = [name for name in names.best("search", _of_page(sample)) if sample.columns[name].kind == "text"]
    gain, pairs = overlap(sample, able) if able else (0.0, 0)
    if able and (gain > LIKE or pairs < LEAST_PAGES):
        sample.give("query", ",".join(able), "no column holds the text of the search; these define it")


def _find_user(sample: Sample) -> None:
    """A user: an id with several pages, which show no more of the same documents than others; where no name tells."""
    if "user" in sample.roles or "session" not in sample.roles:
        return
    n_pages, rows = len(np.unique(sample.page)), np.unique(sample.page, return_index=True)[1]
    for name in sorted(_of_page(sample), key=lambda name: (-names.is_id(name), -names.match("user", name))):
        values = sample.columns[name]
        if not (names.is_id(name) or _looks_like_id(values)) or name in sample.absent:
            continue
        codes = values.codes[rows][values.codes[rows] >= 0]
        returns = len(codes) / max(len(np.unique(codes)), 1)
        apart = (np.diff(np.flatnonzero(codes == np.bincount(codes).argmax())) > 1).any() if len(codes) else False
        many = values.n_distinct >= max(20, n_pages / 50)
        gain, _ = overlap(sample, [name])
        if many and returns >= 1.5 and apart and gain < LIKE / 2 and not names.match("experiment", name):
            sample.give("user", name, f"{values.n_distinct:,} ids with several pages each (by values)")
            return


def find_clicks(sample: Sample) -> bool:
    """The column of clicks, by name or by values; whether there is one."""
    _find(sample, "click")
    if "click" in sample.roles:
        return True
    flags = {
        name: sample.columns[name].is_set
        for name in sample.free
        if name not in sample.one_a_page
        and not names.is_id(name)
        and (sample.columns[name].is_binary or _is_count(sample.columns[name]))
        and sample.varies(name)
        and _falls(sample, name)
        and not _is_seen_down(sample, name)
        and not _places(sample, name)
        and not is_state(sample, sample.columns[name].is_set)
        and not any(names.match(role, name) for role in ("outcome", "sponsored", "seen", "layout"))
    }
    # Feedback of other kinds comes with a click.
    widest = [n for n in flags if all((flags[n] & other).sum() > 0.6 * other.sum() for other in flags.values())]
    if len(widest) == 1:
        reason = f"{sample.rate(widest[0])} of rows, more often higher up (by values: its name does not say it)"
        sample.give("click", widest[0], reason)
    return len(widest) == 1


def take_flags(sample: Sample) -> list[str]:
    """Flags that may be the click, where no column surely is: they are not features either."""
    flags = [n for n in sample.free if n not in sample.one_a_page and sample.columns[n].is_binary and sample.varies(n)]
    flags = [name for name in flags if not is_state(sample, sample.columns[name].is_set, ("document",))]
    sample.taken |= set(flags)
    return flags


def is_state(sample: Sample, flags: Flags, roles: Sequence[str] = ("user", "document")) -> bool:
    """Whether a flag belongs to a document, or to a user's document: if set once, it is set on other pages, too."""
    keys = [sample.columns[name] for role in roles for name in sample.keys(role)]
    if not keys or not flags.any():
        return False
    flags = flags if flags.mean() < 0.5 else ~flags
    cells, known = codes_of(keys), np.logical_and.reduce([values.present for values in keys])
    order = np.lexsort((sample.page, cells))
    order = order[known[order]]
    again = (cells[order][1:] == cells[order][:-1]) & (sample.page[order][1:] != sample.page[order][:-1])
    first, second = flags[order][:-1][again], flags[order][1:][again]
    return bool(first.sum() >= 5 and (first & second).sum() > 0.8 * max(first.sum(), second.sum()))


def _is_seen_down(sample: Sample, name: str) -> bool:
    """Whether a flag is set down to some position of each page, as what was seen is."""
    flags, page = sample.columns[name].is_set[sample.order], sample.page[sample.order]
    together = page[1:] == page[:-1]
    gaps = (flags[1:] & ~flags[:-1] & together).sum()
    several = (flags[1:] & flags[:-1] & together).sum()
    return bool(several > LEAST_PAIRS and gaps < 0.05 * several)


def _places(sample: Sample, name: str) -> str:
    """The few positions at which a flag is set, as sponsored results are, as text; empty: it is set anywhere."""
    flags, values = sample.columns[name].is_set[sample.order], sample.of("position")
    numbers = shown_order(sample.page[sample.order]) if values is None else values.numbers[sample.order]
    place = np.nan_to_num(numbers).astype(np.int64)
    counts, rows = np.bincount(place[flags]), np.bincount(place)
    at = np.flatnonzero(counts > 0.02 * counts.sum()) if counts.sum() >= LEAST_PAGES else np.zeros(0, np.int64)
    few = 0 < len(at) <= max(1, (rows > 0).sum() // 4) and counts[at].sum() > 0.95 * counts.sum()
    return ", ".join(map(str, at)) if few and (counts[at] < 0.98 * rows[at]).all() else ""


def _falls(sample: Sample, name: str, most: float = 0.5) -> bool:
    """Whether a flag is set more often in the upper half of the pages, and does not belong to the document."""
    flags, upper = sample.columns[name].is_set[sample.order], sample.upper
    above, below = (flags[half].mean() if half.any() else 0.0 for half in (upper, ~upper))
    document = sample.of("document")
    if document is not None:
        states = np.unique(document.codes * 2 + sample.columns[name].is_set)
        if len(states) == document.n_distinct:
            return False
    return above > 1.5 * below and 0 < flags.mean() < most


def find_others(sample: Sample) -> dict[str, str]:
    """Roles that a log gains from, and features; returns what is known only after the click, with the reason."""
    sample.taken |= {name for name in sample.free if sample.columns[name].n_distinct == 0}
    after = _find_outcomes(sample)
    _find_bias(sample)
    if "intervention" not in sample.roles:
        _find_interventions(sample)
    _find_score(sample)
    _find(sample, "display_probability")
    _find(sample, "seen")
    down = [n for n in sample.free if sample.columns[n].is_numeric and _is_seen(sample, n, sample.columns[n])]
    for name in down:  # visible times, and flags of what was seen
        if _is_seen_down(sample, name) and _falls(sample, name, most=1.0):
            if "seen" not in sample.roles:
                sample.give("seen", name, "nonzero from the top down to some position, and on clicks (by values)")
            else:
                after[name] = "nonzero from the top down to some position, as what was seen"
                sample.taken.add(name)
    _find_context(sample)
    return after


def _find_interventions(sample: Sample) -> None:
    for name in names.best("experiment", sample.free):
        values = sample.columns[name]
        if (values.is_numeric and not values.is_binary) or values.n_distinct > MOST_LEVELS or sample.varies(name):
            continue
        levels = [str(level) for level in values.levels if level not in (None, "")]
        shuffled = [level for level in levels if names.any_part(names.SHUFFLES, level)]
        if values.is_binary and names.any_part(names.SHUFFLES, name):
            shuffled = [level for level in levels if level.lower() in ("true", "1", "yes", "t", "y", "1.0")]
        if shuffled:
            codes = [code for code, level in enumerate(values.levels) if str(level) in shuffled]
            share = np.isin(values.codes, codes).mean()
            reason = f"an experiment that changes the order ({', '.join(shuffled)}: {share:.0%} of rows)"
            sample.give("intervention", name, reason)
            random = dict.fromkeys((level for level in shuffled if "swap" not in level.lower()), "")
            sample.lists |= {"shuffled": random} if random else {}
            return
    _find_shuffles(sample)


def _find_shuffles(sample: Sample) -> None:
    """An intervention by values: levels of a page on which no column is in order, though one is on all others."""
    scores = {name: share for name in sample.free if (share := falling(sample, name)) is not None and share > 0.75}
    able = [n for n in _of_page(sample) if scores and len(np.unique(sample.columns[n].codes)) <= MOST_ARMS]
    able = [name for name in able if overlap(sample, [name])[0] < LIKE]
    for score in sorted(scores, key=lambda name: -scores[name])[:2]:
        for name in able:
            codes = sample.columns[name].codes
            shares = {code: falling(sample, score, codes == code) for code in np.unique(codes)}
            known = {code: share for code, share in shares.items() if share is not None}
            if not known or max(known.values()) < IN_ORDER:
                continue
            shuffled = [code for code, share in known.items() if share < max(known.values()) - 0.1 and code >= 0]
            rows = np.isin(codes, shuffled)
            others = [n for n in sample.free if n != score and sample.varies(n) and 0 < rows.mean() < 0.5]
            orders = [share for n in others if (share := falling(sample, n, rows)) is not None]
            if not orders or max(max(orders), 1 - min(orders)) > 0.8:  # sorted by another column
                continue
            levels = [str(sample.columns[name].levels[code]) for code in shuffled]
            reason = f"{score} orders the pages of all levels but {', '.join(levels)} (by values)"
            sample.give("intervention", name, reason)
            sample.lists["shuffled"] = dict.fromkeys(levels, "")
            return


def _find_bias(sample: Sample) -> None:
    for name in sample.free:
        values = sample.columns[name]
        if not 2 <= values.n_distinct <= MOST_LEVELS:
            continue
        levels = [str(level) for level in values.levels if level not in (None, "")]
        devices = values.kind == "text" and 2 * sum(names.says("device", level) for level in levels) >= len(levels)
        devices &= "/" not in levels[0] and max(map(len, levels)) <= 40  # not names of programs
        beside = name not in sample.one_a_page and values.is_binary and sample.varies(name)
        if names.match("sponsored", name) and values.is_binary:
            sample.add("bias", name, f"marks sponsored or pinned results, {sample.rate(name)} of rows")
        elif beside and (at := _places(sample, name)) and not is_state(sample, values.is_set):
            sample.add("bias", name, f"set only at positions {at}, as sponsored or pinned results are (by values)")
        elif devices:
            sample.add("bias", name, f"{', '.join(sorted(levels)[:4])}: devices show pages differently")
        elif values.kind == "text" and names.match("layout", name) >= 2:
            sample.add("bias", name, "the layout of the page")


def _expected(sample: Sample, has: Flags, clicked: Flags) -> float:
    """The share of clicked rows with a value, if it were as frequent on them as on others at the same position."""
    place = np.zeros(sample.n, np.int64)
    place[sample.order] = shown_order(sample.page[sample.order])
    rows, values = np.bincount(place[~clicked]), np.bincount(place[~clicked], weights=has[~clicked])
    share = np.zeros(int(place.max(initial=0)) + 1)
    share[: len(rows)] = values / np.maximum(rows, 1)
    return float(share[place[clicked]].mean()) if clicked.any() else 0.0


def _find_outcomes(sample: Sample) -> dict[str, str]:
    """Grades among the free columns; what else is known only after the click is taken, and returned with the reason."""
    clicked = sample.clicked
    after: dict[str, str] = {}
    if clicked is None or "document" not in sample.roles:
        return after
    rate = float(clicked.mean())
    pairs = codes_of([sample.columns[name] for role in ("query", "document") for name in sample.keys(role)])
    for name in sample.free:
        values = sample.columns[name]
        has = values.is_set if values.is_numeric else values.present
        if name in sample.one_a_page or not has.any():
            continue
        only = not bool((has & ~clicked).any()) and 0 < rate < 1 and rate ** len(np.unique(pairs[has])) < CHANCE
        outcome, dwell = _is_outcome(name), bool(names.match("dwell", name))
        counts = (values.is_binary or _is_count(values)) and not names.says("after", name)
        part = float(has[clicked].mean()) if clicked.any() else 0.0
        more = part / max(_expected(sample, has, clicked), 1e-9)
        before = not only and more < 10 and (names.says("before", name) or is_state(sample, has))
        known = outcome or (part < 0.9 and values.n_distinct <= MOST_LEVELS)
        if only and counts and not dwell and known and not np.array_equal(has, clicked):
            unnamed = "" if outcome else ", by values: leave it out if it says that a click was in vain"
            sample.add("grade", name, f"feedback, {part:.0%} of clicks{unnamed}")
        if only and name not in sample.taken:
            after[name] = "nonzero only on clicked rows" if values.is_numeric else "filled only on clicked rows"
        elif only or before or not values.is_numeric or not sample.varies(name):
            continue
        elif outcome and counts and not dwell and more > 3:
            sample.add("grade", name, f"feedback, {has.mean():.1%} of rows")
        elif (outcome or dwell) and more > 2:
            after[name] = "its name, and it is nonzero far more often on clicked rows"
        elif outcome and values.is_binary:
            sample.doubts.add(
                f"{name} is named like feedback, but is nearly as frequent without a click: pass --grade {name}, or "
                f"--feature {name} if it is known before"
            )
            sample.taken.add(name)
        elif more > 10 and has.sum() >= LEAST_PAIRS:
            after[name] = "nonzero ten times as often on clicked rows"
    sample.taken |= set(after)
    return after


def _find_score(sample: Sample) -> None:
    orders = {name: share for name in sample.free if (share := falling(sample, name)) is not None}
    named = {name: bool(names.match("score", name)) for name in orders}
    scores = [name for name, share in orders.items() if share >= IN_ORDER]
    if scores and "policy_score" not in sample.roles:
        name = min(scores, key=lambda name: (-named[name], -orders[name]))
        sample.give("policy_score", name, f"falls from one position to the next in {orders[name]:.0%} of pairs")
    flags = {n: falling(sample, n, binary=True) for n in sample.free if sample.columns[n].is_binary}
    orders |= {name: share for name, share in flags.items() if share is not None}
    for name, share in orders.items():  # a feature that orders lists so well is the position, or a score of production
        if name not in sample.taken and max(share, 1 - share) >= 0.97:
            sample.taken.add(name)
            sample.follows.append(name)


def falling(sample: Sample, name: str, rows: Flags | None = None, *, binary: bool = False) -> float | None:
    """Share of neighboring documents in falling order, of some rows; None: not a column that could order lists."""
    values = sample.columns[name]
    if not values.is_numeric or values.is_binary > binary or name in sample.one_a_page or sample.n < 2:
        return None
    usual = np.ones(sample.n, bool) if rows is None else rows
    intervention = sample.of("intervention")
    if intervention is not None:
        shuffled = sample.lists.get("shuffled", {})
        in_order = np.array([str(level) not in shuffled for level in intervention.levels] + [True])
        usual = usual & in_order[intervention.codes]
    for flag in sample.lists.get("bias", {}):
        if sample.columns[flag].is_binary and sample.varies(flag):
            usual = usual & ~sample.columns[flag].is_set
    numbers, page, usual = values.numbers[sample.order], sample.page[sample.order], usual[sample.order]
    together = (page[1:] == page[:-1]) & usual[1:] & usual[:-1]
    falls = (numbers[1:] < numbers[:-1])[together].sum()
    rises = (numbers[1:] > numbers[:-1])[together].sum()
    return float(falls / (falls + rises)) if falls + rises >= LEAST_PAIRS else None


def _find_context(sample: Sample) -> None:
    for name in sample.free:
        values = sample.columns[name]
        named = names.match("context", name) and values.is_numeric and not names.is_id(name)
        if named and values.n_distinct > 1 and not sample.varies(name) and seconds(values) is None:
            sample.add("context", name, "the same for all documents of a page: it describes the user or the moment")
