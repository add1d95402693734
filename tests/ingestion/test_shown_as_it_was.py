"""Categories, graded feedback, windows, and features as they held when a document was shown."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.data.clicks.storage import open_log, read_log
from unskew.ingestion.columns import Columns
from unskew.ingestion.run import ingest_tables
from unskew.ingestion.settings import Options, Tables, parse_window
from unskew.options import parse_grades

SHOWN = {  # two searches for one query, with the same four documents
    "session": ["s"] * 4 + ["t"] * 4,
    "query": ["q"] * 8,
    "document": ["a", "b", "c", "d"] * 2,
    "position": [1, 2, 3, 4] * 2,
    "clicked": [0, 1, 1, 0, 1, 0, 0, 0],
    "bm25": [4.0, 3.0, 2.0, 1.0] * 2,
    "brand": ["Cira", "Alto", None, "Alto"] * 2,
    "title": ["A", "B", "C", "D"] * 2,  # each document has its own
    "device": ["phone"] * 4 + ["desktop"] * 4,  # the same for a whole list
}


def run(data, folder, columns=None, features=None, **options):
    pq.write_table(pa.table(data), folder / "events.parquet")
    if features is not None:
        pq.write_table(pa.table(features), folder / "features.parquet")
    tables = Tables(folder / "events.parquet", features=None if features is None else folder / "features.parquet")
    done = ingest_tables(tables, folder / "log", columns, Options(threads=1, **options), overwrite=True)
    return read_log(folder / "log"), done


class TestCategories:
    def test_text_that_varies_within_lists_and_is_shared_is_a_feature(self, tmp_path):
        log, done = run(SHOWN, tmp_path)
        assert log.feature_names == ("bm25", "brand")
        assert log.categories == {"brand": ("Alto", "Cira")}
        np.testing.assert_array_equal(log.features, [[4, 1], [3, 0], [2, np.nan], [1, 0]])
        assert any("Categories: brand (2 values)" in remark for remark in done.remarks)
        assert any("title (string), device (string)" in remark for remark in done.remarks)

    def test_text_that_is_named_is_taken_and_missing_text_may_be_a_category(self, tmp_path):
        log, _ = run(SHOWN, tmp_path, Columns(features=["brand", "title"]), fill=0.0)
        assert log.categories == {"brand": ("Alto", "Cira", "missing"), "title": ("A", "B", "C", "D")}
        assert log.features.tolist() == [[1, 0], [0, 1], [2, 2], [0, 3]]

    def test_too_many_values_are_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr("unskew.ingestion.categories.MAX_CATEGORIES", 3)
        with pytest.raises(ValueError, match=r"column 'title' has more than 3 values: if it is a feature, group rare"):
            run(SHOWN, tmp_path, Columns(features=["title"]))

    def test_a_second_table_has_categories_too(self, tmp_path):
        features = {"document": ["a", "b", "c", "d"], "brand": ["Cira", "Alto", None, "Alto"]}
        log, _ = run(SHOWN, tmp_path, features=features)
        np.testing.assert_array_equal(log.features, [[1], [0], [np.nan], [0]])
        assert log.categories == {"brand": ("Alto", "Cira")}


class TestGrades:
    COLUMNS = {"bias": ["device"], "features": ["bm25"]}

    def test_columns_of_feedback_are_counted_by_kind(self, tmp_path):
        grades = parse_grades("click=1,cart=3,purchase=5")
        feedback = {"cart": [0, 1, 1, 0, 0, 0, 0, 0], "purchase": [0, 0, 1, 0, None, 0, 0, 0]}
        log, _ = run(SHOWN | feedback, tmp_path, Columns(grades=grades, features=["bm25"]))
        assert log.clicks.tolist() == [[1, 1, 1, 0]]
        assert {kind: counts.tolist() for kind, counts in log.events.items()} == {
            "cart": [[0, 1, 1, 0]],
            "purchase": [[0, 0, 1, 0]],
        }
        assert log.grades == open_log(tmp_path / "log").about["grades"] == grades
        with pytest.raises(ValueError, match=r"no column 'cart', which --grade names"):
            run(SHOWN, tmp_path, Columns(grades=grades))

    def events(self):
        shown = [("s", "q", document, place, "impression", 0) for place, document in enumerate("ab", start=1)]
        later = [("click", 5), ("click", 6), ("Cart", 7), ("cart", 8), ("cart", 7_000), ("share", 9)]
        rows = shown + [("s", "q", "b", None, kind, time) for kind, time in later]
        return pa.Table.from_pylist(
            [dict(zip(("session", "query", "document", "position", "event", "time"), row, strict=True)) for row in rows]
        )

    def test_kinds_of_events_are_counted_once_on_an_impression(self, tmp_path):
        log, done = run(self.events(), tmp_path, Columns(grades={"click": 1, "cart": 3}))
        assert log.clicks.tolist() == [[0, 1]]
        assert log.events["cart"].tolist() == [[0, 1]]
        assert done.other_kinds == {"share": 1}
        assert any(remark.startswith("3 events repeat another on the same impression") for remark in done.remarks)

    def test_events_without_an_impression_are_counted(self, tmp_path):
        rows = self.events().to_pylist()
        lone = {**rows[-1], "document": "z", "event": "cart"}
        _, done = run(pa.Table.from_pylist([*rows, lone]), tmp_path, Columns(grades={"cart": 3}))
        assert done.dropped == {"lone_event": 1}

    def test_events_after_the_window_are_left_out(self, tmp_path):
        log, done = run(self.events(), tmp_path, Columns(grades={"cart": 3}), window=parse_window("1h"))
        assert done.dropped == {"late_event": 1}
        log, done = run(self.events(), tmp_path, Columns(grades={"cart": 3}), window=parse_window("3s"))
        assert done.dropped == {"late_event": 5}
        assert log.n_clicks == 0

    @pytest.mark.parametrize("text", ["cart", "cart=", "=3", "cart=-1", "cart=inf", ""])
    def test_what_is_no_grade_is_refused(self, text):
        with pytest.raises(ValueError, match="is not a grade: write KIND=WEIGHT"):
            parse_grades(text)

    @pytest.mark.parametrize("text", ["1", "h", "-1h", "2 weeks"])
    def test_what_is_no_window_is_refused(self, text):
        with pytest.raises(ValueError, match="write a whole number and s, m, h or d"):
            parse_window(text)


class TestFeaturesAsOfTheShowing:
    SHOWN = {name: SHOWN[name] for name in ("session", "query", "document", "position", "clicked")} | {
        "time": [100] * 4 + [200] * 4
    }

    def history(self, first):
        """The price of a changes at 150; that of the others holds from the first time."""
        return {
            "document": ["a", "a", "b", "c", "d"],
            "valid_from": [first, 150, first, first, first],
            "price": [1.0, 2.0, 3.0, 4.0, 5.0],
        }

    def test_the_price_of_the_day_is_joined_never_a_later_one(self, tmp_path):
        log, done = run(self.SHOWN, tmp_path, features=self.history(100))
        assert log.features[log.versions, 0].tolist() == [[1, 3, 4, 5], [2, 3, 4, 5]]
        assert len(log.document_ids) == 4
        assert done.dropped == {}

    def test_impressions_from_before_the_history_are_counted(self, tmp_path):
        log, done = run(self.SHOWN, tmp_path, features=self.history(101))
        assert done.dropped == {"no_features": 4}
        assert log.features[log.versions, 0].tolist() == [[2, 3, 4, 5]]

    def test_a_history_without_times_of_impressions_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match=r"features have times, but impressions have none"):
            run(self.SHOWN, tmp_path, Columns(time="none"), features=self.history(0))
