"""The event table of the simulated shop, as messy as real ones, and judged queries to evaluate rankers.

One row per impression. Two rankers serve searches until the first is retired. Results are on pages of ten, with
positions that restart at 1, and only some users open the second page. The top of some pages is sponsored. A few
searches have their top ten shuffled. Users on phones examine fewer positions. Users click on what looks good and buy
what is good. Robots click on anything. Some rows were logged twice, some have no product.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.random import Generator
from numpy.typing import NDArray

from unskew.data.files import check_folder, new_folder
from unskew.data.inputs import Place
from unskew.display import OnScreen, Screen
from unskew.simulation.shop import (
    CANDIDATES,
    DAYS,
    GRADE_SHARES,
    START,
    Catalogue,
    Floats,
    Integers,
    Law,
    Queries,
    draw_catalogue,
    draw_law,
    draw_queries,
    feature_columns,
    product_ids,
    relevance,
)

EVENTS, JUDGED, TRUTH = "events.parquet", "judged.parquet", "truth.json"
DEVICES = ("desktop", "phone")
PAGE_SIZE = 10
FALL = np.array([0.6, 1.1])  # examination is 1 / position ** fall within a page, by device
NEXT_PAGE = np.array([0.3, 0.15])  # share of users who open the second page, by device
PHONES, MEMBERS, SHUFFLED, SOLD, ROBOTS = 0.6, 0.3, 0.04, 0.3, 0.04  # shares of sessions
RETIRED = 14  # the day from which only the second ranker serves
SHUFFLE = "shuffle_top10"
AD_BLINDNESS = 0.6  # share of the clicks that a sponsored position still gets
N_ROBOTS = 4
TWICE, NO_PRODUCT = 0.002, 0.0005  # shares of rows
N_JUDGED = 300
SESSIONS_AT_ONCE = 20_000

Flags = NDArray[np.bool_]


@dataclass(frozen=True, repr=False)
class Shop(OnScreen):
    """The event table of the shop, judged queries that are not in it, and the truth."""

    events: pa.Table  # one row per impression
    judged: pa.Table  # query, product_id, grade and the features of the last day
    truth: dict

    def to_json(self) -> dict[str, Any]:
        return {"impressions": len(self.events), "judged": len(self.judged)}

    def screen(self) -> Screen:
        rows = [("events", f"{len(self.events):,}"), ("judged", f"{len(self.judged):,}")]
        return Screen("A simulated shop", ("table", "rows"), rows, ["`ingest` reads the events."])


@dataclass(frozen=True)
class _Sessions:
    """Searches, before anything is shown."""

    queries: Integers
    days: Integers
    seconds: Integers  # of the day
    users: NDArray[np.str_]
    robot: Flags
    device: Integers
    member: Flags
    ranker: Integers
    shuffled: Flags
    sold: Flags


def shop(out: Place | None = None, *, sessions: int = 5_000, seed: int = 0, overwrite: bool = False) -> Shop:
    """Simulate the messy event table of a shop, with judged queries, for `ingest`.

    The same arguments give the same shop.

    Args:
        out: folder for the tables and the truth; None: keep them in memory.
        sessions: number of searches, with 12 impressions each on average.

    >>> shop(sessions=50).events.num_rows > 50
    True
    """
    if sessions < 1:
        raise ValueError(f"sessions must be at least 1, got {sessions}")
    if out is not None:
        check_folder(Path(out), TRUTH, overwrite=overwrite)
    law_seed, *seeds = np.random.SeedSequence(seed).spawn(5)
    law = draw_law(np.random.default_rng(law_seed))
    first, second, third, fourth = (np.random.default_rng(entry) for entry in seeds)
    catalogue = draw_catalogue(law, first)
    n_queries = max(50, sessions // 40)
    queries = draw_queries(n_queries, 0, second)
    tables = []
    for start in range(0, sessions, SESSIONS_AT_ONCE):
        drawn = _draw_sessions(min(SESSIONS_AT_ONCE, sessions - start), sessions, n_queries, third)
        tables.append(_events(law, catalogue, queries, drawn, start, third))
    judged = _judged(law, catalogue, draw_queries(N_JUDGED, n_queries, fourth))
    places = np.arange(1, PAGE_SIZE + 1)
    truth = {
        "examination": {name: (places**-fall).tolist() for name, fall in zip(DEVICES, FALL, strict=True)},
        "page_size": PAGE_SIZE,
        "shuffled": SHUFFLE,
        "robots": [f"robot{number}" for number in range(N_ROBOTS)],
    }
    events = pa.concat_tables(tables)
    if out is not None:
        with new_folder(Path(out), TRUTH, overwrite=overwrite) as folder:
            pq.write_table(events, folder / EVENTS, compression="zstd")
            pq.write_table(judged, folder / JUDGED, compression="zstd")
            (folder / TRUTH).write_text(json.dumps(truth, indent=2) + "\n", encoding="utf-8")
    return Shop(events, judged, truth)


def _draw_sessions(n_sessions: int, of: int, n_queries: int, rng: Generator) -> _Sessions:
    """Draw searches: some queries are far more frequent than others, and robots search all day."""
    popularity = 1.0 / (np.arange(n_queries) + 10.0)
    days = np.sort(rng.integers(DAYS, size=n_sessions))
    people = rng.integers(max(of // 4, 1), size=n_sessions)
    robot = rng.random(n_sessions) < ROBOTS
    users = np.where(
        robot,
        np.char.add("robot", rng.integers(N_ROBOTS, size=n_sessions).astype(str)),
        np.char.add("u", people.astype(str)),
    )
    return _Sessions(
        queries=rng.choice(n_queries, size=n_sessions, p=popularity / popularity.sum()),
        days=days,
        seconds=rng.integers(86_400, size=n_sessions),
        users=users,
        robot=robot,
        device=(rng.random(n_sessions) < PHONES).astype(np.int64),
        member=(people % 10) < MEMBERS * 10,
        ranker=np.where(days < RETIRED, rng.integers(2, size=n_sessions), 1),
        shuffled=rng.random(n_sessions) < SHUFFLED,
        sold=rng.random(n_sessions) < SOLD,
    )


def _production_scores(
    catalogue: Catalogue, queries: Queries, chosen: Integers, days: Integers, ranker: Integers
) -> Floats:
    """Production scores, `[sessions, candidates]`: text and reviews, later text, margin and stock."""
    products = queries.candidates[chosen]
    bm25, semantic = queries.bm25[chosen], queries.semantic[chosen]
    first = bm25 / 3.0 + 0.3 * np.log1p(catalogue.n_reviews[products])
    second = bm25 / 6.0 + semantic + catalogue.margin[products] + 0.5 * catalogue.in_stock[days[:, None], products]
    return np.where(ranker[:, None] == 0, first, second).round(4)


def _shown(scores: Floats, sessions: _Sessions, rng: Generator) -> Integers:
    """Candidates in page order, `[sessions, candidates]`: a sponsored product at the top, some orders shuffled."""
    advertised = rng.integers(CANDIDATES, size=len(scores))
    lifted = scores.copy()
    lifted[sessions.sold, advertised[sessions.sold]] = np.inf
    order = np.argsort(-lifted, axis=1, kind="stable")
    first = sessions.sold.astype(np.int64)
    for session in np.flatnonzero(sessions.shuffled):
        order[session, first[session] : PAGE_SIZE] = rng.permutation(order[session, first[session] : PAGE_SIZE])
    return order


def _events(
    law: Law, catalogue: Catalogue, queries: Queries, sessions: _Sessions, start: int, rng: Generator
) -> pa.Table:
    scores = _production_scores(catalogue, queries, sessions.queries, sessions.days, sessions.ranker)
    order = _shown(scores, sessions, rng)[:, : 2 * PAGE_SIZE]
    worth = relevance(law, catalogue, queries, sessions.queries, sessions.days, sessions.member)
    worth = np.take_along_axis(worth, order, axis=1)
    images = catalogue.image_score[np.take_along_axis(queries.candidates[sessions.queries], order, axis=1)]
    places = np.tile(np.arange(2 * PAGE_SIZE) % PAGE_SIZE + 1, (len(order), 1))
    pages = np.tile(np.arange(2 * PAGE_SIZE) // PAGE_SIZE + 1, (len(order), 1))
    mask = (pages == 1) | (rng.random(len(order)) < NEXT_PAGE[sessions.device])[:, None]
    sponsored = sessions.sold[:, None] & (pages == 1) & (places == 1)
    clicks = _clicks(worth, images, places, sponsored, sessions, rng)
    carts = clicks & ~sessions.robot[:, None] & (rng.random(clicks.shape) < _sigmoid(1.5 * worth - 1.5))
    purchases = carts & (rng.random(clicks.shape) < _sigmoid(worth - 0.5))
    dwell = np.exp(rng.normal(2.0 + 0.6 * worth, 0.7)).round(1)
    row, place = np.nonzero(mask)
    candidates = order[row, place]
    seconds = sessions.days[row] * 86_400 + sessions.seconds[row] + 60 * (pages[mask] - 1)
    clicked = clicks[mask]
    columns = {
        "search_id": pa.array(start + row),
        "user_id": pa.array(sessions.users[row]),
        "timestamp": pa.array(START + seconds.astype("timedelta64[s]").astype("timedelta64[us]")),
        "query": pa.array(queries.texts[sessions.queries[row]]),
        "product_id": product_ids(queries.candidates[sessions.queries[row], candidates]),
        "page": pa.array(pages[mask]),
        "position": pa.array(places[mask]),
        "is_sponsored": pa.array(sponsored[mask]),
        "device": pa.array(DEVICES).take(pa.array(sessions.device[row])),
        "member": pa.array(sessions.member[row]),
        "ranker": pa.array(["text", "margin"]).take(pa.array(sessions.ranker[row])),
        "experiment": pa.array([SHUFFLE]).take(pa.array(np.zeros(len(row), np.int64), mask=~sessions.shuffled[row])),
        "score": pa.array(scores[row, candidates]),
        **feature_columns(catalogue, queries, sessions.queries[row], candidates, sessions.days[row]),
        "clicked": pa.array(clicked.astype(np.int8)),
        "add_to_cart": pa.array(carts[mask].astype(np.int8)),
        "purchase": pa.array(purchases[mask].astype(np.int8)),
        "dwell_seconds": pa.array(dwell[mask], mask=~clicked),
    }
    return _spoilt(pa.table(columns), rng)


def _clicks(
    worth: Floats, images: Floats, places: Integers, sponsored: Flags, sessions: _Sessions, rng: Generator
) -> Flags:
    """Clicks of users, who examine a position and find the product relevant, and of robots."""
    examined = places ** -FALL[sessions.device][:, None]
    liked = _sigmoid(1.1 * worth + 2.0 * images - 1.5)
    chance = examined * (0.02 + 0.96 * liked) * np.where(sponsored, AD_BLINDNESS, 1.0)
    return rng.random(worth.shape) < np.where(sessions.robot[:, None], 0.5, chance)


def _spoilt(events: pa.Table, rng: Generator) -> pa.Table:
    """The events with some rows logged twice, and some rows without a product."""
    rows = np.arange(events.num_rows)
    rows = np.sort(np.concatenate([rows, rows[rng.random(len(rows)) < TWICE]]))
    events = events.take(pa.array(rows))
    place = events.schema.get_field_index("product_id")
    lost = pa.array(rng.random(len(rows)) < NO_PRODUCT)
    return events.set_column(place, "product_id", pc.if_else(lost, None, events["product_id"]))


def _judged(law: Law, catalogue: Catalogue, queries: Queries) -> pa.Table:
    """Queries that were never logged, with the relevance of their products on the last day."""
    n_queries = len(queries.texts)
    chosen = np.arange(n_queries)
    last = np.full(n_queries, DAYS - 1)
    people = [relevance(law, catalogue, queries, chosen, last, np.full(n_queries, member)) for member in (False, True)]
    worth = (1.0 - MEMBERS) * people[0] + MEMBERS * people[1]
    cuts = np.quantile(worth, np.cumsum(GRADE_SHARES)[:-1])
    row, candidate = np.nonzero(np.ones_like(worth, dtype=bool))
    scores = _production_scores(catalogue, queries, chosen, last, np.ones(n_queries, np.int64))
    return pa.table(
        {
            "query": pa.array(queries.texts[row]),
            "product_id": product_ids(queries.candidates[row, candidate]),
            "grade": pa.array(np.searchsorted(cuts, worth[row, candidate])),
            "score": pa.array(scores[row, candidate]),
            **feature_columns(catalogue, queries, row, candidate, last[row]),
        }
    )


def _sigmoid(values: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-values))
