"""A diagnosis as plain data, for JSON: numbers, text, lists and dictionaries; NaN and infinity become None."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from unskew.diagnosis.assemble import Diagnosis, Refusal
from unskew.diagnosis.click_rank import ClickRank
from unskew.diagnosis.findings import findings
from unskew.diagnosis.verdict import verdict

LEFT_OUT = ("log", "covariances")  # too large


def as_plain(diagnosis: Diagnosis) -> dict[str, Any]:
    """The whole diagnosis as plain data. A refused part is `{"refused": reason}`."""
    parts = {entry.name: plain(getattr(diagnosis, entry.name)) for entry in fields(diagnosis) if entry.name != "log"}
    judged = verdict(diagnosis)
    return {
        "positions_count_from": 0,  # as in a log; texts for people count from 1
        "lineage": diagnosis.lineage,
        **parts,
        "best_curve": None if diagnosis.curve is None else diagnosis.curve.estimator,
        "findings": plain(findings(diagnosis)),
        "methods": plain(judged.methods),
        "verdict": list(judged.lines),
    }


def plain(value: Any) -> Any:
    """A value as JSON can represent it."""
    if isinstance(value, Refusal):
        return {"refused": value.reason}
    if isinstance(value, ClickRank):
        return {
            "scalar_is_enough": value.scalar_is_enough,
            "dimensions": value.dimensions,
            "rank": value.rates.rank,
            "spectrum": plain(value.rows()),
            "matrix": plain(value.matrix.rows()),
        }
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: plain(getattr(value, entry.name)) for entry in fields(value) if entry.name not in LEFT_OUT}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
