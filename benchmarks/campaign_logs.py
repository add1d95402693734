"""Degenerate logs: every method trains on each of them, or says why it cannot.

A log is made from a table with one row per impression. A method must refuse it in one line, or give finite scores and a
finite curve; where nothing can be learned (`SAID`), it must refuse or warn.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import unskew
from campaign_files import FAST
from unskew.commands.app import _refusal
from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet
from unskew.methods import METHODS

Table = pd.DataFrame
NAMES = ["a", "b", "c"]  # features
BIG = 1e30
NUMPY = ("invalid value", "divide by zero", "overflow", "Mean of empty slice", "Degrees of freedom")


def ordinary(n_queries: int = 12, n_sessions: int = 6, n_docs: int = 5) -> Table:
    """Sessions of each query, half of them shuffled, with clicks that become rare towards the bottom."""
    rng = np.random.default_rng(0)
    rows = []
    features = rng.normal(size=(n_queries, n_docs, len(NAMES)))
    for session in range(n_queries * n_sessions):
        query, shuffled = session % n_queries, session % 2 == 1
        order = rng.permutation(n_docs) if shuffled else np.arange(n_docs)
        for position, document in enumerate(order):
            rows.append((session, query, document, position, rng.random() < 0.6 / (position + 1)))
            rows[-1] += (("none", "shuffle")[shuffled], ("desk", "phone")[session % 3 == 0], *features[query, document])
    return Table(rows, columns=["session", "query", "document", "position", "click", "intervention", "device", *NAMES])


def changed(**columns: Any) -> Callable[[Table], Table]:
    """The table with columns replaced, by values or by functions of it."""
    return lambda table: table.assign(**columns)


def kept(rows: Callable[[Table], Any]) -> Callable[[Table], Table]:
    """Some rows of the table."""
    return lambda table: table[rows(table)]


def first_of(table: Table, column: str) -> Any:
    return ~table[column].duplicated()


def everywhere(value: float) -> Callable[[Table], Table]:
    return changed(**dict.fromkeys(NAMES, value))


LOGS: dict[str, Callable[[Table], Table]] = {
    "nothing wrong": lambda table: table,
    "no rows": kept(lambda table: table["session"] < 0),
    "one list": kept(lambda table: table["session"] == 0),
    "one query": kept(lambda table: table["query"] == 0),
    "one session per query": kept(lambda table: table["session"] < 12),
    "one document per list": kept(lambda table: first_of(table, "session")),
    "one list is longer": lambda table: pd.concat([table, longer(table)]),
    "one document in all": changed(document=0, position=0, a=1.0, b=1.0, c=1.0, session=lambda t: np.arange(len(t))),
    "no clicks": changed(click=False),
    "all clicked": changed(click=True),
    "one click": changed(click=lambda table: np.arange(len(table)) == 7),
    "clicks at the top only": changed(click=lambda table: table["position"] == 0),
    "clicks at the bottom only": changed(click=lambda table: table["position"] == 4),
    "no click below the top in shuffled lists": changed(
        click=lambda t: t["click"] & ((t["position"] == 0) | (t["intervention"] == "none"))
    ),
    "a click is missing": changed(click=lambda table: np.where(np.arange(len(table)) == 7, np.nan, table["click"])),
    "a click is negative": changed(click=lambda table: np.where(np.arange(len(table)) == 7, -1, table["click"])),
    "constant features": everywhere(3.0),
    "features all 0": everywhere(0.0),
    "constant in each query": changed(**{name: lambda table: table["query"] * 1.0 for name in NAMES}),
    "no features": lambda table: table.drop(columns=NAMES),
    "equal features": changed(b=lambda table: table["a"], c=lambda table: table["a"]),
    "features all NaN": everywhere(np.nan),
    "one column NaN": changed(b=np.nan),
    "one value NaN": changed(b=lambda t: np.where((t["query"] == 3) & (t["document"] == 1), np.nan, t["b"])),
    "one value infinite": changed(b=lambda t: np.where((t["query"] == 3) & (t["document"] == 1), np.inf, t["b"])),
    "huge features": changed(**{name: lambda table, name=name: table[name] * BIG for name in NAMES}),
    "tiny features": changed(**{name: lambda table, name=name: table[name] / BIG for name in NAMES}),
    "a feature is the position": changed(a=lambda table: table["position"] * 1.0),
    "always the same order": lambda table: table[table["intervention"] == "none"],
    "a gap in the positions": changed(position=lambda table: table["position"] * 1000),
    "a device for each session": changed(device=lambda table: table["session"].astype(str)),
}
# Logs from which nobody can learn an order, so that a method may not train without a word.
SAID = ("all clicked", "constant features", "features all 0", "features all NaN", "constant in each query")
SAID += ("one document per list", "one document in all")


def longer(table: Table) -> Table:
    """A list of 300 documents."""
    rows = table[table["session"] == 0].iloc[np.arange(300) % 5]
    numbers = np.arange(300)
    return rows.assign(session=9999, query=9999, document=numbers, position=numbers, click=numbers == 0)


def log_of(table: Table) -> ClickLog:
    features = [name for name in NAMES if name in table]
    looks = (table["position"] < 2) | (table["click"] != 0)
    columns = {"features": features, "bias": ["device"], "intervention": "intervention", "seen": "seen"}
    return ClickLog.from_table(table.assign(seen=looks * 1.0), **columns)


def judged() -> JudgedSet:
    """Judged queries with the same features, for methods that learn from them."""
    table = ordinary().drop_duplicates(["query", "document"]).sort_values(["query", "document"])
    grades = (table["document"] % 3).to_numpy()
    return JudgedSet.from_arrays(table[NAMES].to_numpy(np.float32), grades, group=[5] * 12)


def fitted(method: str, table: Table, **options: Any) -> Any:
    """A model of a table."""
    more = {"judged": judged()} if method == "labelled" else {}
    return unskew.fit(method, log_of(table), **{**FAST, **options}, **more)


USES: dict[str, Callable[[ClickLog, Path], Any]] = {  # functions that take a log
    "diagnose": lambda log, out: unskew.diagnose(log, out / "report.html", quick=True, progress=False),
    "auto": lambda log, _: unskew.auto(log, steps=6, progress=False),
    "compare": lambda log, _: unskew.compare(log, ["naive", "dla"], seeds=1, jobs=1, options=FAST, progress=False),
    "drift": lambda log, _: unskew.drift(log, log),
    "readout": lambda log, _: unskew.readout(log, arm="device"),
    "weights": lambda log, _: unskew.weights(log, progress=False, **FAST),
    "judgements": lambda log, out: unskew.judgements(log, out / "judgements.csv", overwrite=True),
    "events": lambda log, out: unskew.events(log, out / "events.parquet", overwrite=True),
}


def outcome(what: str, name: str, folder: Path) -> tuple[str, str]:
    """How a method or function ended, and what was said."""
    finite, teaches = True, True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            table = LOGS[name](ordinary())
            if what in USES:
                USES[what](log_of(table), folder)
            else:
                model = fitted(what, table, progress=False)
                finite = bool(np.isfinite(values_of(model, log_of(table))).all())
                counts = model.method.takes_ids or not model.method.has_ranker  # how often each document is clicked
                teaches = name not in SAID or what == "labelled" or (counts and name != "all clicked")
        except Exception as error:
            message = _refusal(error)
            if message is None or "\n" in message.strip():
                return "traceback", f"{type(error).__name__}: {str(error)[:300]}"
            return "refused", message[:300]
    said = "; ".join(str(warning.message) for warning in caught)
    if not finite or any(words in said for words in NUMPY):
        return "silent", f"not finite: {said}"
    if not said and not teaches:
        return "silent", "no word"
    return ("warned" if said else "unchanged"), said


def values_of(model: Any, log: ClickLog) -> Any:
    """All that a model says: its curve, and scores of the log's documents or its predictions of clicks."""
    curve = model.examination()
    parts = [] if curve is None else [np.ravel(curve)]
    if model.method.has_ranker and model.vocabulary is None:
        features = torch.from_numpy(log.features)[None]
        with torch.inference_mode():
            parts.append(model.ranker()(features, torch.ones(features.shape[:2], dtype=torch.bool)).numpy().ravel())
    if not model.method.has_ranker:
        parts.append(np.ravel(model.predict_clicks(log).marginal))
    return np.concatenate([np.zeros(1), *parts])


def degenerate(folder: Path, known: set[str], found: Callable[[str, str, str], Any], late: Callable[[], bool]) -> None:
    """Every method and function on every log, but those that are known."""
    for name in LOGS:
        for what in (*METHODS, *USES):
            title = f"degenerate log, {name}, {what}"
            if title not in known and not late():
                found(title, *outcome(what, name, folder))
