"""The command line: one command, one function."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew import __version__
from unskew.commands import compare as _compare  # noqa: F401  registers itself
from unskew.commands import diagnose as _diagnose  # noqa: F401  registers itself
from unskew.commands import events as _events  # noqa: F401  registers itself
from unskew.commands import ingest as _ingest  # noqa: F401  registers itself
from unskew.commands.app import DATA_HELP, RANKER_HELP, Json, Options, Overwrite, Quiet, Seed, app, command
from unskew.commands.experiment_output import show_experiment
from unskew.data.catalogue import listing, load_split
from unskew.data.click_log import ClickLog
from unskew.data.judged_set import JudgedSet
from unskew.data.log_files import open_log, read_log
from unskew.data.new_folder import check_folder, check_place
from unskew.demo import click_rates, run_demo
from unskew.evaluation.evaluate import Scorer, evaluate, score_documents
from unskew.experiments.reproduce import descriptions
from unskew.experiments.reproduce import reproduce as run_reproduction
from unskew.fit import Model, Recipe, find_method, fit
from unskew.methods import METHODS, hyper_parameters
from unskew.serving.export import export_model
from unskew.serving.model import ABOUT, load_model, save_model
from unskew.serving.onnx_file import OnnxRanker
from unskew.serving.rankings import write_ranking
from unskew.serving.weights import check_has_curve, debiased_rows, write_rows
from unskew.simulation.policies import make_policy
from unskew.simulation.simulate import simulate as run_simulation
from unskew.simulation.truth import check_target
from unskew.simulation.users import make_user
from unskew.terminal import (
    cell,
    console,
    counting_progress,
    errors,
    experiment_progress,
    parse_options,
    show_json,
    show_table,
    training_progress,
)


@command
def demo(
    data: Annotated[str, typer.Option(help="A world of the catalogue.")] = "world:small",
    out: Annotated[Path, typer.Option(help="Where the report is written.")] = Path("report.html"),
    seed: Seed = 0,
) -> None:
    """The main job in one go: simulate a biased log, look at it, train plain and debiased rankers, compare them."""
    run_demo(data, out, seed)


@command
def simulate(
    data: Annotated[str, typer.Argument(help=f"{DATA_HELP} Default split: train.")],
    out: Annotated[Path, typer.Option(help="Folder for the log; the truth is written beside it.")],
    policy: Annotated[
        str, typer.Option(help="What is shown: svm, random, noisy_oracle, plackett_luce, mixed.")
    ] = "svm",
    user: Annotated[str, typer.Option(help="Who clicks: position_based, trust, coupled, …")] = "position_based",
    sessions: Annotated[int, typer.Option(help="Sessions of each query.")] = 128,
    coupling: Annotated[float | None, typer.Option(help="How much being seen depends on the document.")] = None,
    intervene: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SHARE", help="Change the order: swap_top, swap_neighbours, shuffle."),
    ] = None,
    policy_set: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the policy.")] = None,
    user_set: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the user.")] = None,
    n_shown: Annotated[int, typer.Option(help="Documents shown.")] = 10,
    joint: Annotated[bool, typer.Option("--joint", help="Keep which documents were clicked together.")] = False,
    drop_clickless: Annotated[
        bool, typer.Option("--drop-clickless", help="Leave out sessions without a click.")
    ] = False,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show judged data to simulated users and write the click log."""
    check_target(out, overwrite=overwrite)
    coupled = {} if coupling is None else {"coupling": coupling}
    shows = make_policy(policy, **parse_options(policy_set or []))
    clicks = make_user(user, **parse_options(user_set or []) | coupled)
    judged = load_split(data, "train")
    with counting_progress("simulate", "sessions", quiet=quiet or json) as progress:
        simulation = run_simulation(
            judged,
            shows,
            clicks,
            sessions=sessions,
            n_shown=n_shown,
            interventions=parse_options(intervene or []),
            joint=joint,
            drop_clickless=drop_clickless,
            seed=seed,
            progress=progress,
            out=out,
            overwrite=overwrite,
        )
    _show_log(simulation.log, out, json)


