"""Provenance of results: the experiment, its grid sizes, the machine and the versions."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from unskew.comparison.code_digest import code_digest
from unskew.comparison.plan import Group
from unskew.comparison.run import Results
from unskew.comparison.settings import Experiment
from unskew.comparison.tasks import versions
from unskew.data.files import write_text
from unskew.extensions import described, is_outside


def write_provenance(experiment: Experiment, data: str, groups: Sequence[Group], results: Results, out: Path) -> None:
    """Write `provenance.json` to the folder of the results."""
    about = {
        "data": data,
        "experiment": asdict(experiment),
        "grid_points": grid_points(groups),
        "repetitions": [
            {"data": data, "seed": seed}
            for data, seed in dict.fromkeys((r.run.repetition.data, r.run.repetition.seed) for r in results.results)
        ],
        "runs": len({result.run.key for result in (*results.results, *results.tried)}),
        "failed": len(results.failed),
        "code": code_digest(),
        "rows_of_other_code": results.other_code,
        "versions": versions(),
        "hardware": hardware(),
    }
    write_text(out / "provenance.json", json.dumps(about, indent=2, ensure_ascii=False, default=_plain) + "\n")


def grid_points(groups: Sequence[Group]) -> dict[str, int]:
    """The number of grid points per method, the largest over settings."""
    found: Counter[str] = Counter()
    for group in groups:
        found[group.label] = max(found[group.label], len(group.candidates))
    return dict(found)


def hardware() -> dict[str, Any]:
    """The machine that wrote the report; rows from other machines name their own."""
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "accelerators": [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())],
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _plain(part: Any) -> Any:
    return described(part) if is_outside(part) else repr(part)
