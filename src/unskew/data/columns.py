"""Columns of pyarrow, pandas and polars tables as numpy arrays. Every error names the column and row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.data.checks import check_values
from unskew.data.grouping import as_array, as_text, decoded

FINITE = "a feature must be finite or missing; clip the value or leave it empty"
MOST_VALUES = 10_000  # maximum number of values of a category
MOST_MEMBERS = 100  # values of a set that become features
FEWEST_DOCUMENTS = 5  # that must have such a value


def as_arrow(table: Any) -> pa.Table:
    """A pyarrow, pandas or polars table as a pyarrow table, without a copy if possible."""
    if isinstance(table, pa.Table):
        return table
    try:
        if type(table).__module__.startswith("pandas"):
            return pa.Table.from_pandas(table, preserve_index=False)  # an index must not become a feature
        if isinstance(table, pa.RecordBatch):
            return pa.Table.from_batches([table])
        if hasattr(table, "__arrow_c_stream__"):
            return pa.table(table)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        reason = "; ".join(str(part) for part in error.args)
        raise ValueError(f"{reason}: a column must hold either numbers or text; convert it first") from error
    raise TypeError(f"pass a pyarrow, pandas or polars table, got {type(table).__name__}")


def is_table(values: Any) -> bool:
    """Whether `as_arrow` accepts it."""
    return hasattr(values, "columns") and (hasattr(values, "__arrow_c_stream__") or hasattr(values, "iloc"))


def column_called(synonyms: Iterable[str], names: Sequence[str]) -> str | None:
    """The column with the first of these names that occurs; case, `_`, `-` and spaces do not matter."""
    plain = {plain_name(name): name for name in reversed(names)}
    return next((plain[plain_name(synonym)] for synonym in synonyms if plain_name(synonym) in plain), None)


def plain_name(name: str) -> str:
    return re.sub(r"[_\-\s]", "", name).lower()


def is_numeric(table: pa.Table, name: str) -> bool:
    """Whether a column can be a numeric feature; categories cannot, even if their values are numbers."""
    return _holds_numbers(table.schema.field(name).type)


def numbers(table: pa.Table, name: str) -> NDArray[np.float64]:
    """A numeric column as float64; booleans become 0 and 1."""
    return np.asarray(pc.cast(_numeric(table, name), pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def feature_values(table: pa.Table, name: str) -> NDArray[np.float32]:
    """A numeric column as float32, NaN if a value is missing; infinite values are an error."""
    values = float_values(table, name)
    check_values(values, ~np.isinf(values), name, FINITE)
    return values


def float_values(table: pa.Table, name: str) -> NDArray[np.float32]:
    """A column of numbers or dates as float32, NaN if a value is missing, infinite if it is too large."""
    column = _numeric(table, name)
    if pa.types.is_float32(column.type):
        return column.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        return pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False).astype(np.float32)


def feature_matrix(
    table: pa.Table, names: Sequence[str], rows: NDArray[np.int64]
) -> tuple[NDArray[np.float32], dict[str, tuple[str, ...]]]:
    """Columns of these rows as features `[rows, columns]`, and the names of categories."""
    matrix = np.empty((len(rows), len(names)), dtype=np.float32)
    categories = {}
    for number, name in enumerate(names):
        values, levels = feature_column(table, name)
        matrix[:, number] = values[rows]
        if levels is not None:
            categories[name] = levels
    return matrix, categories


def feature_column(table: pa.Table, name: str) -> tuple[NDArray[np.float32], tuple[str, ...] | None]:
    """A column as float32, NaN if a value is missing; text as category numbers, with the names in order."""
    if is_numeric(table, name) or is_date(table.schema.field(name).type):
        return feature_values(table, name), None
    vocabulary = vocabulary_of(table[name], name)
    return category_codes(table[name], vocabulary), vocabulary


def category_codes(column: pa.ChunkedArray | pa.Array, vocabulary: Sequence[str]) -> NDArray[np.float32]:
    """The number of each value in a vocabulary: -1 for an unknown value, NaN for a missing one."""
    values = as_text(decoded(as_array(column)))
    numbers = pc.fill_null(pc.index_in(values, value_set=pa.array(list(vocabulary), values.type)), -1)
    codes = numbers.to_numpy(zero_copy_only=False).astype(np.float32)
    codes[values.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return codes


def vocabulary_of(column: pa.ChunkedArray | pa.Array, name: str) -> tuple[str, ...]:
    """The distinct values of a category as sorted text; too many of them are an error."""
    distinct = pc.unique(as_text(decoded(as_array(column)))).drop_null()
    if len(distinct) > MOST_VALUES:
        raise ValueError(
            f"column '{name}' has {len(distinct):,} different values, more than a category can have ({MOST_VALUES:,}): "
            "leave it out if it is an id, or group its values first (for example hash them into 1,000)"
        )
    return tuple(sorted(distinct.to_pylist()))


def member_name(column: str, value: str) -> str:
    """The name of the feature that says whether the set in a column has this value."""
    return f"{column}={value}"


def source_column(schema: pa.Schema, feature: str) -> str | None:
    """The column that holds a feature: its own, or the sets in which `COLUMN=VALUE` looks for a value."""
    if schema.get_all_field_indices(feature):
        return feature
    parts = feature.split("=")
    places = ["=".join(parts[:number]) for number in range(1, len(parts))]
    return next((name for name in places if name in schema.names and is_set(schema.field(name).type)), None)


def source_columns(schema: pa.Schema, features: Sequence[str]) -> tuple[str, ...]:
    """The columns that hold these features, each once."""
    return tuple(dict.fromkeys(filter(None, (source_column(schema, name) for name in features))))


def as_trained(
    table: pa.Table, features: Sequence[str], categories: Mapping[str, tuple[str, ...]]
) -> NDArray[np.float32]:
    """Features from the columns of a table as in training: text by the categories of then, sets value by value."""
    matrix = np.full((table.num_rows, len(features)), np.nan, dtype=np.float32)
    sets: dict[str, list[int]] = {}
    for number, name in enumerate(features):
        column = source_column(table.schema, name)
        assert column is not None, name
        if column != name:
            sets.setdefault(column, []).append(number)
        elif name in categories:
            matrix[:, number] = category_codes(table[name], categories[name])
        elif not pa.types.is_null(table.schema.field(name).type):  # otherwise all values are missing
            matrix[:, number] = float_values(table, name)
    for column, numbers in sets.items():
        values = [features[number].removeprefix(member_name(column, "")) for number in numbers]
        matrix[:, numbers] = _memberships(table[column], values)
    return matrix


def is_set(kind: pa.DataType) -> bool:
    """Whether these are lists of text."""
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return lists and (pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type))


def _memberships(column: pa.ChunkedArray, values: Sequence[str]) -> NDArray[np.float32]:
    """For each set and value, 1 if the set has it, 0 if it does not, NaN if there is no set."""
    sets = as_array(column)
    members = np.zeros((len(sets), len(values)), dtype=np.float32)
    entries = pc.list_flatten(sets)
    place = pc.index_in(entries, value_set=pa.array(values, entries.type))
    known = place.is_valid().to_numpy(zero_copy_only=False)
    members[pc.list_parent_indices(sets).to_numpy()[known], place.drop_null().to_numpy()] = 1.0
    members[sets.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return members


PERIODS = {"hour": "h", "day": "D", "week": "W", "month": "M"}  # numpy units; weeks begin on Thursdays there


def check_period(period: str, *, has_times: bool) -> str:
    """The period; an error if it is unknown, or if there are no times."""
    if period not in PERIODS:
        raise ValueError(f"unknown period '{period}': choose from {', '.join(PERIODS)}")
    if not has_times:
        raise ValueError(f"lists cannot be counted per {period} without times: pass the time column (time=, --time)")
    return period


def begin_of_period(times: NDArray[np.int64] | None, period: str) -> NDArray[np.int64]:
    """The start of the hour, day, week (from Monday) or month of each time, in microseconds since 1970."""
    check_period(period, has_times=times is not None)
    assert times is not None
    moments = times.view("datetime64[us]")
    shift = np.timedelta64(3 if period == "week" else 0, "D")  # 1970 began on a Thursday
    begin = (moments + shift).astype(f"datetime64[{PERIODS[period]}]").astype("datetime64[us]") - shift
    return begin.astype(np.int64)


def whole_numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    """A column of whole numbers."""
    values = numbers(table, name)
    check_values(values, np.isfinite(values) & (values == np.floor(values)), name, "it must be a whole number")
    return values.astype(np.int64)


def levels_or_numbers(table: pa.Table, name: str) -> tuple[NDArray, tuple[str, ...] | None]:
    """A bias column as level numbers with their names (text, booleans, integers), or as float32 (fractions)."""
    column = decoded(as_array(table[name]))
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        values = numbers(table, name).astype(np.float32)
        check_values(values, np.isfinite(values), name, "it must be a finite number")
        return values, None
    encoded = pc.dictionary_encode(as_text(column))
    names, rank = np.unique(encoded.dictionary.to_numpy(zero_copy_only=False), return_inverse=True)
    codes = rank.reshape(-1)[encoded.indices.to_numpy(zero_copy_only=False)]
    return codes.astype(np.int64), tuple(str(entry) for entry in names)


def microseconds(table: pa.Table, name: str) -> NDArray[np.int64]:
    """A column of times, with or without a time zone, or of whole microseconds, as microseconds since 1970."""
    column = decoded(as_array(table[name]))
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    if not pa.types.is_integer(column.type):
        raise ValueError(
            f"column '{name}' holds {table[name].type}, but must hold timestamps or whole microseconds since 1970"
        )
    return column.to_numpy(zero_copy_only=False).astype(np.int64)


Features = tuple[NDArray[np.float32], tuple[str, ...], dict[str, tuple[str, ...]]]


def as_features(X: Any, known: Mapping[str, tuple[str, ...]] | None = None) -> Features:
    """A matrix or table of features as float32, its column names (none for a matrix), and its categories.

    Args:
        known: categories of the training data by name, used to number text; default: those of the table.
    """
    if is_table(X):
        table = as_arrow(X)
        given = table.column_names if isinstance(X, pa.Table | pa.RecordBatch) else X.columns
        names = tuple(given) if all(isinstance(name, str) for name in given) else ()
        if known is not None:
            return _known_features(table, known), names, dict(known)
        values, categories = feature_matrix(table, table.column_names, np.arange(table.num_rows))
        if categories and not names:
            raise ValueError(f"{listed(list(categories))} of X holds text: use text as column names too")
        return values, names, categories
    dense = X.toarray() if hasattr(X, "toarray") else X
    if hasattr(dense, "detach"):  # a tensor, of any device
        dense = dense.detach().cpu().numpy()
    if np.iscomplexobj(dense):
        raise ValueError("Complex data not supported: pass real and imaginary parts as two features")
    try:
        with np.errstate(over="ignore"):  # values too large for float32 become infinite, which the caller refuses
            matrix = np.ascontiguousarray(dense, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise type(error)(f"X must hold only numbers ({error}): pass text and categories in a table") from error
    if matrix.ndim != 2:
        shape = matrix.shape
        raise ValueError(f"X must be a matrix [rows, features], got shape {shape}. Reshape your data: X.reshape(1, -1)")
    return matrix, (), {}


def _known_features(table: pa.Table, known: Mapping[str, tuple[str, ...]]) -> NDArray[np.float32]:
    """Columns in order, with text as the numbers of the training data."""
    matrix = np.empty((table.num_rows, table.num_columns), dtype=np.float32)
    for number, name in enumerate(table.column_names):
        kind = table.schema.field(name).type
        if pa.types.is_null(kind):  # all values are missing
            matrix[:, number] = np.nan
        elif name not in known:
            matrix[:, number] = feature_values(table, name)
        elif may_be_category(kind, known[name]):
            matrix[:, number] = category_codes(table[name], known[name])
        else:
            values = ", ".join(f"'{value}'" for value in known[name][:3])
            raise ValueError(f"column '{name}' holds {kind}, but the ranker was fitted on text, such as {values}")
    return matrix


def may_be_category(kind: pa.DataType, vocabulary: Sequence[str]) -> bool:
    """Whether a type can hold a category: text, and numbers if the values in training were numbers."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)):
        return True
    return pa.types.is_integer(kind) and any(value.lstrip("-").isdigit() for value in vocabulary)


def listed(names: Sequence[str], most: int = 12) -> str:
    """Names of columns in a message, quoted; the first few of many."""
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return f"column{'s' if len(names) > 1 else ''} {shown}" + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )


def _numeric(table: pa.Table, name: str) -> pa.Array:
    column = _seconds(decoded(as_array(table[name])))
    if not _holds_numbers(column.type):
        example = f", e.g. '{column[0]}' in row 0" if len(column) else ""
        raise ValueError(f"column '{name}' holds {table[name].type}, but must hold numbers{example}")
    return column


def is_date(kind: pa.DataType) -> bool:
    """Whether these are dates or times, which count as seconds since 1970 where you name them as features."""
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def _seconds(column: pa.Array) -> pa.Array:
    return column.cast(pa.timestamp("s"), safe=False).cast(pa.int64()) if is_date(column.type) else column


def _holds_numbers(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)
