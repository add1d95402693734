"""The commands: the function that each one calls, and its options in the order of its help, where they need a word.

An option that is only named has the name, the default and the text (under `Args:`) of the function's parameter. To add
a command, write its function in `unskew` and an entry in `TEXT`:

    NAME ARGUMENT … = module:function
        @from, @run, @files, @end, @help    dataclasses with further parameters, and what `Command` says
        OPTION SPEC … OPTION SPEC …
        OPTION SPEC …  the text of its help, after two spaces

A spec says `!` (needed), `=X` (the default), `:kind`, `--flag`, `>name` (of the parameter), `~FORM` (of `values`), `^N`
(at least), `%` (in the panel of columns), or the metavar in capitals. `{module:NAME}` stands for a constant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unskew.command_line import values
from unskew.command_line.signatures import NEEDED, Parameter, constant, parameters, summary
from unskew.command_line.values import FOLDS, Form

AS_IN_FUNCTION = object()  # the default of an option whose function has it
DATA = "A data set of the catalogue (NAME or NAME@split), a LETOR file, or a table."
RANKER = "A saved model, an exported .onnx file (run by onnxruntime), or exported trees (.txt, .json)."
KINDS: dict[str, Any] = {
    "str": str,
    "Judged": str,
    "float": float,
    "int": int,
    "bool": bool,
    "Path": Path,
    "list": list[str],
}


@dataclass(frozen=True)
class Option:
    """An option or an argument of a command; what is empty comes from the function."""

    help: str = ""
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
    arguments: list[str]
    options: Mapping[str, Option]  # arguments first
    sources: tuple[str, ...] = ()  # dataclasses with further parameters
    help: str = ""  # empty: the first paragraph of the function's docstring
    run: str = ""  # what a terminal does instead of calling the function alone; `commands.module:function`
    files: Mapping[str, str] = field(default_factory=dict)  # names in JSON -> options that hold paths
    end: str = ""  # last line on the screen

    @property
    def summary(self) -> str:
        return self.help or summary(self.function)


COMMON_TEXT = r"""
    log ! :Path  A click log.
    json =False :bool  Print one JSON document instead of a table.
    quiet =False :bool  Hide the progress display.
    seed =0 :int  Random seed; the same seed gives the same result.
    overwrite =False :bool --overwrite/--no-overwrite  Overwrite existing output.
    stream =False :bool  Read the log shard by shard; it may be larger than memory.
    strict  Refuse missing values in columns that had none in training.
    since =None :str  Use lists shown from this day on, e.g. 2026-11-10.
    until =None :str  Use lists shown before this day.
    allow_code =False :bool  Allow module:Class to import and run your own code.
    allow_position =False :bool  Train on a feature that is the position, or a function of it.
    fresh ~FRESH  Run this method again, by label; 'all' for everything. Repeatable.
    set >options =None ~PAIRS NAME=VALUE  Set an option, e.g. steps=500. Repeatable.
    grade =None ~GRADES KIND=WEIGHT,…  Event weights for training, e.g. click=1,add_to_cart=3,purchase=5. Default: the
        weights set at ingest; click=1 uses only clicks.
    sum_grades =False :bool  Add up the weights of all events on an impression.
    memory  Memory for what is held of the log, such as 16GB; of a larger log, a random sample of its queries.
    production WHICH start --from
"""
TEXT = r"""
demo = comparison.demonstration:demo
    @run commands.experiments:demo
    data out seed
simulate data = simulation.simulate:simulate
    @run commands.logs:simulate
    @files log=out
    @end Written to {out}
    data >judged  {DATA} Default split: train.
    out !  Output folder for the log; the truth is written next to it.
    policy  The logging policy: {simulation.policies:POLICIES}.
    user  The user model: {simulation.users:USERS}.
    sessions
    coupling =None :float  How much examination depends on the document.
    intervene >interventions ~PAIRS NAME=SHARE  Randomize a share of sessions: {simulation.display:INTERVENTIONS}.
    policy_set =None ~PAIRS NAME=VALUE  Set an option of the policy.
    user_set =None ~PAIRS NAME=VALUE  Set an option of the user.
    n_shown joint drop_clickless
    record ~PAIRS NAME=VALUE  Record examination: share=1 for all sessions; misses, false_alarms, interest, on_click.
    display_probabilities allow_code seed overwrite json quiet
