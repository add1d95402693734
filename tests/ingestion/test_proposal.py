"""Roles, findings and commands that `unskew ingest TABLE` proposes, for tables written before the code that guesses."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.ingestion.proposal import Proposal, proposal_of
from unskew.ingestion.settings import Tables

sys.path.insert(0, str(Path(__file__).parent))
import raw_tables
import reviewer_tables
import wrong_tables


def of_role(found: Proposal, role: str) -> list[str]:
    return [entry.value for entry in found.roles if entry.role == role]


def _one_of(right: list[str] | set[str], values: list[str]) -> list[str]:
    """What was found, if it is one of several right answers."""
    return values if isinstance(right, set) and len(values) == 1 and values[0] in right else list(right)


@pytest.mark.parametrize("name", raw_tables.TABLES)
def test_every_role_of_a_raw_table_is_proposed_none_is_wrong_and_every_click_is_counted(
    name: str, tmp_path: Path
) -> None:
    raw = raw_tables.TABLES[name](tmp_path)
    found = proposal_of(Tables(raw.place), {})
    assert found.questions == []
    wanted = dict(raw.roles)
    assert of_role(found, "query")[0] in ({wanted["query"]} if isinstance(wanted["query"], str) else wanted["query"])
    for role in sorted({*wanted, *(entry.role for entry in found.roles)} - {"form", "query", "impression_event"}):
        right = wanted.get(role, [])
        assert sorted(of_role(found, role)) == sorted([right] if isinstance(right, str) else right), role
    log = unskew.ingest(raw.place, progress=False, **found.options).report
    assert (log.impressions, log.clicks, log.dropped) == (raw.impressions, raw.clicks, {})


@pytest.mark.parametrize("name", reviewer_tables.TABLES)
def test_every_role_of_a_reviewers_table_is_proposed_and_every_click_is_counted(name: str, tmp_path: Path) -> None:
    raw, optional = reviewer_tables.TABLES[name](tmp_path), reviewer_tables.OPTIONAL[name]
    found = proposal_of(Tables(raw.place), {})
    assert found.questions == []
    for role in sorted({*raw.roles, *(entry.role for entry in found.roles)} - {"form"}):
        right, values = raw.roles.get(role, []), of_role(found, role)
        if isinstance(right, set):
            assert set(values) <= right, role
            assert values, role
            continue
        unharmful = {column for column, roles in optional.items() if role in roles}
        assert sorted(set(values) - unharmful) == sorted([right] if isinstance(right, str) else right), role
    options = {**found.options, "user": found.options["user"].split("=")[0]}  # without the proposed cap on robots
    log = unskew.ingest(raw.place, progress=False, **options).report
    assert (log.impressions, log.clicks) == (raw.impressions, raw.clicks)


@pytest.mark.parametrize("make", [raw_tables.marketplace, reviewer_tables.library], ids=lambda make: make.__name__)
def test_values_alone_tell_the_roles(make: Callable, tmp_path: Path) -> None:
    raw = make(tmp_path)
    as_tsv = pa.csv.ParseOptions(delimiter="\t")
    named = pq.read_table(raw.place) if raw.place.suffix == ".parquet" else pa.csv.read_csv(raw.place, None, as_tsv)
    pq.write_table(named.rename_columns([f"v{n}" for n in range(named.num_columns)]), tmp_path / "unnamed.parquet")
    found = proposal_of(Tables(tmp_path / "unnamed.parquet"), {})
    assert found.questions == []
    for role, right in raw.roles.items():
        values = [named.column_names[int(v[1:])] if re.fullmatch(r"v\d+", v) else v for v in of_role(found, role)]
        assert sorted(values) == sorted([right] if isinstance(right, str) else _one_of(right, values)), role


@pytest.mark.parametrize("wrong", wrong_tables.WRONG, ids=lambda wrong: wrong.name)
def test_what_is_wrong_with_a_table_is_said(wrong: wrong_tables.Wrong, tmp_path: Path) -> None:
    place, options = wrong_tables.write(wrong, tmp_path)
    given = {flag.removeprefix("--"): value for flag, value in zip(options[::2], options[1::2], strict=True)}
    features = given.pop("features", None)
    found = proposal_of(Tables(place, features), {name: [value] for name, value in given.items()})
    assert wrong.line in "\n".join([found.command, *(entry.text for entry in found.findings)])


def test_nothing_is_said_about_a_table_with_nothing_wrong(tmp_path: Path) -> None:
    pq.write_table(pa.table(wrong_tables.good()), tmp_path / "events.parquet")
    found = proposal_of(Tables(tmp_path / "events.parquet"), {})
    assert found.findings == []
    assert found.options["feature"] == ["price", "brand"]
    assert found.options["bias"] == ["device"]
    assert [row[1] for row in found.page.rows[:2]] == ["1", "2"]


def test_what_you_name_is_kept_and_a_name_that_is_not_there_is_refused(tmp_path: Path) -> None:
    columns = wrong_tables.good()
    pq.write_table(pa.table({**columns, "rank": columns["position"]}), tmp_path / "events.parquet")
    tables = Tables(tmp_path / "events.parquet")
    assert proposal_of(tables, {"position": "rank"}).options["position"] == "rank"
    with pytest.raises(ValueError, match=r"no column 'postion' \(did you mean 'position'\?\)"):
        proposal_of(tables, {"position": "postion"})


def test_a_table_of_many_rows_is_judged_by_a_sample_of_whole_sessions(tmp_path: Path) -> None:
    columns = wrong_tables.good()
    copies = 60  # 115,200 rows: more than are looked at
    many = {name: np.tile(values, copies) for name, values in columns.items()}
    copy = np.repeat(np.arange(copies), wrong_tables.ROWS).astype(str)
    many["session_id"] = np.char.add(np.char.add(many["session_id"], "-"), copy)
    shuffled = np.random.default_rng(0).permutation(len(copy))
    pq.write_table(pa.table({name: values[shuffled] for name, values in many.items()}), tmp_path / "events.parquet")
    found = proposal_of(Tables(tmp_path / "events.parquet"), {})
    assert found.options["session"] == "session_id"
    assert found.options["position"] == "position"
    assert found.questions == []


def test_an_empty_column_is_left_out_by_name(tmp_path: Path) -> None:
    rows = wrong_tables.good() | {"price": np.full(len(wrong_tables.good()["clicked"]), np.nan)}
    pq.write_table(pa.table(rows), tmp_path / "events.parquet")
    proposal = proposal_of(Tables(tmp_path / "events.parquet"), {})
    assert "price" not in proposal.options.get("feature", ())
    assert any(str(finding.text).startswith("price is empty") for finding in proposal.findings)


def test_user_behavior_insights_whose_clicks_have_another_name(tmp_path: Path) -> None:
    shown = [{"query_id": "u1", "action_name": "impression", "event_attributes": {"object": {"object_id": "a"}}}]
    rows = [*shown, shown[0] | {"action_name": "item_click"}]
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert proposal_of(Tables(tmp_path / "events.jsonl"), {}).options["click_events"] == ["item_click"]


def test_several_clicked_ids_in_one_text_are_split_as_the_shown_ones_are(tmp_path: Path) -> None:
    shown = [[f"d{(n + k) % 6}q{n % 4}" for k in range(5)] for n in range(60)]
    clicked = [[], [0], [1], [0, 2], [3, 1]]
    rows = {
        "search_id": [f"s{n}" for n in range(60)],
        "query": [f"words {n % 4}" for n in range(60)],
        "result_ids": ["|".join(page) for page in shown],
        "prices": ["|".join(str(10 + (n * k) % 7) for k in range(5)) for n in range(60)],
        "clicked_ids": ["|".join(page[k] for k in clicked[n % 5]) for n, page in enumerate(shown)],
    }
    pq.write_table(pa.table(rows), tmp_path / "pages.parquet")
    options = unskew.propose(tmp_path / "pages.parquet").options
    log = unskew.ingest(tmp_path / "pages.parquet", **options, progress=False)
    assert log.log.n_clicks == 60 // 5 * sum(map(len, clicked))
    assert not log.report.dropped
