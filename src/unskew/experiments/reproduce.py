"""Reproduce an experiment of a paper: from a name to a folder of results.

OUT/runs/                rows of finished runs; a run that is here is not run again
OUT/results.parquet      one line a run and test query
OUT/runs.parquet         one line a run: hyper-parameters, means, seconds, best step, learnt examination curve
OUT/*.md, *.tex          tables        OUT/*.svg, *.png  figures        OUT/report.html  all of it on one page
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.experiments.experiment_files import load_experiment, shipped
from unskew.experiments.outputs import SHEETS, Written, write_outputs
from unskew.experiments.plan import Group, plan
from unskew.experiments.run import Progress, Result, Results, run_plan
from unskew.experiments.settings import Experiment

DEFAULT_JOBS = 2


@dataclass(frozen=True, eq=False)
class Reproduction:
    """A finished experiment and what was written."""

    experiment: Experiment
    data: str
    results: Results
    written: Written
    out: Path


def descriptions() -> list[tuple[str, str, str]]:
    """Name, title and paper of every shipped experiment."""
    experiments = [load_experiment(name) for name in shipped()]
    return [(entry.name, entry.title, entry.paper) for entry in experiments]


def reproduce(
    name: str,
    *,
    data: str | None = None,
    seeds: int | None = None,
    jobs: int = DEFAULT_JOBS,
    out: str | Path | None = None,
    variant: str | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Reproduction:
    """Run an experiment and write its results; what was run before is not run again.

    Args:
        name: of a shipped experiment, or the path of a TOML file.
        data: a data set of the catalogue; one that comes in folds is repeated over them.
        seeds: repetitions; default: as the experiment says.
        out: folder for results; default: `runs/NAME-DATA`.
        variant: a size of the experiment; default: the one that the data set calls for.
        fresh: run again what is there already.
    """
    experiment = load_experiment(name)
    data = data or experiment.data
    experiment = experiment.varied(experiment.variant_for(data) if variant is None else variant)
    if experiment.task not in SHEETS:
        raise ValueError(f"{experiment.name}: unknown task '{experiment.task}', known: {', '.join(SHEETS)}")
    groups = plan(experiment, data, seeds)
    folder = writable(Path(out or f"runs/{experiment.name}-{_file_name(data)}"))
    command = command_text("reproduce", name, data=data, seeds=seeds, variant=variant, out=out)
    return run_groups(experiment, data, groups, folder, seeds or experiment.seeds, jobs, fresh, progress, command)


def run_groups(
    experiment: Experiment,
    data: str,
    groups: Sequence[Group],
    out: Path,
    seeds: int,
    jobs: int,
    fresh: bool,
    progress: Progress | None,
    command: str,
    criterion: str | None = None,
) -> Reproduction:
    """Run groups and write everything.

    Args:
        criterion: decides in a comparison without labels; default: the best known.
    """
    experiment = replace(experiment, seeds=seeds)
    results = run_plan(groups, out / "runs", experiment.metric, seeds=seeds, jobs=jobs, fresh=fresh, progress=progress)
    _write_results(results, out)
    written = write_outputs(experiment, data, results, out, command, criterion)
    return Reproduction(experiment, data, results, written, out)


def _write_results(results: Results, out: Path) -> None:
    """Both parquet files."""
    by_query = [_query_rows(result) for result in results.results if result.outcome.per_query]
    if by_query:
        pq.write_table(pa.concat_tables(by_query, promote_options="permissive"), out / "results.parquet")
    chosen = {result.run.key for result in results.results}
    everything = {result.run.key: result for result in (*results.results, *results.tried)}
    if everything:
        rows = [_run_row(result, result.run.key in chosen) for result in everything.values()]
        pq.write_table(pa.Table.from_pylist(rows), out / "runs.parquet")


def _query_rows(result: Result) -> pa.Table:
    run, outcome = result.run, result.outcome
    n_queries = len(next(iter(outcome.per_query.values())))
    names = {"setting": run.setting, "method": run.label, "data": run.repetition.data}
    columns = {name: pa.array([text] * n_queries).dictionary_encode() for name, text in names.items()}
    columns["seed"] = pa.array(np.full(n_queries, run.repetition.seed))
    queries = [str(query) for query in outcome.query_ids] if outcome.query_ids is not None else [None] * n_queries
    columns["query"] = pa.array(queries, pa.string())
    return pa.table(columns | {name: pa.array(values, from_pandas=True) for name, values in outcome.per_query.items()})


def _run_row(result: Result, chosen: bool) -> dict[str, object]:
    run, about = result.run, result.outcome.about
    return {
        "key": run.key,
        "setting": run.setting,
        "method": run.label,
        "data": run.repetition.data,
        "seed": run.repetition.seed,
        "chosen": chosen,
        "hyper_parameters": json.dumps(run.point),
        **{name: float(np.nanmean(values)) for name, values in result.outcome.per_query.items()},
        **{name: about.get(name) for name in ("validation", "best_step", "seconds", "examination", "code")},
    }


def writable(folder: Path) -> Path:
    """The folder, made if need be; an error before any work if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(f"{folder} cannot be written ({error}): choose another place with --out") from error
    return folder


def _file_name(data: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in data)


def command_text(verb: str, subject: str, **options: object) -> str:
    """A command as it is typed."""
    words = [f"--{name} {value}" for name, value in options.items() if value is not None]
    return " ".join(["unskew", verb, subject, *words])