shop = simulation.shop_log:shop
    @files shop=out
    @end Written to {out}
    out !  Output folder for {simulation.shop_log:EVENTS}, {simulation.shop_log:JUDGED} and
        {simulation.shop_log:TRUTH}.
    sessions ^1 seed overwrite json
events log = ingestion.event_table:events
    out features seed overwrite json
ingest source = ingestion.run:ingest
    @from ingestion.settings:Tables ingestion.columns:Columns ingestion.settings:Options
    @run commands.logs:ingest
    @files log=out
    @end Written to {out}
    source >events ! :str  Parquet, CSV or JSON lines (file, folder or glob), a DuckDB file, or a database URL.
    out  Output folder for the log; without it, a command is proposed.
    yes =False :bool  Ingest as proposed; an error if there is a question that only you can answer.
    features :str  A table of features, by query and document.
    clicks :str queries :str
    columns  TOML file with column names.
    form %  {ingestion.columns:FORMS}, {data.public_logs.forms:CLICKS}.
    session %  Column with the session, which distinguishes one showing of a query from the next.
    query %  Column with the query.
    document %  Column with the document, or with those of a result page: a list, or text with separators.
    position %  Column with the position.
    row %  Column with the row of a result grid, if positions restart in each row.
    page %  Column with the page number, if positions restart on each page; none: there are no pages.
    row_size ^1 %  Positions per row. Default: the largest number observed.
    page_size :str % SIZE  Positions per page, or by level of a column: device:phone=10,web=25. Default: the largest
        number observed.
    click %  Column with the click.
    time %  Column with the time; none: use no time.
    user % COLUMN[=N]  Column with the user, which is read and then dropped; COLUMN=N keeps at most N sessions per
        user.
    drop_heavy %  Leave out users with more than N sessions, instead of keeping N of them.
    keep_users  Keep what unskew forget needs, in a file of its own.
    hash_queries  Store digests of queries, with the secret in OUT.salt, not their texts.
    policy_score %  Column with the score by which the document was ranked.
    display_probability %  Column with the probability that a stochastic ranker shows the document there.
    intervention %  Column with the intervention that changed the order.
    shuffled %  Intervention that shuffles lists: NAME, or NAME=10 for the top 10. Repeatable.
    bias %  Column that may change examination. Repeatable.
    context %  Feature of the user, session or moment, with one value per result page. Repeatable.
    seen %  Column with the recorded examination: 0 or 1, or seconds in the viewport; empty: not recorded.
    feature =None :list %  Feature, or a pattern: 'f_*'. Default: numbers, categories. Repeatable.
    category >categories %  Feature whose whole numbers are categories. Repeatable.
    missing % COLUMN=VALUE  Value that stands for a missing one: rating=-1, price=N/A. Repeatable.
    grade >grades ~GRADES % KIND=WEIGHT,…  Feedback to keep, by column or event type, with its weight in training:
        click=1,add_to_cart=3,purchase=5.
    event %  Column with the event type.
    impression_event >impression_events %  Event type that is an impression. Repeatable.
    click_event >click_events %  Event type that is a click. Repeatable.
    seen_event >seen_events %  Event type that records examination. Repeatable.
    clicked_session %  Column with the session of a click, if clicks are rows with columns of their own.
    clicked_document %  Column with the document of such a click.
    features_document %  Column with the document in the feature table, if it has another name.
    first_position %  Index of the first position.
    table >events_table  Table of events in a database.
    features_table  Table of features in a database.
    clicks_table  Table of clicks in a database.
    queries_table  Table of queries in a database.
    encoding  Encoding of CSV files, e.g. latin-1. Default: utf-8.
    n_positions ^1  Number of positions to keep, from the top.
    where CONDITION  Rows to keep, e.g. 'not is_sponsored and price > 0'.
    period  Count lists per hour, day, week or month, to select time windows later.
    window :str TIME  How long events count after their impression: 30m, 12h, 7d.
    fill  Value for missing features. Default: keep them missing.
    joint  Keep which documents were clicked together.
    strict  Fail instead of leaving rows out.
    dry_run =False :bool  Show columns, rows and counts; write nothing.
    engine  duckdb, or spark for logs too large for one machine.
    memory  Memory limit of DuckDB; the rest spills to disk.
    threads ^1  Number of threads. Default: one per core.
    spark_master >master  URL of the Spark cluster, e.g. local[4].
    overwrite json quiet
