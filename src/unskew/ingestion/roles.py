"""The role of every column, guessed from names and values in a sample of whole result pages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.ingestion import role_names as names
from unskew.ingestion.table_profile import Flags, Integers, Values

UNIQUE = 0.95  # share of rows that must not share their position, or their document, with another row of the page
IN_ORDER = 0.9  # share of neighbors in order: sponsored and shuffled documents do not follow the score
LEAST_PAIRS = 50  # neighboring documents needed to say that a column orders the lists
CHANCE = 1e-6  # if all rows with a value being clicked is less likely than this, the value comes after the click
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
    lists: dict[str, list[str]] = field(default_factory=dict)  # roles that several columns have
    reasons: dict[str, str] = field(default_factory=dict)  # of columns in lists
    taken: set[str] = field(default_factory=set)
    repeated: float = 0.0  # share of rows that repeat another

    @property
    def n(self) -> int:
        return len(next(iter(self.columns.values())).array) if self.columns else 0

    def value(self, role: str) -> str | None:
        return self.roles[role].value if role in self.roles else None

    def of(self, role: str) -> Values | None:
        """The values of a role with a single column."""
        name = self.value(role)
        return self.columns.get(name) if name is not None else None

    def give(self, role: str, value: str, reason: str) -> None:
        self.roles[role] = Role(role, value, reason, COSTS.get(role, ""))
        self.taken |= {value, *value.split(",")}

    def add(self, role: str, name: str, reason: str) -> None:
        self.lists.setdefault(role, []).append(name)
        self.reasons[name] = reason
        self.taken.add(name)

    @property
    def free(self) -> list[str]:
        return [name for name, values in self.columns.items() if name not in self.taken and values.kind != "list"]

    @property
    def clicked(self) -> Flags | None:
        values = self.of("click")
        return None if values is None else values.is_set

    def varies(self, name: str) -> bool:
        """Whether a column differs within result pages."""
        return self.differing(name) > 0.01

    def differing(self, name: str) -> float:
        """Share of the result pages with several documents in which a column differs."""
        codes = self.columns[name].codes[self.order]
        page = self.page[self.order]
        changes = np.bincount(page[1:][(codes[1:] != codes[:-1]) & (page[1:] == page[:-1])], minlength=page.max() + 1)
        several = np.bincount(page) > 1
        return float((changes[several] > 0).mean()) if several.any() else 0.0


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
        of_level = [_iso_seconds(level) for level in values.levels]
        return np.array([*of_level, np.nan])[values.codes]
    if not values.is_numeric or values.kind == "flag":
        return None
    numbers = values.numbers
    found = np.full(len(numbers), np.nan)
    for scale in SCALES:
        fits = (numbers / scale >= SINCE) & (numbers / scale <= UNTIL)
        found = np.where(np.isnan(found) & fits, numbers / scale, found)
    known = ~np.isnan(numbers)
    return found if known.any() and (~np.isnan(found))[known].mean() > 0.5 else None


def _iso_seconds(text: str) -> float:
    plain = re.sub(r"(Z|[+-]\d\d:?\d\d| UTC)$", "", text)
    try:
        return float(np.datetime64(plain, "us").astype(np.int64) / 1e6)
    except ValueError:
        return np.nan


def find_keys(sample: Sample, given: Mapping[str, Any]) -> list[str]:
    """Session, query, document, position, page and time; returns what could not be found."""
    sample.columns, sample.repeated = _without_repeats(sample)
    named = {role: value for role, value in given.items() if isinstance(value, str)}
    for role in ("session", "query", "document", "position", "page", "time", "click", "user", "policy_score", "event"):
        if role in named:
            sample.give(role, named[role], "you named it")
    _find_time(sample)
    _find_document(sample)
    _find_page(sample)
    _find_position(sample)
    _find_query(sample)
    _find_user(sample)
    missing = _find_session(sample)
    if "query" not in sample.roles:
        _find_search(sample)
    set_pages(sample)
    _check_position(sample)
    needed = ("session", "query", "document", "position")
    return [role for role in needed if role not in sample.roles or role in missing]


def _without_repeats(sample: Sample) -> tuple[dict[str, Values], float]:
    """The columns without rows that equal another, and the share of such rows."""
    rows = codes_of([values for values in sample.columns.values() if values.kind != "list"])
    _, first = np.unique(rows, return_index=True)
    share = 1 - len(first) / max(len(rows), 1)
    if not share:
        return sample.columns, 0.0
    first = np.sort(first)
    return {name: values.take(first) for name, values in sample.columns.items()}, share


def set_pages(sample: Sample) -> None:
    """Result pages: a session and a query together, in the order of positions."""
    keys = [sample.columns[name] for role in ("session", "query") for name in _parts(sample, role)]
    sample.page = codes_of(keys) if keys else np.zeros(sample.n, np.int64)
    sample.order = np.lexsort((_places(sample), sample.page))


def _parts(sample: Sample, role: str) -> list[str]:
    value = sample.value(role) or ""
    return [value] if value in sample.columns else [part for part in value.split(",") if part in sample.columns]


def _places(sample: Sample) -> NDArray[np.float64]:
    """Positions in the order of pages: comparable within a result page."""
    position, page = sample.of("position"), sample.of("page")
    if position is None:
        return np.arange(sample.n, dtype=np.float64)
    places = np.nan_to_num(position.numbers)
    return places if page is None else places + np.nan_to_num(page.numbers) * (places.max(initial=0) + 1)


def _find_time(sample: Sample) -> None:
    if "time" in sample.roles:
        return
    able = [name for name in sample.free if sample.columns[name].kind in ("time", "text") or names.match("time", name)]
    times = {name: found for name in able if (found := seconds(sample.columns[name])) is not None}
    full = [name for name in times if (sample.columns[name].present).mean() > 0.9]
    typed = [name for name in full if sample.columns[name].kind in ("time", "text")]
    ranked = names.best("time", full) or typed[:1]
    if ranked:
        words = "times" if ranked[0] in typed else "numbers since 1970"
        sample.give("time", ranked[0], f"{words}{_called('time', ranked[0])}")
    sample.taken |= set(times)  # another time is neither an id nor a feature


def _find_document(sample: Sample) -> None:
    if "document" in sample.roles:
        return
    able = [
        name
        for name in sample.free
        if sample.columns[name].kind in ("text", "whole", "decimal", "other")
        and name not in sample.one_a_page
        and sample.columns[name].n_distinct > 1
        and (sample.columns[name].kind != "decimal" or sample.columns[name].is_whole)
        and not any(names.match(role, name) >= 2 for role in ("position", "session", "query", "user", "page", "score"))
    ]
    ranked = sorted(
        (name for name in able if names.match("document", name)),
        key=lambda name: (-names.match("document", name) - names.is_id(name), -sample.columns[name].n_distinct),
    )
    ranked = [name for name in ranked if names.is_id(name) or names.match("document", name) > 1] or ranked[:1]
    if ranked:
        count = sample.columns[ranked[0]].n_distinct
        sample.give("document", ranked[0], f"{count:,} ids{_called('document', ranked[0])}")


def _find_page(sample: Sample) -> None:
    if "page" in sample.roles:
        return
    for name in names.best("page", sample.free, 2):
        values = sample.columns[name]
        if values.is_whole and not names.is_id(name) and 2 <= values.n_distinct <= 200:
            sample.give("page", name, f"whole numbers{_called('page', name)}")
            return


def _find_position(sample: Sample) -> None:
    if "position" in sample.roles:
        return
    able = [name for name in sample.free if sample.columns[name].is_whole and not names.is_id(name)]
    ranked = [name for name in names.best("position", able) if name not in sample.one_a_page]
    if ranked:
        sample.give("position", ranked[0], f"whole numbers{_called('position', ranked[0])}")


def _find_query(sample: Sample) -> None:
    if "query" in sample.roles:
        return
    able = [
        name
        for name in sample.free
        if sample.columns[name].kind in ("text", "whole", "other") and names.match("query", name) >= 2
    ]
    text = [name for name in able if sample.columns[name].kind == "text" and not names.is_id(name)]
    core = [name for name in (*text, *able) if not (names.match("session", name) >= 2 and names.is_id(name))]
    ranked = names.best("query", core)
    if ranked:
        count = sample.columns[ranked[0]].n_distinct
        sample.give("query", ranked[0], f"{count:,} values{_called('query', ranked[0])}")


def _find_user(sample: Sample) -> None:
    if "user" in sample.roles:
        return
    able = [
        name
        for name in names.best("user", sample.free, 2)
        if sample.columns[name].kind in ("text", "whole") and sample.columns[name].n_distinct > 5
    ]
    able = [name for name in able if names.is_id(name) or sample.columns[name].kind == "text"]
    able.sort(key=lambda name: not names.is_id(name))
    if able:
        count = sample.columns[able[0]].n_distinct
        sample.give("user", able[0], f"{count:,} ids{_called('user', able[0])}")


def _clash(sample: Sample, keys: Sequence[str]) -> float:
    """Share of rows that share their document or their position with another row of their result page."""
    there = np.logical_and.reduce([sample.columns[name].present for name in keys])
    page = codes_of([sample.columns[name] for name in keys])[there]
    worst = 0.0
    position, number = sample.of("position"), sample.of("page")
    document = sample.of("document")
    places = [values for values in (position, number) if values is not None]
    if position is None or position.n_distinct < 2:
        places = []
    for within in ([document] if document is not None else [], places):
        if within:
            count = len(np.unique(page * np.int64(sample.n + 1) + codes_of(within)[there]))
            worst = max(worst, 1 - count / max(len(page), 1))
    return worst


def _find_session(sample: Sample) -> list[str]:
    """The session: a column, or several together, in which no result page shows two documents at one position."""
    query, time, user = (_parts(sample, role) for role in ("query", "time", "user"))
    if "session" in sample.roles:
        return []
    able = [
        name for name in sample.free if sample.columns[name].kind in ("text", "whole", "other") and name not in query
    ]
    named = [
        name
        for name in names.best("session", able, 2)
        if not (names.match("document", name) >= 2 and not names.is_id(name))
        and names.match("query", name) != 3
        and (names.is_id(name) or sample.columns[name].kind != "whole" or sample.columns[name].n_distinct > 5)
    ]
    # The finest ids distinguish one showing of a query from the next.
    named.sort(
        key=lambda name: (-names.is_id(name) - (names.match("session", name) == 3), -sample.columns[name].n_distinct)
    )
    for name in named:
        if _clash(sample, [name, *query]) <= 1 - UNIQUE:
            sample.give("session", name, f"every position and document occurs once{_called('session', name)}")
            return []
    counters = [n for n in sample.free if sample.columns[n].is_whole and names.match("counter", n) and n not in named]
    for name in [*named, *user]:
        for more in [*counters, *time]:
            if _clash(sample, [name, more, *query]) <= 1 - UNIQUE and not _splits(sample, [name, *query], more):
                sample.give("session", f"{name},{more}", "together they distinguish result pages; one alone does not")
                return []
    if named:
        sample.give("session", named[0], "its name; but values repeat")
        return []
    if user:
        sample.give("session", user[0], "there is no other id, but this is a user")
        return []
    if time and query and _clash(sample, [*time, *query]) <= 1 - UNIQUE:
        sample.give("session", time[0], "no column looks like the session")
    return ["session"]


def _splits(sample: Sample, keys: Sequence[str], more: str) -> bool:
    """Whether a column would cut result pages into rows: it is as fine as the documents."""
    page = codes_of([sample.columns[name] for name in (*keys, more)])
    return len(np.unique(page)) > 0.6 * len(page) and not sample.one_a_page


def _find_search(sample: Sample) -> None:
    """The query of a page without a text: the columns that define the search."""
    set_pages(sample)
    able = [
        name
        for name in names.best("search", sample.free)
        if sample.columns[name].kind == "text"
        and (name in sample.one_a_page or not sample.varies(name))
        and len(np.unique(sample.columns[name].codes)) > 1
    ]
    if able:
        reason = "no column holds the text of the search; these define it"
        sample.give("query", ",".join(able), reason)


def _check_position(sample: Sample) -> None:
    """A position by its values where no name tells: 0, 1, 2, … or 1, 2, 3, … on most result pages."""
    if "position" in sample.roles or "session" not in sample.roles:
        return
    sizes = np.bincount(sample.page)
    for name in sample.free:
        values = sample.columns[name]
        if not values.is_whole or values.n_distinct < 2 or values.numbers.min() not in (0.0, 1.0):
            continue
        order = np.lexsort((values.numbers, sample.page))
        start = np.cumsum(sizes) - sizes
        place = np.arange(sample.n) - np.repeat(start, sizes)
        if (values.numbers[order] - values.numbers.min() == place).mean() > IN_ORDER:
            sample.give("position", name, "1, 2, 3, … on each result page (by values: its name does not say it)")
            set_pages(sample)
            return


def _called(role: str, name: str) -> str:
    return ", and so named" if names.match(role, name) >= 1 else ""


def find_clicks(sample: Sample) -> bool:
    """The column of clicks, by name or by values; whether there is one."""
    if "click" in sample.roles:
        return True
    able = [
        name
        for name in sample.free
        if name not in sample.one_a_page
        and not names.is_id(name)
        and (sample.columns[name].is_binary or _is_count(sample.columns[name]))
    ]
    ranked = [name for name in names.best("click", able) if not names.match("outcome", name)]
    if ranked:
        sample.give("click", ranked[0], f"{_rate(sample, ranked[0])} of rows{_called('click', ranked[0])}")
        return True
    falling = [
        name
        for name in able
        if sample.columns[name].is_binary
        and sample.varies(name)
        and _falls(sample, name)
        and not _is_outcome(name)
        and not any(names.match(role, name) for role in ("sponsored", "seen", "layout"))
    ]
    if len(falling) == 1:
        reason = f"{_rate(sample, falling[0])} of rows, more often higher up (by values: its name does not say it)"
        sample.give("click", falling[0], reason)
        return True
    return False


def _is_count(values: Values) -> bool:
    return values.is_whole and values.n_distinct <= 100 and float(np.nanmin(values.numbers)) == 0.0


def _rate(sample: Sample, name: str) -> str:
    return f"{sample.columns[name].is_set.mean():.1%}"


def _falls(sample: Sample, name: str) -> bool:
    """Whether a flag is set more often in the upper half of the pages, and does not belong to the document."""
    flags = sample.columns[name].is_set[sample.order]
    page = sample.page[sample.order]
    sizes = np.bincount(page)
    place = np.arange(len(page)) - np.repeat(
        np.cumsum(sizes) - sizes, sizes[sizes > 0] if (sizes == 0).any() else sizes
    )
    upper = place < np.repeat(sizes, sizes) / 2
    rates = flags[upper].mean() if upper.any() else 0.0, flags[~upper].mean() if (~upper).any() else 0.0
    document = sample.of("document")
    if document is not None:
        mixed = np.unique(document.codes * 2 + sample.columns[name].is_set)
        if len(mixed) == document.n_distinct:
            return False
    return rates[0] > 1.5 * rates[1] and 0 < flags.mean() < 0.5


def _is_outcome(name: str) -> bool:
    return bool(names.match("outcome", name)) and not names.is_id(name)


def find_others(sample: Sample) -> dict[str, str]:
    """Roles that a log gains from, and features; returns what is known only after the click, with the reason."""
    sample.taken |= {name for name in sample.free if sample.columns[name].n_distinct == 0}
    _find_interventions(sample)
    _find_bias(sample)
    after = _find_outcomes(sample)
    _find_score(sample)
    _find_seen(sample)
    _find_context(sample)
    return after


def _find_interventions(sample: Sample) -> None:
    if "intervention" in sample.roles:
        return
    for name in names.best("experiment", sample.free):
        values = sample.columns[name]
        if (values.is_numeric and not values.is_binary) or values.n_distinct > MOST_LEVELS:
            continue
        levels = [str(level) for level in values.levels if level not in (None, "")]
        shuffled = [level for level in levels if names.any_part(names.SHUFFLES, level)]
        if values.is_binary and names.any_part(names.SHUFFLES, name):
            shuffled = [level for level in levels if level.lower() in ("true", "1", "yes", "t", "y", "1.0")]
        if shuffled and not sample.varies(name):
            codes = [code for code, level in enumerate(values.levels) if str(level) in shuffled]
            share = np.isin(values.codes, codes).mean()
            reason = f"{', '.join(shuffled)}: {share:.0%} of rows"
            sample.give("intervention", name, f"an experiment that changes the order ({reason})")
            random = [level for level in shuffled if "swap" not in level.lower()]
            if random:
                sample.lists["shuffled"] = random
            return


def _find_bias(sample: Sample) -> None:
    for name in sample.free:
        values = sample.columns[name]
        if values.n_distinct > MOST_LEVELS or values.n_distinct < 2:
            continue
        levels = [str(level) for level in values.levels if level not in (None, "")]
        devices = [level for level in levels if set(names.words(level)) & names.WORDS["device"]]
        if names.match("sponsored", name) and values.is_binary:
            sample.add("bias", name, f"marks sponsored or pinned results, {_rate(sample, name)} of rows")
        elif values.kind == "text" and 2 * len(devices) >= len(levels):
            sample.add("bias", name, f"{', '.join(sorted(levels)[:4])}: devices show pages differently")
        elif values.kind == "text" and names.match("layout", name) >= 2:
            sample.add("bias", name, "the layout of the page")


def _find_outcomes(sample: Sample) -> dict[str, str]:
    """Grades among the free columns; what else is known only after the click is taken, and returned with the reason."""
    clicked = sample.clicked
    after: dict[str, str] = {}
    if clicked is None:
        return after
    rate = float(clicked.mean())
    pairs = codes_of([v for role in ("query", "document") for n in _parts(sample, role) for v in [sample.columns[n]]])
    for name in sample.free:
        values = sample.columns[name]
        if name in sample.one_a_page or values.kind in ("list",):
            continue
        has = values.is_set if values.is_numeric else values.present
        only = bool(has.any()) and not bool((has & ~clicked).any()) and 0 < rate < 1
        only = only and rate ** len(np.unique(pairs[has])) < CHANCE
        counts = values.is_binary or _is_count(values)
        told = has.any() and not np.array_equal(has, clicked)
        if _is_outcome(name) and counts and told and not names.match("dwell", name):
            share = f"{has[clicked].mean():.0%} of clicks" if only else f"{has.mean():.1%} of rows"
            sample.add("grade", name, f"feedback, {share}")
            continue
        if only:
            after[name] = "nonzero only on clicked rows" if values.is_numeric else "filled only on clicked rows"
            sample.taken.add(name)
        elif (
            (_is_outcome(name) or names.match("dwell", name))
            and values.is_numeric
            and name not in sample.one_a_page
            and sample.varies(name)
            and has.any()
        ) and has[clicked].mean() > 2 * max(has[~clicked].mean(), 1e-9):
            after[name] = "its name, and it is nonzero far more often on clicked rows"
            sample.taken.add(name)
    return after


def _find_score(sample: Sample) -> None:
    orders = {name: share for name in sample.free if (share := falling(sample, name)) is not None}
    if "policy_score" not in sample.roles:
        scores = [n for n, share in orders.items() if share >= IN_ORDER and (names.match("score", n) or share >= 0.97)]
        scores.sort(key=lambda name: (-bool(names.match("score", name)), -orders[name]))
        if scores:
            reason = f"falls from one position to the next in {orders[scores[0]]:.0%} of pairs"
            sample.give("policy_score", scores[0], reason)
    for name in names.best("display_probability", sample.free):
        numbers = sample.columns[name].numbers
        if sample.columns[name].is_numeric and np.nanmin(numbers) > 0 and np.nanmax(numbers) <= 1:
            sample.give("display_probability", name, "above 0, at most 1, and so named")
            break


def falling(sample: Sample, name: str) -> float | None:
    """Share of neighboring documents in falling order; None: not a column that could order lists."""
    values = sample.columns[name]
    if not values.is_numeric or values.is_binary or name in sample.one_a_page or sample.n < 2:
        return None
    numbers, page = values.numbers[sample.order], sample.page[sample.order]
    usual = np.ones(sample.n, bool)
    intervention = sample.of("intervention")
    if intervention is not None:
        shuffled = sample.lists.get("shuffled", [])
        usual = np.array([str(level) not in shuffled for level in intervention.levels] + [True])[intervention.codes]
    for flag in sample.lists.get("bias", []):
        if names.match("sponsored", flag):
            usual = usual & ~sample.columns[flag].is_set
    usual = usual[sample.order]
    together = (page[1:] == page[:-1]) & usual[1:] & usual[:-1]
    falls = (numbers[1:] < numbers[:-1])[together].sum()
    rises = (numbers[1:] > numbers[:-1])[together].sum()
    return float(falls / (falls + rises)) if falls + rises >= LEAST_PAIRS else None


def _find_seen(sample: Sample) -> None:
    if "seen" in sample.roles:
        return
    clicked = sample.clicked
    for name in names.best("seen", sample.free):
        values = sample.columns[name]
        able = values.is_binary or (values.is_numeric and float(np.nanmin(values.numbers)) >= 0)
        if not able or clicked is None or not sample.varies(name):
            continue
        if values.is_set[clicked].mean() > values.is_set[~clicked].mean() > 0:
            sample.give("seen", name, f"nonzero on {_rate(sample, name)} of rows, and so named")
            return


def _find_context(sample: Sample) -> None:
    for name in sample.free:
        values = sample.columns[name]
        if not values.is_numeric or names.is_id(name) or values.n_distinct < 2 or sample.varies(name):
            continue
        if names.match("context", name) and seconds(values) is None:
            sample.add("context", name, "the same for all documents of a page: it describes the user or the moment")
