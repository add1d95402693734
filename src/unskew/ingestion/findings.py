"""What is wrong, or may be wrong, with a table: all of it at once, each with what is proposed.

A finding to be asked about stops `ingest --yes`; the others are printed, and what they propose is in the command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unskew.data.clicks.build import shown_order
from unskew.ingestion.roles import Sample, codes_of
from unskew.ingestion.table_profile import Facts, Look, Values, literal, sql_of

FEW_PAGES = 20  # with fewer, nothing is said about what holds on all of them
NEARLY_ALL = 0.95  # share of the pages
FEW = 0.001  # share of the rows that is not worth a sentence
NOTHING = {"n/a", "na", "null", "none", "nan", "-", "--", "?", "missing", "unknown", "nil", "undefined", "#n/a", "inf"}
EXACT = 2.0**53  # up to here decimals hold every whole number
LEAST_CAP, HEAVY = 20, 5  # sessions of a user that nobody caps, and how many times the usual number is heavy
KINDS = {"whole": "a whole number", "text": "text", "decimal": "a decimal", "flag": "true or false"}
ASKED = {  # only you can decide
    *("exchanged_keys", "one_document", "decimal_ids", "one_position", "pixels", "lowest", "starts", "restart"),
    *("no_click", "all_clicked", "exchanged_click", "cut", "sorted", "not_found"),
}

SENTENCES = {
    "position": "{name} is {what}: a ranker does not know it when it ranks; left out. Do not pass --feature {name}",
    "production": "{name} is the position on {share:.0%} of rows, the order of production: left out",
    "follows": "{name} follows the position (larger, or smaller, in nearly every row below): left out. Do not pass "
    "--feature {name}",
    "no_value": "{name} is empty in every row: left out",
    "constant": "{name} has one value ({value}): left out",
    "of_page": "{name} is the same for all documents of a page: not a feature; --context {name} keeps it, if it "
    "describes the user or the moment",
    "comma": "{name}: numbers with a decimal comma, such as '{value}', are text: left out; write 12.5 to use them",
    "unit": "{name}: numbers with a unit, such as '{value}', are text: left out; write the number alone to use them",
    "word": "{name}: '{value}' among numbers: left out; leave such cells empty to use it as a feature",
    "no_number": "{name}: '{value}' stands for a missing value: --missing {name}={value}",
    "id": "{name} is an id ({count:,} whole numbers): its size means nothing; left out",
    "infinite": "{name}: infinite in {share} of rows, which means missing: --missing {name}=inf",
    "sentinel": "{name}: {value} in {share} of rows stands for a missing value: --missing {name}={value}",
    "large": "{name}: float32 cannot hold these whole numbers (up to {value:,.0f}): left out; subtract an offset "
    "or take a logarithm to use it as a feature",
    "category": "{name} is a category ({count:,} whole numbers): --category {name}",
    "levels": "{name}: levels that differ only in case or spaces count as different: write each one way",
    "missing": "{name} is missing in {share} of rows: they are left out",
    "empty": "{name} is empty in {share} of rows: {what}; --where \"{name} <> ''\" leaves them out",
    "user": "{name} is a user, not a session: one user sees many result pages; proposed is --session {value}",
    "repeated": "{share} of rows are duplicates of another: they count once",
    "no_id": "{name}: '{value}' in {share} of rows is no id: --missing {name}={value} leaves them out",
    "one_query": "there is one query: documents are compared within it, as in a single list or feed",
    "exchanged_keys": "session and query look exchanged: each of {count:,} queries belongs to one page, but a session "
    "has {per:,.0f} of them; pass --session {query} --query {session}",
    "asked_once": "every query was asked once: estimators that need repeated queries do not apply",
    "one_document": "every page has one document, but rankers learn by comparing those of a page: check --session",
    "decimal_ids": "{name}: decimals cannot hold ids above {value:,.0f}: different ids are equal; write them as text",
    "twice": "{name}: {share} of documents stand twice on a page: each counts once, at its highest position",
    "one_position": "{name} has one value: pass the column with the position with --position",
    "pixels": "{name} goes in steps of {value:,.0f}, like pixels, not ranks: pass whole positions with --position",
    "lowest": "{name}: no position is 0 or 1, the lowest is {value:.0f}: subtract an offset; if positions above it "
    "were shown and not logged, pass --first-position 1",
    "starts": "{name}: positions begin at 0 in {zero:.0%} of the pages and at 1 in {one:.0%}: write all from one index",
    "restart": "two documents at one position of a page in {share} of rows: if positions restart, pass --page; if "
    "--session covers several searches, pass a finer one",
    "counts": "{name} counts up to {value:.0f} clicks: one or more counts as a click",
    "no_click": "no row is clicked: {name} is never set; nothing can be learned",
    "all_clicked": "every row is clicked: rows that were shown and not clicked are missing; log them too",
    "exchanged_click": "0 and 1 look exchanged in {name}: {share:.0%} of rows are clicked, more of them lower down",
    "cut": "{share:.0%} of the pages end with a click: documents below the last click seem to be missing",
    "sorted": "clicked documents stand above all others: rows seem to be sorted by clicks, so positions are not those "
    "that were shown",
    "only_clicked": "every page has a click: pages without one seem not to be logged, which makes click rates too "
    "high, though not their ratios between positions of a page",
    "one_time": "{name} has one value: --time none",
    "units": "{name} mixes seconds and milliseconds ({first:.0%} and {second:.0%} of rows): each is read by its size",
    "early": "{name}: 0, or a time in 1970, in {share} of rows: --missing {name}=0 leaves them out",
    "robots": "users with far more sessions than others (usual: {usual:.0f}), perhaps robots: {listed}. --user {name}="
    "{cap} keeps {cap} sessions of each; add --drop-heavy to leave them out altogether",
    "types": "{name} is {here} in {events} and {there} in {features}: {share:.0%} of documents find no features; write "
    "ids one way in both",
    "case": "{name}: ids of {events} and {features} differ only in case: {share:.0%} of documents find no features; "
    "write them one way",
    "unknown": "{name}: {share:.0%} of documents are not in {features}",
    "not_found": "no column looks like the {role}: pass --{role} COLUMN. Found: {found}",
    "lengths": "{name}: {count:,} rows have lists whose lengths disagree with {document} ({where}): left out",
}


@dataclass(frozen=True)
class Finding:
    """A sentence, and whether only you can decide."""

    text: str
    ask: bool = False


@dataclass
class Findings:
    """Findings in the order in which they were made, and what becomes of the columns without a role."""

    said: list[Finding] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # COLUMN=VALUE

    def say(self, text: str, *, ask: bool = False) -> None:
        self.said.append(Finding(text, ask))

    def tell(self, sentence: str, *, ask: bool = False, **values: Any) -> None:
        """Say a sentence of `SENTENCES` with these values."""
        self.say(SENTENCES[sentence].format(**values), ask=ask or sentence in ASKED)


def percent(share: float) -> str:
    """A share in whole percent, or with decimals if it is small."""
    return f"{share:.0%}" if share >= 0.01 else f"{share:.2%}"


def check_keys(sample: Sample, findings: Findings, facts: Mapping[str, Facts]) -> None:
    """Sessions, queries, documents and users."""
    for role in ("session", "query", "document"):
        name = sample.value(role)
        entry = facts.get(name or "")
        if entry is None:
            continue
        if entry.missing > FEW:
            findings.tell("missing", name=name, share=percent(entry.missing), ask=entry.missing > 0.5)
        if entry.empty > FEW:
            what = "they count as one query" if role == "query" else "they are left out"
            findings.tell("empty", name=name, share=percent(entry.empty), what=what)
    for role in ("session", "query", "document", "user"):
        values, name = sample.of(role), sample.value(role)
        for code, level in enumerate(values.levels if values is not None and values.kind == "text" else []):
            if level and str(level).strip().lower() in NOTHING and values is not None:
                findings.tell("no_id", name=name, value=level, share=percent((values.codes == code).mean()))
                findings.missing.append(f"{name}={level}")
    _check_queries(sample, findings)
    _check_documents(sample, findings)
    user, session = sample.value("user"), sample.value("session")
    if user is not None and session is not None and user in session.split(","):
        findings.tell("user", name=user, value=session)
    for name in sample.lists.get("bias", ()):
        say_levels(sample.columns[name], name, findings)
    if sample.repeated:
        findings.tell("repeated", share=percent(sample.repeated))


def say_levels(values: Values, name: str, findings: Findings) -> None:
    """Whether levels differ only in case or spaces."""
    texts = [str(level) for level in values.levels if level not in (None, "")]
    if len({text.strip().lower() for text in texts}) < len(texts) <= 1_000:
        findings.tell("levels", name=name)


def _check_queries(sample: Sample, findings: Findings) -> None:
    session, query, user = (sample.of(role) for role in ("session", "query", "user"))
    if query is None:
        return
    n_pages, n_queries = len(np.unique(sample.page)), query.n_distinct
    if n_queries == 1:
        findings.tell("one_query")
        return
    if session is None or n_pages < FEW_PAGES or n_queries < n_pages:
        return
    per_session = n_pages / max(session.n_distinct, 1)
    users = 0.0 if user is None else len(np.unique(codes_of([session, user]))) / max(session.n_distinct, 1)
    of_session, of_query = (
        sum(" " in str(level) for level in v.levels) / max(len(v.levels), 1) for v in (session, query)
    )
    if per_session >= 3 and (users > 1.5 or of_session > of_query + 0.5):
        keys: dict[str, Any] = {"session": sample.value("session"), "query": sample.value("query")}
        findings.tell("exchanged_keys", count=n_queries, per=per_session, **keys)
        return
    findings.tell("asked_once")


def _check_documents(sample: Sample, findings: Findings) -> None:
    document, name = sample.of("document"), sample.value("document")
    if document is None:
        return
    sizes = np.bincount(sample.page)
    if len(sizes) > 1 and sizes.max() == 1:
        findings.tell("one_document")
    if document.kind == "decimal" and np.nanmax(np.abs(document.numbers)) > EXACT:
        findings.tell("decimal_ids", name=name, value=EXACT)
    codes, page = document.codes[document.present], sample.page[document.present]
    twice = 1 - len(np.unique(page * (int(codes.max(initial=0)) + 1) + codes)) / max(len(codes), 1)
    if twice > FEW:
        findings.tell("twice", name=name, share=percent(twice))


def check_positions(sample: Sample, findings: Findings) -> None:
    """Where positions begin, restart, jump, or are missing."""
    values, name = sample.of("position"), sample.value("position")
    if values is None:
        return
    places, page = values.numbers, sample.page
    if values.n_distinct == 1:
        findings.tell("one_position", name=name)
        return
    first = np.full(len(np.unique(page)), np.inf)
    np.minimum.at(first, page, np.nan_to_num(places, nan=np.inf))
    step = np.diff(np.unique(places[np.isfinite(places)]))
    if len(step) and np.median(step) > 5:
        findings.tell("pixels", name=name, value=np.median(step))
    elif first.min() > 1:
        findings.tell("lowest", name=name, value=first.min())
    zero, one = (float((first == start).mean()) for start in (0, 1))
    if min(zero, one) > 0.1:
        findings.tell("starts", name=name, zero=zero, one=one)
    cells = codes_of([entry for entry in (values, sample.of("page")) if entry is not None])
    taken = 1 - len(np.unique(page * np.int64(sample.n + 1) + cells)) / max(sample.n, 1)
    if taken > 1 - NEARLY_ALL:
        findings.tell("restart", share=percent(taken))


def check_clicks(sample: Sample, findings: Findings) -> None:
    """Clicks that are counts, all, none, exchanged, sorted, or those of a cut table."""
    values, name, clicked = sample.of("click"), sample.value("click"), sample.clicked
    if values is None or clicked is None:
        return
    if values.is_whole and np.nanmax(values.numbers) > 1:
        findings.tell("counts", name=name, value=np.nanmax(values.numbers))
    if clicked.all() or not clicked.any():
        findings.tell("all_clicked" if clicked.any() else "no_click", name=name)
        return
    page, flags = sample.page[sample.order], clicked[sample.order]
    sizes, place, upper = np.bincount(page), shown_order(page), sample.upper
    if clicked.mean() > 0.5 and flags[upper].mean() < flags[~upper].mean():
        findings.tell("exchanged_click", name=name, share=clicked.mean())
    if len(sizes) < FEW_PAGES:
        return
    clicks, last = np.bincount(page, weights=flags), flags[np.cumsum(sizes) - 1]
    if last.mean() > NEARLY_ALL and len(np.unique(sizes)) > 2:
        findings.tell("cut", share=last.mean())
    lowest = np.full(len(sizes), -1)
    np.maximum.at(lowest, page, np.where(flags, place, -1))
    several = (clicks > 1) & (clicks < sizes)
    if several.sum() >= FEW_PAGES and (lowest[several] + 1 == clicks[several]).mean() > NEARLY_ALL:
        findings.tell("sorted")
    if clicks.min() > 0 and len(sizes) * np.exp(-clicks.mean()) > 10:  # so many pages without a click are expected
        findings.tell("only_clicked")


def check_times(sample: Sample, findings: Findings) -> None:
    """Times of several units, of 1970, or all the same."""
    values, name = sample.of("time"), sample.value("time")
    if values is None or values.n_distinct == 1:
        if values is not None:
            findings.tell("one_time", name=name)
        return
    if values.kind not in ("whole", "decimal"):
        return
    numbers = np.abs(values.numbers[np.isfinite(values.numbers)])
    if not len(numbers):
        return
    shares = [float(((numbers >= low) & (numbers < 1e3 * low)).mean()) for low in (1e8, 1e11, 1e14)]
    if sum(share > 0.01 for share in shares) > 1:
        findings.tell("units", name=name, first=shares[0], second=shares[1])
    early = float((numbers < 1e8).mean())
    if early > FEW:
        findings.tell("early", name=name, share=percent(early))
        findings.missing.append(f"{name}=0")


def check_users(look: Look, sample: Sample, findings: Findings, where: str) -> str | None:
    """Users with far more sessions than others; the proposed cap."""
    user, session = sample.value("user"), sample.value("session")
    keys = [] if session is None else [session] if session in look.first else session.split(",")
    if user is None or user not in look.first or not keys or user in keys:
        return None
    key, person = ", ".join(map(sql_of, keys)), sql_of(user)
    top = (
        f"SELECT {person} FROM events WHERE {where} AND {person} IS NOT NULL GROUP BY 1 ORDER BY count(*) DESC LIMIT 20"
    )
    sessions = f"count(DISTINCT ({key}))" if look.rows <= 2_000_000 else f"approx_count_distinct(hash({key}))"
    heavy = look.query(
        f"SELECT {person}, {sessions} AS n FROM events WHERE {where} AND {person} IN ({top}) GROUP BY 1 "
        "ORDER BY n DESC, 1"
    )
    pages = codes_of([sample.columns[name] for name in (user, *keys)])
    codes = sample.columns[user].codes[np.unique(pages, return_index=True)[1]]
    of_user = np.bincount(codes[codes >= 0])
    usual = max(1.0, float(np.median(of_user[of_user > 0]))) if len(codes) else 1.0
    cap = max(LEAST_CAP, int(np.ceil(HEAVY * usual)))
    over = [f"{name} ({n:,} sessions)" for name, n in heavy if n > cap]
    if not over or (of_user > 0).sum() < 10:
        return None
    listed = ", ".join(over[:5]) + (f" and {len(over) - 5} more" if len(over) > 5 else "")
    findings.tell("robots", usual=usual, listed=listed, name=user, cap=cap)
    return f"{user}={cap}"


def check_features_table(sample: Sample, theirs: Values, events: str, features: str, findings: Findings) -> None:
    """Ids that differ between the events and the table of features."""
    document = sample.of("document")
    if document is None:
        return
    here, there = ({str(level) for level in values.levels if level is not None} for values in (document, theirs))
    lost = 1 - len(here & there) / max(len(here), 1)
    sentence = ""
    if document.kind != theirs.kind and lost:
        sentence = "types"
    elif lost > 1 - NEARLY_ALL:
        folded = {text.lower() for text in there}
        sentence = "case" if sum(text.lower() in folded for text in here) > len(here & there) else "unknown"
    if sentence:
        kinds = {"here": KINDS.get(document.kind, document.kind), "there": KINDS.get(theirs.kind, theirs.kind)}
        about = {"name": sample.value("document"), "events": events, "features": features, "share": lost, **kinds}
        findings.tell(sentence, ask=lost > 0.5, **about)


def check_lists(
    look: Look, document: str, others: Sequence[str], delimiters: Mapping[str, str | None], findings: Findings
) -> None:
    """Lists of a result page whose lengths disagree, by row."""

    def size(name: str) -> str:
        mark = delimiters.get(name)
        if mark == "[":
            return f"json_array_length({sql_of(name)})"
        return f"len({sql_of(name)})" if mark is None else f"len(string_split({sql_of(name)}, {literal(mark)}))"

    for name in others:
        if name == document or "." in name:
            continue
        sizes = f"SELECT row_number() OVER () - 1 AS row, {size(document)} AS a, {size(name)} AS b FROM events"
        wrong = f"FROM ({sizes}) WHERE a IS NOT NULL AND b IS DISTINCT FROM a"
        ((count, row, a, b),) = look.query(f"SELECT count(*), min(row), arg_min(a, row), arg_min(b, row) {wrong}")
        if count:
            where = f"row {row}, from 0: {b} values for {a}" if look.keeps_order else f"such as {b} values for {a}"
            findings.tell("lengths", name=name, count=count, document=document, where=where)
