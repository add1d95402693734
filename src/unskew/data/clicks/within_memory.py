"""Logs larger than a memory limit: as many of their shards as fit, which are a random sample of their queries.

`unskew ingest` decides the shard of a query by a hash of its id. So any of the shards are a random sample of the
queries, and every interval over queries states how far a number of the sample may be from that of the whole log. Which
shards are read is a function of the log and the limit alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import MAPPED_BEYOND, FolderView, Log, LogFolder, open_log, read_log
from unskew.data.memory import parse_memory
from unskew.data.public_logs.id_pages import is_public_log

MEMORY = "4GB"  # default limit of everything that holds a log in memory
# Measured with benchmarks/scale.py (docs/scale.md).
FIXED = 1_000_000_000  # bytes of the program, and of tables that do not grow with the log
PER_SHOWN = 220  # bytes per shown document of a list, with everything that is computed from it
PER_PATTERN = 16  # bytes per document of a click pattern
FEATURE_COPIES = 6  # as read, joined, split and transformed; large features are mapped from a file instead


@dataclass(frozen=True, repr=False)
class PartOfFolder(FolderView):
    """The shards of a log on disk that fit into memory, as a log."""

    memory: str = field(kw_only=True)

    @property
    def note(self) -> str:
        """What was read, for people."""
        text = (
            f"Read {self.n_shards:,} of {self.source.n_shards:,} shards of {self.path} "
            f"({self.n_lists:,} of {self.source.n_lists:,} lists) to stay within {self.memory} of memory; "
        )
        if "source" in self.about.get("notes", {}):
            text += "they are a random sample of the queries"
        else:
            text += "unskew ingest did not write this log, so they are a sample of queries only if its order is random"
        return f"{text}. Use --memory {_twice(self.memory)} (in Python memory=…) to read more"


def part_within(log: Log, memory: str | None) -> PartOfFolder | None:
    """The part of a log on disk to hold in memory; None: all of it. At least one shard is read.

    Args:
        memory: such as 4GB; None: no limit.
    """
    if memory is None or isinstance(log, ClickLog) or log.n_shards == 1:
        return None
    folder, limit = log, parse_memory(memory)
    if bytes_in_memory(folder, range(folder.n_shards), folder.n_positions)[-1] <= limit:
        return None
    order = np.random.default_rng(0).permutation(folder.n_shards).tolist()
    n_docs = folder.shard(order[0]).n_docs  # a shard may have many more positions than a list has documents
    fitting = np.flatnonzero(bytes_in_memory(folder, order, n_docs) <= limit)
    numbers = tuple(sorted(order[: 1 + int(fitting.max(initial=0))]))
    if len(numbers) == folder.n_shards:
        return None
    return PartOfFolder(**vars(folder.view(numbers)), memory=memory)


def bytes_in_memory(folder: LogFolder, order: Sequence[int], n_docs: int) -> NDArray[np.float64]:
    """Approximate memory of a command that holds the first one, two, … of these shards, `[shards]`.

    Args:
        n_docs: documents of a list.
    """
    counts = [np.cumsum(np.array(folder.counts(name))[list(order)]) for name in ("lists", "patterns", "versions")]
    lists, patterns, versions = counts
    features = versions * folder.n_features * 4.0
    copies = np.where(features <= MAPPED_BEYOND, FEATURE_COPIES, 0)
    return FIXED + n_docs * (lists * PER_SHOWN + patterns * PER_PATTERN) + copies * features


def read_within(log: LogFolder | str | Path, memory: str | None) -> tuple[ClickLog, PartOfFolder | None]:
    """A log in memory, whole if it fits, otherwise a part of it; and that part, None for a whole log."""
    folder = folder_of(log)
    if folder is None:
        return read_log(str(log)), None
    part = part_within(folder, memory)
    return (folder if part is None else part).whole(), part


def folder_of(log: object) -> LogFolder | None:
    """The folder of a log; None for a log in memory and for a public log, which is read whole."""
    if isinstance(log, LogFolder):
        return log
    if not isinstance(log, str | Path) or (is_public_log(str(log)) and not Path(log).exists()):
        return None
    return open_log(log)


def _twice(memory: str) -> str:
    """Twice as much: 4GB becomes 8GB."""
    return re.sub(r"[0-9.]+", lambda number: f"{2 * float(number[0]):g}", memory.strip(), count=1)
