from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew.data import grouping
from unskew.data.grouping import number_ids, plain_ids, unique_rows

LETTERS = ["b", "a", "b"]


@pytest.mark.parametrize(
    "ids",
    [
        LETTERS,
        np.array(LETTERS),
        np.array(LETTERS, dtype=object),
        pa.array(LETTERS).dictionary_encode(),
        pa.chunked_array([pa.array(["b"]).dictionary_encode(), pa.array(["a", "b"]).dictionary_encode()]),
        pd.Series(LETTERS),
        pd.Series(LETTERS, dtype="category"),
        pl.Series(LETTERS),
        pl.Series(LETTERS, dtype=pl.Categorical),
        pl.Series(LETTERS, dtype=pl.Enum(["unused", "a", "b"])),
    ],
)
def test_text_of_any_library_is_numbered_in_order_of_appearance(ids):
    distinct, numbers = number_ids(ids)
    assert distinct.tolist() == ["b", "a"]
    assert numbers.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("ids", "distinct"),
    [
        ([7, 3, 7], [7, 3]),
        (np.array([2**63 + 5, 0], dtype=np.uint64), [2**63 + 5, 0]),
        (pd.Series([7, 3], dtype="Int64"), [7, 3]),
        (pd.Categorical([10, 20, 10]), [10, 20]),
        ([True, False], ["true", "false"]),
        ([Decimal("1.50")], ["1.50"]),
        (["日本", "ü", "日本"], ["日本", "ü"]),
        (np.zeros(0, dtype=np.int64), []),
    ],
)
def test_ids_keep_what_they_are(ids, distinct):
    assert number_ids(ids)[0].tolist() == distinct


def test_integers_stay_integers_and_one_long_text_does_not_widen_the_others():
    assert plain_ids([3, 1]).dtype == np.int64
    assert plain_ids(["a", "b" * 10_000]).nbytes == 16


@pytest.mark.parametrize("ids", [[1, "a"], np.array([1, "a"], dtype=object), [2**70]])
def test_numbers_and_text_together_are_refused(ids):
    with pytest.raises(ValueError, match="all whole numbers of up to 64 bits, or all text"):
        number_ids(ids)


def test_an_id_without_a_value_is_refused_by_row():
    with pytest.raises(ValueError, match="row 1 is missing"):
        number_ids(["a", None])


@pytest.mark.parametrize("bad", [2.0**53, -(2.0**60), float("nan"), float("inf")])
def test_a_fraction_that_is_no_exact_id_is_refused_by_row(bad):
    for read in (number_ids, plain_ids):
        with pytest.raises(
            ValueError, match=r"the id in row 1 is the float .*: floats represent ids from 2\^53 on inexactly"
        ):
            read(np.array([1.5, bad]))
        assert read(np.array([1.5, 2.0**53 - 1])) is not None


def test_equal_rows_are_found_in_order_of_first_appearance():
    first, kind = unique_rows(np.array([[2, 1], [1, 2], [2, 1], [1, 1]]))
    assert first.tolist() == [0, 1, 3]
    assert kind.tolist() == [0, 1, 0, 2]


def test_zero_equals_minus_zero_and_nan_equals_nan():
    _, kind = unique_rows(np.array([[0.0, np.nan], [-0.0, np.nan], [1.0, np.nan]]))
    assert kind.tolist() == [0, 0, 1]


@pytest.mark.parametrize(("shape", "n_kinds"), [((0, 3), 0), ((4, 0), 1), ((0, 0), 0)])
def test_rows_without_columns_are_all_equal(shape, n_kinds):
    first, kind = unique_rows(np.zeros(shape))
    assert len(first) == n_kinds
    assert kind.tolist() == [0] * shape[0]


@given(arrays(np.int64, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=st.integers(-2, 2)))
def test_unique_rows_agree_with_a_dictionary(matrix):
    seen: dict[tuple[int, ...], int] = {}
    expected = [seen.setdefault(tuple(row), len(seen)) for row in matrix.tolist()]
    first, kind = unique_rows(matrix)
    assert kind.tolist() == expected
    assert first.tolist() == [expected.index(number) for number in range(len(seen))]


def test_a_collision_of_hashes_costs_time_but_not_correctness(monkeypatch):
    monkeypatch.setattr(grouping, "_hash", lambda rows: np.zeros(len(rows), dtype=np.uint64))
    first, kind = unique_rows(np.array([[5, 5], [1, 2], [5, 5]]))
    assert first.tolist() == [0, 1]
    assert kind.tolist() == [0, 1, 0]
