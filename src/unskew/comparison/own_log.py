"""Compare methods with the production ranking on your own log: by labels, or by held-out clicks."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

from unskew.command_line.repeating import command_line
from unskew.comparison.against_production import (
    PRODUCTION,
    Outlook,
    click_prediction_sheet,
    criteria_sheets,
    outlook,
    standing_sheet,
)
from unskew.comparison.held_out import HELD_OUT
from unskew.comparison.outputs import DEFAULT_JOBS, Finished, Presentation, run_experiment, writable
from unskew.comparison.outside import LIGHTGBM, OUTSIDE_TASKS, lightgbm_rows, scores_definition
from unskew.comparison.plan import FORMAT, Group, Repetition, Run, plan, repetitions_of
from unskew.comparison.run import Fresh, Results
from unskew.comparison.settings import Entry, Experiment, OptionTable
from unskew.comparison.sources import own_log
from unskew.comparison.statistics import Table
from unskew.comparison.tables import chosen_sheet, difference_sheet, result_sheets, seen_sheet
from unskew.comparison.tasks import TASKS
from unskew.data.clicks.lineage import lineage_line
from unskew.data.clicks.storage import open_log, read_log, write_log, write_shards
from unskew.data.clicks.within_memory import MEMORY, folder_of, part_within
from unskew.data.inputs import LogOrPlace, Place, as_log
from unskew.data.judged.catalogue import load_split
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.public_logs.id_pages import is_public_log
from unskew.diagnosis.advice import advise, facts, worth_comparing
from unskew.diagnosis.page import diagnose
from unskew.display import Screen
from unskew.evaluation.criteria import CRITERIA
from unskew.evaluation.evaluate import seen_queries
from unskew.evaluation.production import latest_ranker, parse_production, production_of_log
from unskew.extensions import name_of
from unskew.methods import METHODS, Method
from unskew.options import check_choice
from unskew.reporting.drawing import Drawn, interval_figure, position_figure
from unskew.reporting.terminal import Follow, experiment_progress, followed
from unskew.training.recipe import Recipe, find_method

LAST_STEP = "the last step"  # without judged data
BY_CLICKS = f"{LAST_STEP}; hyper-parameters by other held-out clicks, first repetition"


def compare(
    log: LogOrPlace,
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
    """Compare methods with production on your log, by labels or by held-out clicks.

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
        metric: the main metric with judged data.
        baseline: the method to test the others against; default: the first. Only with judged data.
        criterion: the label-free criterion that decides without judged data; default: the one that chose best in our
            measurements.
        production: the production ranker: since=DATE, score=COLUMN or logger=COLUMN:VALUE. Default: the latest in
            the log.
        held_out: share of the queries to compare on, without judged data.
        seeds: number of trainings per method, with the same log and held-out queries.
        jobs: runs in parallel; they share the threads.
        out: output folder; finished runs there are kept, except those of the methods that `fresh` names.
        memory: limit for a log on disk, for each process; None: no limit. If the log needs more, methods are compared
            on a random sample of its queries, which is written to `OUT/log`.
        progress: False for none, or a function that receives a `State`.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> found = unskew.compare(log, ["naive", "dla"], options={"steps": 3}, out="comparison", jobs=1, progress=False)
    >>> found.to_table()["method"].to_pylist()
    ['production', 'naive', 'dla']
    """
    path, part = _folder(log, Path(out), memory)
    validate, test, judged = (None if place is None else str(place) for place in (validate, test, judged))
    if methods is None:
        known = worth_comparing(advise(facts(diagnose(read_log(path), quick=True, progress=False))))
        methods = [*known, *lightgbm_rows(known)]
    others = [str(name) for name in methods if name in LIGHTGBM]
    methods = [name for name in methods if name not in LIGHTGBM]
    entries = [_entry(method, grids or {}) for method in methods]
    labels = [entry.label for entry in entries]
    _check([entry.method for entry in entries], labels, grids or {}, judged, baseline, criterion)
    if production is not None:
        parse_production(production)
    if not 0 < held_out < 1:
        raise ValueError(f"held_out is the share of the queries to compare on, between 0 and 1, got {held_out}")
    if (validate is None) != (test is None):
        raise ValueError(
            "judged data are needed both for validation and for testing: pass both validate and test, or neither"
        )
    own: OptionTable = {"log": log_place(path), "judged": judged}
    seen: dict[str, bool] = {}
    if validate is not None and test is not None:
        tested = load_split(test, "test")
        known_queries = seen_queries(tested, read_log(path)).tolist()
        seen = dict(zip(map(str, tested.query_ids.tolist()), known_queries, strict=True))
        own |= {"valid": validate, "test": test, "max_grade": _checked_grade(validate, test)}
    else:
        own["held_out"] = {"share": held_out, "choosing": bool(grids)}
        if grids:  # without grids every criterion is measured anyway, and rows do not depend on the one that decides
            own["criterion"] = criterion
        metrics, metric, baseline = (), Experiment.metric, None
    experiment = Experiment(
        name="compare",
        title="Comparison of methods",
        question=f"Which of {', '.join(labels)} ranks best after learning from {path.name}?",
        task="train" if test is not None else "choose",
        metrics=tuple(dict.fromkeys([*metrics, metric])),
        metric=metric,
        seeds=seeds,
        baseline=(baseline or labels[0],),
        notes=(f"{lineage_line({'log': own['log']})}.", *([f"{part}."] if part else [])),
        training=dict(options or {}),
        methods=tuple(entries),
    )
    outside: dict[str, tuple[str, OptionTable]]
    weights = {name: value for name, value in (options or {}).items() if name in ("grade", "sum_grades")}
    outside = {name: ("lightgbm", {"position": LIGHTGBM[name], **weights}) for name in others}
    outside |= {name: ("scores", scores_definition(name, file)) for name, file in (scores or {}).items()}
    shown = {**own, **_which(path, production)}
    groups = [
        _fixed_group(PRODUCTION, "production", experiment, path.name, shown),
        *plan(experiment, path.name, seeds, own),
        *(_fixed_group(name, task, experiment, path.name, {**own, **more}) for name, (task, more) in outside.items()),
    ]
    again = {
        "log": path,
        "methods": [*labels, *others],
        "scores": scores,
        "grids": grids,
        "options": options or {},
        "validate": validate,
        "test": test,
        "judged": judged,
        "metric": metric,
        "baseline": baseline,
        "criterion": criterion,
        "production": production,
        "held_out": held_out,
        "seeds": seeds,
        "out": out,
    }
    with followed(progress, experiment_progress, "compare") as report:
        return run_experiment(
            experiment,
            path.name,
            groups,
            writable(Path(out)),
            tasks=TASKS | OUTSIDE_TASKS,
            present=partial(_present, criterion=criterion, seen=seen),
            command=command_line("compare", again),
            jobs=jobs,
            fresh=fresh,
            progress=report,
        )


def _folder(log: LogOrPlace, out: Path, memory: str | None) -> tuple[Path, str]:
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


def _which(path: Path, said: str | None) -> OptionTable:
    """The production ranker: as the user said, otherwise the latest one if the log shows several."""
    log = own_log(str(path))
    if said is not None:
        production_of_log(log, said)  # raises before anything is trained
        return {"which": said}
    found = latest_ranker(log)
    return {} if found.which is None else {"which": found.which, "found": found.line}


def _present(
    experiment: Experiment, results: Results, data: str, criterion: str | None, seen: Mapping[str, bool]
) -> Presentation:
    """The comparison with production, then tables by judgements, or by the criteria of held-out clicks."""
    found = outlook(experiment, results, criterion)
    table = Table(results.results)
    sheets: list[Screen | None] = [standing_sheet(found, experiment.seeds or 1) if found else None]
    if experiment.task == "choose":
        sheets += [*criteria_sheets(results), click_prediction_sheet(results)]
    else:
        sheets += [*result_sheets(experiment, table, data), difference_sheet(experiment, table)]
        sheets.append(seen_sheet(experiment, results, seen))
    sheets.append(chosen_sheet(experiment, table))
    unjudged = BY_CLICKS if any(entry.grid for entry in experiment.methods) else LAST_STEP
    chosen_by = unjudged if experiment.task == "choose" else ""
    shown = [sheet for sheet in sheets if sheet is not None]
    figures = [*production_figures(found), *level_figures(results)]
    return Presentation(shown, figures=figures, outlook=found, chosen_by=chosen_by)


def production_figures(found: Outlook | None) -> list[Drawn]:
    """Each method's difference from production, with its interval; none if nothing can be compared."""
    if found is None or not found.rivals:
        return []
    better = "higher" if found.higher_is_better else "lower"
    title = f"Difference from production in {found.measure} ({better} is better), with intervals over queries"
    return [Drawn(PRODUCTION, title, interval_figure(found.intervals, f"{found.measure}, difference from production"))]


