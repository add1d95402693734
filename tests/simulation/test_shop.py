"""The simulated shop: as messy as it says, and the same for the same seed."""

import json

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from unskew.cli import app
from unskew.simulation.shop_log import shop as new_shop


@pytest.fixture(scope="module")
def shop():
    return new_shop(sessions=4_000, seed=3)


@pytest.fixture(scope="module")
def events(shop):
    return shop.events.to_pandas()


def test_the_seed_decides_everything(shop, events):
    again = new_shop(sessions=4_000, seed=3)
    assert again.events.equals(shop.events, check_metadata=True) or again.events.to_pandas().equals(events)
    assert again.judged.to_pandas().equals(shop.judged.to_pandas())
    assert not new_shop(sessions=4_000, seed=4).judged.to_pandas().equals(shop.judged.to_pandas())


def test_every_page_counts_its_places_from_1(events):
    assert set(events.page) == {1, 2}
    assert set(events.position) == set(range(1, 11))
    pages = events.groupby("search_id").page.max()
    opened = 0.4 * 0.3 + 0.6 * 0.15  # desktops and phones
    assert abs((pages == 2).mean() - opened) < 0.02


def test_phones_look_less_far_down(shop, events):
    people = events[~events.user_id.str.startswith("robot") & (events.page == 1) & ~events.is_sponsored]
    low = people[people.position > 5].groupby("device").clicked.mean()
    expected = sum(place**-1.1 for place in range(6, 11)) / sum(place**-0.6 for place in range(6, 11))
    assert abs(low["phone"] / low["desktop"] - expected) < 0.06
    assert shop.truth["examination"]["phone"][1] == pytest.approx(2**-1.1)


def test_the_first_ranker_is_retired_after_two_weeks(events):
    days = events.timestamp.dt.day
    assert set(events.ranker[days <= 14]) == {"text", "margin"}
    assert set(events.ranker[days > 14]) == {"margin"}


def test_prices_and_stock_change_for_the_same_query_and_product(events):
    known = events.dropna(subset="product_id").groupby(["query", "product_id"])
    assert 0.2 < (known.price.nunique() > 1).mean() < 0.9
    assert (known.in_stock.nunique() > 1).mean() > 0.05


def test_carts_purchases_and_dwell_follow_clicks_only(events):
    others = events[events.clicked == 0]
    assert others[["add_to_cart", "purchase"]].to_numpy().sum() == 0
    assert others.dwell_seconds.isna().all()
    shares = events[["clicked", "add_to_cart", "purchase"]].mean()
    assert shares.purchase < shares.add_to_cart < shares.clicked


def test_some_values_are_missing_and_some_are_text(shop):
    share = {name: shop.events[name].null_count / len(shop.events) for name in ("brand", "delivery_days", "product_id")}
    assert 0.02 < share["brand"] < 0.07
    assert share["delivery_days"] > 0.01
    assert 0 < share["product_id"] < 0.002
    assert 0.1 < pc.mean(pc.is_nan(shop.events["rating"])).as_py() < 0.3


def test_four_robots_search_far_more_than_people(events):
    searches = events.drop_duplicates("search_id").user_id.value_counts()
    assert sorted(searches.index[:4]) == ["robot0", "robot1", "robot2", "robot3"]


def test_a_share_of_searches_is_shuffled_under_a_name_of_the_shop(events):
    share = events.drop_duplicates("search_id").experiment.eq("shuffle_top10").mean()
    assert abs(share - 0.04) < 0.01


def test_judged_queries_were_never_logged_and_have_the_features_of_the_events(shop, events):
    judged = shop.judged
    assert not set(judged["query"].to_pylist()) & set(events["query"])
    assert set(judged.column_names) - {"grade"} <= set(shop.events.column_names)
    grades = np.bincount(judged["grade"].to_numpy()) / len(judged)
    np.testing.assert_allclose(grades, [0.5, 0.27, 0.13, 0.07, 0.03], atol=0.001)


def test_the_command_writes_tables_and_truth(tmp_path):
    result = CliRunner().invoke(app, ["shop", "--out", str(tmp_path / "shop"), "--sessions", "60"])
    assert result.exit_code == 0
    n_rows = pq.read_metadata(tmp_path / "shop" / "events.parquet").num_rows
    assert f"events    {n_rows:,}" in result.output
    assert json.loads((tmp_path / "shop" / "truth.json").read_text())["shuffled"] == "shuffle_top10"
    assert CliRunner().invoke(app, ["shop", "--out", str(tmp_path / "shop")]).exit_code == 2
