"""Reproduce an experiment of a paper: from a name to a folder of results (see `comparison.outputs`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from unskew.comparison.outputs import DEFAULT_JOBS, Finished, Presentation, command_text, run_experiment, writable
from unskew.comparison.plan import plan
from unskew.comparison.run import Progress, Results
from unskew.comparison.settings import Experiment, Grid, OptionTable
from unskew.comparison.statistics import Table
from unskew.data.judged.catalogue import own_name
from unskew.papers.claims import judge
from unskew.papers.experiment_files import load_experiment, shipped
from unskew.papers.figures import draw
from unskew.papers.settings import PaperExperiment
from unskew.papers.sheets import CHOSEN_BY, SHEETS
from unskew.papers.tasks import PAPER_TASKS


def descriptions() -> list[tuple[str, str, str]]:
    """Name, title and paper of every shipped experiment."""
    experiments = [load_experiment(name) for name in shipped()]
    return [(entry.name, entry.title, entry.paper) for entry in experiments]


def reproduce(
    name: str | PaperExperiment,
    *,
    data: str | Mapping[str, str] | None = None,
    seeds: int | None = None,
    jobs: int = DEFAULT_JOBS,
    out: str | Path | None = None,
    variant: str | None = None,
    options: OptionTable | None = None,
    fresh: bool = False,
    allow_code: bool = False,
    progress: Progress | None = None,
) -> Finished:
    """Run an experiment and write its results; what was run before is not run again.

    Args:
        name: of a shipped experiment, or the path of a TOML file, or an experiment made in Python.
        data: a data set of the catalogue, one that comes in folds is repeated over them; or files of your own, as
            `load` takes them.
        seeds: repetitions; default: as the experiment says.
        out: folder for results; default: `runs/NAME-DATA`.
        variant: a size of the experiment; default: the one that the data set calls for.
        options: training settings, network sizes and hyper-parameters that all methods get, over those of the
            experiment.
        fresh: run again what is there already.
        allow_code: parts named `"module:Class"` in a file are imported.
    """
    experiment = load_experiment(name, allow_code=allow_code) if isinstance(name, str) else name
    data = own_name(data or experiment.data)
    experiment = experiment.varied(experiment.variant_for(data) if variant is None else variant)
    if options:
        experiment = _with_options(experiment, options)
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    if experiment.task not in SHEETS:
        raise ValueError(f"{experiment.name}: unknown task '{experiment.task}', known: {', '.join(SHEETS)}")
    groups = plan(experiment, data, seeds)
    folder = writable(Path(out or f"runs/{experiment.name}-{_file_name(data)}"))
    command = command_text(
        "reproduce",
        name if isinstance(name, str) else experiment.name,
        data=data,
        seeds=seeds,
        variant=variant,
        out=out,
    )
    return run_experiment(
        experiment,
        data,
        groups,
        folder,
        tasks=PAPER_TASKS,
        present=_present,
        command=command,
        seeds=seeds,
        jobs=jobs,
        fresh=fresh,
        progress=progress,
    )


def _with_options(experiment: PaperExperiment, options: OptionTable) -> PaperExperiment:
    """The experiment with these options in place of its own, wherever they stand; a grid of one is replaced by it."""

    def changed(own: OptionTable) -> OptionTable:
        return {name: options.get(name, value) for name, value in own.items()}

    def without(grid: Grid) -> Grid:
        return {name: values for name, values in grid.items() if name not in options}

    return replace(
        experiment,
        training={**experiment.training, **options},
        settings=tuple(replace(entry, options=changed(entry.options)) for entry in experiment.settings),
        methods=tuple(
            replace(entry, options=changed(entry.options), grid=without(entry.grid)) for entry in experiment.methods
        ),
    )


def _present(experiment: Experiment, results: Results, data: str) -> Presentation:
    """Tables, figures and what became of the claims."""
    assert isinstance(experiment, PaperExperiment)
    table = Table(results.results)
    return Presentation(
        sheets=[sheet for sheet in SHEETS[experiment.task](experiment, results, data) if sheet is not None],
        figures=[drawn for entry in experiment.figures if (drawn := draw(entry, experiment, results)) is not None],
        claims=[judge(claim, table, experiment.metric) for claim in experiment.claims],
        chosen_by=CHOSEN_BY.get(experiment.task, ""),
        lead=f"{experiment.paper}. Data: {data}.",
    )


def _file_name(data: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in data)
