"""Kept users: which counts of a list are whose, so that a user can be forgotten.

A log counts sessions without their users. If it is asked to keep them, each shard has one more table, which only
`forget` reads: one row per user, list and click pattern, with an opaque number for the user. The number is a digest of
the id and of a secret salt in a file beside the log: without that file nobody can tell whose number it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.data.clicks.build import Documents, Impressions, log_fields
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import FIELDS, BiasColumn, Field
from unskew.data.object_storage import read_there

NOBODY = 0  # the number of sessions without a user
OWN = ("sessions", "clicks")  # columns that every table has


@dataclass(frozen=True, eq=False)
class UserLog:
    """A log, and the table of its users if it keeps them."""

    log: ClickLog
    users: pa.Table | None = None


def salt_file(log: str | Path) -> Path:
    """The file with the secret of the opaque numbers, beside a log."""
    path = Path(log)
    return path.with_name(f"{path.name}.salt")


def salt_beside(log: Path) -> str:
    """The secret of a log; an error if it was deleted."""
    place = salt_file(log)
    stored = read_there(place)
    if stored is None:
        raise FileNotFoundError(
            f"{place} does not exist: without it nobody can tell which numbers are whose, so no user can be found in "
            f"{log}. Put the file back, or remove the users from the events and ingest them again"
        )
    return stored.decode().strip()


def numbers_of(users: Collection[str], salt: str) -> NDArray[np.uint64]:
    """The opaque numbers of users."""
    digests = (hashlib.sha256(f"{salt}{user}".encode()).digest()[:8] for user in users)
    return np.array([int.from_bytes(digest) for digest in digests], dtype=np.uint64)


def numbers_from_digits(digits: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Numbers from sixteen hexadecimal digits each; empty: nobody."""
    text = "".join(pc.fill_null(digits, f"{NOBODY:016x}").to_pylist())
    return np.frombuffer(bytes.fromhex(text), dtype=">u8").astype(np.uint64)


def users_table(shown: Impressions, lists: NDArray[np.int64], users: NDArray[np.uint64]) -> pa.Table:
    """One row per showing, from its rows in shown order: its list, user, sessions, clicks, and what else is merged."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(np.bincount(shown.showings, minlength=len(lists)))]))

    def column(entry: Field, values: NDArray) -> pa.Array:
        flat = pa.array(values)
        return flat if entry.per == "list" else pa.LargeListArray.from_arrays(offsets, flat)

    columns = {"list": pa.array(lists.astype(np.int32)), "user": pa.array(users)}
    columns |= {"sessions": pa.array(shown.sessions.astype(np.int32))}
    columns |= {"clicks": pa.LargeListArray.from_arrays(offsets, pa.array(shown.clicks.astype(np.uint8)))}
    for entry in _merged():
        value = shown.optional.get(entry.name)
        named = value if isinstance(value, Mapping) else {"": value}
        columns |= {f"{entry.stored}{key}": column(entry, each) for key, each in named.items() if each is not None}
    return pa.table(columns)


def recounted(log: ClickLog, kept: pa.Table) -> UserLog:
    """The log as it would be with these rows of its table of users only."""
    shown = _shown_again(log, kept)
    documents = Documents(
        features=log.features,
        feature_names=log.feature_names,
        document_ids=log.document_ids,
        document_queries=log.document_queries,
        query_ids=log.query_ids,
        version_documents=log.version_documents,
        categories=log.categories,
    )
    fields, lists = log_fields(shown, documents, joint=log.joint)
    return UserLog(ClickLog(**fields), kept.set_column(0, "list", pa.array(lists.astype(np.int32))))


def _shown_again(log: ClickLog, users: pa.Table) -> Impressions:
    """The impressions that a log was counted from."""
    lists = users["list"].to_numpy()
    mask = log.mask[lists]
    showings = np.repeat(np.arange(len(lists)), mask.sum(axis=1))

    def places(column: BiasColumn) -> BiasColumn:
        return BiasColumn(column.per_document(log.n_docs)[lists][mask], column.levels)

    optional: dict[str, Any] = {
        "bias": {name: places(column) for name, column in log.bias.items()},
        "interventions": None if log.interventions is None else log.interventions.select(lists),
        "periods": None if log.periods is None else log.periods[lists],
        "context": log.context[lists] if log.context_names else None,
    }
    return Impressions(
        showings=showings,
        positions=log.positions[lists][mask].astype(np.int64),
        versions=log.versions[lists][mask].astype(np.int64),
        clicks=_flat(users, "clicks").astype(np.float64),
        sessions=users["sessions"].to_numpy(),
        optional=optional | _stored(log, users),
        about={"shuffled": log.shuffled, "grades": log.grades, "context_names": log.context_names},
    )


def _stored(log: ClickLog, users: pa.Table) -> dict[str, Any]:
    """The columns of a table of users, by name of the column of the log."""
    found: dict[str, Any] = {"events": {kind: _flat(users, f"events.{kind}") for kind in log.events}}
    for entry in _merged():
        if entry.stored is not None and entry.stored in users.column_names:
            found[entry.name] = _flat(users, entry.stored)
    return found


def _flat(users: pa.Table, name: str) -> NDArray:
    values = users[name]
    return (pc.list_flatten(values) if pa.types.is_large_list(values.type) else values).to_numpy(zero_copy_only=False)


def _merged() -> Iterator[Field]:
    """The columns that are merged over the showings of a list, besides those that every table has."""
    return (entry for entry in FIELDS if entry.merge != "same" and entry.name not in OWN)
