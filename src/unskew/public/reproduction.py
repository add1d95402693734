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
    """Run an experiment of a paper and write tables, figures and a report; it goes on where it was cut off.

    `compare` does the same for methods on a log of your own.

    Args:
        name: of a shipped experiment (`unskew reproduce --list`), or the path of a TOML file.
        data: a data set of the catalogue, or files of your own; several make one table of data sets and methods.
        seeds: repetitions of each fold; default: as the experiment says, or 5, or 1 where the data come in folds.
        folds: those that are run, counted from 1; default: all.
        out: folder for results; default: `runs/NAME-DATA`.
        variant: a size of the experiment; default: the one that the data set calls for.
        options: of the experiment, over what its file says.
        allow_code: let the file name parts of your own (`"module:Class"`).
        fresh: run again what is there already: everything, or the methods with these labels.
        shard: "2/8" runs the second of eight parts; the parts are put together by `merge`.
        merge: result folders whose finished runs are taken over first.
        watch: a callable that is told every step and validation of every run, such as `unskew.TensorBoard(folder)`.
        progress: False for none, or a function that is called with a `State` on the way.

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
