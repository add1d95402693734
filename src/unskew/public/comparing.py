"""Comparing rankers: `compare`, and the catalogue of data sets."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from unskew.comparison import own_log
from unskew.comparison.held_out import HELD_OUT
from unskew.comparison.outputs import DEFAULT_JOBS, Finished, writable
from unskew.comparison.run import Fresh
from unskew.comparison.settings import Experiment, OptionTable
from unskew.data.clicks.storage import write_log, write_shards
from unskew.data.clicks.within_memory import MEMORY, folder_of, part_within
from unskew.data.judged.catalogue import ListingRow, listing
from unskew.display import Displayed, Screen
from unskew.methods import Method
from unskew.public.inputs import Log, Place, as_log
from unskew.public.progress import Follow, followed
from unskew.terminal import cell, experiment_progress


def compare(
    log: Log,
    methods: Sequence[str | type[Method]] | None = None,
    *,
    scores: Mapping[str, Place] | None = None,
    validate: Place | None = None,
    test: Place | None = None,
    judged: Place | None = None,
    grids: Mapping[str, Mapping[str, list]] | None = None,
    options: OptionTable | None = None,
    metrics: Sequence[str] = Experiment.metrics,
    metric: str = Experiment.metric,
    baseline: str | None = None,
    criterion: str | None = None,
    production: str | None = None,
    held_out: float = HELD_OUT,
    seeds: int = 5,
    jobs: int = DEFAULT_JOBS,
    out: Place = "runs/compare",
    fresh: Fresh = False,
    memory: str | None = MEMORY,
    progress: Follow = True,
) -> Finished:
    """Compare methods with each other and with the production ranking on your own log.

    With judged data, `validate` chooses hyper-parameters and `test` measures. Without, methods learn from part of the
    queries and are compared by clicks on the others. Use `paired_differences` if you already have values per query.

    Args:
        log: a click log, or its path. A log in memory is written to `OUT/log`.
        methods: names or classes; None: those that `diagnose` recommends and, if LightGBM is installed, its rows
            and `two_tower+trees`, trees with our debiasing.
        scores: rankers of other programs by name, each a parquet file with query, document and score.
        validate: judged queries for validation: a data set of the catalogue, or a LETOR file. Needs `test`.
        test: judged queries for the test.
        judged: judged data that `labelled` learns from.
        grids: values to choose from, by method and hyper-parameter.
        options: options of training and network, for every method.
        baseline: the method to test the others against; default: the first. Only with judged data.
        criterion: the label-free criterion that decides without judged data; default: the one that chose best in our
            measurements.
        production: the production ranker: since=DATE, score=COLUMN or logger=COLUMN:VALUE. Default: the latest in
            the log.
        held_out: share of the queries to compare on, without judged data.
        seeds: number of trainings per method, with the same log and held-out queries.
        out: output folder; finished runs there are reused unless `fresh` names them (all, or labels of methods).
        memory: limit for a log on disk, for each process; None: no limit. If the log needs more, methods are compared
            on a random sample of its queries, which is written to `OUT/log`.
        progress: False for none, or a function that receives a `State`.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> found = unskew.compare(log, ["naive", "dla"], options={"steps": 3}, out="comparison", jobs=1, progress=False)
    >>> found.to_table()["method"].to_pylist()
    ['production', 'naive', 'dla']
    """
    place, part = _folder(log, Path(out), memory)
    with followed(progress, experiment_progress, "compare") as report:
        return own_log.compare(
            place,
            methods,
            scores=scores,
            validate=_name(validate),
            test=_name(test),
            judged=_name(judged),
            grids=grids,
            options=options,
            metrics=metrics,
            metric=metric,
            baseline=baseline,
            criterion=criterion,
            production=production,
            held_out=held_out,
            seeds=seeds,
            jobs=jobs,
            out=out,
            fresh=fresh,
            part=part,
            progress=report,
        )


def _folder(log: Log, out: Path, memory: str | None) -> tuple[Path, str]:
    """The folder of the log to compare on, and what part of a larger log it is, for people."""
    folder = folder_of(log)
    part = None if folder is None else part_within(folder, memory)
    if part is not None:
        warnings.warn(part.note, RuntimeWarning, stacklevel=3)
        notes = {**part.about.get("notes", {}), "lineage": part.lineage.written("part")}
        place = write_shards(part.shards(), writable(out) / "log", overwrite=True, notes=notes)
        return place, part.note
    if isinstance(log, str | Path):
        return Path(log), ""
    return write_log(as_log(log), writable(out) / "log", overwrite=True), ""


@dataclass(frozen=True, repr=False)
class DataSets(Displayed):
    """The catalogue of data sets, and which are available here."""

    rows: tuple[ListingRow, ...]

    def to_table(self) -> pa.Table:
        """One row per data set."""
        return pa.Table.from_pylist([row._asdict() for row in self.rows])

    def screen(self) -> Screen:
        columns = ListingRow._fields
        return Screen("Data sets", columns, [[cell(value) for value in row] for row in self.rows])


def data_sets() -> DataSets:
    """The catalogue of data sets, and which are available here; `load` reads one.

    >>> import unskew
    >>> "world:tiny" in unskew.data_sets().to_table()["name"].to_pylist()
    True
    """
    return DataSets(tuple(listing()))


def _name(place: Place | None) -> str | None:
    return None if place is None else str(place)