@command
def train(
    log: Annotated[Path, typer.Argument(help="A click log, as simulate writes it.")],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    method: Annotated[str, typer.Option(help="A method; `unskew methods` lists them.")] = "dla",
    validate: Annotated[
        str | None, typer.Option(help=f"{DATA_HELP} Or a share of the log's queries to hold out, e.g. 0.2.")
    ] = None,
    judged: Annotated[str | None, typer.Option(help=f"Judged data to learn from. {DATA_HELP}")] = None,
    interventions: Annotated[
        Path | None, typer.Option(help="A log of changed orders, for methods that need one.")
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read the log shard by shard: it may exceed memory.")
    ] = False,
    options: Options = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a ranker on a click log. A run that was cut off goes on where it was."""
    check_folder(out, ABOUT, overwrite=overwrite)
    recipe = Recipe.of(method, **{"seed": seed, **parse_options(options or [])})
    clicks = open_log(log) if stream else read_log(log)
    checkpoint = out.with_name(f".{out.name}.checkpoint")
    try:
        with training_progress(f"train {method}", quiet=quiet or json) as progress:
            model = fit(
                recipe,
                clicks,
                judged=None if judged is None else load_split(judged, "train"),
                interventions=None if interventions is None else read_log(interventions),
                validate=_validation(validate),
                progress=progress,
                checkpoint=checkpoint,
            )
    except KeyboardInterrupt:
        if checkpoint.exists():
            errors.print("stopped: the same command goes on from here")
        raise
    save_model(model, out, overwrite=overwrite)
    checkpoint.unlink(missing_ok=True)
    _show_model(model, out, json)


@command
def evaluate_command(
    model: Annotated[Path, typer.Argument(help=RANKER_HELP)],
    data: Annotated[str, typer.Argument(help=f"{DATA_HELP} Default split: test.")],
    metrics: Annotated[str, typer.Option(help="With commas between.")] = "ndcg@1,ndcg@3,ndcg@5,ndcg@10,err@10,arp",
    undefined: Annotated[str, typer.Option(help="Queries without a relevant document: skip, zero, one.")] = "skip",
    max_grade: Annotated[float | None, typer.Option(help="Highest possible grade, for err.")] = None,
    out: Annotated[Path | None, typer.Option(help="Parquet file for the values of each query.")] = None,
    json: Json = False,
) -> None:
    """Measure a model on judged data."""
    if out is not None:
        check_place(out, overwrite=True)
    judged = load_split(data, "test")
    names = [name.strip() for name in metrics.split(",")]
    ranker = _checked_ranker(model, judged)
    result = evaluate(ranker, judged, names, undefined=undefined, max_grade=max_grade)
    if out is not None:
        write_rows(result.to_table(), out)
    if json:
        show_json({row.metric: {"mean": row.mean, "low": row.low, "high": row.high} for row in result.summary()})
    else:
        columns = ("metric", "mean", "95 % interval", "queries", "left out")
        show_table(f"{model} on {judged.name}", columns, result.rows())


app.registered_commands[-1].name = "evaluate"


@command
def rank(
    model: Annotated[Path, typer.Argument(help=RANKER_HELP)],
    data: Annotated[str, typer.Argument(help=f"{DATA_HELP} Default split: test.")],
    out: Annotated[Path, typer.Option(help="scores.parquet, .csv, or .trec for a TREC run.")],
    overwrite: Overwrite = False,
) -> None:
    """Score and rank documents, keyed by their query and document ids."""
    check_place(out, overwrite=overwrite)
    judged = load_split(data, "test")
    scores = score_documents(_checked_ranker(model, judged), judged)
    write_ranking(judged, scores, out, tag=model.name)
    console.print(f"{judged.n_documents:,} documents of {judged.n_queries:,} queries ranked in {out}", markup=False)


@command
def export(
    model: Annotated[Path, typer.Argument(help="A saved model.")],
    to: Annotated[
        Path, typer.Option(help="model.onnx, or model.json: a linear ranker for Elasticsearch and OpenSearch.")
    ],
    overwrite: Overwrite = False,
) -> None:
    """Write a model for serving, checked against torch."""
    exported = export_model(load_model(model), to, overwrite=overwrite)
    console.print(str(exported), markup=False, highlight=False, soft_wrap=True)


@command
def weights(
    log: Annotated[Path, typer.Argument(help="A click log.")],
    out: Annotated[Path, typer.Option(help="Parquet file for the rows.")],
    method: Annotated[str, typer.Option(help="A method with an examination curve.")] = "dla",
    options: Options = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write debiased targets and weights that LightGBM and XGBoost take as they are."""
    check_place(out, overwrite=overwrite)
    check_has_curve(method)
    recipe = Recipe.of(method, **{"seed": seed, **parse_options(options or [])})
    clicks = read_log(log)
    held_out = None if find_method(method).click_model is None else 0.1
    with training_progress(f"train {method}", quiet=quiet) as progress:
        model = fit(recipe, clicks, validate=held_out, progress=progress)
    rows = debiased_rows(clicks, model)
    write_rows(rows, out)
    console.print(f"{len(rows):,} rows with target, grade and weight in {out}", markup=False)


@command
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="An experiment, as --list names them, or a TOML file of your own.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Describe the experiments.")] = False,
    data: Annotated[
        str | None, typer.Option(help="A data set of the catalogue; folds are repetitions. Default: a built-in world.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Repetitions. Default: as the experiment says.")] = None,
    jobs: Annotated[int, typer.Option(help="Runs side by side; threads are divided among them.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Folder for results. Default: runs/NAME-DATA.")] = None,
    variant: Annotated[
        str | None, typer.Option(help="A size of the experiment, e.g. paper. Default: what the data call for.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what is there already.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of a paper and write tables, figures and a report. Goes on where it was cut off."""
    if show or name is None:
        rows = descriptions()
        if json:
            show_json([{"name": row[0], "title": row[1], "paper": row[2]} for row in rows])
        else:
            show_table("Experiments", ("name", "what it shows", "paper"), rows, left=3)
        return
    with experiment_progress(name, quiet=quiet or json) as progress:
        done = run_reproduction(
            name, data=data, seeds=seeds, jobs=jobs, out=out, variant=variant, fresh=fresh, progress=progress
        )
    show_experiment(done, json)


@command
def methods(json: Json = False) -> None:
    """The methods, with their paper, what they assume, and their hyper-parameters."""
    defaults = {
        name: {entry.name: entry.default for entry in hyper_parameters(method).values()}
        for name, method in METHODS.items()
    }
    if json:
        show_json(
            {
                name: {"paper": m.paper, "assumes": m.assumes, "needs": m.detail, "hyper_parameters": defaults[name]}
                for name, m in METHODS.items()
            }
        )
        return
    rows = [
        (name, method.paper, method.assumes, "\n".join(f"{key}={value}" for key, value in defaults[name].items()))
        for name, method in METHODS.items()
    ]
    show_table("Methods", ("name", "paper", "assumes", "hyper-parameters (--set)"), rows, left=4)


@command
def data(json: Json = False) -> None:
    """The data sets of the catalogue, and which of them are here."""
    rows = listing()
    if json:
        show_json([row._asdict() for row in rows])
    else:
        show_table("Data sets", rows[0]._fields, [[cell(value) for value in row] for row in rows])


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        console.print(f"unskew {__version__}")
        raise typer.Exit


def _validation(text: str | None) -> JudgedSet | float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return load_split(text, "valid")


def _checked_ranker(path: Path, judged: JudgedSet) -> Scorer:
    """The ranker of a saved model, through torch, or of an exported file, through onnxruntime."""
    if path.suffix == ".onnx":
        exported = OnnxRanker(path)
        ranker: Scorer = exported
        n_features = exported.n_features
    else:
        model = load_model(path)
        ranker, n_features = model.ranker(), model.problem.n_features
    if judged.n_features != n_features:
        raise ValueError(
            f"{judged.name or 'the data'} has {judged.n_features} features, the model was trained on "
            f"{n_features}: rank data with the same features"
        )
    return ranker


def _show_log(log: ClickLog, out: Path, json: bool) -> None:
    rates = click_rates(log)
    if json:
        show_json(
            {
                "log": out,
                "sessions": log.n_sessions,
                "clicks": log.n_clicks,
                "lists": log.n_lists,
                "joint": log.joint,
                "compaction": log.compaction,
                "click_rates": [float(rate) for rate in rates],
            }
        )
        return
    console.print(f"{log!r}\nwritten to {out}; {log.compaction:,.1f} sessions a row", markup=False, highlight=False)
    show_table(
        "Clicks a session by position", ("position", "rate"), [(str(k + 1), f"{r:.4f}") for k, r in enumerate(rates)]
    )


def _show_model(model: Model, out: Path, json: bool) -> None:
    curve = model.examination()
    history = model.history
    if json:
        show_json(
            {
                "model": out,
                "method": model.recipe.method,
                "best_step": history.best_step,
                "best_value": history.best_value,
                "seconds": history.seconds,
                "examination": None if curve is None else curve.tolist(),
                "warnings": history.warnings,
            }
        )
        return
    best = "" if history.best_value is None else f", best {model.trained_on['validation']} {history.best_value:.4f}"
    console.print(
        f"{model.recipe.method} trained in {history.seconds:.1f} s{best}; written to {out}",
        markup=False,
        highlight=False,
    )
    if curve is not None:
        rows = [(str(place + 1), f"{value:.3f}") for place, value in enumerate(curve)]
        show_table("Learnt examination, relative to the top", ("position", "examination"), rows)
