"""Sixty-four wrong tables, each with a line that `unskew ingest TABLE --yes` must print, written before the code that looks.

Each entry changes one thing of a good table: 240 pages of 8 documents, clicked more often at the top.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

SESSIONS, SIZE = 240, 8
ROWS = SESSIONS * SIZE
START = 1_790_000_000
Columns = dict[str, Any]


def good() -> Columns:
    """A table with nothing wrong in it."""
    rng = np.random.default_rng(5)
    session, place = np.arange(ROWS) // SIZE, np.arange(ROWS) % SIZE
    query = session % 24
    document = np.concatenate([rng.permutation(16)[:SIZE] for _ in range(SESSIONS)]) + 16 * query
    chance = np.where(document % 3 == 0, 0.8, 0.3) / (place + 1)
    return {
        "session_id": np.char.add("s", session.astype(str)),
        "user_id": np.char.add("u", (session % 80).astype(str)),
        "query": np.char.add("words ", query.astype(str)),
        "product_id": np.char.add("p", document.astype(str)),
        "position": place + 1,
        "clicked": (rng.random(ROWS) < chance).astype(np.int64),
        "price": np.round(np.random.default_rng(9).lognormal(3, 1, 400), 2)[document],
        "brand": np.char.add("brand ", (document % 7).astype(str)),
        "device": np.array(["phone", "desktop"])[session % 2],
        "timestamp": (START + 60 * session).astype("datetime64[s]"),
    }


Change = Callable[[Columns, np.random.Generator], Mapping[str, Any]]


@dataclass(frozen=True)
class Wrong:
    """A change, the text that the answer must contain, and how the table is written."""

    name: str
    change: Change
    line: str
    form: str = "parquet"
    options: tuple[str, ...] = ()
    features: Change | None = field(default=None)  # a second table


def write(wrong: Wrong, folder: Path) -> tuple[Path, list[str]]:
    """The table on disk, and the options that go with it; a changed column of None is left out."""
    columns = good()
    changed = wrong.change(columns, np.random.default_rng(1))
    table = {name: value for name, value in {**columns, **changed}.items() if value is not None}
    rows = changed.get("rows")
    if rows is not None:
        table = {name: np.asarray(value)[rows] for name, value in table.items() if name != "rows"}
    options = list(wrong.options)
    if wrong.features is not None:
        pq.write_table(pa.table(dict(wrong.features(columns, np.random.default_rng(1)))), folder / "features.parquet")
        options += ["--features", str(folder / "features.parquet")]
    place = folder / f"events.{wrong.form}"
    if wrong.form == "csv":
        pa.csv.write_csv(pa.table(table), place)
    elif wrong.form == "jsonl":
        rows = pa.table(table).to_pylist()
        place.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows), encoding="utf-8")
    else:
        pq.write_table(pa.table(table), place)
    return place, options


def place(c: Columns) -> np.ndarray:
    return c["position"] - 1


def number(c: Columns) -> np.ndarray:
    return np.char.lstrip(c["session_id"], "s").astype(int)


def item(c: Columns) -> np.ndarray:
    return np.char.lstrip(c["product_id"], "p").astype(int)


def some(values: Any, flags: Any, otherwise: Any) -> pa.Array:
    """These values where the flags are set, others elsewhere; None: missing."""
    pairs = zip(np.asarray(values).tolist(), np.asarray(flags).tolist(), strict=True)
    return pa.array([value if flag else otherwise for value, flag in pairs])


def of_pages(c: Columns, name: str) -> list[list[Any]]:
    return np.asarray(c[name]).reshape(SESSIONS, SIZE).tolist()


def pages(c: Columns, **more: Any) -> dict[str, Any]:
    """One row per page: lists of products, prices and clicks."""
    single = {name: np.asarray(c[name])[::SIZE] for name in ("session_id", "user_id", "query", "device", "timestamp")}
    lists = {
        "product_ids": of_pages(c, "product_id"),
        "prices": of_pages(c, "price"),
        "clicked": of_pages(c, "clicked"),
    }
    lost = dict.fromkeys(("product_id", "position", "price", "brand"))
    return lost | single | lists | more


def clicked_ids(c: Columns) -> list[list[str]]:
    return [
        [name for name, click in zip(names, clicks, strict=True) if click]
        for names, clicks in zip(of_pages(c, "product_id"), of_pages(c, "clicked"), strict=True)
    ]


PRODUCTS = np.arange(400)
WRONG = [
    # What is known only after the click, or is the position.
    Wrong("a copy of the position", lambda c, r: {"tile": c["position"] * 1.0}, "tile is the position"),
    Wrong("a function of the position", lambda c, r: {"decay": 1 / np.log2(1 + c["position"])}, "decay is a function of the position"),
    Wrong("the position upside down", lambda c, r: {"boost": 100 - 3 * c["position"]}, "boost is a function of the position"),
    Wrong("the position on a screen", lambda c, r: {"y_offset": 120 * c["position"] + r.integers(0, 3, ROWS)}, "y_offset follows the position"),
    Wrong("the score of production", lambda c, r: {"relevance": 9 - c["position"] + r.random(ROWS) * 0.9}, "--policy-score relevance"),
    Wrong("an order of production", lambda c, r: {"prod_order": c["position"] + (number(c) % 9 == 0) * (SIZE + 1 - 2 * c["position"])}, "prod_order"),
    Wrong("sponsored results", lambda c, r: {"is_sponsored": (place(c) == 0) & (number(c) % 3 == 0)}, "is_sponsored marks"),
    Wrong("pinned results as 0 and 1", lambda c, r: {"pinned": ((place(c) == 1) & (number(c) % 2 == 0)).astype(int)}, "pinned marks"),
    Wrong("a cart", lambda c, r: {"added_to_cart": c["clicked"] * (r.random(ROWS) < 0.3)}, "--grade click=1,added_to_cart=3"),
    Wrong("a cart without a click", lambda c, r: {"add_to_cart": (r.random(ROWS) < 0.05).astype(int)}, "add_to_cart"),
    Wrong("a purchase named as a feature", lambda c, r: {"purchased": c["clicked"] * (r.random(ROWS) < 0.2)}, "purchased is known only after the click", options=("--feature", "purchased")),
    Wrong("a dwell time", lambda c, r: {"dwell_ms": c["clicked"] * r.integers(500, 90_000, ROWS)}, "dwell_ms is known only after the click"),
    Wrong("a time only of clicks", lambda c, r: {"read_for": some(r.random(ROWS), c["clicked"] == 1, None)}, "read_for is known only after the click"),
    Wrong("a copy of the click", lambda c, r: {"target": c["clicked"] * 1.0}, "target is known only after the click"),
    Wrong("revenue", lambda c, r: {"revenue": c["clicked"] * (r.random(ROWS) < 0.3) * 12.5}, "revenue is known only after the click"),
    # Values that are not what they seem.
    Wrong("-999999 for missing", lambda c, r: {"rating": np.where(item(c) % 5 == 0, -999_999, item(c) % 50)}, "rating: -999999"),
    Wrong("9999 for missing", lambda c, r: {"distance_km": np.where(item(c) % 6 == 0, 9999.0, item(c) % 30)}, "distance_km: 9999"),
    Wrong("-1 for missing", lambda c, r: {"stars": np.where(item(c) % 4 == 0, -1.0, 1 + item(c) % 5)}, "stars: -1"),
    Wrong("N/A among numbers", lambda c, r: {"price": [f"{p:.2f}" if p < 40 else "N/A" for p in c["price"]]}, "price: 'N/A'", "csv"),
    Wrong("decimal commas", lambda c, r: {"price": [f"{p:.2f}".replace(".", ",") for p in c["price"]]}, "price: numbers with a decimal comma"),
    Wrong("currency signs", lambda c, r: {"price": [f"${p:.2f}" for p in c["price"]]}, "price: numbers with a unit"),
    Wrong("an id as a number", lambda c, r: {"seller_id": 7_000_000 + item(c) % 90}, "seller_id is an id"),
    Wrong("whole numbers too large", lambda c, r: {"views": 2**40 + item(c) * 3}, "views: float32 cannot hold"),
    Wrong("an integer category", lambda c, r: {"category_id": item(c) % 11}, "category_id is a category"),
    Wrong("ids as decimals", lambda c, r: {"product_id": item(c) * 1.0 + 2.0**54}, "product_id: decimals cannot hold"),
    Wrong("infinite values", lambda c, r: {"price": np.where(item(c) % 40 == 0, np.inf, c["price"])}, "price: infinite"),
    Wrong("the word null as an id", lambda c, r: {"product_id": np.where(r.random(ROWS) < 0.2, "null", c["product_id"])}, "product_id: 'null'"),
    Wrong("levels that differ in case", lambda c, r: {"device": np.where(number(c) % 7 == 0, "Phone ", c["device"])}, "device: levels that differ only in case or spaces"),
    Wrong("one value only", lambda c, r: {"country": np.repeat("de", ROWS), "vat": np.repeat(19.0, ROWS)}, "vat has one value"),
    Wrong("the age of the user", lambda c, r: {"user_age": 20 + number(c) % 40}, "--context user_age"),
    # Session, query, document, user.
    Wrong("session and query exchanged", lambda c, r: {"session_id": c["query"], "query": c["session_id"]}, "session and query look exchanged"),
    Wrong("a query per session", lambda c, r: {"query": np.char.add("q", c["session_id"])}, "every query was asked once"),
    Wrong("one query", lambda c, r: {"query": np.repeat("all", ROWS)}, "there is one query"),
    Wrong("no session", lambda c, r: {"session_id": None, "user_id": None}, "session"),
    Wrong("a user as the session", lambda c, r: {"session_id": None}, "user_id is a user"),
    Wrong("sessions that are missing", lambda c, r: {"session_id": some(c["session_id"], number(c) % 3, None)}, "session_id is missing in 33%"),
    Wrong("queries that are empty", lambda c, r: {"query": np.where(number(c) % 2, "", c["query"])}, "query is empty in 50%"),
    Wrong("one document per page", lambda c, r: {"rows": c["position"] == 1}, "one document"),
    Wrong("robots", lambda c, r: {"user_id": np.where(number(c) % 3 == 0, "bot7", c["user_id"])}, "bot7"),
    Wrong("rows logged twice", lambda c, r: {"rows": np.repeat(np.arange(ROWS), 1 + (np.arange(ROWS) % 3 == 0))}, "25% of rows are duplicates"),
    Wrong("ids of another type", lambda c, r: {"product_id": item(c)}, "product_id is", features=lambda c, r: {"product_id": [f"{p:05}" for p in PRODUCTS], "weight": r.random(400)}),
    Wrong("ids in capitals", lambda c, r: {"price": None}, "only in case", features=lambda c, r: {"product_id": [f"P{p}" for p in PRODUCTS], "weight": r.random(400)}),
    # Positions.
    Wrong("positions that restart", lambda c, r: {"position": place(c) % 4 + 1, "page": place(c) // 4 + 1}, "--page page --page-size 4"),
    Wrong("positions that restart without a page", lambda c, r: {"position": place(c) % 4 + 1}, "two documents at one position"),
    Wrong("pages whose size depends on the device", lambda c, r: (lambda n: {"position": place(c) % n + 1, "page": place(c) // n + 1})(np.where(c["device"] == "phone", 2, 4)), "device:desktop=4,phone=2"),
    Wrong("positions from 0 and from 1", lambda c, r: {"position": place(c) + (number(c) % 2)}, "positions begin at 0 in 50% of the pages and at 1 in 50%"),
    Wrong("positions from 11", lambda c, r: {"position": c["position"] + 10}, "the lowest is 11"),
    Wrong("the same position everywhere", lambda c, r: {"position": np.ones(ROWS, int)}, "position has one value"),
    Wrong("positions that are pixels", lambda c, r: {"position": 80 + 120 * place(c)}, "position"),
    Wrong("rows that end with the last click", lambda c, r: {"rows": np.flatnonzero(_until_last_click(c))}, "end with a click"),
    Wrong("no position, no order", lambda c, r: {"position": None}, "position"),
    # Clicks and times.
    Wrong("counts of clicks", lambda c, r: {"clicked": c["clicked"] * r.integers(1, 6, ROWS)}, "clicked counts up to 5"),
    Wrong("no clicks", lambda c, r: {"clicked": np.zeros(ROWS, int)}, "no row is clicked"),
    Wrong("only clicked rows", lambda c, r: {"rows": np.flatnonzero(c["clicked"])}, "every row is clicked"),
    Wrong("clicks the wrong way round", lambda c, r: {"clicked": 1 - c["clicked"]}, "exchanged"),
    Wrong("clicked documents first", lambda c, r: {"clicked": np.sort(c["clicked"].reshape(-1, SIZE))[:, ::-1].ravel()}, "clicked documents stand above all others"),
    Wrong("seconds and milliseconds", lambda c, r: {"timestamp": (START + 60 * number(c)) * np.where(number(c) % 2, 1000, 1)}, "timestamp mixes seconds and milliseconds"),
    Wrong("one time", lambda c, r: {"timestamp": np.repeat(START, ROWS)}, "timestamp has one value"),
    Wrong("times of 1970", lambda c, r: {"timestamp": np.where(number(c) % 4, START, 0)}, "timestamp: 0"),
    # Result pages in one row, and events apart.
    Wrong("lists whose lengths disagree", lambda c, r: pages(c, prices=[list(p[: SIZE - (n == 17)]) for n, p in enumerate(of_pages(c, "price"))]), "row 17"),
    Wrong("a clicked id that was not shown", lambda c, r: pages(c, clicked=None, clicked_item=[(ids or ["none"])[0] if n % 3 else "elsewhere" for n, ids in enumerate(clicked_ids(c))]), "was not shown"),
    Wrong("the same document twice on a page", lambda c, r: pages(c, product_ids=[[ids[0], *ids[:-1]] for ids in of_pages(c, "product_id")]), "twice on a page"),
    Wrong("only pages with a click", lambda c, r: pages(c, clicked=None, clicked_item=[(ids or [shown[0]])[0] for ids, shown in zip(clicked_ids(c), of_pages(c, "product_id"), strict=True)]), "every page has a click"),
    Wrong("an experiment nobody named", lambda c, r: {"variant": np.where(number(c) % 10 == 0, "shuffle", "control")}, "--intervention variant"),
]  # fmt: skip


def _until_last_click(c: Columns) -> np.ndarray:
    clicks = c["clicked"].reshape(-1, SIZE)
    return (np.cumsum(clicks[:, ::-1], 1)[:, ::-1] > 0).ravel()
