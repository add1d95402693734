"""Truth: what a simulation knows and a log must not contain.

It is stored next to the log (`LOG.truth.parquet` next to the folder `LOG`), never inside it, so that nothing downstream
can distinguish a simulated log from a real one. Row `i` belongs to list `i` of the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.data.clicks import ABOUT
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import write_log
from unskew.data.files import check_folder, check_place, new_file
from unskew.data.untrusted import parse_json
from unskew.display import Displayed, Screen

FORMAT = "unskew-truth"
VERSION = 1


@dataclass(frozen=True, eq=False)
class Truth:
    """Exact probabilities and actual examination, list by list; 0 in padding."""

    examination: NDArray[np.float32]  # [lists, docs], probability of examination
    attraction: NDArray[np.float32]  # [lists, docs], probability of being found relevant
    click_probability: NDArray[np.float32]  # [lists, docs]
    seen: NDArray[np.int64]  # [lists, docs], sessions of the log in which the document was examined
    loggers: NDArray[np.int64]  # [lists], which of several loggers showed it
    click_probability_on_top: NDArray[np.float32] | None = None  # [lists, docs]; None: depends on the whole page
    position_curve: NDArray[np.float64] | None = None  # [docs], if examination depends on the position alone
    about: dict[str, Any] = field(default_factory=dict)  # user, policy, seed and other settings of the simulation

    def mean_examination(self, log: ClickLog) -> NDArray[np.float64]:
        """Mean probability of examination at each position, over the sessions of the log."""
        weights = log.sessions[:, None] * log.mask
        return (weights * self.examination).sum(axis=0) / np.maximum(weights.sum(axis=0), 1)

    def position_effects(self) -> NDArray[np.float64]:
        r"""What each position costs in clicks compared with the top, $r(x)(o_1(x) - o_k(x))$, `[lists, docs]`."""
        if self.click_probability_on_top is None:
            raise ValueError(
                "this user's clicks depend on the whole page, so there is no click probability at the top: simulate a "
                "user whose clicks depend only on the document and its position, e.g. coupled"
            )
        return self.click_probability_on_top.astype(np.float64) - self.click_probability


@dataclass(frozen=True, eq=False, repr=False)
class Simulation(Displayed):
    """A log and the truth behind it."""

    log: ClickLog
    truth: Truth

    def to_table(self) -> pa.Table:
        """One row per position, counted from 0: impressions, clicks, and the mean true examination."""
        impressions, clicks = self.log.by_position()
        seen = self.truth.mean_examination(self.log)
        examination = np.append(seen, np.full(self.log.n_positions - len(seen), np.nan))
        columns = {"impressions": impressions, "clicks": clicks, "examination": examination}
        return pa.table({"position": np.arange(self.log.n_positions), **columns})

    def to_json(self) -> dict[str, Any]:
        log = self.log
        counts = {"sessions": log.n_sessions, "clicks": log.n_clicks, "lists": log.n_lists, "joint": log.joint}
        return {**counts, "compaction": log.compaction, "click_rates": [float(rate) for rate in log.click_rates()]}

    def screen(self) -> Screen:
        rows = [
            (
                f"{row['position'] + 1}",
                f"{row['clicks'] / max(row['impressions'], 1e-9):.4f}",
                f"{row['examination']:.4f}",
            )
            for row in self.to_table().to_pylist()
        ]
        columns = ("position", "clicks per impression", "true examination")
        notes = [f"{self.log.compaction:,.1f} sessions per row of the log"]
        return Screen(f"Simulated {self.log!r}", columns, rows, notes, left=0)

    def plot(self, ax: Any = None) -> Any:
        """Plot clicks per impression and the true examination; positions count from 1."""
        axes = self.log.plot(ax)
        axes.lines[-1].set_label("clicks per impression")
        curve = self.to_table()["examination"].to_numpy()
        axes.plot(np.arange(1, len(curve) + 1), curve, "--", color="grey", label="true examination")
        axes.set(ylabel="probability")
        axes.legend()
        return axes

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the log to this folder and the truth next to it, both atomically."""
        target = check_target(folder, overwrite=overwrite)
        with new_file(truth_path(target)) as scratch:
            _write_truth(self.truth, scratch)
            write_log(self.log, target, overwrite=overwrite)
        return target


def truth_path(folder: str | Path) -> Path:
    """The path of the truth of this log."""
    return Path(folder).with_name(f"{Path(folder).name}.truth.parquet")


def check_target(folder: str | Path, *, overwrite: bool = False) -> Path:
    """Refuse a folder that cannot be written, before any work is done."""
    target = Path(folder)
    check_folder(target, ABOUT, overwrite=overwrite)
    check_place(truth_path(target), overwrite=overwrite)
    return target


def read_truth(folder: str | Path) -> Truth:
    """The truth behind the simulated log in this folder."""
    path = truth_path(folder)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: only simulated logs have a truth (unskew simulate)")
    try:
        table = pq.read_table(path, page_checksum_verification=True)
        about = parse_json((table.schema.metadata or {})[b"unskew"])
        written = (about["format"], about["version"])
        if written == (FORMAT, VERSION):
            return _truth_of(table, about)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read as a truth ({error}): simulate the log again") from error
    raise ValueError(f"{path} has format {written[0]} {written[1]}, not {FORMAT} {VERSION}: simulate the log again")


def _truth_of(table: pa.Table, about: Mapping[str, Any]) -> Truth:
    def matrix(name: str) -> NDArray:
        values = table[name].combine_chunks()
        return values.flatten().to_numpy(zero_copy_only=False).reshape(len(table), about["n_docs"])

    curve = about["position_curve"]
    return Truth(
        examination=matrix("examination"),
        attraction=matrix("attraction"),
        click_probability=matrix("click_probability"),
        seen=matrix("seen"),
        loggers=table["logger"].to_numpy(),
        click_probability_on_top=matrix("on_top") if "on_top" in table.column_names else None,
        position_curve=None if curve is None else np.array(curve),
        about=about["about"],
    )


def _write_truth(truth: Truth, path: Path) -> None:
    n_docs = truth.examination.shape[1]

    def column(values: NDArray) -> pa.Array:
        return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).reshape(-1)), n_docs)

    columns = {
        "examination": column(truth.examination),
        "attraction": column(truth.attraction),
        "click_probability": column(truth.click_probability),
        "seen": column(truth.seen),
        "logger": pa.array(truth.loggers),
    }
    if truth.click_probability_on_top is not None:
        columns["on_top"] = column(truth.click_probability_on_top)
    about = {
        "format": FORMAT,
        "version": VERSION,
        "n_docs": n_docs,
        "position_curve": None if truth.position_curve is None else truth.position_curve.tolist(),
        "about": truth.about,
    }
    metadata = {"unskew": json.dumps(about, default=str)}
    pq.write_table(
        pa.table(columns).replace_schema_metadata(metadata), path, compression="zstd", write_page_checksum=True
    )
