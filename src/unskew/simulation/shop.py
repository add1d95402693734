"""A simulated shop: products, changing prices and stock, queries, and the preferences of users.

The relevance of a product depends on how well it matches, its brand and colour, a price that is neither high nor
suspiciously low, whether it is in stock, and its rating; no column explains the rest. `shop_log` shows the products to
users and logs what they do. The law is fixed: the same seed and version of numpy give the same shop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DAYS = 28
START = np.datetime64("2024-03-01T00:00:00", "us")
CATEGORIES = ("shoes", "boots", "jackets", "shirts", "hats", "bags", "watches", "lamps", "chairs", "kettles")
COLOURS = ("black", "white", "red", "blue", "green", "brown", "grey", "yellow")
BRANDS = tuple(
    f"{first}{last}" for first in ("Alto", "Bergen", "Cira", "Dorn", "Elba") for last in ("", " Sport", " Home")
)
PRODUCTS_PER_CATEGORY = 150
CANDIDATES = 30  # per query

NO_BRAND, NO_REVIEWS, OUT_OF_STOCK = 0.04, 0.2, 0.06  # shares
UNEXPLAINED = 0.5  # standard deviation of the relevance that no column explains
GRADE_SHARES = (0.5, 0.27, 0.13, 0.07, 0.03)  # of grades 0 to 4


@dataclass(frozen=True)
class Catalogue:
    """Products; values that change are stored per day."""

    category: Integers  # [products]
    brand: Integers  # [products]; -1: none
    colour: Integers
    price: Floats  # [days, products]
    list_price: Floats  # [products]
    in_stock: NDArray[np.bool_]  # [days, products]
    rating: Floats  # [products]; NaN: no reviews
    n_reviews: Integers
    age: Integers  # days on the first day
    image_score: Floats
    margin: Floats
    delivery_days: Floats
    free_shipping: NDArray[np.bool_]


@dataclass(frozen=True)
class Queries:
    """Queries with their candidates."""

    texts: NDArray[np.str_]  # [queries]
    candidates: Integers  # [queries, candidates], products
    bm25: Floats
    semantic: Floats
    unexplained: Floats


@dataclass(frozen=True)
class Law:
    """The preferences of users, constant over time."""

    brand_quality: Floats  # [brands]
    colour_taste: Floats  # [colours]
    typical_price: Floats  # [categories]


def draw_law(rng: Generator) -> Law:
    """Draw the preferences of the users of a shop."""
    return Law(
        brand_quality=rng.normal(0.0, 0.8, len(BRANDS)),
        colour_taste=rng.normal(0.0, 0.4, len(COLOURS)),
        typical_price=np.exp(rng.uniform(2.5, 5.0, len(CATEGORIES))),
    )


def draw_catalogue(law: Law, rng: Generator) -> Catalogue:
    """Products of all categories; most prices change once or twice, and stock comes and goes."""
    n_products = PRODUCTS_PER_CATEGORY * len(CATEGORIES)
    category = np.repeat(np.arange(len(CATEGORIES)), PRODUCTS_PER_CATEGORY)
    brand = np.where(rng.random(n_products) < NO_BRAND, -1, rng.integers(len(BRANDS), size=n_products))
    list_price = law.typical_price[category] * np.exp(rng.normal(0.0, 0.5, n_products))
    change = np.where(rng.random((DAYS, n_products)) < 1.5 / DAYS, rng.normal(0.0, 0.25, (DAYS, n_products)), 0.0)
    change[0] = 0.0
    price = list_price * np.minimum(np.exp(np.cumsum(change, axis=0)), 1.0)
    n_reviews = np.floor(np.exp(rng.normal(2.5, 1.5, n_products))).astype(np.int64)
    n_reviews[rng.random(n_products) < NO_REVIEWS] = 0
    rating = np.clip(rng.normal(3.9, 0.6, n_products), 1.0, 5.0).round(1)
    return Catalogue(
        category=category,
        brand=brand,
        colour=rng.integers(len(COLOURS), size=n_products),
        price=price.round(2),
        list_price=list_price.round(2),
        in_stock=_stock(n_products, rng),
        rating=np.where(n_reviews > 0, rating, np.nan),
        n_reviews=n_reviews,
        age=rng.integers(1, 700, n_products),
        image_score=rng.random(n_products).round(3),
        margin=rng.uniform(0.05, 0.6, n_products).round(3),
        delivery_days=rng.integers(1, 8, n_products).astype(np.float64),
        free_shipping=rng.random(n_products) < 0.4,
    )


def _stock(n_products: int, rng: Generator) -> NDArray[np.bool_]:
    """In stock, or out of stock for several consecutive days."""
    runs_out = rng.random((DAYS, n_products)) < OUT_OF_STOCK / 3
    out = runs_out.copy()
    for days in (1, 2):  # a product is out of stock for three days
        out[days:] |= runs_out[:-days]
    return ~out


def draw_queries(n_queries: int, first: int, rng: Generator) -> Queries:
    """Queries numbered from `first`, each with candidates of its category and how well they match."""
    category = rng.integers(len(CATEGORIES), size=n_queries)
    colour = rng.integers(len(COLOURS), size=n_queries)
    pick = np.argsort(rng.random((n_queries, PRODUCTS_PER_CATEGORY)), axis=1)[:, :CANDIDATES]
    match = rng.normal(size=(n_queries, CANDIDATES))
    noise = rng.normal(size=(2, n_queries, CANDIDATES))
    texts = [
        f"{COLOURS[hue]} {CATEGORIES[kind]} {first + number}"
        for number, (hue, kind) in enumerate(zip(colour, category, strict=True))
    ]
    return Queries(
        texts=np.array(texts),
        candidates=category[:, None] * PRODUCTS_PER_CATEGORY + pick,
        bm25=np.maximum(8.0 + 3.0 * (0.8 * match + 0.6 * noise[0]), 0.0).round(3),
        semantic=np.tanh(0.5 * (0.8 * match + 0.6 * noise[1])).round(4),
        unexplained=UNEXPLAINED * rng.normal(size=(n_queries, CANDIDATES)),
    )


def relevance(
    law: Law, catalogue: Catalogue, queries: Queries, chosen: Integers, days: Integers, member: NDArray[np.bool_]
) -> Floats:
    """Relevance of the products of the chosen queries to users, on a day, `[sessions, candidates]`.

    Members of the shop are less sensitive to price.
    """
    products = queries.candidates[chosen]
    brand, day = catalogue.brand[products], days[:, None]
    match = (queries.bm25[chosen] - 8.0) / 3.0 + 2.0 * queries.semantic[chosen]
    dear = np.log(catalogue.price[day, products] / law.typical_price[catalogue.category[products]])
    price = -np.abs(dear + 0.2) * np.where(member, 0.6, 1.2)[:, None]
    rating = np.nan_to_num(catalogue.rating[products] - 3.9, nan=-0.4)
    return (
        0.5 * match
        + np.where(brand < 0, -0.3, law.brand_quality[brand])
        + law.colour_taste[catalogue.colour[products]]
        + price
        + 0.7 * rating
        - 2.0 * ~catalogue.in_stock[day, products]
        + 0.2 * catalogue.free_shipping[products]
        - 0.05 * catalogue.delivery_days[products]
        + queries.unexplained[chosen]
    )


def feature_columns(
    catalogue: Catalogue, queries: Queries, chosen: Integers, candidates: Integers, days: Integers
) -> dict[str, pa.Array]:
    """Features of products on a day: one row per given query, candidate and day."""
    products = queries.candidates[chosen, candidates]
    price, in_stock = catalogue.price[days, products], catalogue.in_stock[days, products]
    brand = catalogue.brand[products]
    names = pa.array(BRANDS).take(pa.array(np.maximum(brand, 0), mask=brand < 0))
    return {
        "bm25": pa.array(queries.bm25[chosen, candidates]),
        "semantic": pa.array(queries.semantic[chosen, candidates]),
        "price": pa.array(price),
        "discount": pa.array((1.0 - price / catalogue.list_price[products]).round(3)),
        "in_stock": pa.array(in_stock),
        "rating": pa.array(catalogue.rating[products]),
        "n_reviews": pa.array(catalogue.n_reviews[products]),
        "age_months": pa.array((catalogue.age[products] + days) // 30),
        "image_score": pa.array(catalogue.image_score[products]),
        "margin": pa.array(catalogue.margin[products]),
        "delivery_days": pa.array(catalogue.delivery_days[products], mask=~in_stock),
        "free_shipping": pa.array(catalogue.free_shipping[products]),
        "brand": names,
        "colour": pa.array(COLOURS).take(pa.array(catalogue.colour[products])),
    }


def product_ids(products: Integers) -> pa.Array:
    """Ids as the shop writes them."""
    return pa.array([f"P{number:05d}" for number in range(int(products.max(initial=0)) + 1)]).take(pa.array(products))
