"""Reproduce an experiment of a paper: from a name to a folder of results (see `comparison.outputs`).

Instead of simulated users, the real clicks of a public log with judged queries: `--data ultre-2:FOLDER`, `--data
baidu-ultr:CLICKS+JUDGED` or `--data tiangong-st:FOLDER` (`public_logs.forms`) use the protocol of the CDLA-LD paper:
pages with all of the first ten positions and a click among them, 80% of them for training; judged queries split into
20% for validation and 80% for testing. Log and judged queries are written next to the results, so that runs are
identified by their content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from unskew.command_line.repeating import command_line
from unskew.comparison.outputs import DEFAULT_JOBS, Finished, Presentation, run_experiment, writable
from unskew.comparison.own_log import log_place
from unskew.comparison.plan import Group, plan
from unskew.comparison.rows import gather_rows
from unskew.comparison.run import Fresh, Results
from unskew.comparison.settings import Experiment, Grid, OptionTable, Setting
from unskew.comparison.statistics import Table
from unskew.comparison.tables import data_set_sheet
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import read_log, write_log
from unskew.data.files import write_text
from unskew.data.inputs import Place
from unskew.data.judged.catalogue import own_name
from unskew.data.public_logs.forms import CLICKS, JUDGED, is_judged_form
from unskew.data.public_logs.result_pages import complete_pages, split_judged, split_pages
from unskew.display import Screen
from unskew.papers.claims import judge
from unskew.papers.experiment_files import experiment_source, load_experiment, shipped
from unskew.papers.figures import draw
from unskew.papers.settings import PaperExperiment
from unskew.papers.sheets import CHOSEN_BY, SHEETS
from unskew.papers.tasks import PAPER_TASKS
from unskew.reporting.terminal import Follow, experiment_progress, followed
from unskew.serving.ratings import write_rows
from unskew.training.watching import Watch

Data = str | Mapping[str, str] | Sequence[str | Mapping[str, str]]


def descriptions() -> list[tuple[str, str, str]]:
    """Name, title and paper of every shipped experiment."""
    experiments = [load_experiment(name) for name in shipped()]
    return [(entry.name, entry.title, entry.paper) for entry in experiments]


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
        jobs: runs in parallel; they share the threads.
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
    experiment = load_experiment(name, allow_code=allow_code) if isinstance(name, str) else name
    names = _data_names(data or experiment.data)
    experiment = experiment.varied(experiment.variant_for(names[0]) if variant is None else variant)
    if options:
        experiment = _with_options(experiment, options)
    if experiment.task not in SHEETS:
        raise ValueError(f"{experiment.name}: unknown task '{experiment.task}': choose from {', '.join(SHEETS)}")
    every = ", ".join(names)
    folder = Path(out or f"runs/{experiment.name}-{_file_name(every)}")
    if any(map(is_judged_form, names)):
        if len(names) > 1:
            raise ValueError(f"real clicks cannot be combined with other data: run {', '.join(names)} one by one")
        experiment = on_real_clicks(experiment)
        form = every.partition(":")[0]
        groups = plan(experiment, form, seeds, real_clicks(every, writable(folder) / form))
    else:
        groups = [group for entry in names for group in plan(experiment, entry, seeds, folds=folds)]
    if shard is not None:
        groups = _shard(groups, shard)
    folder = writable(folder)
    gather_rows([Path(source) for source in merge], folder / "runs")
    if isinstance(name, str):
        write_text(folder / "experiment.toml", experiment_source(name))
    subject = name if isinstance(name, str) else experiment.name
    own = {"name": subject, "data": names, "seeds": seeds, "folds": folds, "variant": variant, "out": out}
    again = {**own, "options": options or {}, "shard": shard, "allow_code": allow_code}
    with followed(progress, experiment_progress, subject) as report:
        return run_experiment(
            experiment,
            every,
            groups,
            folder,
            tasks=PAPER_TASKS,
            present=_present,
            command=command_line("reproduce", again),
            jobs=jobs,
            fresh=fresh,
            progress=report,
            watch=watch,
        )


def _data_names(data: Data) -> list[str]:
    """Names of data sets, one or several."""
    names = [own_name(entry) for entry in ([data] if isinstance(data, str | Mapping) else data)]
    twice = [name for name in names if names.count(name) > 1]
    if not names or twice:
        raise ValueError(f"data set '{twice[0]}' is named twice: drop one" if twice else "name at least one data set")
    return names


def _shard(groups: Sequence[Group], text: str) -> list[Group]:
    """The groups of one part; the grid and repetitions of a method in a setting stay together."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    number, parts = (int(part) for part in found.groups()) if found else (0, 0)
    if not 1 <= number <= parts:
        raise ValueError(f"shard must have the form 2/8, the second of eight parts, got '{text}'")
    mine = [group for place, group in enumerate(groups) if place % parts == number - 1]
    if not mine:
        raise ValueError(f"there are {len(groups)} methods and settings, too few for {parts} parts: use fewer")
    return mine


def _with_options(experiment: PaperExperiment, options: OptionTable) -> PaperExperiment:
    """The experiment with these options in place of its own, wherever they are set; they also replace grids."""

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
    """Tables, figures and the verdicts on claims; with several data sets, first a table of all of them."""
    assert isinstance(experiment, PaperExperiment)
    parts = {name: results.of(name) for name in results.data_sets} or {data: results}
    tables = {name: Table(part.results) for name, part in parts.items()}
    several = len(parts) > 1
    sheets: list[Screen | None] = []
    figures = []
    if several and experiment.task == "train":
        sheets.append(data_set_sheet(experiment, tables))
    for name, part in parts.items():
        own = [sheet for sheet in SHEETS[experiment.task](experiment, part, name) if sheet is not None]
        sheets += [replace(sheet, name=f"{sheet.name}-{_file_name(name)}") for sheet in own] if several else own
        for entry in experiment.figures:
            named = replace(entry, file=f"{entry.file}-{_file_name(name)}", title=f"{entry.title}, {name}")
            figures.append(draw(named if several else entry, experiment, part))
    return Presentation(
        sheets=[sheet for sheet in sheets if sheet is not None],
        figures=[drawn for drawn in figures if drawn is not None],
        claims=judge(experiment.claims, tables, experiment.metric),
        chosen_by=CHOSEN_BY.get(experiment.task, ""),
        lead=f"{experiment.paper}. Data: {data}.",
    )


def _file_name(data: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in data)


BESIDE = "+"  # separates the files of clicks and of judged queries


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
        if not path.is_file():
            named = part if part.feature_names else replace(part, feature_names=names)
            write_rows([named.to_table()], path)
    return {
        "log": log_place(log),
        "judged": None,
        "valid": str(valid.resolve()),
        "test": str(test.resolve()),
        "max_grade": max(part.max_grade for part in parts),
    }
