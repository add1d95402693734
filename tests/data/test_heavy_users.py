"""Heavy users are capped in a table of impressions, whole sessions at a time, and counted."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from unskew.data.clicks.heavy_users import cap_heavy_users


def table(sessions_of, clicks=1):
    """Two impressions a session, the first clicked."""
    rows = {"session": [], "user": [], "click": []}
    number = 0
    for user, n_sessions in sessions_of.items():
        for _ in range(n_sessions):
            for place in range(2):
                rows["session"].append(number)
                rows["user"].append(user)
                rows["click"].append(int(place < clicks))
            number += 1
    return pa.table(rows)


def test_a_robot_is_capped_and_people_are_not():
    capped, report = cap_heavy_users(table({"ann": 2, "robot": 50, "bob": 3}), "user", 5)
    sessions = pd.DataFrame(capped.to_pydict()).groupby("user").session.nunique().to_dict()
    assert sessions == {"ann": 2, "bob": 3, "robot": 5}
    assert (report.n_users, report.n_capped, report.heaviest) == (3, 1, "robot")
    assert (report.sessions_dropped, report.impressions_dropped, report.clicks_dropped) == (45, 90, 45)
    assert report.heaviest_share == pytest.approx(50 / 55)
    assert report.heaviest_rate == 0.5


def test_sessions_stay_whole_and_by_chance():
    kept = [
        set(cap_heavy_users(table({"robot": 50}), "user", 5, seed=seed)[0]["session"].to_pylist()) for seed in (0, 1)
    ]
    capped, _ = cap_heavy_users(table({"robot": 50}), "user", 5)
    assert np.bincount(capped["session"].to_numpy()).max() == 2
    assert kept[0] != kept[1]


def test_rows_without_a_user_stay():
    rows = table({"robot": 4}).to_pydict()
    rows["user"][:2] = [None, None]
    capped, report = cap_heavy_users(pa.table(rows), "user", 1)
    assert len(capped) == 2 + 2
    assert report.sessions_dropped == 2


def test_a_cap_that_nobody_reaches_changes_nothing():
    rows = table({"ann": 2, "bob": 3})
    capped, report = cap_heavy_users(rows.to_pandas(), "user", 3)
    assert capped.to_pydict() == rows.to_pydict()
    assert (report.n_capped, report.sessions_dropped) == (0, 0)


@pytest.mark.parametrize(("column", "most", "message"), [("who", 3, "'who' is missing"), ("user", 0, "from 1")])
def test_what_makes_no_sense_is_refused(column, most, message):
    with pytest.raises(ValueError, match=message):
        cap_heavy_users(table({"ann": 2}), column, most)
