"""The commands: the function that each one calls, its options in the order of its help, and where they differ from it.

An option without an entry here has the name, the default and the text (under `Args:`) of the function's parameter.
To add a command, write its function in `unskew` and one entry here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unskew.command_line.signatures import NEEDED, Parameter, constant, parameters, summary
from unskew.command_line.values import DATA, FILES, FOLDS, FRESH, GRADES, GRIDS, NAMES, PAIRS, SHARE, Form

AS_IN_FUNCTION = object()  # the default of an option whose function has it
KINDS = {"bool": bool, "int": int, "float": float, "str": str, "Judged": str}
KINDS |= dict.fromkeys(("Path", "Place", "LogOrPlace", "str | Path", "Model | Place"), Path)


@dataclass(frozen=True)
class Option:
    """An option or an argument of a command; what is empty comes from the function."""

    help: str = ""  # {module:NAME} stands for a constant
    default: Any = AS_IN_FUNCTION
    kind: Any = None
    flag: str = ""
    to: str = ""  # the parameter of the function, if it has another name
    metavar: str | None = None
    least: int | None = None
    panel: str | None = None
    form: Form | None = None


@dataclass(frozen=True)
class Command:
    """A command: what it calls, and its options by name."""

    function: str  # module:function; empty: `run` does it all
    names: str  # arguments / options
    own: Mapping[str, Option] = field(default_factory=dict)
    help: str = ""  # empty: the first paragraph of the function's docstring
    run: str = ""  # what a terminal does instead of calling the function alone; `commands.module:function`
    files: Mapping[str, str] = field(default_factory=dict)  # names in JSON -> options that hold paths
    end: str = ""  # last line on the screen

    @property
    def arguments(self) -> list[str]:
        return self.names.partition("/")[0].split()

    @property
    def summary(self) -> str:
        return self.help or summary(self.function)


DATA_HELP = "A data set of the catalogue (NAME or NAME@split), a LETOR file, or a table."
RANKER = "A saved model, an exported .onnx file (run by onnxruntime), or exported trees (.txt, .json)."
COMMON = {
    "log": Option("A click log.", kind=Path, default=NEEDED),
    "json": Option("Print one JSON document instead of a table.", False, bool),
    "quiet": Option("Hide the progress display.", False, bool),
    "seed": Option("Random seed; the same seed gives the same result.", 0, int),
    "overwrite": Option("Overwrite existing output.", False, bool, "--overwrite/--no-overwrite"),
    "stream": Option("Read the log shard by shard; it may be larger than memory.", False, bool),
    "strict": Option("Refuse missing values in columns that had none in training."),
    "since": Option("Use lists shown from this day on, e.g. 2026-11-10.", None, str),
    "until": Option("Use lists shown before this day.", None, str),
    "allow_code": Option("Allow module:Class to import and run your own code.", False, bool),
    "fresh": Option("Run this method again, by label; 'all' for everything. Repeatable.", form=FRESH),
    "set": Option("Set an option, e.g. steps=500. Repeatable.", None, form=PAIRS, to="options", metavar="NAME=VALUE"),
    "grade": Option(
        "Event weights for training, e.g. click=1,add_to_cart=3,purchase=5. Default: the weights set at ingest; "
        "click=1 uses only clicks.",
        None,
        str,
        form=GRADES,
        metavar="KIND=WEIGHT,…",
    ),
    "sum_grades": Option("Add up the weights of all events on an impression.", False, bool),
    "memory": Option(
        "Memory for what is held of the log, such as 16GB; of a larger log, a random sample of its queries."
    ),
    "production": Option(metavar="WHICH"),
    "start": Option(flag="--from"),
}


def _column(role: str) -> Option:
    return Option(f"Column with the {role}.", None, str, panel="Columns")


def _several(text: str) -> Option:
    return Option(f"{text} Repeatable.", None, list[str], panel="Columns")


def _size(of: str) -> Option:
    return Option(f"Positions per {of}. Default: the largest number observed.", None, int, least=1, panel="Columns")


def _table(text: str) -> Option:
    return Option(text, None, str)


INGEST = {
    "source": Option(
        "Parquet, CSV or JSON lines (file, folder or glob), a DuckDB file, or a database URL.", NEEDED, str, to="events"
    ),
    "out": Option("Output folder for the log; not needed with --dry-run."),
    "features": _table("A table of features, by query and document."),
    "clicks": _table("A table of clicks, if the events contain only impressions."),
    "queries": _table("The query table of User Behavior Insights."),
    "columns": Option("TOML file with column names.", None, Path),
    "form": Option("{ingestion.columns:FORMS}, {data.public_logs.forms:CLICKS}.", None, str, panel="Columns"),
    "session": _column("session, which distinguishes one showing of a query from the next"),
    "query": _column("query"),
    "document": _column("document"),
    "position": _column("position"),
    "row": _column("row of a result grid, if positions restart in each row"),
    "page": _column("page number, if positions restart on each page; none: there are no pages"),
    "row_size": _size("row"),
    "page_size": _size("page"),
    "click": _column("click"),
    "time": _column("time; none: use no time"),
    "user": replace(
        _column("user, which is read and then dropped; COLUMN=N keeps at most N sessions per user"),
        metavar="COLUMN[=N]",
    ),
    "keep_users": Option("Keep what unskew forget needs, in a file of its own.", False, bool),
    "hash_queries": Option("Store digests of queries, with the secret in OUT.salt, not their texts.", False, bool),
    "policy_score": _column("score by which the document was ranked"),
    "display_probability": _column("probability that a stochastic ranker shows the document there"),
    "intervention": _column("intervention that changed the order"),
    "shuffled": _several("Intervention that shuffles lists: NAME, or NAME=10 for the top 10."),
    "bias": _several("Column that may change examination."),
    "context": _several("Feature of the user, session or moment, with one value per result page."),
    "seen": _column("recorded examination: 0 or 1, or seconds in the viewport; empty: not recorded"),
    "feature": _several("Feature, or a pattern: 'f_*'. Default: numbers, categories."),
    "grade": Option(
        "Feedback to keep, by column or event type, with its weight in training: click=1,add_to_cart=3,purchase=5.",
        None,
        str,
        form=GRADES,
        to="grades",
        metavar="KIND=WEIGHT,…",
        panel="Columns",
    ),
    "event": _column("event type"),
    "impression_event": replace(_several("Event type that is an impression."), to="impression_events"),
    "click_event": replace(_several("Event type that is a click."), to="click_events"),
    "seen_event": replace(_several("Event type that records examination."), to="seen_events"),
    "features_document": _column("document in the feature table, if it has another name"),
    "first_position": Option("Index of the first position.", None, int, panel="Columns"),
    "table": replace(_table("Table of events in a database."), to="events_table"),
    "features_table": _table("Table of features in a database."),
    "clicks_table": _table("Table of clicks in a database."),
    "queries_table": _table("Table of queries in a database."),
    "encoding": _table("Encoding of CSV files, e.g. latin-1. Default: utf-8."),
    "n_positions": Option("Number of positions to keep, from the top.", None, int, least=1),
    "where": Option("Rows to keep, e.g. 'not is_sponsored and price > 0'.", None, str, metavar="CONDITION"),
    "period": _table("Count lists per hour, day, week or month, to select time windows later."),
    "window": Option("How long events count after their impression: 30m, 12h, 7d.", None, str, metavar="TIME"),
    "fill": Option("Value for missing features. Default: keep them missing.", None, float),
    "joint": Option("Keep which documents were clicked together.", False, bool),
    "strict": Option("Fail instead of leaving rows out.", False, bool),
    "dry_run": Option("Show columns, rows and counts; write nothing.", False, bool),
    "engine": Option("duckdb, or spark for logs too large for one machine.", "duckdb", str),
    "memory": Option("Memory limit of DuckDB; the rest spills to disk.", "2GB", str),
    "threads": Option("Number of threads. Default: one per core.", None, int, least=1),
    "spark_master": Option("URL of the Spark cluster, e.g. local[4].", None, str, to="master"),
}

COMMANDS = {
    "demo": Command("comparison.demonstration:demo", "/ data out seed", run="commands.listings:demo"),
    "simulate": Command(
        "simulation.simulate:simulate",
        "data / out policy user sessions coupling intervene policy_set user_set n_shown joint drop_clickless record "
        "display_probabilities allow_code seed overwrite json quiet",
        {
            "data": Option(f"{DATA_HELP} Default split: train.", to="judged"),
            "out": Option("Output folder for the log; the truth is written next to it.", NEEDED),
            "policy": Option("The logging policy: {simulation.policies:POLICIES}.", kind=str),
            "user": Option("The user model: {simulation.users:USERS}.", kind=str),
            "sessions": Option(kind=int),
            "coupling": Option("How much examination depends on the document.", None, float),
            "intervene": Option(
                "Randomize a share of sessions: {simulation.display:INTERVENTIONS}.",
                form=PAIRS,
                to="interventions",
                metavar="NAME=SHARE",
            ),
            "policy_set": Option("Set an option of the policy.", None, form=PAIRS, metavar="NAME=VALUE"),
            "user_set": Option("Set an option of the user.", None, form=PAIRS, metavar="NAME=VALUE"),
            "record": Option(
                "Record examination: share=1 for all sessions; misses, false_alarms, interest, on_click.",
                form=PAIRS,
                metavar="NAME=VALUE",
            ),
        },
        run="commands.logs:simulate",
        files={"log": "out"},
        end="Written to {out}",
    ),
    "shop": Command(
        "simulation.shop_log:shop",
        "/ out sessions seed overwrite json",
        {
            "out": Option(
                "Output folder for {simulation.shop_log:EVENTS}, {simulation.shop_log:JUDGED} and "
                "{simulation.shop_log:TRUTH}.",
                NEEDED,
            ),
            "sessions": Option("Number of searches, with 12 impressions each on average.", least=1),
        },
        files={"shop": "out"},
        end="Written to {out}",
    ),
    "events": Command(
        "ingestion.event_table:events",
        "log / out features seed overwrite json",
    ),
    "ingest": Command(
        "ingestion.run:ingest",
        f"source / {' '.join(name for name in INGEST if name != 'source')} overwrite json quiet",
        INGEST,
        run="commands.logs:ingest",
        files={"log": "out"},
        end="Written to {out}",
    ),
    "diagnose": Command(
        "diagnosis.page:diagnose",
        "log / out quick users cap memory seed json quiet",
        {
            "out": Option(default=Path("report.html")),
            "cap": Option("Maximum number of sessions per user; needs --users."),
        },
        files={"log": "log", "report": "out"},
        end="Report with plots, tables and reasons: {out}",
    ),
    "compare": Command(
        "comparison.own_log:compare",
        "log / methods scores validate test judged grid grade sum_grades set metric criterion production held_out "
        "baseline seeds jobs out fresh memory allow_code json quiet",
        {
            "methods": Option(
                "Methods, comma-separated; the first is the baseline. METHOD+trees trains trees on debiased targets; "
                "lightgbm and lightgbm_position run LightGBM itself. Default: what `diagnose` recommends and, if "
                "LightGBM is installed, its rows and two_tower+trees.",
                kind=str,
                form=NAMES,
            ),
            "scores": Option(
                "Another ranker: parquet with query, document, score. Repeatable.", form=FILES, metavar="NAME=FILE"
            ),
            "validate": Option(f"Data for early stopping and tuning. {DATA_HELP} Default: held-out clicks.", kind=str),
            "test": Option(f"Test data. {DATA_HELP} Default: held-out clicks.", kind=str),
            "judged": Option(f"Judged data for `labelled`. {DATA_HELP}", kind=str),
            "grid": Option(
                "Values to try; validation chooses one.", form=GRIDS, to="grids", metavar="METHOD.NAME=VALUE,…"
            ),
            "criterion": Option(
                "The criterion without judged data: {evaluation.criteria:CRITERIA}. Default: "
                "{evaluation.criteria:DEFAULT_CRITERION}."
            ),
            "out": Option(kind=Path),
        },
        run="commands.experiments:compare",
    ),
    "auto": Command(
        "comparison.automatic:auto",
        "log / out force production start grade sum_grades set memory seed overwrite json quiet",
        {
            "out": Option("Output folder for the model; the report is OUT.html.", NEEDED, Path),
            "force": Option("Write the model even if production is better.", False, bool),
            "start": Option("A previous model: the final training starts from it if possible.", flag="--from"),
        },
        "Train a ranker without labels and test it against production. Exit code 3: production is better.",
        run="commands.training:auto",
    ),
    "train": Command(
        "learning:fit",
        "log / out method ranker validate judged interventions stream start since until half_life time grade "
        "sum_grades set allow_code memory seed overwrite json quiet",
        {
            "out": Option("Output folder for the model.", NEEDED, Path),
            "method": Option(
                "A method; `unskew methods` lists them. Default: auto, as in unskew auto --force; with --from, the "
                "model's own method; dla if you pass an option that auto cannot use.",
                None,
                str,
            ),
            "ranker": Option(
                "network, or trees: LightGBM on the debiased targets of the method (unskew\\[trees]). Default: "
                "network; with --from, the model's own.",
                None,
                str,
            ),
            "validate": Option(
                f"Validation data. {DATA_HELP} Or a share of queries to hold out, e.g. 0.2.", kind=str, form=SHARE
            ),
            "judged": Option(f"Judged data to learn from. {DATA_HELP}"),
            "half_life": Option("Days after which the weight of a list halves.", None, float),
            "time": Option("Stop after this time, e.g. 10m, and keep what was learned.", kind=str),
        },
        "Train a ranker on a click log. An interrupted run resumes when you repeat the command.",
        run="commands.training:train",
    ),
    "tune": Command(
        "monitoring.tuning:tune",
        "model / judged out metric steps folds seed overwrite json quiet",
        {
            "model": Option("A saved model."),
            "judged": Option(f"Judged queries to learn from. {DATA_HELP} Default split: valid."),
            "out": Option("Output folder for the tuned model.", NEEDED, Path),
            "metric": Option("The metric of cross-validation.", "{monitoring.tuning:Plan.metric}", str),
            "steps": Option("The largest number of steps to try.", "{monitoring.tuning:Plan.steps}", int),
            "folds": Option("Folds of inner and outer cross-validation.", "{monitoring.tuning:Plan.folds}", int),
        },
        run="commands.training:tune",
        files={"model": "out"},
        end="Written to {out}",
    ),
    "drift": Command(
        "monitoring.changes:drift",
        "log_a log_b / stream json",
        {
            "log_a": Option("The earlier click log.", to="a"),
            "log_b": Option("The later click log, of the same site.", to="b"),
            "stream": Option("Read the logs in parts; they may be larger than memory.", False, bool),
        },
        run="commands.logs:drift",
    ),
    "readout": Command(
        "monitoring.online_test:readout",
        "log / arm team baseline curve grade since until stream json",
        {
            "log": Option("A click log with the arm or team as a bias column."),
            "curve": Option("A model whose examination curve corrects for position.", kind=Path),
            "grade": Option(
                "Weight of an event type. Repeatable.", None, form=PAIRS, to="grades", metavar="KIND=WEIGHT"
            ),
        },
        run="commands.logs:readout",
    ),
    "evaluate": Command(
        "serving.scoring:evaluate",
        "model data / metrics undefined max_grade shown out strict allow_code json",
        {
            "model": Option(RANKER, kind=Path, to="ranker"),
            "data": Option(f"{DATA_HELP} Default split: test. Or a click log of held-out sessions.", to="judged"),
            "metrics": Option("Comma-separated.", "ndcg@1,ndcg@3,ndcg@5,ndcg@10,err@10,arp", str, form=NAMES),
            "shown": Option(
                "Click log: report its queries separately; ndcg@10:shown uses the documents it shows.", kind=Path
            ),
            "out": Option("Parquet file for the values per query.", None, Path),
        },
        "Evaluate a model on judged data, or by how well it predicts the clicks of a log.",
        run="commands.rankers:evaluate",
    ),
    "export": Command(
        "serving.exports:export",
        "model / to form flat input_name output_name log missing trees leaves least_agreement judged overwrite "
        "allow_code",
        {
            "model": Option("A saved model."),
            "to": Option("Output file: model.onnx, .json, .txt or .ubj."),
            "form": Option(
                "Format: {serving.exports:FORMS}, {serving.tree_files:FORMS}. Default: onnx for .onnx, linear for "
                ".json.",
                flag="--as",
            ),
            "flat": Option("ONNX with one row per document and no mask, for Vespa and Triton.", False, bool),
            "input_name": Option("Name of the flat file's input.", "{serving.onnx_file:INPUT}", str),
            "output_name": Option("Name of the flat file's output.", "{serving.onnx_file:OUTPUT}", str),
            "log": Option("Trees: the click log with the documents to learn from.", None),
            "missing": Option(
                "Trees: the engine's value for a missing feature. Default: 0 for XGBoost's .json, else nan.",
                None,
                float,
            ),
            "trees": Option("Trees: number of trees.", "{training.boosting:Boosting.trees}", int),
            "leaves": Option("Trees: leaves per tree.", "{training.boosting:Boosting.leaves}", int),
            "least_agreement": Option(
                "Trees: minimum Kendall's τ with the model; below it nothing is written.",
                "{serving.distillation:LEAST_AGREEMENT}",
                float,
            ),
            "judged": Option(f"Trees: judged data to evaluate trees and model on. {DATA_HELP}"),
        },
        run="commands.rankers:export",
    ),
    "explain": Command(
        "serving.explanation:explain",
        "model data / query documents metric by_order repeats queries out seed json",
        {
            "model": Option(RANKER, NEEDED, Path, to="ranker"),
            "data": Option(f"{DATA_HELP} Default split: test. Or parquet files with candidates.", NEEDED, str),
            "query": Option("The query of two documents to compare.", None, str),
            "documents": Option("Two documents of the query, comma-separated.", None, str, form=NAMES),
            "metric": Option("The metric whose loss measures importance."),
            "by_order": Option("Measure the change of order instead of a metric; needs no labels.", False, bool),
            "queries": Option("Maximum number of queries, drawn at random.", 500, int),
            "out": Option("Output folder for a figure and JSON.", None, Path),
        },
        "Explain a ranker: which features matter, or which decided between two documents.",
        run="commands.rankers:explain",
    ),
    "look": Command(
        "serving.side_by_side:look",
        "model log / out production queries memory overwrite json",
        {
            "model": Option(RANKER, NEEDED, Path, to="ranker"),
            "out": Option("Output file, .html.", Path("look.html")),
        },
        files={"page": "out"},
        end="Open {out} in a browser.",
    ),
    "rank": Command(
        "serving.scoring:rank",
        "model data / out query document sort memory strict engine spark_master overwrite allow_code json quiet",
        {
            "model": Option(RANKER, kind=Path, to="ranker"),
            "data": Option(
                f"Parquet files with candidates (file, folder or glob): ids and features. Or judged data. {DATA_HELP} "
                "Default split: test.",
                kind=str,
            ),
            "out": Option("Output file: ranking.parquet, .csv, or .trec for a TREC run.", NEEDED),
        },
        run="commands.rankers:rank",
        files={"ranking": "out"},
    ),
    "weights": Command(
        "learning:weights",
        "log / out method grade sum_grades set seed overwrite memory quiet",
        {"out": Option("Output parquet file.", NEEDED)},
    ),
    "judgements": Command(
        "serving.ratings:judgements",
        "log / out overwrite json",
        {"out": Option("Output file: .csv, or .json for OpenSearch's Search Relevance Workbench.", NEEDED)},
        files={"judgements": "out"},
        end="Written to {out}",
    ),
    "forget": Command(
        "data.clicks.forgetting:forget",
        "log / users column below check json",
        {
            "log": Option("A click log that keeps users; with --check, any folder."),
            "users": Option("A text file with one user per line.", kind=Path),
        },
        run="commands.logs:forget",
    ),
    "reproduce": Command(
        "papers.reproduce:reproduce",
        "name / list_all show data seeds folds jobs out variant set fresh shard merge allow_code json quiet",
        {
            "name": Option("An experiment from --list, or your own TOML file.", None, str),
            "list_all": Option("List the experiments.", False, bool, "--list"),
            "show": Option(
                "Print the TOML of an experiment, as a start for your own: --show > mine.toml.", False, bool
            ),
            "data": Option(
                "Data sets of the catalogue, comma-separated, or files. Default: those of the experiment.",
                kind=str,
                form=DATA,
            ),
            "folds": Option("Folds to run, e.g. 1,2. Default: all.", kind=str, form=FOLDS),
            "merge": Option("Merge the finished runs of this folder. Repeatable.", kind=list[Path]),
        },
        run="commands.experiments:reproduce",
    ),
    "methods": Command(
        "",
        "/ json",
        help="List the methods with their papers, assumptions and hyper-parameters.",
        run="commands.listings:methods",
    ),
    "data": Command(
        "data.judged.catalogue:data_sets",
        "/ json",
    ),
}


def options_of(name: str) -> dict[str, Option]:
    """The arguments and options of a command, with everything that the source of its function says."""
    command = COMMANDS[name]
    known = parameters(command.function) if command.function else {}
    return {word: _whole(word, command.own.get(word), known) for word in command.names.replace("/", " ").split()}


def _whole(name: str, own: Option | None, known: Mapping[str, Parameter]) -> Option:
    """An option with the text, kind and default of the parameter that it sets; common texts come second."""
    common = COMMON.get(name, Option())
    option = common if own is None else replace(own, help=own.help or common.help)
    source = known.get(option.to or name, Parameter("", AS_IN_FUNCTION, ""))
    default = source.default if option.default is AS_IN_FUNCTION else option.default
    default = constant(default[1:-1]) if isinstance(default, str) and default.startswith("{") else default
    if default is AS_IN_FUNCTION:
        raise LookupError(f"--{name} has no default: declare one, or add the parameter to the function")
    repeated = option.form is not None and option.form.repeated
    kind = option.kind or (list[str] if repeated else KINDS.get(source.kind.removesuffix(" | None")))
    if kind is None:
        raise LookupError(f"--{name}: declare the kind of '{source.kind}'")
    if repeated or kind in (list[str], list[Path]) or option.form is FOLDS:
        default = None if default is not NEEDED else default
    text = re.sub(r"\{([\w.]+:[\w.]+)\}", lambda match: _listed(constant(match[1])), option.help or source.help)
    return replace(option, help=text, default=default, kind=kind, to=option.to or name, flag=option.flag or _flag(name))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
