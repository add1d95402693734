"""Names of columns: guessed, given, and read from a file."""

import re

import ibis
import pytest

from unskew.ingestion.columns import Columns, complete, feature_columns, paths, value_at
from unskew.ingestion.settings import named_columns, read_columns


def table(**kinds):
    return ibis.table(kinds, name="events")


def test_common_names_are_recognised_whatever_their_case():
    events = table(SessionID="string", search_term="string", **{"Doc-Id": "string"}, rank="int64", is_click="boolean")
    found = complete(Columns(), paths(events), "events.csv")
    assert found.form == "impressions"
    assert found.roles == {
        "session": "SessionID",
        "query": "search_term",
        "document": "Doc-Id",
        "position": "rank",
        "click": "is_click",
    }
    assert {"session", "form"} <= found.guessed


def test_a_table_with_kinds_of_events_and_no_clicks_has_a_row_per_event():
    events = table(session="string", query="string", item="string", position="int64", event_type="string")
    found = complete(Columns(), paths(events), "events")
    assert (found.form, found.event) == ("events", "event_type")


def test_user_behavior_insights_are_recognised_by_their_nested_columns():
    attributes = "struct<object: struct<object_id: string>, position: struct<ordinal: int64>>"
    events = table(action_name="string", query_id="string", timestamp="string", event_attributes=attributes)
    found = complete(Columns(), paths(events), "ubi_events")
    assert found.form == "ubi"
    assert found.session == "query_id"
    assert found.document == "event_attributes.object.object_id"
    assert found.position == "event_attributes.position.ordinal"


def test_what_was_named_is_not_guessed_and_no_column_serves_twice():
    events = table(session="string", query_id="int64", query="string", doc="string", position="int64", click="int64")
    found = complete(Columns(query="query_id"), paths(events), "events")
    assert found.query == "query_id"
    assert "query" not in found.guessed


def test_a_missing_column_is_refused_with_a_hint_and_the_flag_to_use():
    events = table(session="string", query="string", doc="string", position="int64", hit="int64")
    with pytest.raises(ValueError, match=r"events\.csv: no column looks like the click. Pass --click .*hit"):
        complete(Columns(), paths(events), "events.csv")
    with pytest.raises(ValueError, match=r"no column 'positions' \(did you mean 'position'\?\)"):
        complete(Columns(click="hit", position="positions"), paths(events), "events.csv")


def test_none_leaves_an_optional_column_out():
    events = table(session="string", query="string", doc="string", position="int64", click="int64", time="string")
    assert complete(Columns(), paths(events), "events").time == "time"
    assert complete(Columns(time="none"), paths(events), "events").time is None


def test_features_are_all_numbers_left_or_those_that_match():
    events = table(session="int64", bm25="float64", f_1="float32", f_2="float32", title="string")
    assert feature_columns(None, events, ["session"], "events") == ["bm25", "f_1", "f_2"]
    assert feature_columns(["f_*", "bm25"], events, ["session"], "events") == ["f_1", "f_2", "bm25"]
    with pytest.raises(ValueError, match="no column 'g_"):
        feature_columns(["g_*"], events, [], "events")
    assert feature_columns(["title"], events, [], "events") == ["title"]  # a category, since it is named
    with pytest.raises(ValueError, match=r"column 'place' holds .*: features must be numbers"):
        feature_columns(["place"], table(place="struct<x: int64>"), [], "events")


def test_dotted_names_reach_into_nested_columns_and_may_be_plain_names_too():
    events = table(**{"a": "struct<b: struct<c: int64>>", "a.x": "string", "x.y": "struct<z: int64>"})
    assert paths(events) == ["a", "a.b", "a.b.c", "a.x", "x.y", "x.y.z"]
    assert value_at(events, "a.b.c").type().is_integer()
    assert value_at(events, "a.x").type().is_string()
    assert value_at(events, "x.y.z").type().is_integer()


def test_a_toml_file_names_columns_and_flags_go_before_it(tmp_path):
    file = tmp_path / "columns.toml"
    file.write_text('session = "sid"\nbias = ["device"]\nfirst_position = 0\n')
    found = named_columns(read_columns(file), {"session": "visit", "query": None, "bias": []})
    assert (found.session, found.bias, found.first_position) == ("visit", ["device"], 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('sessions = "sid"', "unknown key 'sessions' (did you mean 'session'?): choose from session, query"),
        ("session = 3", "session must be text or none, got 3"),
        ('bias = "device"', "bias must be a list of texts, got 'device'"),
        ("first_position = true", "first_position must be a whole number or none, got True"),
        ("session = ", "is not a TOML file"),
    ],
)
def test_mistakes_in_a_toml_file_are_named(tmp_path, text, message):
    file = tmp_path / "columns.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"columns\.toml.*" + re.escape(message)):
        read_columns(file)


def test_forms_and_first_positions_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="unknown form 'wide': choose from impressions, events, ubi"):
        named_columns(Columns(), {"form": "wide"})
    with pytest.raises(ValueError, match="first_position must be 0 or 1, got 2"):
        named_columns(Columns(), {"first_position": 2})
