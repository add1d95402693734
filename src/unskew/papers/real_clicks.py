"""Experiments on the real clicks of a public log with judged queries, instead of simulated users.

`--data ultre-2:FOLDER`, `--data baidu-ultr:CLICKS+JUDGED` or `--data tiangong-st:FOLDER` (`public_logs.forms`) use the
protocol of the CDLA-LD paper: pages with all of the first ten positions and a click among them, 80% of them for
training; judged queries split into 20% for validation and 80% for testing. Log and judged queries are written next to
the results, so that runs are identified by their content.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from unskew.comparison.own_log import log_place
from unskew.comparison.settings import OptionTable, Setting
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import read_log, write_log
from unskew.data.files import new_file
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.public_logs.forms import CLICKS, JUDGED, is_judged_form
from unskew.data.public_logs.result_pages import complete_pages, split_judged, split_pages
from unskew.papers.settings import PaperExperiment

BESIDE = "+"  # separates the files of clicks and of judged queries


def is_real(data: str) -> bool:
    """Whether these data are a public log with real clicks."""
    return is_judged_form(data)


def on_real_clicks(experiment: PaperExperiment) -> PaperExperiment:
    """The experiment without simulated parts: one setting, no logging policy, and the claims not about a setting."""
    methods = tuple(entry for entry in experiment.methods if not (entry.oracle or entry.interventions))
    labels = {entry.label for entry in methods}
    claims = tuple(claim for claim in experiment.claims if not claim.settings and {claim.label, *claim.than} <= labels)
    return replace(experiment, settings=(Setting("real clicks"),), rows=(), methods=methods, claims=claims)


def real_clicks(data: str, folder: Path) -> OptionTable:
    """The log and the judged queries of `FORM:PLACE` for a plan, written to a folder once."""
    form, _, place = data.partition(":")
    clicks, _, judged = place.partition(BESIDE)
    folder.mkdir(parents=True, exist_ok=True)
    log, valid, test = folder / "log", folder / "valid.parquet", folder / "test.parquet"
    if not log.is_dir():
        source = CLICKS[form](Path(clicks))
        pages = split_pages(complete_pages(source.events))[0]
        write_log(ClickLog.from_table(pages, bias=source.columns["bias"]), log)
    parts = split_judged(JUDGED[form](Path(judged or clicks)))
    names = tuple(read_log(log).feature_names)
    for path, part in zip((valid, test), parts, strict=True):
        _write_judged(path, part if part.feature_names else replace(part, feature_names=names))
    return {
        "log": log_place(log),
        "judged": None,
        "valid": str(valid.resolve()),
        "test": str(test.resolve()),
        "max_grade": max(part.max_grade for part in parts),
    }


def _write_judged(path: Path, judged: JudgedSet) -> None:
    if not path.is_file():
        with new_file(path) as scratch:
            pq.write_table(judged.to_table(), scratch)