diagnose log = diagnosis.page:diagnose
    @files log=log report=out
    @end Report with plots, tables and reasons: {out}
    out =report.html :Path quick users
    cap  Maximum number of sessions per user; needs --users.
    memory seed json quiet
compare log = comparison.own_log:compare
    @run commands.experiments:compare
    methods ~NAMES  Methods, comma-separated; the first is the baseline. METHOD+trees trains trees on debiased targets;
        lightgbm and lightgbm_position run LightGBM itself. Default: what `diagnose` recommends and, if LightGBM is
        installed, its rows and two_tower+trees.
    scores ~FILES NAME=FILE  Another ranker: parquet with query, document, score. Repeatable.
    validate :str  Data for early stopping and tuning. {DATA} Default: held-out clicks.
    test :str  Test data. {DATA} Default: held-out clicks.
    judged :str  Judged data for `labelled`. {DATA}
    grid >grids ~GRIDS METHOD.NAME=VALUE,…  Values to try; validation chooses one.
    grade sum_grades set metric
    criterion  The criterion without judged data: {evaluation.criteria:CRITERIA}. Default:
        {evaluation.criteria:DEFAULT_CRITERION}.
    production held_out baseline seeds jobs out fresh memory allow_code json quiet
auto log = comparison.automatic:auto
    @run commands.training:auto
    @help Train a ranker without labels and test it against production. Exit code 3: production is better.
    out ! :Path  Output folder for the model; the report is OUT.html.
    force =False :bool  Write the model even if production is better.
    production
    start --from  A previous model: the final training starts from it if possible.
    grade sum_grades set allow_position memory seed overwrite json quiet
train log = comparison.learning:fit
    @run commands.training:train
    @help Train a ranker on a click log. An interrupted run resumes when you repeat the command.
    out ! :Path  Output folder for the model.
    method =None  A method; `unskew methods` lists them. Default: auto, as in unskew auto --force; with --from, the
        model's own method; dla if you pass an option that auto cannot use.
    ranker =None :str  network, or trees: LightGBM on the debiased targets of the method (unskew\[trees]). Default:
        network; with --from, the model's own.
    validate ~SHARE  Validation data. {DATA} Or a share of queries to hold out, e.g. 0.2.
    judged  Judged data to learn from. {DATA}
    interventions stream start since until
    half_life =None :float  Days after which the weight of a list halves.
    time  Stop after this time, e.g. 10m, and keep what was learned.
    grade sum_grades set allow_code allow_position memory seed overwrite json quiet
tune model = monitoring.tuning:tune
    @from monitoring.tuning:Plan
    @run commands.training:tune
    @files model=out
    @end Written to {out}
    model  A saved model.
    judged  Judged queries to learn from. {DATA} Default split: valid.
    out ! :Path  Output folder for the tuned model.
    metric  The metric of cross-validation.
    steps  The largest number of steps to try.
    folds  Folds of inner and outer cross-validation.
    seed overwrite json quiet
drift log_a log_b = monitoring.changes:drift
    @run commands.logs:drift
    log_a >a  The earlier click log.
    log_b >b  The later click log, of the same site.
    stream =False :bool  Read the logs in parts; they may be larger than memory.
    json
readout log = monitoring.online_test:readout
    @run commands.logs:readout
    log  A click log with the arm or team as a bias column.
    arm team baseline
    curve :Path  A model whose examination curve corrects for position.
    grade >grades ~PAIRS KIND=WEIGHT  Weight of an event type. Repeatable.
    since until stream json