def level_figures(results: Results) -> list[Drawn]:
    """Examination per level of a bias column, one picture per method that has such curves, of its first training."""
    drawn, done = [], set()
    for result in results.results:
        label, curves = result.run.label, result.outcome.about.get("examination_by_level") or {}
        if not curves or label in done:
            continue
        done.add(label)
        title = f"Examination by level, learned by {label}"
        drawn.append(Drawn(f"examination-{label}", title, position_figure(curves)))
    return drawn


def _entry(method: str | type[Method], grids: Mapping[str, Mapping[str, list]]) -> Entry:
    """A method as a row; `METHOD+trees` has trees as its ranker."""
    ranker = ""
    if isinstance(method, str):
        method, _, ranker = method.partition("+")
    label = f"{label_of(method)}+{ranker}" if ranker else label_of(method)
    if ranker:
        Recipe.of(method, ranker=ranker)  # raises before anything runs
    return Entry(label, method, options={"ranker": ranker} if ranker else {}, grid=dict(grids.get(label, {})))


def _fixed_group(label: str, task: str, experiment: Experiment, data: str, own: OptionTable) -> Group:
    """A ranking that does not depend on the seed, such as production's: all repetitions are equal."""
    definition = {
        "format": FORMAT,
        "version": version("unskew"),
        "task": task,
        "data": data,
        "metrics": list(experiment.metrics),
        "metric": experiment.metric,
        "undefined": experiment.undefined,
        **own,
    }

    def run(repetition: Repetition) -> Run:
        return Run("", label, {}, repetition, definition)

    first, *others = repetitions_of(data, experiment.seeds)
    return Group("", label, (run(first),), lambda _: [run(repetition) for repetition in others])


