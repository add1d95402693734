"""Learning from a log: `fit` and `weights`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.comparison import automatic
from unskew.comparison.automatic import Chosen
from unskew.data.clicks.shard_batches import ClickSource
from unskew.data.clicks.storage import Log
from unskew.data.clicks.within_memory import MEMORY, folder_of, part_within
from unskew.data.files import check_place
from unskew.data.inputs import Judged, LogOrPlace, Place, as_judged, as_log, as_log_or_folder, as_part
from unskew.data.judged.judged_set import JudgedSet
from unskew.display import MOST_ROWS, Displayed, Screen
from unskew.methods import Method
from unskew.processes import is_first
from unskew.reporting.terminal import Follow, followed, training_progress
from unskew.serving.ratings import debiased_rows, rows_of_shards, scale_of, write_rows
from unskew.serving.saved_ranker import as_model
from unskew.training import fitting
from unskew.training.ending import seconds_of
from unskew.training.model import Model
from unskew.training.recipe import Recipe, check_has_curve, find_method, with_trees
from unskew.training.watching import Watch

AUTO = "auto"
DEFAULT_METHOD = AUTO  # of `fit`, `UnbiasedRanker` and `unskew train`; or the name of a method
Source = Log | ClickSource | None
HELD_OUT_FOR_CURVE = 0.1  # share of the queries that chooses the state of a click model


def fit(
    method: str | type[Method] | Recipe = DEFAULT_METHOD,
    log: LogOrPlace | ClickSource | None = None,
    *,
    judged: Judged | None = None,
    interventions: LogOrPlace | None = None,
    validate: Judged | float | None = None,
    progress: Follow = True,
    checkpoint: Place | None = None,
    start: Model | Place | None = None,
    watch: Watch | None = None,
    memory: str | None = MEMORY,
    time: str | float | None = None,
    **options: Any,
) -> Model:
    """Train a method on a click log; the command is `unskew train`.

    `UnbiasedRanker` does the same from arrays, like scikit-learn; `compare` trains several methods and compares them.

    Args:
        method: a name in `METHODS`, a class of your own, or a whole `Recipe`. "auto", the default, chooses one by the
            log's own held-out clicks, as `auto` does: it warns if the ranker is not known to be better than
            production, and `trained_on["verdict"]` holds the verdict. A name trains once.
        log: clicks to learn from, or the path of a log; from `open_log` it is read shard by shard. Or a `ClickSource`,
            which gives the lists of each step, such as `FreshClicks`.
        judged: judged queries to learn from, for methods that use them.
        interventions: a log with randomized or swapped rankings, for methods that need one; default: those of `log`.
        validate: judged queries, or a share of the log's queries to hold out, which choose the state to keep; None:
            some queries are held out to say when training should end, unless `steps` says so.
        progress: False for no bar, or a function that receives a `Report`.
        checkpoint: file for checkpoints; an existing one is resumed.
        start: a model to start from, or its path: its weights, curves and transform are copied.
        watch: a callable that receives every step and every validation, such as `unskew.TensorBoard` and
            `unskew.MLflow`.
        memory: limit for "auto", and for what a method needs in advance from a log of `open_log`, such as
            propensities: if the whole log needs more, these come from a random sample of its queries.
        time: stop after this time, "90s", "10m" or seconds, and keep what was learned; only for a named method.
        options: options of the method, of training (`steps`, `seed`, …) and of the network, and `transform`.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=8, progress=False).log
    >>> unskew.fit("two_tower", log, steps=5, progress=False).examination().shape
    (10,)
    """
    if isinstance(method, Recipe) and options:
        raise ValueError(f"a recipe already holds all options: pass '{next(iter(options))}' to Recipe.of, not to fit")
    if isinstance(method, str) and method == AUTO:
        rest = {"judged": judged, "interventions": interventions, "validate": validate, "watch": watch, "time": time}
        given: dict[str, Any] = {"progress": progress, "checkpoint": checkpoint, "start": start, "memory": memory}
        chosen = choose_and_fit(log, only_named=rest, **given, **options)
        warn_unless_better(chosen)
        return chosen.model
    recipe = method if isinstance(method, Recipe) else Recipe.of(method, **options)
    source: Source = None if log is None else log if isinstance(log, ClickSource) else as_log_or_folder(log)
    source = _within(recipe.method_class, source, memory)
    with followed(progress, training_progress, f"train {recipe.method}") as report:
        return fitting.fit_recipe(
            recipe,
            source,
            judged=None if judged is None else as_judged(judged, "train"),
            interventions=None if interventions is None else as_log(interventions),
            validate=as_judged(validate, "valid") if isinstance(validate, str | Path | JudgedSet) else validate,
            progress=report,
            checkpoint=checkpoint,
            start=None if start is None else as_model(start),
            watch=watch,
            time_limit=seconds_of(time),
        )


def _within(method: type[Method], log: Source, memory: str | None) -> Source:
    """The log; if a method needs more of a log on disk in advance than fits into memory, with a sample for that."""
    in_advance = method.prepare is not Method.prepare or bool(method.estimated)
    part = None if log is None or isinstance(log, ClickSource) or not in_advance else part_within(log, memory)
    if part is None:
        return log
    if is_first():
        warnings.warn(f"{part.note}. Training reads every shard", RuntimeWarning, stacklevel=3)
    return part.source.sampled(part.whole())


def choose_and_fit(
    log: LogOrPlace | ClickSource | None,
    *,
    progress: Follow = True,
    checkpoint: Place | None = None,
    start: Model | Place | None = None,
    memory: str | None = MEMORY,
    only_named: Mapping[str, Any],
    **options: Any,
) -> Chosen:
    """What `method="auto"` does: run `auto` if it can use the arguments, otherwise train one safe method.

    Args:
        only_named: arguments of `fit` that only a named method can use; None for those not given.
    """
    options = with_trees(options)
    given = [name for name, value in only_named.items() if value is not None]
    given += ["ranker='trees'"] if options.get("ranker") == "trees" else []
    given += ["lists that are drawn at every step"] if isinstance(log, ClickSource) else []
    if log is not None and not isinstance(log, ClickSource) and not given:
        place = None if checkpoint is None else f"{checkpoint}.auto"
        return automatic.auto(log, start=start, checkpoints=place, memory=memory, progress=progress, **options)
    method = automatic.SAFE if start is None else as_model(start).recipe.method
    more: dict[str, Any] = {"checkpoint": checkpoint, "start": start, "memory": memory, "progress": progress}
    model = fit(method, log, **more, **only_named, **options)
    return Chosen.of(model, automatic.untried(method, f"auto cannot use {' and '.join(given)}"))


def warn_unless_better(chosen: Chosen, stacklevel: int = 3) -> None:
    """Warn if the ranker is not known to be better than production."""
    if chosen.verdict.production != automatic.BETTER:
        warnings.warn(str(chosen.verdict), RuntimeWarning, stacklevel=stacklevel)


@dataclass(frozen=True, eq=False, repr=False)
class DebiasedRows(Displayed):
    """Shown documents with debiased targets and weights."""

    model: Model
    out: Path | None = None
    kept: pa.Table | None = None  # None: in the file

    @cached_property
    def table(self) -> pa.Table:
        """The rows, read from the file on first use."""
        return pq.read_table(self.out, memory_map=True) if self.kept is None else self.kept

    @property
    def n_rows(self) -> int:
        return int(pq.read_metadata(self.out).num_rows) if self.kept is None else len(self.kept)

    def to_table(self) -> pa.Table:
        """One row per shown document: query, document, group, position, target, grade, weight and the features."""
        return self.table

    @property
    def title(self) -> str:
        place = "" if self.out is None else f" in {self.out}"
        return f"{self.n_rows:,} rows with target, grade and weight{place}"

    def screen(self) -> Screen:
        columns = ["query", "document", "position", "target", "grade", "weight"]
        rows = [
            [f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()]
            for row in self.table.select(columns).slice(0, MOST_ROWS).to_pylist()
        ]
        return Screen(self.title, columns, rows, left=2, n_rows=self.n_rows)


def weights(
    log: LogOrPlace,
    out: Place | None = None,
    method: str = automatic.SAFE,
    *,
    overwrite: bool = False,
    memory: str | None = MEMORY,
    progress: Follow = True,
    **options: Any,
) -> DebiasedRows:
    """Debiased targets and weights for LightGBM and XGBoost.

    `fit(..., ranker="trees")` trains the trees as well.

    Args:
        out: parquet file for the rows; None: keep them in memory.
        method: a method with an examination curve.
        memory: limit for a log on disk; None: no limit. If the log needs more, training reads it shard by shard, a
            random sample of its queries sets the scale of grades and weights, and `out` is needed.
        options: the options of `fit`.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> rows = unskew.weights(log, method="two_tower", steps=3, progress=False).to_table()
    >>> {"target", "grade", "weight"} <= set(rows.column_names)
    True
    """
    if out is not None:
        check_place(Path(out), overwrite=overwrite)
    check_has_curve(method)
    clicks, part = as_part(log, memory)
    folder = folder_of(log)
    if part is not None and out is None:
        raise ValueError(f"the rows of {part.path} need more than {memory}: pass out, a file for them, or more memory")
    held_out = None if find_method(method).click_model is None else HELD_OUT_FOR_CURVE
    # Clicks to validate a click model on have to be in memory.
    learning = clicks if part is None or held_out is not None else part.source
    model = fit(method, learning, validate=held_out, memory=memory, progress=progress, **options)
    if out is None:
        return DebiasedRows(model, kept=debiased_rows(clicks, model))
    scale = scale_of(clicks, model)
    shards = [clicks] if folder is None else folder.shards()
    write_rows(rows_of_shards(shards, model, scale), out)
    return DebiasedRows(model, Path(out))