evaluate model data = serving.scoring:evaluate
    @run commands.rankers:evaluate
    @help Evaluate a model or a TREC run on judged data, or a model by how well it predicts the clicks of a log.
    model >ranker  {RANKER} Or a TREC run of any system.
    data >judged  {DATA} Default split: test. For a run also qrels. Or a click log of held-out sessions.
    metrics =ndcg@1,ndcg@3,ndcg@5,ndcg@10,err@10,arp ~NAMES  Comma-separated.
    undefined max_grade
    shown  Click log: report its queries separately; ndcg@10:shown uses the documents it shows.
    out =None :Path  Parquet file for the values per query.
    strict allow_code json
export model = serving.exports:export
    @from training.boosting:Boosting
    @run commands.rankers:export
    model  A saved model.
    to  Output file: model.onnx, .json, .txt or .ubj.
    form --as  Format: {serving.exports:FORMS}, {serving.tree_files:FORMS}. Default: onnx for .onnx, linear for .json.
    flat =False :bool  ONNX with one row per document and no mask, for Vespa and Triton.
    codes =False :bool  ONNX: take codes of categories in place of text, for engines without strings, such as Vespa.
    input_name ={serving.onnx_file:INPUT} :str  Name of the flat file's input.
    output_name ={serving.onnx_file:OUTPUT} :str  Name of the flat file's output.
    log  Trees: the click log with the documents to learn from.
    missing =None :float  Trees: the engine's value for a missing feature. Default: 0 for XGBoost's .json, else nan.
    trees  Trees: number of trees.
    leaves  Trees: leaves per tree.
    least_agreement ={serving.distillation:LEAST_AGREEMENT} :float  Trees: minimum Kendall's τ with the model; below it
        nothing is written.
    judged  Trees: judged data to evaluate trees and model on. {DATA}
    overwrite allow_code
explain model data = serving.explanation:explain
    @run commands.rankers:explain
    @help Explain a ranker: which features matter, or which decided between two documents.
    model >ranker ! :Path  {RANKER}
    data ! :str  {DATA} Default split: test. Or parquet files with candidates.
    query =None :str  The query of two documents to compare.
    documents =None ~NAMES  Two documents of the query, comma-separated.
    metric  The metric whose loss measures importance.
    by_order =False :bool  Measure the change of order instead of a metric; needs no labels.
    repeats
    queries =500 :int  Maximum number of queries, drawn at random.
    out =None :Path  Output folder for a figure and JSON.
    seed json
look model log = serving.side_by_side:look
    @files page=out
    @end Open {out} in a browser.
    model >ranker ! :Path  {RANKER}
    out =look.html :Path  Output file, .html.
    production queries memory overwrite json
rank model data = serving.scoring:rank
    @run commands.rankers:rank
    @files ranking=out
    model >ranker  {RANKER}
    data :str  Parquet files with candidates (file, folder or glob): ids and features. Or judged data. {DATA} Default
        split: test.
    out !  Output file: ranking.parquet, .csv, or .trec for a TREC run.
    query document sort memory strict engine spark_master overwrite allow_code json quiet
serve model = serving.server:serve
    model >ranker ! :Path  {RANKER}
    host port token_file most_candidates largest_body timeout threads
weights log = comparison.learning:weights
    out !  Output parquet file.
    method grade sum_grades set seed overwrite memory quiet
judgements log = serving.ratings:judgements
    @files judgements=out
    @end Written to {out}
    out !  Output file: .csv, .qrels for TREC, or .json for OpenSearch's Search Relevance Workbench.
    overwrite json
forget log = data.clicks.forgetting:forget
    @run commands.logs:forget
    log  A click log that keeps users; with --check, any folder.
    users  A text file with one user per line.
    column below check json
reproduce name = papers.reproduce:reproduce
    @run commands.experiments:reproduce
    name =None  An experiment from --list, or your own TOML file.
    list_all =False :bool --list  List the experiments.
    show =False :bool  Print the TOML of an experiment, as a start for your own: --show > mine.toml.
    data ~DATA  Data sets of the catalogue, comma-separated, or files. Default: those of the experiment.
    seeds
    folds ~FOLDS  Folds to run, e.g. 1,2. Default: all.
    jobs out variant set fresh shard
    merge  Merge the finished runs of this folder. Repeatable.
    allow_code json quiet
methods =
    @run commands.experiments:methods
    @help List the methods with their papers, assumptions and hyper-parameters.
    json
data = data.judged.catalogue:data_sets
    json
