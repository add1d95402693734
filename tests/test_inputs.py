"""What users pass."""

import polars as pl
import pyarrow.parquet as pq
import pytest

from unskew import UnbiasedRanker
from unskew.data.inputs import as_file


def test_a_category_of_polars_goes_through_a_file():
    table = pl.DataFrame({"colour": ["red", None, "blue"], "price": [1.0, 2.0, None]})
    with as_file(table.with_columns(pl.col("colour").cast(pl.Categorical))) as path:
        written = pq.read_table(path).to_pydict()
    assert written == {"colour": ["red", None, "blue"], "price": [1.0, 2.0, None]}


def test_an_estimator_says_that_nothing_is_at_the_top():
    with pytest.raises(ValueError, match=r"column 'position': nothing is at position 0.*If so, subtract it"):
        UnbiasedRanker().fit(
            [[1.0], [2.0]], [1, 0], query=[1, 1], document=[1, 2], position=[2, 3], session=[1, 1], progress=False
        )
