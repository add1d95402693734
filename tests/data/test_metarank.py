"""Metarank's events: what is read of rankings, interactions and items, and what is refused."""

import json

import pytest

import unskew
from unskew.data.public_logs.metarank import read_metarank


def item(name, time=0, **fields):
    return event("item", time, item=name, fields=fields)


def event(kind, time, fields=(), **rest):
    listed = [{"name": name, "value": value} for name, value in dict(fields).items()]
    return {"event": kind, "timestamp": str(1_700_000_000_000 + time), "fields": listed, **rest}


def shown(name, *items, user="u", **rest):
    return event("ranking", 10, id=name, user=user, items=[{"id": entry} for entry in items], **rest)


def clicked(name, time=20, kind="click", **rest):
    return event("interaction", time, item=name, type=kind, **rest)


ITEMS = [item("a", price=1.0, tags=["new"]), item("b", price=2.0, tags=[]), item("c", tags=["new", "red"], price=None)]


def shown_values(log, name):
    return log.features[log.versions[log.mask], log.feature_names.index(name)].tolist()


@pytest.fixture
def write(tmp_path):
    def written(*events):
        path = tmp_path / "events.jsonl"
        path.write_text("".join(json.dumps(entry) + "\n" for entry in events))
        return path

    return written


def test_rankings_become_lists_in_shown_order_with_their_clicks(write):
    path = write(*ITEMS, shown("r", "b", "a", "c"), clicked("a", ranking="r"), clicked("c", ranking="r", kind="buy"))
    done = unskew.ingest(path, form="metarank", grades={"click": 1, "buy": 5}, progress=False)
    table = done.log.to_table().to_pydict()
    assert (table["document"], table["clicks"]) == (["b", "a", "c"], [0, 1, 0])
    assert done.log.events["buy"].sum() == 1


@pytest.mark.parametrize(
    ("rankings", "query"),
    [
        ([shown("r1", "a", fields={"query": "shoe"}), shown("r2", "b", fields={"query": "hat"})], ["shoe", "hat"]),
        ([shown("r1", "a", user="u"), shown("r2", "b", user="v")], ["u", "v"]),
        ([shown("r1", "a", user=None), shown("r2", "b", user="v")], ["r1", "r2"]),
    ],
)
def test_the_query_is_that_of_the_ranking_or_the_user_or_the_ranking_itself(write, rankings, query):
    read = read_metarank(write(*ITEMS, *rankings))
    assert read.events[read.columns["query"]].to_pylist() == query


def test_an_interaction_without_a_ranking_belongs_to_the_last_that_showed_the_item_to_its_session_or_user(write):
    first, second = shown("r1", "a", "b", session="s"), shown("r2", "a", "c", session="s")
    read = read_metarank(write(*ITEMS, first, second, clicked("a", session="s"), clicked("b", user="u"), clicked("z")))
    assert read.events["ranking"].to_pylist()[-3:] == ["r2", "r1", None]


def test_an_item_that_changes_has_the_fields_of_the_time_when_it_was_shown(write):
    later = event("ranking", 40, id="r2", user="u", items=[{"id": "a"}, {"id": "b"}])
    path = write(*ITEMS, item("a", 30, price=9.0), shown("r1", "a", "b"), later, clicked("a", 50, ranking="r2"))
    log = unskew.ingest(path, form="metarank", progress=False).log
    assert sorted(shown_values(log, "price")) == [1.0, 2.0, 2.0, 9.0]


def test_items_without_an_event_are_counted_and_leave_their_position_empty(write):
    done = unskew.ingest(
        write(*ITEMS, shown("r", "x", "a"), clicked("a", ranking="r")), form="metarank", progress=False
    )
    assert done.report.dropped == {"no_features": 1}
    assert done.log.positions.tolist() == [[1]]


def test_fields_of_users_and_rankings_are_columns_that_may_become_context(write):
    known = event("user", 0, user="u", fields={"age": 33})
    path = write(known, *ITEMS, shown("r", "a", "b", fields={"device": "phone"}), clicked("a", ranking="r"))
    log = unskew.ingest(path, form="metarank", context=["user_age", "device"], progress=False).log
    assert list(log.context_names) == ["user_age", "device"]


def test_dates_are_read_as_seconds_and_a_single_text_among_lists_as_a_list(write):
    items = [item("a", day="1970-01-02", kind="red"), item("b", day="1970-01-01", kind=["red", "new"])]
    read = read_metarank(write(*items, shown("r", "a", "b")))
    assert read.features["kind"].to_pylist() == [["red"], ["red", "new"]]
    log = unskew.ingest(write(*items, shown("r", "a", "b"), clicked("a", ranking="r")), form="metarank", progress=False)
    assert shown_values(log.log, "day") == [86_400, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 1: not an event .*write one JSON object"),
        ("[1]", r"line 1: not an event"),
        ('{"event": "view"}', r"line 1: unknown event 'view': choose from item, ranking, interaction, user"),
        ('{"event": "item", "timestamp": 1}', r"line 1: the event 'item' has no 'item'"),
        (
            f'{{"event": "item", "item": "a", "timestamp": {2**70}}}',
            r"line 1: 1.18e\+21 is not a number of milliseconds",
        ),
        ('{"event": "item", "item": "a", "timestamp": 1, "fields": {"x": 1}}', r"no event 'ranking'|'fields' must be"),
    ],
)
def test_what_is_no_event_is_refused_by_its_line(tmp_path, line, message):
    path = tmp_path / "events.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ValueError, match=message):
        read_metarank(path)


def test_fields_of_mixed_types_are_refused_by_name(write):
    with pytest.raises(ValueError, match="field 'price' holds values of several types"):
        read_metarank(write(item("a", price=1.0), item("b", price="cheap"), shown("r", "a", "b")))
