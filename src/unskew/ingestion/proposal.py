"""A complete command for a raw table: every role with its reason, all findings at once, and one result page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.display import Displayed, Screen
from unskew.ingestion import findings as checks
from unskew.ingestion import role_names as names
from unskew.ingestion.columns import CLICK_KIND, NOTHING, Columns, unmatched
from unskew.ingestion.feature_findings import find_features, take_positions
from unskew.ingestion.findings import Finding, Findings
from unskew.ingestion.roles import (
    COSTS,
    Role,
    Sample,
    codes_of,
    find_clicks,
    find_keys,
    find_others,
    set_pages,
    take_flags,
)
from unskew.ingestion.settings import Tables, as_tables, user_and_cap
from unskew.ingestion.table_form import Form, form_of
from unskew.ingestion.table_profile import FIRST_ROWS, Look, delimiter_of, literal, open_look, sql_of
from unskew.options import near

FLAGS = {  # options whose flag has another name
    "impression_events": "impression-event",
    "click_events": "click-event",
    "seen_events": "seen-event",
    "grades": "grade",
}
SHOWN = 12  # rows of the result page that is shown
PURCHASE, OTHER = 5, 3  # weights of feedback, if a click is 1
SINGLE = (
    *("session", "query", "document", "position", "page", "click", "time", "user"),
    *("intervention", "policy_score", "display_probability", "seen"),
)


@dataclass(frozen=True, repr=False)
class Proposal(Displayed):
    """What `ingest` proposes for a table."""

    source: str
    roles: Sequence[Role]
    options: Mapping[str, Any]  # of `unskew.ingest`
    findings: Sequence[Finding]
    page: Screen | None = None  # one result page, in order
    tables: Mapping[str, str] = field(default_factory=dict)  # options that hold other tables

    @property
    def questions(self) -> list[str]:
        """Findings that only you can decide."""
        return [entry.text for entry in self.findings if entry.ask]

    @property
    def command(self) -> str:
        """The command, to be copied."""
        parts = ["unskew ingest", shlex.quote(self.source)]
        for name, value in {**self.tables, **self.options}.items():
            flag = f"--{FLAGS.get(name, name).replace('_', '-')}"
            if value is True:
                parts.append(flag)
            elif isinstance(value, Mapping):
                parts.append(f"{flag} {shlex.quote(','.join(f'{kind}={weight:g}' for kind, weight in value.items()))}")
            else:
                entries = value if isinstance(value, list | tuple) else [value]
                parts += [f"{flag} {shlex.quote(str(entry))}" for entry in entries]
        return " ".join([*parts, "--out log"])

    def to_table(self) -> pa.Table:
        """One row per role."""
        rows = [vars(role) for role in self.roles]
        return pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in vars(Role("", "", ""))})

    def to_json(self) -> dict[str, Any]:
        """As one JSON document."""
        return {
            "command": self.command,
            "options": dict(self.options),
            "roles": [vars(role) for role in self.roles],
            "findings": [vars(entry) for entry in self.findings],
            "page": []
            if self.page is None
            else [dict(zip(self.page.columns, row, strict=True)) for row in self.page.rows],
        }

    def screen(self) -> Screen:
        grouped: dict[tuple[str, str, str], list[str]] = {}
        for role in self.roles:
            grouped.setdefault((role.role, role.reason, role.cost), []).append(role.value)
        rows = [(role, ", ".join(values), why, cost) for (role, why, cost), values in grouped.items()]
        said = [f"- {entry.text}" for entry in self.findings if not entry.ask]
        asked = [f"? {text}" for text in self.questions]
        more = [] if self.page is None else [self.page]
        if said or asked:
            more.append(Screen("\n".join(["Findings", *asked, *said])))
        columns = ("role", "column", "why", "if wrong")
        return Screen(f"{self.source}: proposed roles", columns, rows, [f"Command:\n{self.command}"], left=4, more=more)


def propose(events: Any, *, features: Any = None, queries: Any = None, clicks: Any = None, **options: Any) -> Proposal:
    """Options of `ingest` for a raw table: the role of every column with its reason, and all that looks wrong with it.

    `ingest(events, **propose(events).options)` is `unskew ingest EVENTS --yes`; look at the `findings` first.

    Args:
        events: a table, or the path of one, as for `ingest`.
        features: a second table with features.
        queries: the query table of User Behavior Insights.
        clicks: a table of clicks, if the events contain only impressions.
        options: what you know already, as for `ingest`.

    >>> import unskew
    >>> found = propose(unskew.shop(sessions=200).events)
    >>> found.options["session"], found.options["page"], found.options["context"]
    ('search_id', 'page', ['member'])
    """
    with as_tables(events, features, queries, clicks) as tables:
        proposal = proposal_of(tables, options)
    return replace(proposal, source=str(events) if isinstance(events, str | Path) else "TABLE")


def proposal_of(tables: Tables, given: Mapping[str, Any], memory: str = "2GB", threads: int | None = None) -> Proposal:
    """Look at the table once, and propose the options of `ingest`; those that were given are kept.

    Args:
        given: options of `ingest` by name, as typed.
    """
    form = _public_form(tables.events)
    if form is not None:
        reason = "its files, and the keys of its lines, are those of this format"
        options = {"form": form, **given}
        return Proposal(str(tables.events), [Role("form", form, reason)], options, [])
    with open_look(tables.events, tables.events_table, tables.encoding, memory, threads) as look:
        return _proposed(look, tables, dict(given))


def _proposed(look: Look, tables: Tables, given: dict[str, Any]) -> Proposal:
    findings = Findings()
    if _is_ubi(look):
        return _ubi(look, tables, given)
    if not look.rows:
        raise ValueError(f"{look.name} has no rows: pass a table with impressions")
    named = {**given, **user_and_cap(given["user"])} if "user" in given else given
    _refuse_unknown(look, named)
    form, sample, missing = _draft(look.first, named)
    if look.rows > FIRST_ROWS:
        keys = [name for name in (sample.value("session") or "").split(",") if name in look.first]
        form, sample, missing = _draft(look.sessions(keys), named)
    apart = tables.features is not None
    scalars = [name for name, values in look.first.items() if values.kind not in ("list", "other")]
    where = _where(form)
    facts = look.facts(scalars, where)
    for role in (role for role in missing if role not in sample.roles):
        findings.tell("not_found", role=role, found=", ".join(look.first))
    if tables.clicks is None and not find_clicks(sample):
        findings.tell("not_found", role="click", found=", ".join(take_flags(sample) or look.first))
    take_positions(sample, findings)
    after = find_others(sample)
    for doubt in sorted(sample.doubts):
        findings.say(doubt, ask=True)
    _say_after(sample, findings, after, given)
    sizes = _page_sizes(sample, findings)
    checks.check_keys(sample, findings, facts)
    checks.check_positions(sample, findings)
    checks.check_clicks(sample, findings)
    checks.check_times(sample, findings)
    cap = checks.check_users(look, sample, findings, where)
    if {"session", "document"} <= {*sample.roles}:  # without pages, nothing tells a feature from the position
        find_features(sample, findings, facts, given.get("feature"), apart=apart)
    _check_pages(look, form, findings)
    if apart:
        _check_other_table(look, tables, sample, findings)
    options = _options(form, sample, findings, sizes, cap, given, apart=apart)
    roles = _roles(form, sample, findings, options)
    others = {
        name: str(place) for name in ("features", "clicks", "queries") if (place := getattr(tables, name)) is not None
    }
    return Proposal(look.name, roles, options, findings.said, _one_page(sample, roles), others)


def _refuse_unknown(look: Look, given: Mapping[str, Any]) -> None:
    """One error for all columns that were named and are not there."""
    columns = Columns(**{role: given[role] for role in SINGLE if role in given})
    listed = [*given.get("bias", ()), *given.get("context", ()), *given.get("category", ()), *given.get("grades", {})]
    named = {part for name in (*columns.roles.values(), *listed) for part in name.split(",")} - {NOTHING, CLICK_KIND}
    kinds = set(look.first[given["event"]].levels) if given.get("event") in look.first else set()
    lost = [name for name in named if name not in look.first and name not in kinds]
    problems = [f"no column '{name}'{near(name, list(look.first))}" for name in sorted(lost)]
    problems += unmatched(given.get("feature") or (), [] if problems else list(look.first))
    if problems:
        raise ValueError(f"{look.name}: {'; '.join(problems)}. Found: {', '.join(look.first)}")


def _draft(columns: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Form, Sample, list[str]]:
    """The form, the shown documents of a sample with their keys, and the roles that were not found."""
    form = form_of(columns, given)
    sample = form.sample or Sample(dict(form.columns), form.one_a_page)
    if form.name == "pages":
        sample.give("document", form.options["document"], "a list of ids per result page, shown in this order")
        sample.give("position", "position", "the place in the list")
    for role in ("session", "event", "clicked_session", "clicked_document"):
        if role in form.options and role not in given:
            sample.give(role, form.options[role], form.reasons.get(role, ""))
    if form.clicked is not None:
        reason = form.reasons.get("click", "flags beside the documents" if form.name == "pages" else "events")
        sample.give("click", form.clicked, reason)
    missing = find_keys(sample, given) if form.sample is None else form.missing
    if form.name == "pages":
        missing = [role for role in missing if role != "position"]
        set_pages(sample)
    return form, sample, missing


def _where(form: Form) -> str:
    if "event" not in form.options:
        return "true"
    listed = ", ".join(literal(kind) for kind in form.options["impression_events"])
    return f"{sql_of(form.options['event'])} IN ({listed})"


def _say_after(sample: Sample, findings: Findings, after: Mapping[str, str], given: Mapping[str, Any]) -> None:
    asked = set(given.get("feature") or ())
    for name, reason in after.items():
        end = f"leave out --feature {name}" if name in asked else "left out; never a feature"
        findings.say(f"{name} is known only after the click ({reason}): {end}", ask=name in asked)
    for name in sample.lists.get("grade", ()):
        if name in asked:
            findings.say(f"{name} is known only after the click: leave out --feature {name}, use --grade", ask=True)
    for name in sample.follows:
        findings.tell("follows", name=name)
    for name in sample.lists.get("bias", ()):
        if sample.columns[name].is_binary and sample.varies(name):
            findings.say(
                f"{name} marks sponsored or pinned results, whose place says nothing about relevance: --bias {name}, "
                f'or --where "not {name}" to leave them out'
            )
    score = sample.value("policy_score")
    if score is not None and score not in given.values():
        findings.say(f"{score} gives the order of production: --policy-score {score}, not a feature")


def _page_sizes(sample: Sample, findings: Findings) -> str | None:
    """Positions per page, of a column whose levels differ if they do; no page if positions go on."""
    number, position = sample.of("page"), sample.of("position")
    if number is None or position is None:
        return None
    session = codes_of([sample.columns[name] for name in sample.keys("session")])
    pages, sizes = number.numbers, position.numbers - position.numbers.min() + 1
    if _goes_on(session if len(session) else sample.page, pages, sizes):
        findings.say(f"positions go on from page to page of '{sample.value('page')}': it is left out")
        sample.roles.pop("page")
        set_pages(sample)
        return None
    last = np.full(int(sample.page.max()) + 1, -np.inf)
    np.maximum.at(last, sample.page, pages)
    full = pages < last[sample.page]  # another page follows
    for name, values in sample.columns.items():
        if values.kind != "text" or not 1 < values.n_distinct <= 8 or sample.varies(name):
            continue
        cells, cell = np.unique(np.column_stack([sample.page, pages, values.codes])[full], axis=0, return_inverse=True)
        largest = np.zeros(len(cells))
        np.maximum.at(largest, cell.ravel(), sizes[full])
        of_level = {
            str(values.levels[c]): largest[cells[:, 2] == c] for c in np.unique(values.codes[values.codes >= 0])
        }
        same = all(len(each) and (each == each.max()).mean() > 0.9 for each in of_level.values())
        if same and len({each.max() for each in of_level.values()}) > 1:
            return f"{name}:" + ",".join(f"{level}={each.max():.0f}" for level, each in sorted(of_level.items()))
    return str(int(sizes.max()))


def _goes_on(session: Any, pages: Any, places: Any) -> bool:
    """Whether positions of later pages are below those of earlier ones."""
    order = np.lexsort((places, pages, session))
    session, pages, places = session[order], pages[order], places[order]
    turns = (session[1:] == session[:-1]) & (pages[1:] > pages[:-1])
    return bool(turns.any()) and bool((places[1:] > places[:-1])[turns].mean() > 0.9)


def _check_pages(look: Look, form: Form, findings: Findings) -> None:
    if form.name != "pages":
        return
    document = form.options["document"]
    raw = look.first
    delimiters = {name: delimiter_of(raw[name]) for name in form.lists if name in raw}
    checks.check_lists(look, document, form.lists, delimiters, findings)
    for problem in form.problems:
        findings.say(problem)


def _check_other_table(look: Look, tables: Tables, sample: Sample, findings: Findings) -> None:
    with open_look(tables.features, tables.features_table, tables.encoding) as other:
        wanted = sample.value("document") or ""
        key = wanted if wanted in other.first else next(iter(names.best("document", other.first, 2)), None)
        if key is not None:
            (values,) = other.sample(f"SELECT {sql_of(key)} FROM events").values()
            checks.check_features_table(sample, values, look.name, other.name, findings)


def _options(
    form: Form,
    sample: Sample,
    findings: Findings,
    sizes: str | None,
    cap: str | None,
    given: dict[str, Any],
    *,
    apart: bool,
) -> dict[str, Any]:
    """The options of `ingest`, in the order of the command."""
    options: dict[str, Any] = {}
    if form.name != "impressions":
        options["form"] = form.name
    for role in SINGLE:
        value = sample.value(role)
        if value is not None and not (form.name == "pages" and role == "position") and "(event)" not in value:
            options[role] = cap if role == "user" and cap is not None else value
        if role == "page" and "page" in options and sizes is not None:
            options["page_size"] = sizes
    for name in ("event", "impression_events", "click_events", "clicked_session", "clicked_document"):
        if name in form.options:
            options[name] = form.options[name]
    graded = [*sample.lists.get("grade", ()), *form.kinds]
    if graded:
        options["grades"] = {"click": 1.0} | {name: _weight(name) for name in graded}
    for name in ("shuffled", "bias", "context"):
        if sample.lists.get(name):
            options[name] = list(sample.lists[name])
    if findings.missing:
        options["missing"] = list(dict.fromkeys(findings.missing))
    if findings.categories:
        options["category"] = findings.categories
    if findings.features and not apart:
        options["feature"] = findings.features
    return options | given


def _weight(name: str) -> float:
    return OTHER if "cart" in names.words(name) or not names.says("purchase", name) else PURCHASE


def _roles(form: Form, sample: Sample, findings: Findings, options: Mapping[str, Any]) -> list[Role]:
    """All roles in the order of the command."""
    told = {
        "impressions": "one row per shown document",
        "pages": "one row per result page",
        "events": "one row per event",
    }
    roles = [Role("form", form.name, told[form.name])]
    for role in (*SINGLE, "event", "clicked_session", "clicked_document"):
        if role in sample.roles and role in options:
            roles.append(sample.roles[role])
            if role == "page" and "page_size" in options:
                roles.append(
                    Role("page_size", options["page_size"], "the largest position on a page", COSTS["page_size"])
                )
        elif role in form.options:
            roles.append(Role(role, form.options[role], form.reasons.get(role, ""), COSTS.get(role, "")))
    for role in ("impression_events", "click_events"):
        for kind in form.options.get(role, []):
            roles.append(Role(role.removesuffix("s"), kind, form.reasons.get(role, "a type of event"), COSTS["event"]))
    lists = {**sample.lists, "grade": sample.lists.get("grade", {}) | dict.fromkeys(form.kinds, "feedback")}
    for role in ("grade", "bias", "context"):
        roles += [Role(role, name, reason, COSTS[role]) for name, reason in lists.get(role, {}).items()]
    for name in options.get("feature", []):
        if name in sample.columns:
            what = "category" if name in findings.categories or sample.columns[name].kind == "text" else "number"
            roles.append(
                Role("feature", name, f"a {what} that differs between the documents of a page", COSTS["feature"])
            )
    return roles


def _one_page(sample: Sample, roles: Sequence[Role]) -> Screen | None:
    """The first result page with a click, or the first, in order: its columns as `role: column`."""
    if "document" not in sample.roles or not sample.n:
        return None
    page = sample.page[sample.order]
    clicked = sample.clicked
    wanted = page[clicked[sample.order]] if clicked is not None and clicked.any() else page
    rows = sample.order[page == wanted[0]][:SHOWN]
    listed = [role for role in roles if role.value in sample.columns]
    same = {role.value for role in listed if len({_text(sample.columns[role.value], row) for row in rows}) == 1}
    same -= {role.value for role in listed if role.role in ("document", "click")}
    about = [f"{role.role} {_text(sample.columns[role.value], rows[0])}" for role in listed if role.value in same]
    features = [role for role in listed if role.role == "feature" and role.value not in same]
    chosen = [role for role in listed if role.role != "feature" and role.value not in same] + features[:3]
    heads = [f"{role.role}: {role.value}" for role in chosen]
    title = f"One result page in order: {', '.join(about)}"
    cells = [[_text(sample.columns[role.value], row) for role in chosen] for row in rows]
    return Screen(title, heads, cells, left=len(heads))


def _text(values: Any, row: int) -> str:
    value = values.array[int(row)].as_py()
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


def _public_form(place: Any) -> str | None:
    """The name of a published format that this place has."""
    from unskew.ingestion.sources import first_keys

    if not isinstance(place, str | Path):
        return None
    path = Path(place)
    if path.is_dir():
        stems = {file.name.split(".")[0] for file in path.iterdir()}
        if {"lists", "clicks"} <= stems and any(stem.startswith("features") for stem in stems):
            return "ultre-2"
        return "tiangong-st" if "sogousessiontrack2020" in stems else None
    if path.is_file() and names.any_part((".json", ".ndjson", ".jsonl"), path.name):
        keys = set(first_keys(str(path)))
        return "metarank" if {"event", "timestamp"} <= keys and keys & {"items", "fields", "item"} else None
    return None


def _is_ubi(look: Look) -> bool:
    top = {name.split(".")[0] for name in look.first}
    return {"action_name", "event_attributes"} <= top


def _ubi(look: Look, tables: Tables, given: dict[str, Any]) -> Proposal:
    """User Behavior Insights has its own names; only the feedback must be found."""
    kinds = look.query(
        "SELECT action_name, count(*) AS n FROM events WHERE action_name IS NOT NULL GROUP BY 1 ORDER BY 2 DESC"
    )
    graded = [kind for kind, _ in kinds if names.match("outcome", kind) and not names.match("dwell", kind)]
    options: dict[str, Any] = {"form": "ubi"}
    roles = [Role("form", "ubi", "action_name and event_attributes are names of User Behavior Insights")]
    clicks = [kind for kind, _ in kinds if "click" in kind.lower()]
    if clicks and not {kind.lower() for kind in clicks} & set(Columns.click_events):
        options["click_events"] = clicks[:1]
        roles.append(Role("click-event", clicks[0], "no action is called click; this one says it", COSTS["click"]))
    if graded:
        options["grades"] = {"click": 1.0} | {kind: _weight(kind) for kind in graded}
        roles += [Role("grade", kind, "feedback", COSTS["grade"]) for kind in graded]
    others = {"queries": str(tables.queries)} if tables.queries is not None else {}
    return Proposal(look.name, roles, options | given, [], tables=others)
