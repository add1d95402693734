"""Text as features: brands, colours, categories. A log stores each value as a number, and the names once.

The values of a text column decide whether it is a feature: a category varies within lists (a device or a user does
not), and several documents share a value (which they do not with a title or an address).

A column of lists of text, such as genres or tags, is a set: each of its common values becomes a feature `COLUMN=VALUE`
that is 1 where the list has the value, 0 where it does not, and missing where there is no list.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from typing import Any

import ibis
import ibis.expr.types as ir

from unskew.data.columns import FEWEST_DOCUMENTS, MOST_MEMBERS, MOST_VALUES, member_name
from unskew.ingestion.columns import Columns, set_columns, value_at
from unskew.ingestion.engines import Engine, count_rows, one_row, some_sessions
from unskew.ingestion.impressions import MISSING, Vocabularies

MAX_CATEGORIES = MOST_VALUES  # the same limit as for tables in Python


def find_categories(engine: Engine, table: ir.Table, columns: Columns, taken: Sequence[str]) -> list[str]:
    """Text columns that can be features, if you named no features: those that differ within a list."""
    texts = [name for name, kind in table.schema().items() if kind.is_string() and name not in taken]
    names = few_values(engine, table, columns.roles["document"], texts)
    if not names:
        return []
    values = {f"text_{number}": table[name] for number, name in enumerate(names)}
    keys = {role: value_at(table, columns.roles[role]) for role in ("session", "query")}
    shown = some_sessions(table.select(**keys, **values))
    lists = shown.group_by("session", "query").aggregate(**{name: shown[name].nunique() for name in values})
    varied = one_row(engine, lists, **{name: (lists[name] > 1).sum() for name in values})
    return [name for name, count in zip(names, varied.values(), strict=True) if count]


def few_values(engine: Engine, table: ir.Table, document_column: str, texts: Sequence[str]) -> list[str]:
    """Text columns whose values several documents share, and that do not hold numbers."""
    if not texts:
        return []
    counts: dict[str, Any] = {"documents": value_at(table, document_column).nunique()}
    for number, name in enumerate(texts):
        value: Any = table[name]
        counts[f"values_{number}"] = value.nunique()
        counts[f"filled_{number}"] = value.notnull().sum()
        counts[f"numbers_{number}"] = value.try_cast("float64").notnull().sum()
    n_documents, *sizes = (count or 0 for count in one_row(engine, table, **counts).values())

    def is_shared(n_values: int, n_filled: int, n_numbers: int) -> bool:
        few = 1 < n_values <= MAX_CATEGORIES and 2 * n_values <= n_documents
        return few and 2 * n_numbers < n_filled

    return [name for number, name in enumerate(texts) if is_shared(*sizes[3 * number : 3 * number + 3])]


def number_categories(
    engine: Engine, table: ir.Table, names: Sequence[str], source: str, *, missing_too: bool = False
) -> tuple[ir.Table, dict[str, tuple[str, ...]]]:
    """The table with numbers in place of text in these columns, and the names of the categories.

    Missing values stay missing or, with `missing_too`, form their own category.
    """
    vocabularies = {}
    for name in names:
        if not table.schema()[name].is_string():
            continue
        if missing_too:
            table = table.mutate(**{name: table[name].fill_null(MISSING)})
        _refuse_numbers(engine, table, name, source)
        found = table.select(category=table[name]).filter(lambda rows: rows.category.notnull()).distinct()
        place = ibis.row_number().over(order_by="category")
        numbered = engine.keep("categories", found.mutate(category_number=place))
        listed = engine.arrow(numbered.order_by("category_number").limit(MAX_CATEGORIES + 1))["category"].to_pylist()
        if len(listed) > MAX_CATEGORIES:
            raise ValueError(
                f"{source}: column '{name}' has more than {MAX_CATEGORIES:,} values: if it is a feature, group rare "
                "values first, or replace them by numbers; if it is an id, do not name it as a feature"
            )
        vocabularies[name] = tuple(listed)
        joined = table.left_join(numbered, table[name] == numbered.category)
        table = joined.select(
            **{column: joined.category_number if column == name else joined[column] for column in table.columns}
        )
    return table, vocabularies


def split_sets(
    engine: Engine, table: ir.Table, document_column: str, wanted: Sequence[str] | None, taken: Sequence[str]
) -> tuple[ir.Table, Sequence[str] | None, list[str]]:
    """The table with a column per common value in place of each set, the wanted columns with these, and notes."""
    names, remarks = set_columns(wanted, table, taken), []
    for name in names:
        kept, n_values = _common_values(engine, table, document_column, name)
        members = {member_name(name, value): table[name].contains(value).cast("float32") for value in kept}
        table = table.mutate(**members).drop(name)
        if wanted is not None:
            wanted = [*(pattern for pattern in wanted if pattern != name), *map(glob.escape, members)]
        fewest = "the most common" if len(kept) == MOST_MEMBERS else f"those of {FEWEST_DOCUMENTS} or more documents"
        remarks.append(f"Set '{name}': {len(kept):,} of {n_values:,} values are features, {fewest}.")
    return table, wanted, remarks


def _common_values(engine: Engine, table: ir.Table, document_column: str, name: str) -> tuple[list[str], int]:
    """The common values of a set in alphabetical order, and the number of all its values."""
    rows = table.select(document=value_at(table, document_column), member=table[name])
    members = rows.select("document", member=rows.member.unnest()).distinct().filter(lambda row: row.member != "")
    counts = members.group_by("member").aggregate(documents=ibis._.count())
    common = counts.filter(counts.documents >= FEWEST_DOCUMENTS).order_by(ibis.desc("documents"), "member")
    kept = engine.arrow(common.limit(MOST_MEMBERS))["member"].to_pylist()
    return sorted(kept), count_rows(engine, counts)


def _refuse_numbers(engine: Engine, table: ir.Table, name: str, source: str) -> None:
    """Refuse a column of numbers that was read as text because a few values are not numbers."""
    value: Any = table[name]
    number = value.try_cast("float64").notnull()
    counts = {"numbers": number.sum(), "words": (value.notnull() & ~number).sum(), "word": value.max(where=~number)}
    numbers, words, word = one_row(engine, table, **counts).values()
    if numbers and words and numbers >= words:
        raise ValueError(
            f"{source}: column '{name}' holds numbers and {words:,} values that are not numbers, such as '{word}': "
            "leave missing values empty, or use text for all values"
        )


def category_remarks(vocabularies: Vocabularies) -> list[str]:
    """The note about categories."""
    listed = ", ".join(f"{name} ({len(names):,} values)" for name, names in vocabularies.items())
    return [f"Categories: {listed}."] if listed else []