"""


def options_of(name: str) -> dict[str, Option]:
    """The arguments and options of a command, with everything that the source of its function says."""
    command = COMMANDS[name]
    known: dict[str, Parameter] = {}
    for source in (*command.sources[::-1], command.function):
        known |= parameters(source) if source else {}
    return {word: _whole(word, option, known) for word, option in command.options.items()}


def _whole(name: str, own: Option, known: Mapping[str, Parameter]) -> Option:
    """An option with the text, kind and default of the parameter that it sets; common texts come second."""
    common = COMMON.get(name, Option())
    option = common if own == Option() else replace(own, help=own.help or common.help)
    source = known.get(option.to or name, Parameter("", AS_IN_FUNCTION, ""))
    default = source.default if option.default is AS_IN_FUNCTION else option.default
    default = constant(default[1:-1]) if isinstance(default, str) and default.startswith("{") else default
    if default is AS_IN_FUNCTION:
        raise LookupError(f"--{name} has no default: declare one, or add the parameter to the function")
    kind = option.kind or _kind(option.form, source.kind)
    if kind is None:
        raise LookupError(f"--{name}: declare the kind of '{source.kind}'")
    if kind in (list[str], list[Path]) or option.form is FOLDS:
        default = None if default is not NEEDED else default
    text = re.sub(r"\{([\w.]+:[\w.]+)\}", lambda match: _listed(constant(match[1])), option.help or source.help)
    flag = option.flag or f"--{name.replace('_', '-')}"
    return replace(option, help=text, default=default, kind=kind, to=option.to or name, flag=flag)


def _kind(form: Form | None, annotation: str) -> Any:
    """What is typed for a parameter: a path where one may be given, otherwise the simplest of its types."""
    if form is not None:
        return list[str] if form.repeated else str
    words = set(re.findall(r"\w+", annotation))
    is_path = bool(words & {"Path", "Place", "LogOrPlace"})
    if "Sequence" in words:
        return list[Path] if is_path else list[str]
    return Path if is_path else next((KINDS[word] for word in KINDS if word in words), None)


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _parsed(lines: str) -> Iterator[tuple[str, Option]]:
    """The options of some lines, by name."""
    for line in re.sub(r"\n {8,}", " ", lines).splitlines():
        spec, _, text = line.strip().partition("  ")
        for each in re.split(r" (?=[a-z_]+(?: |$))", spec) if spec else ():
            name, *words = each.split()
            yield name, _option(words, text.strip())


def _option(words: list[str], text: str) -> Option:
    said: dict[str, Any] = {"help": text.replace("{DATA}", DATA).replace("{RANKER}", RANKER)}
    for word in words:
        first, rest = word[0], word[1:]
        if first == "!":
            said["default"] = NEEDED
        elif first == "=":
            said["default"] = _literal(rest)
        elif first == ":":
            said["kind"] = KINDS[rest]
        elif first == "-":
            said["flag"] = word
        elif first == ">":
            said["to"] = rest
        elif first == "~":
            said["form"] = getattr(values, rest)
        elif first == "^":
            said["least"] = int(rest)
        elif first == "%":
            said["panel"] = "Columns"
        else:
            said["metavar"] = word
    if said.get("kind") is Path and isinstance(said.get("default"), str):
        said["default"] = Path(said["default"])
    return Option(**said)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _command(head: str, body: str) -> Command:
    said = dict(line.split(" ", 1) for line in re.findall(r"^ +@(.*)$", body, re.MULTILINE))
    left, _, function = head.partition(" =")
    sources = tuple(said.pop("from", "").split())
    files = dict(word.split("=") for word in said.pop("files", "").split())
    options = dict(_parsed(re.sub(r"^ +@.*\n?", "", body, flags=re.MULTILINE)))
    arguments = left.split()[1:]
    options = {name: options.get(name, Option()) for name in arguments} | options
    return Command(function.strip(), arguments, options, sources, files=files, **said)


COMMON = dict(_parsed(COMMON_TEXT))
_BLOCKS = (block.partition("\n") for block in re.split(r"\n(?=\w)", TEXT.strip()))
COMMANDS = {head.split()[0]: _command(head, body) for head, _, body in _BLOCKS}