def label_of(method: str | type[Method]) -> str:
    """The name of a method in tables."""
    return name_of(METHODS, method).rpartition(":")[2]


def _check(
    methods: Sequence[str | type[Method]],
    labels: Sequence[str],
    grids: Mapping[str, Mapping[str, list]],
    judged: str | None,
    baseline: str | None,
    criterion: str | None,
) -> None:
    if not methods:
        raise ValueError("there is no method to compare: name at least one besides LightGBM")
    taught = [find_method(method).learns_from == "judgements" for method in methods]
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise ValueError(f"'{twice[0]}' is compared twice: name each method once")
    strangers = [name for name in grids if name not in labels]
    if strangers:
        raise ValueError(f"there is a grid for '{strangers[0]}', which is not in the comparison: add it to methods")
    if baseline is not None and baseline not in labels:
        raise ValueError(f"the baseline '{baseline}' is not in the comparison: add it to methods")
    if any(taught) and judged is None:
        raise ValueError(f"{labels[taught.index(True)]} learns from judgements: pass judged data (--judged DATA)")
    if criterion is not None:
        check_choice(criterion, CRITERIA, "criterion")


def _checked_grade(validate: str, test: str) -> float:
    """The highest grade of both sets, which must have the same features."""
    valid, tested = load_split(validate, "valid"), load_split(test, "test")
    if valid.n_features != tested.n_features:
        raise ValueError(
            f"{validate} has {valid.n_features} features, but {test} has {tested.n_features}: "
            "validate and test on data with the features of the log"
        )
    _check_apart(validate, test, valid, tested)
    return max(valid.max_grade, tested.max_grade)


def _check_apart(validate: str, test: str, valid: JudgedSet, tested: JudgedSet) -> None:
    """Refuse to test on validation data: one file for both, or queries that are equal in id and features."""
    if Path(validate).is_file() and Path(test).is_file() and Path(validate).samefile(test):
        raise ValueError(
            f"{validate} is used for both validation and test, which would bias the result: split it into two files"
        )
    if not valid.n_features:
        return  # equal ids alone prove nothing: every split may count from 0

    def content(judged: JudgedSet, query: int) -> bytes:
        return judged.features[judged.offsets[query] : judged.offsets[query + 1]].tobytes()

    known = {name: query for query, name in enumerate(valid.query_ids.tolist())}
    common = [
        name
        for query, name in enumerate(tested.query_ids.tolist())
        if name in known and content(valid, known[name]) == content(tested, query)
    ]
    if common:
        raise ValueError(
            f"{len(common):,} queries are in both {validate} and {test}, by id and features (the first is "
            f"'{common[0]}'): remove them from one of the two"
        )


def log_place(path: Path) -> dict[str, str]:
    """The path (or name) of a log, and a hash of its content."""
    public = is_public_log(str(path)) and not path.exists()
    known = own_log(str(path)) if public else open_log(path)
    if not known.n_clicks:
        raise ValueError(f"{path} has no clicks: there is nothing to learn from or to compare by")
    return {"path": str(path if public else path.resolve()), "digest": known.digest}
