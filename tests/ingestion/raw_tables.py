"""Four raw tables as sites log them, with their true roles, written before the code that guesses roles.

Every site ranks documents by a score; users examine position k with probability 1 / (k + 1) and click on what they
like. `roles` has the column of each role, or the columns, or (a set) several right answers; columns that are none of
them must not get a role.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

START = 1_790_000_000  # seconds since 1970
ACTIONS = (
    *("interaction item image", "interaction item info", "interaction item rating", "interaction item deals"),
    *("search for item", "search for destination", "change of sort order", "filter selection", "search for poi"),
)


@dataclass(frozen=True)
class Raw:
    """A table on disk, and what its columns are."""

    place: Path
    roles: Mapping[str, Any]
    impressions: int
    clicks: int


@dataclass(frozen=True)
class Page:
    """A result page: documents as shown, and what happened to them."""

    query: int
    documents: np.ndarray
    scores: np.ndarray
    shuffled: bool
    clicks: np.ndarray
    orders: np.ndarray


def pages(n_pages: int, size: int, seed: int, *, n_documents: int = 400, shuffled: float = 0.1) -> list[Page]:
    rng = np.random.default_rng(seed)
    liked = rng.normal(size=n_documents)
    found = []
    for _ in range(n_pages):
        query = int(rng.zipf(1.5) % 40)
        shown = np.random.default_rng(query).choice(n_documents, size, replace=False)
        scores = np.round(liked[shown] + rng.normal(scale=0.7, size=size), 4)
        is_shuffled = bool(rng.random() < shuffled)
        order = rng.permutation(size) if is_shuffled else np.argsort(-scores)
        shown, scores = shown[order], scores[order]
        clicks = rng.random(size) < 1 / (np.arange(size) + 1) / (1 + np.exp(0.5 - liked[shown]))
        orders = clicks & (rng.random(size) < 0.25)
        found.append(Page(query, shown, scores, is_shuffled, clicks.astype(int), orders.astype(int)))
    return found


def hotel_site(folder: Path, n_pages: int = 300, seed: int = 0) -> Raw:
    """CSV. One row per action of ten types; those with a clicked hotel list the shown ids and prices, delimited."""
    rng = np.random.default_rng(seed)
    rows, clicks, impressions, step, visit = [], 0, 0, 0, 0
    prices = rng.integers(40, 400, size=400)
    for page in pages(n_pages, 25, seed):
        if rng.random() < 0.4:
            visit, step = visit + 1, 0
        person = {"user_id": f"U{visit % 90:04}X", "session_id": f"{visit:05x}ab"}
        place = {"platform": ["DE", "US", "BR"][visit % 3], "city": f"City {page.query}, Country"}
        device = {
            "device": ["mobile", "desktop", "tablet"][visit % 5 % 3],
            "current_filters": ["", "WiFi|Pool"][page.query % 2],
        }
        for _ in range(rng.integers(0, 3)):
            step += 1
            action = {"action_type": ACTIONS[rng.integers(len(ACTIONS))], "reference": str(rng.integers(1e6))}
            time = {"timestamp": START + 400 * visit + 7 * step}
            rows.append(person | time | {"step": step} | action | place | device | {"impressions": "", "prices": ""})
        if not page.clicks.any():
            continue
        step, size = step + 1, int(rng.integers(8, 26))
        clicked = page.clicks[:size].nonzero()[0]
        if not len(clicked):
            continue
        shown = page.documents[:size]
        listed = {
            "impressions": "|".join(str(100_131 + 7 * entry) for entry in shown),
            "prices": "|".join(str(prices[entry]) for entry in shown),
        }
        action = {"action_type": "clickout item", "reference": str(100_131 + 7 * shown[clicked[0]])}
        rows.append(
            person | {"timestamp": START + 400 * visit + 7 * step, "step": step} | action | place | device | listed
        )
        clicks, impressions = clicks + 1, impressions + size
    pa.csv.write_csv(pa.Table.from_pylist(rows), folder / "hotels.csv")
    roles = {
        "session": "session_id,step",
        "query": {"city,current_filters", "city"},
        "document": "impressions",
        "click": "reference",
        "event": "action_type",
        "time": "timestamp",
        "user": "user_id",
        "bias": ["device"],
        "feature": ["prices"],
    }
    return Raw(folder / "hotels.csv", roles, impressions, clicks)


def marketplace(folder: Path, n_pages: int = 200, seed: int = 1) -> Raw:
    """Parquet. One row per request with lists of 48: ids, prices, scores, promoted slots, clicks, carts, purchases."""
    rng = np.random.default_rng(seed)
    prices, stock = np.round(rng.lognormal(3, 1, 400), 2), rng.integers(0, 50, 400)
    rows = []
    for number, page in enumerate(pages(n_pages, 48, seed)):
        rows.append(
            {
                "request_id": f"r-{number:08x}",
                "requested_at": (START + 90 * number) * 1000,
                "buyer_id": int(rng.integers(80)) + 7_000_000_000,
                "search_term": f"term {page.query}",
                "device": ["ios", "android", "web"][number % 3],
                "listing_ids": [int(entry) + 100_000_000_000 for entry in page.documents],
                "listing_prices": prices[page.documents].tolist(),
                "stock": stock[page.documents].tolist(),
                "listing_scores": page.scores.tolist(),
                "promoted": [place in (0, 7) and number % 4 == 0 for place in range(48)],
                "clicked": page.clicks.tolist(),
                "added_to_cart": page.orders.tolist(),
                "purchased": (page.orders * (rng.random(48) < 0.5)).tolist(),
                "experiment": "randomized" if page.shuffled else "control",
                "ranker_version": f"v{3 + number // (n_pages // 2)}",
            }
        )
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, folder / "marketplace.parquet")
    roles = {
        "session": "request_id",
        "query": "search_term",
        "document": "listing_ids",
        "click": "clicked",
        "time": "requested_at",
        "user": "buyer_id",
        "grade": ["added_to_cart", "purchased"],
        "policy_score": "listing_scores",
        "intervention": "experiment",
        "bias": ["device", "promoted"],
        "feature": ["listing_prices", "stock"],
    }
    clicks = sum(sum(row["clicked"]) for row in rows)
    return Raw(folder / "marketplace.parquet", roles, 48 * len(rows), clicks)


def job_board(folder: Path, n_pages: int = 400, seed: int = 2) -> Raw:
    """CSV. One row per impression. Pages of 10 on phones and 25 on desktops, some of which are missing."""
    rng = np.random.default_rng(seed)
    salary = np.where(rng.random(400) < 0.2, -1, rng.integers(30, 120, 400) * 1000)
    remote, age = rng.random(400) < 0.3, rng.integers(0, 60, 400)
    rows = []
    for number, page in enumerate(pages(n_pages, 75, seed)):
        size = [10, 25][number % 2]
        n_shown = int(rng.choice([1, 2, 3], p=[0.6, 0.2, 0.2]))
        lost = 2 if n_shown == 3 and rng.random() < 0.3 else 0
        for place in range(n_shown * size):
            if place // size + 1 == lost:
                continue
            job = int(page.documents[place])
            rows.append(
                {
                    "ts": (START + 60 * number) * 1000 + 3,
                    "candidate": f"c{number % 120}",
                    "search_id": 9_000_000 + number,
                    "keywords": f"job {page.query}",
                    "device_type": ["phone", "desktop"][number % 2],
                    "page_no": place // size + 1,
                    "rank_on_page": place % size + 1,
                    "job_id": 4_000_000_000 + job,
                    "company": f"Company {job % 37}",
                    "salary": int(salary[job]),
                    "remote": bool(remote[job]),
                    "age_days": int(age[job]),
                    "category_id": job % 12,
                    "is_sponsored": bool(place % 25 == 0 and number % 3 == 0),
                    "was_opened": int(page.clicks[place]),
                    "applied": int(page.orders[place]),
                }
            )
    pa.csv.write_csv(pa.Table.from_pylist(rows), folder / "jobs.csv")
    roles = {
        "session": "search_id",
        "query": "keywords",
        "document": "job_id",
        "position": "rank_on_page",
        "page": "page_no",
        "page_size": "device_type:desktop=25,phone=10",
        "click": "was_opened",
        "time": "ts",
        "user": "candidate",
        "grade": ["applied"],
        "bias": ["device_type", "is_sponsored"],
        "feature": ["company", "salary", "remote", "age_days", "category_id"],
    }
    return Raw(folder / "jobs.csv", roles, len(rows), sum(row["was_opened"] for row in rows))


def media_site(folder: Path, n_pages: int = 300, seed: int = 3) -> Raw:
    """JSON lines. Pages with a list of articles as objects; clicks, reading times and shares refer to the page's id."""
    rng = np.random.default_rng(seed)
    words = rng.integers(100, 3000, 400)
    rows, clicks = [], 0
    for number, page in enumerate(pages(n_pages, 12, seed)):
        at, reader = START + 45 * number, {"id": f"reader-{number % 70}", "device": ["phone", "laptop"][number % 2]}

        def stamp(seconds):
            return str(np.datetime64(seconds, "s")) + "Z"

        results = [
            {
                "article": {"id": f"a{entry}", "section": ["news", "sport", "culture"][entry % 3]},
                "words": int(words[entry]),
                "score": float(score),
                "pinned": bool(place == 0 and number % 5 == 0),
            }
            for place, (entry, score) in enumerate(zip(page.documents, page.scores, strict=True))
        ]
        shown = {"page_id": f"p{number:06}", "query": f"topic {page.query}", "results": results}
        rows.append({"type": "page", "at": stamp(at), "reader": reader, "page": shown, "click": None})
        for place in page.clicks.nonzero()[0]:
            aim = {"page_id": f"p{number:06}", "article_id": f"a{page.documents[place]}", "seconds": None}
            rows.append({"type": "click", "at": stamp(at + 5), "reader": reader, "page": None, "click": aim})
            read = aim | {"seconds": int(rng.integers(3, 300))}
            rows.append({"type": "read", "at": stamp(at + 50), "reader": reader, "page": None, "click": read})
            if rng.random() < 0.3:
                rows.append({"type": "share", "at": stamp(at + 60), "reader": reader, "page": None, "click": aim})
            clicks += 1
    text = "".join(json.dumps({name: value for name, value in row.items() if value is not None}) + "\n" for row in rows)
    (folder / "media.jsonl").write_text(text, encoding="utf-8")
    roles = {
        "session": "page.page_id",
        "query": "page.query",
        "document": "page.results.article.id",
        "event": "type",
        "impression_event": "page",
        "click_event": "click",
        "clicked_session": "click.page_id",
        "clicked_document": "click.article_id",
        "time": "at",
        "user": "reader.id",
        "grade": ["share"],
        "policy_score": "page.results.score",
        "bias": ["reader.device", "page.results.pinned"],
        "feature": ["page.results.words", "page.results.article.section"],
    }
    return Raw(folder / "media.jsonl", roles, 12 * n_pages, clicks)


TABLES = {"hotel site": hotel_site, "marketplace": marketplace, "job board": job_board, "media site": media_site}
