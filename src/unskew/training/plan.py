"""What a run trains: its stages, the steps of each, and their data in batches."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unskew.data.clicks.batches import ClickBatches, JudgedBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.shard_batches import ShardBatches, SourceBatches
from unskew.data.clicks.storage import LogFolder
from unskew.data.files import array_digest
from unskew.data.judged.judged_set import JudgedSet
from unskew.methods.method import Method, Stage
from unskew.training.ending import UNSELECTED, usual_steps
from unskew.training.settings import LISTS, Settings, usual_batch, usual_decay

# ShardBatches: for logs larger than memory. SourceBatches: new lists in every step.
Source = ClickLog | JudgedSet | ClickBatches | ShardBatches | SourceBatches
Batches = ClickBatches | JudgedBatches | ShardBatches | SourceBatches
Plan = Sequence[tuple[Stage, int | None]]  # steps of a stage; None: until nothing more is learned


def plan_of(stages: Sequence[Stage], steps: int | None, sources: Mapping[str, Batches], *, validated: bool) -> Plan:
    """The steps of each stage, if this many are asked for in all."""
    if steps is not None:
        return plan_stages(stages, steps)
    if not validated:
        return plan_stages(stages, max(usual_steps(passes_end(batches)) for batches in sources.values()))
    open_steps = {True: None, False: UNSELECTED}  # by whether held-out clicks can judge the stage
    return [(stage, stage.steps or open_steps[stage.selects]) for stage in stages if stage.steps != 0]


def plan_stages(stages: Sequence[Stage], steps: int) -> list[tuple[Stage, int]]:
    """Steps of each stage: fixed numbers first, the rest shared; fixed stages get at most half if others need steps."""
    stages = [stage for stage in stages if stage.steps != 0]
    fixed = sum(stage.steps for stage in stages if stage.steps is not None)
    n_open = sum(stage.steps is None for stage in stages)
    limit = steps // 2 if n_open else steps
    shrink = min(1.0, limit / fixed) if fixed else 1.0
    share = max(1, (steps - int(fixed * shrink)) // n_open) if n_open else 0
    return [(stage, share if stage.steps is None else max(1, int(stage.steps * shrink))) for stage in stages]


def passes_end(batches: Batches) -> int | None:
    """Batches of one pass over the data; None: it has no end."""
    return None if isinstance(batches, SourceBatches) else batches.per_epoch


def settings_for(logs: Mapping[str, Source], settings: Settings) -> Settings:
    """The settings, with the size of a batch and the weight decay that suit the data, where they say nothing."""
    clicks, judged = logs.get("clicks"), logs.get("judgements")
    n_queries, size = None, settings.batch_size
    if isinstance(clicks, ClickLog):
        n_queries = len(np.unique(clicks.queries))
        size = size or usual_batch(clicks.n_lists, clicks.n_sessions, n_queries, settings.together)
    elif isinstance(clicks, ShardBatches):
        n_queries, size = queries_of(clicks.folder), clicks.batch_size
    elif isinstance(clicks, ClickBatches):
        n_queries = len(np.unique(clicks.log.queries))
    elif clicks is None and isinstance(judged, JudgedSet):
        n_queries = judged.n_queries
    decay = usual_decay(n_queries) if settings.weight_decay is None else settings.weight_decay
    return replace(settings, batch_size=size or LISTS, weight_decay=decay)


def queries_of(folder: LogFolder) -> int:
    """About how many queries a log on disk has, by the lists per query of its first shard."""
    first = folder.shard(int(np.flatnonzero(folder.counts("lists"))[0]))
    return round(folder.n_lists * len(np.unique(first.queries)) / first.n_lists)


def batches_of(stage: Stage, logs: Mapping[str, Source], method: Method, settings: Settings) -> Batches:
    """The batches of a stage."""
    source = logs.get(stage.source)
    if source is None:
        raise ValueError(
            f"stage '{stage.name}' of {type(method).__name__} learns from {stage.source}: pass logs['{stage.source}']"
        )
    if isinstance(source, ClickBatches | ShardBatches | SourceBatches):
        return source
    if isinstance(source, JudgedSet):
        return JudgedBatches(source, settings.lists, seed=settings.seed)
    if source.n_clicks == 0:
        warnings.warn("the log has no clicks: there is nothing to learn from it", RuntimeWarning, stacklevel=4)
    return ClickBatches(source, settings.lists, seed=settings.seed, detail=method.detail, together=settings.together)


def fingerprint_of(method: Method, plan: Plan, sources: Mapping[str, Batches], settings: Settings) -> dict[str, Any]:
    """What must be equal for a checkpoint to be resumed."""
    return {
        "method": type(method).__name__,
        "settings": settings.to_json(),
        "stages": [[stage.name, steps] for stage, steps in plan],
        "data": {name: _content(batches) for name, batches in sources.items()},
        "parameters": sum(tensor.numel() for tensor in method.state_dict().values()),
    }


def _content(batches: Batches) -> str:
    """SHA-256 of all training data."""
    if isinstance(batches, ClickBatches):
        return batches.log.digest
    if isinstance(batches, ShardBatches):
        return batches.folder.digest
    if isinstance(batches, SourceBatches):
        return batches.source.digest
    judged = batches.judged
    return array_digest([judged.features, judged.grades, judged.offsets])
