"""Experiments of papers: `reproduce`."""

from __future__ import annotations

from collections.abc import Sequence

from unskew.comparison.outputs import DEFAULT_JOBS, Finished
from unskew.comparison.run import Fresh
from unskew.comparison.settings import OptionTable
from unskew.papers import reproduce as papers
from unskew.papers.reproduce import Data
from unskew.papers.settings import PaperExperiment
from unskew.public.inputs import Place
from unskew.public.progress import Follow, followed
from unskew.terminal import experiment_progress
from unskew.training.watching import Watch


def reproduce(
    name: str | PaperExperiment,
    *,
    data: Data | None = None,
    seeds: int | None = None,
    folds: Sequence[int] | None = None,
    jobs: int = DEFAULT_JOBS,
    out: Place | None = None,
    variant: str | None = None,
    options: OptionTable | None = None,
    fresh: Fresh = False,
    shard: str | None = None,
    merge: Sequence[Place] = (),
    allow_code: bool = False,
    watch: Watch | None = None,
    progress: Follow = True,
) -> Finished:
    """Run an experiment of a paper; write tables, figures and a report. Finished runs are kept.

    `compare` does the same for methods on your own log.

    Args:
        name: a shipped experiment (`unskew reproduce --list`), or the path of a TOML file.
        data: a data set of the catalogue, or your own files; several make one table of data sets and methods.
        seeds: seeds per fold; default: those of the experiment, otherwise 5, or 1 if the data have folds.
        folds: the folds to run, from 1; default: all.
        out: output folder; default: `runs/NAME-DATA`.
        variant: a variant of the experiment; default: chosen by the data set.
        options: override settings of the experiment.
        allow_code: allow the file to name your own parts (`"module:Class"`).
        fresh: repeat finished runs: True for all, or the labels of methods.
        shard: "2/8" runs the second of eight parts; `merge` combines them.
        merge: result folders whose finished runs are copied first.
        watch: a callable that receives every step and validation of every run, such as `unskew.TensorBoard(folder)`.
        progress: False for no bar, or a function that receives a `State`.

    >>> import unskew
    >>> found = unskew.reproduce("data-statistics", data="world:tiny", jobs=1, out="runs", progress=False)
    >>> found.report.name
    'report.html'
    """
    label = name if isinstance(name, str) else name.name
    with followed(progress, experiment_progress, label) as report:
        return papers.reproduce(
            name,
            data=data,
            seeds=seeds,
            folds=folds,
            jobs=jobs,
            out=out,
            variant=variant,
            options=options,
            fresh=fresh,
            shard=shard,
            merge=merge,
            allow_code=allow_code,
            progress=report,
            watch=watch,
        )
