"""Turn single events into impressions: what was shown, and whether a later event is a click on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ibis
import ibis.expr.types as ir

from unskew.ingestion.columns import Columns, role_column, value_at
from unskew.ingestion.engines import Engine, example, one_row
from unskew.ingestion.feature_tables import filled, same_keys
from unskew.ingestion.impressions import CLICK, FIRST_GRADED, IMPRESSION, OTHER, SEEN, Shape, common_clicks
from unskew.ingestion.report import Dropped

SHOWING = ["session", "query", "document"]
BULK_ACTIONS = ("index", "create", "update", "delete")
SHOWN_IDS = ("query_response_hit_ids", "query_response_object_ids", "query_response_objects_ids")


def count_others(engine: Engine, rows: ir.Table) -> tuple[dict[str, int], bool]:
    """Events that are neither impressions nor clicks nor graded, by type, and whether there are any impressions."""
    shown = one_row(engine, rows, shown=(rows.kind == IMPRESSION).sum())["shown"]
    if "word" not in rows.columns:
        return {}, bool(shown)
    others = rows.filter(rows.kind == OTHER).group_by("word").aggregate(events=ibis._.count())
    counts = engine.arrow(others.order_by(ibis.desc("events"), "word")).to_pylist()
    return {str(row["word"]): row["events"] for row in counts}, bool(shown)


def within_window(engine: Engine, rows: ir.Table, seconds: int, dropped: Dropped) -> ir.Table:
    """Rows without the events that came too long after their impression; those are counted."""
    if "time" not in rows.columns:
        raise ValueError("--window needs times: pass the time column with --time, or leave out --window")
    shown = rows.filter(rows.kind == IMPRESSION).group_by(SHOWING).aggregate(shown_at=ibis._.time.min())
    joined = rows.left_join(shown, SHOWING).select(*rows.columns, "shown_at")
    if rows.time.type().is_timestamp():
        last: Any = joined.shown_at + ibis.interval(seconds=seconds)
    else:
        last = joined.shown_at + seconds * 10**6
    late = ((joined.kind != IMPRESSION) & (joined.time > last)).fill_null(False)
    count = one_row(engine, joined, late=late.sum())["late"] or 0
    dropped.add("late_event", count, example(engine, joined.filter(late), SHOWING) if count else "")
    return joined.filter(~late).drop("shown_at") if count else rows


def merge_events(engine: Engine, rows: ir.Table, shape: Shape, dropped: Dropped) -> ir.Table:
    """One row per impression; a click belongs to the impression of its session, query and document."""
    shown, clicked = rows.kind == IMPRESSION, rows.kind == CLICK
    parts = {"impressions": shown.sum(), "clicks": clicked.sum(), "position": rows.position.min(where=shown)}
    graded = {name: rows.kind == FIRST_GRADED + number for number, name in enumerate(shape.event_names)}
    graded |= {"seen": rows.kind == SEEN} if shape.seen and "seen" not in rows.columns else {}
    parts |= {name: rows[name].min(where=shown) for name in shape.extras if name not in graded}
    parts |= {name: kind.sum() for name, kind in graded.items()}
    if shape.features:  # all features of one impression together
        values = filled(rows, len(shape.features), None)
        rows = values.mutate(features=ibis.struct({name: values[name] for name in shape.feature_names}))
        parts["features"] = rows.features.min(where=shown)
    if shape.user:
        parts["user"] = rows.user.min()
    if shape.time:
        parts |= {"time": rows.time.min(where=shown), "click_time": rows.time.max(where=clicked)}
    pairs = engine.keep("pairs", rows.group_by(SHOWING).aggregate(**parts))
    early = (pairs.click_time < pairs.time).fill_null(False) if shape.time else ibis.literal(False)
    lone = pairs.impressions == 0
    feedback: Any = pairs.clicks * 0
    for name in graded:
        feedback = feedback + (0 if name == "seen" else pairs[name])
    seen = pairs.seen if "seen" in graded else pairs.clicks * 0
    reasons = {  # a number of each pair, and the pairs whose numbers are left out
        "lone_click": (pairs.clicks, lone),
        "lone_look": (seen, lone & (seen > 0)),
        "lone_event": (feedback, lone & (feedback > 0)),
        "early_click": (pairs.clicks, early & ~lone),
    }
    counts = {reason: number.sum(where=where) for reason, (number, where) in reasons.items()}
    more = {"again": (pairs.impressions - 1).sum(where=~lone), "clicks": pairs.clicks.sum()}
    *lost, again, n_clicks = (count or 0 for count in one_row(engine, pairs, **counts, **more).values())
    for (reason, (_, where)), count in zip(reasons.items(), lost, strict=True):
        dropped.add(reason, count, example(engine, pairs.filter(where), SHOWING) if count else "")
    dropped.refuse_if_most(["lone_click", "early_click"], n_clicks, "clicks")
    _say_doubles(engine, pairs.filter(~lone), ["clicks", *(name for name in graded if name != "seen")], dropped)
    dropped.add("duplicate", again, example(engine, pairs.filter(pairs.impressions > 1), SHOWING) if again else "")
    click = ((pairs.clicks > 0) & ~early).cast("int8")
    names = [*SHOWING, "position", *(name for name in shape.extras if name not in graded), *["time"] * shape.time]
    names += ["user"] * shape.user
    values = {name: pairs.features[name] for name in shape.feature_names}
    values |= {name: (pairs[name] > 0).cast("int8") for name in graded if name != "seen"}
    if "seen" in graded:
        # Without any view, views may not have been logged; leaving out all such sessions only rescales the curve.
        logged = pairs.seen.max(where=~lone).over(ibis.window(group_by=["session", "query"])) > 0
        values["seen"] = logged.ifelse((pairs.seen > 0).cast("float32"), ibis.null("float32"))
    return pairs.mutate(**values, click=click).filter(~lone).select(*names, "click", *values)


def _say_doubles(engine: Engine, pairs: ir.Table, names: Sequence[str], dropped: Dropped) -> None:
    """Report events of a type that occurred more than once on an impression; they count once."""
    more = ibis.literal(0)
    for name in names:
        more = more + ibis.greatest(pairs[name] - 1, 0)
    count = one_row(engine, pairs, more=more.sum())["more"] or 0
    if count:
        dropped.remarks.append(f"{count:,} events repeat another on the same impression: each type counts once.")


def add_clicks(engine: Engine, shown: ir.Table, clicks: ir.Table, columns: Columns, name: str) -> ir.Table:
    """Rows of impressions together with rows of clicks from a separate table.

    The table of clicks has the session and the document, the query unless every session has only one, and the event
    type if it holds other events too.
    """
    named = {role: columns.roles.get(role) for role in ("session", "query", "document", "time", "event")}
    found = {role: role_column(role, column, clicks.columns) for role, column in named.items()}
    for role in ("session", "document", *(["time"] if "time" in shown.columns else [])):
        if found[role] is None:
            advice = " or pass --time none" if role == "time" else ""
            raise ValueError(
                f"{name}: no column looks like the {role}: call it '{named[role]}' as in the impressions{advice}. "
                f"Found: {', '.join(clicks.columns)}"
            )
    known = {role: column for role, column in found.items() if column is not None}
    rows = common_clicks(clicks, columns, known, name)
    ids = [key for key in SHOWING if key in known]
    shown, rows = same_keys(shown, rows, ids)
    if "query" not in known:
        queries = shown.group_by("session").aggregate(query=shown["query"].min(), queries=shown["query"].nunique())
        several = one_row(engine, queries, several=(queries.queries > 1).sum())["several"]
        if several:
            raise ValueError(
                f"{name}: no column looks like the query, and {several:,} sessions have several: add the query of each "
                "click"
            )
        rows = rows.left_join(queries.select("session", "query"), "session").drop("session_right")
    kinds = shown.schema()
    missing = {key: ibis.null(kind) for key, kind in kinds.items() if key not in rows.columns and key != "wanted"}
    wanted = {"wanted": ibis.literal(True)} if "wanted" in kinds else {}
    rows = rows.mutate(**missing, **wanted)
    return shown.union(rows.select(**{key: rows[key].cast(kind) for key, kind in kinds.items()}))


def with_queries(events: ir.Table, queries: ir.Table, name: str, wanted: Sequence[str] = ()) -> ir.Table:
    """Events of User Behavior Insights with the text of their query, and the wanted columns of the query table."""
    for needed in ("query_id", "user_query"):
        if needed not in queries.columns:
            raise ValueError(f"{name}: no column '{needed}'. Found: {', '.join(queries.columns)}")
    told = {name: value_at(queries, name).min() for name in wanted}
    texts = queries.group_by("query_id").aggregate(asked=queries.user_query.min(), **told)
    joined = events.left_join(texts, "query_id")
    asked = joined.asked
    if "user_query" in events.columns:
        asked = ibis.coalesce(asked, joined.user_query.cast("string"))
    others = [name for name in events.columns if name != "user_query"]
    return joined.select(*others, *told, user_query=asked)


def split_bulk(table: ir.Table) -> tuple[ir.Table, ir.Table | None]:
    """Events, and queries, of a file for OpenSearch's bulk API, in which action lines alternate with documents.

    Any other table is returned unchanged.
    """
    actions = [name for name in BULK_ACTIONS if name in table.columns and table.schema()[name].is_struct()]
    if not actions or not {"query_id", "action_name"} <= set(table.columns):
        return table, None
    documents = table.filter(ibis.and_(*(table[name].isnull() for name in actions))).drop(*actions)
    of_queries = [name for name in ("query_attributes", *SHOWN_IDS) if name in documents.columns]
    events = documents.filter(documents.action_name.notnull()).drop(*of_queries)  # the file has the columns of both
    queries = documents.filter(documents.action_name.isnull()) if "user_query" in table.columns else None
    return events, queries


def shown_by_queries(queries: ir.Table, rows: ir.Table, name: str) -> ir.Table:
    """Rows of clicks, together with one impression per document that a query returned, in that order."""
    column = next((entry for entry in SHOWN_IDS if entry in queries.columns), None)
    if column is None:
        raise ValueError(
            f"{name}: there are no impression events, and no column {' or '.join(SHOWN_IDS)} with the shown documents: "
            "log impressions, or pass their event type with --impression-event"
        )
    ids = queries[column]
    if not ids.type().is_array():
        raise ValueError(f"{name}: column '{column}' holds {ids.type()}, but must hold lists of ids")
    parts = {"session": queries.query_id, "query": queries.user_query, "document": ids.cast("array<string>")}
    if "time" in rows.columns:
        parts["time"] = value_at(queries, "timestamp").cast(rows.time.type())
    shown = queries.select(**parts).unnest("document", offset="position")
    kind = rows.kind.type()
    shown = shown.mutate(position=shown.position.cast("int64"), kind=ibis.literal(IMPRESSION, type=kind))
    casts = {key: rows[key].type() for key in ("session", "query")}
    shown = shown.mutate(**{key: shown[key].cast(kind) for key, kind in casts.items()})
    clicks = rows.filter(rows.kind.isin([CLICK, SEEN])).mutate(document=rows.document.cast("string"))
    return clicks.select(shown.columns).union(shown)
