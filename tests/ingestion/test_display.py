"""`--display-probability`: read, stored, counted where missing, refused where impossible."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

import unskew


def write_rows(path: Path, chances: list[object]) -> Path:
    n = len(chances) // 2
    columns = {
        "session": np.repeat(np.arange(n), 2),
        "query": ["q"] * (2 * n),
        "document": ["a", "b"] * n,
        "position": [1, 2] * n,
        "click": [1, 0] * n,
        "price": [1.0, 2.0] * n,
        "propensity_score": chances,
    }
    pq.write_table(pa.table(columns), path)
    return path


def test_probabilities_are_stored_and_written_back(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "events.parquet", [0.5, 0.5, 0.25, 0.5, None, None])
    done = unskew.ingest(source, tmp_path / "log", display_probability="propensity_score", progress=False)
    log = unskew.read_log(tmp_path / "log")
    assert log.feature_names == ("price",)
    assert log.display_probabilities is not None
    recorded = ~np.isnan(log.display_probabilities[:, 0])
    assert_allclose(log.display_probabilities[recorded], [[1 / 3, 0.5]])
    assert log.sessions[recorded].tolist() == [2.0]
    assert "2 of 6 impressions have no display probability" in " ".join(done.report.remarks)
    unskew.events(tmp_path / "log", out=tmp_path / "back.parquet")
    unskew.ingest(tmp_path / "back.parquet", tmp_path / "again", progress=False)  # the column is guessed by its name
    assert_allclose(
        np.sort(unskew.read_log(tmp_path / "again").display_probabilities, axis=0),
        np.sort(log.display_probabilities, axis=0),
    )


def test_impossible_probabilities_are_left_out_and_counted(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "events.parquet", [0.5, 0.5, 0.0, 1.2, 0.5, 1.0 + 1e-9, 0.5, 0.5])
    report = unskew.ingest(source, None, display_probability="propensity_score", progress=False).report
    assert dict(report.dropped) == {"bad_probability": 2}
    with pytest.raises(ValueError, match="not a score or a logarithm"):
        unskew.ingest(source, None, display_probability="propensity_score", strict=True, progress=False)


def test_a_column_of_logarithms_is_refused(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "events.parquet", [-0.5, -1.5, -0.2, -3.0])
    with pytest.raises(ValueError, match="more than half"):
        unskew.ingest(source, None, display_probability="propensity_score", progress=False)
