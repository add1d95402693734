"""Lineage: which log something came from, by digests; in models, reports, rankings and judgements.

The digest of a log on disk is that of `log.json`, which holds the digests of its shards: nothing is read again. A log
that was never on disk has the digest of its content. A step that makes a log from another, such as forgetting users or
cutting a window, records the digests before and after it, so that one can find the models of a log that has changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from unskew.data.files import json_digest

KEY = b"unskew"  # of the metadata of a table
SHORT = 12  # characters of a digest for people


@dataclass(frozen=True)
class Lineage:
    """The digest of a log, and the steps that made it from others."""

    digest: str
    steps: tuple[Mapping[str, Any], ...] = ()  # step, from (digests), to (digest), and what else it records

    def then(self, step: str, **about: Any) -> Lineage:
        """The lineage of a log made from this one that has no digest of its own."""
        return joined([self], step, **about)

    def written(self, step: str, **about: Any) -> list[Mapping[str, Any]]:
        """The steps of a log made from this one that is about to be written; its digest is filled in then."""
        return [*self.steps, {"step": step, **about, "from": [self.digest]}]

    def to_json(self) -> dict[str, Any]:
        return {"digest": self.digest, **({"steps": [dict(step) for step in self.steps]} if self.steps else {})}


def joined(parts: Sequence[Lineage], step: str = "join", **about: Any) -> Lineage:
    """The lineage of a log made from several."""
    entry = {"step": step, **about, "from": [part.digest for part in parts]}
    digest = json_digest(entry)
    steps: list[Mapping[str, Any]] = []
    for each in (step for part in parts for step in part.steps):
        steps += [] if each in steps else [each]
    return Lineage(digest, (*steps, entry | {"to": digest}))


def lineage_of(model: str | None, log: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a file that came from a model or a log stores; files of 0.2 do not name the log."""
    return {**({} if model is None else {"model": model}), **({} if not log else {"log": dict(log)})}


def with_lineage(table: pa.Table, lineage: Mapping[str, Any]) -> pa.Table:
    """The table with its lineage in the metadata, as JSON under `unskew`."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), KEY: json.dumps(lineage)})


def lineage_line(lineage: Mapping[str, Any]) -> str:
    """The same for people, in one line."""
    log = lineage.get("log")
    of_log = "a log that it does not name" if log is None else f"log {log['digest'][:SHORT]}"
    if log is not None and log.get("steps"):
        last = log["steps"][-1]
        of_log += f" ({last['step']} of {', '.join(digest[:SHORT] for digest in last['from'])})"
    return f"Model {lineage['model'][:SHORT]}, trained on {of_log}" if "model" in lineage else of_log.capitalize()
