"""Experiments of papers: `reproduce`."""

from __future__ import annotations

from collections.abc import Mapping

from unskew.comparison.outputs import DEFAULT_JOBS, Finished
from unskew.comparison.settings import OptionTable
from unskew.papers import reproduce as papers
from unskew.papers.settings import PaperExperiment
from unskew.public.inputs import Place
from unskew.public.progress import Follow, followed
from unskew.terminal import experiment_progress


def reproduce(
    name: str | PaperExperiment,
    *,
    data: str | Mapping[str, str] | None = None,
    seeds: int | None = None,
    jobs: int = DEFAULT_JOBS,
    out: Place | None = None,
    variant: str | None = None,
    options: OptionTable | None = None,
    fresh: bool = False,
    allow_code: bool = False,
    progress: Follow = True,
) -> Finished:
    """Run an experiment of a paper and write tables, figures and a report; it goes on where it was cut off.

    Args:
        name: of a shipped experiment (`unskew reproduce --list`), or the path of a TOML file.
        data: a data set of the catalogue; one that comes in folds is repeated over them.
        seeds: repetitions; default: as the experiment says.
        out: folder for results; default: `runs/NAME-DATA`.
        variant: a size of the experiment; default: the one that the data set calls for.
        options: of the experiment, over what its file says.
        allow_code: let the file name parts of your own (`"module:Class"`).
        fresh: run again what is there already.
        progress: False for none, or a function that is called with a `State` on the way.
    """
    label = name if isinstance(name, str) else name.name
    with followed(progress, experiment_progress, label) as report:
        return papers.reproduce(
            name,
            data=data,
            seeds=seeds,
            jobs=jobs,
            out=out,
            variant=variant,
            options=options,
            fresh=fresh,
            allow_code=allow_code,
            progress=report,
        )
