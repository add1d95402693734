"""The training loop: every method is trained here, and nowhere else.

A stage ends before the next begins. Loss terms are sums over sessions and are divided once, here, by the sessions of
the batch. When a stage ends is decided in `ending`, what it trains and how fast in `optimizing`. Several processes
(`distributed`) take each step together.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unskew.data.clicks.batches import ClickBatches, JudgedBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.shard_batches import ShardBatches
from unskew.data.clicks.source import SourceBatches
from unskew.data.files import array_digest, sole_writer
from unskew.data.judged.judged_set import JudgedSet
from unskew.lists import ClickedLists
from unskew.methods.method import Method, Stage
from unskew.processes import is_first, largest, once, share, state_from_first, total_later
from unskew.training.checkpoint import (
    RunState,
    Stopped,
    load_checkpoint,
    restore_optimizer,
    save_checkpoint,
    stop_requests,
)
from unskew.training.distributed import add_up, file_of_first
from unskew.training.ending import MOST, UNSELECTED, Ending, is_validated, last_step, usual_steps
from unskew.training.history import History, Report
from unskew.training.optimizing import AVERAGED, AveragedMethod, StageOptimizer
from unskew.training.settings import LISTS, Settings, usual_batch
from unskew.training.watching import Watch

# ShardBatches: for logs larger than memory. SourceBatches: new lists in every step.
Source = ClickLog | JudgedSet | ClickBatches | ShardBatches | SourceBatches
Batches = ClickBatches | JudgedBatches | ShardBatches | SourceBatches
Progress = Callable[[Report], None]
Plan = Sequence[tuple[Stage, int | None]]  # steps of a stage; None: until nothing more is learned
MOST_SKIPPED = 20


def train(
    method: Method,
    logs: Mapping[str, Source],
    settings: Settings = Settings(),
    validate: Callable[[Method], float] | None = None,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
    fingerprint: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
    time_limit: float | None = None,
) -> History:
    """Train a method on its sources, `logs["clicks"]` for most; the best validated state is kept.

    Args:
        validate: returns a number, higher is better; called now and then, and at the end of a stage. Without a number
            of steps it also says when to end (`ending`).
        progress: called after every recorded step.
        checkpoint: file for checkpoints; an existing one is resumed. With one, SIGTERM and Ctrl-C stop the run after
            its current step and write the checkpoint (`checkpoint.Stopped`).
        fingerprint: further values that must be equal to resume a run, e.g. hyper-parameters.
        watch: called after every step, and again after a validation.
        time_limit: seconds after which training ends with what it has learned; None: no limit.
    """
    method.to(settings.torch_device())
    state_from_first(method)
    settings = (
        settings if settings.batch_size is not None else replace(settings, batch_size=_batch_size(logs, settings))
    )
    stages = method.stages()
    sources = {stage.source: _batches(stage, logs, method, settings) for stage in stages}
    plan = _plan(stages, settings.steps, sources.values(), validated=validate is not None)
    trainable = [parameter.requires_grad for parameter in method.parameters()]
    run = _Run(method, plan, sources, settings, validate, progress, watch, time_limit=time_limit)
    try:
        with _own_randomness(settings.seed):
            if not checkpoint:
                run.all_stages()
            else:
                run.checkpoint = Path(checkpoint)
                run.fingerprint = {**_fingerprint(method, plan, sources, settings), **(fingerprint or {})}
                with _writer(run.checkpoint), stop_requests() as run.stop_requested:
                    run.all_stages()
        return run.finished()
    finally:
        for parameter, flag in zip(method.parameters(), trainable, strict=True):
            parameter.requires_grad_(flag)
        method.eval()


def _plan(stages: Sequence[Stage], steps: int | None, sources: Iterable[Batches], *, validated: bool) -> Plan:
    """The steps of each stage; None: until nothing more is learned."""
    if steps is not None:
        return plan_stages(stages, steps)
    if not validated:
        per_pass = [None if isinstance(batches, SourceBatches) else batches.per_epoch for batches in sources]
        return plan_stages(stages, max(usual_steps(each) for each in per_pass))
    return [(stage, stage.steps or (None if stage.selects else UNSELECTED)) for stage in stages]


def plan_stages(stages: Sequence[Stage], steps: int) -> list[tuple[Stage, int]]:
    """Steps of each stage: fixed numbers first, the rest shared; fixed stages get at most half if others need steps."""
    fixed = sum(stage.steps for stage in stages if stage.steps is not None)
    n_open = sum(stage.steps is None for stage in stages)
    limit = steps // 2 if n_open else steps
    shrink = min(1.0, limit / fixed) if fixed else 1.0
    share = max(1, (steps - int(fixed * shrink)) // n_open) if n_open else 0
    return [(stage, share if stage.steps is None else max(1, int(stage.steps * shrink))) for stage in stages]


def _batch_size(logs: Mapping[str, Source], settings: Settings) -> int:
    clicks = logs.get("clicks")
    if isinstance(clicks, ShardBatches):
        return clicks.batch_size
    if not isinstance(clicks, ClickLog):
        return LISTS
    n_queries = len(np.unique(clicks.queries))
    return usual_batch(clicks.n_lists, clicks.n_sessions, n_queries, settings.together)


@dataclass
class _Run:
    """A run of all stages of a method."""

    method: Method
    plan: Plan
    sources: Mapping[str, Batches]
    settings: Settings
    validate: Callable[[Method], float] | None
    progress: Progress | None
    watch: Watch | None
    time_limit: float | None
    checkpoint: Path | None = None
    fingerprint: dict[str, Any] = field(default_factory=dict)
    stop_requested: Callable[[], int | None] = lambda: None
    state: RunState = field(default_factory=RunState)
    saved: dict[str, dict[str, Any]] = field(default_factory=dict)  # the optimizer's state in a checkpoint

    def all_stages(self) -> None:
        """Train every stage, or those that a checkpoint leaves."""
        if self.checkpoint is not None:
            with file_of_first(self.checkpoint) as written:
                if written is not None:
                    self.state, self.saved = load_checkpoint(written, self.method, self.fingerprint)
        self.started, self.first_step, self.earlier = time.monotonic(), self.state.step, self.state.history.seconds
        while self.state.stage < len(self.plan):
            stage, n_steps = self.plan[self.state.stage]
            chosen, reason = self._train(stage, n_steps)
            self._end(chosen, reason)

    def _train(self, stage: Stage, n_steps: int | None) -> tuple[Method, str]:
        """Take the steps of a stage; returns the method whose state counts, and why it ended."""
        state, most = self.state, MOST if n_steps is None else n_steps
        optimizer = StageOptimizer.of(self.method, stage, self.settings)
        self.method.train()
        if self.saved:
            restore_optimizer(optimizer.optimizer, self.saved)
            self.saved = {}
        averaged = self._new_average(stage)
        chosen = self.method if averaged is None else averaged.method  # the method to validate and keep
        while state.stage_step < most:
            terms = _step(self.method, stage, self.sources[stage.source], optimizer, n_steps, state)
            state.means.add(terms)
            state.step += 1
            state.stage_step += 1
            if self.watch is not None and is_first():
                self.watch(self._report(stage, terms, None))
            if averaged is not None:
                averaged.update()
            if self.checkpoint is not None and (number := largest(self.stop_requested() or 0)):
                self._save(optimizer, averaged)
                raise Stopped(number, state.step)
            if state.diverged and state.best is not None:
                return chosen, "diverged"
            late = self.time_limit is not None and bool(largest(int(self._seconds() > self.time_limit)))
            if not (late or state.stage_step == most or self._is_recorded()):
                continue
            patient = self._record(stage, chosen)
            if late:
                return chosen, "time"
            if not patient:
                return chosen, "patience"
            if n_steps is None and state.stage_step >= last_step(state.best_stage_step):
                return chosen, "learned"
            if self.checkpoint is not None and state.stage_step < most:
                self._save(optimizer, averaged)
        asked = "steps" if self.settings.steps is not None else "usual"
        return chosen, "most" if n_steps is None else asked

    def _is_recorded(self) -> bool:
        every, step = self.settings.validate_every, self.state.stage_step
        return is_validated(step) if every is None else step % every == 0

    def _record(self, stage: Stage, chosen: Method) -> bool:
        """Validate, and add a row to the history; returns False if patience has ended."""
        state = self.state
        value = None
        if stage.selects and self.validate is not None:
            validate = self.validate
            value = once(lambda: validate(chosen), chosen)  # one process computes it for all
        self.method.train()  # validation may have changed that
        terms = state.means.take()
        row = {"step": state.step, "stage": stage.name, "seconds": self._seconds(), **terms}
        state.history.rows.append(row if value is None else {**row, "validation": value})
        patient = value is None or not _note_best(state, chosen, value, self.settings.patience)
        report = self._report(stage, terms, value)
        if self.progress is not None and is_first():
            self.progress(report)
        if self.watch is not None and value is not None and is_first():
            self.watch(report)
        return patient

    def _end(self, chosen: Method, reason: str) -> None:
        """Keep the best state of a stage, or the last one, and go on to the next."""
        state = self.state
        self.method.load_state_dict(chosen.state_dict() if state.best is None else state.best)
        if reason not in ("steps", "usual") or state.history.ending is None:  # later stages of a fixed length say less
            kept = None if state.best is None else state.best_stage_step
            state.history.ending = Ending(state.stage_step, kept, reason)
        if reason == "diverged":
            _warn(state, str(state.history.ending))
        state.stage, state.stage_step, state.unimproved, state.best_stage_step = state.stage + 1, 0, 0, 0
        state.best, state.best_value, state.average = None, None, None
        state.first_loss, state.diverged = None, False  # the next stage has another loss, on another scale
        if self.checkpoint is not None:
            nothing = torch.optim.SGD(self.method.parameters())  # the next stage starts with a new optimizer
            save_checkpoint(self.checkpoint, state, self.method, nothing, self.fingerprint)

    def _save(self, optimizer: StageOptimizer, averaged: AveragedMethod | None) -> None:
        assert self.checkpoint is not None
        self.state.average = None if averaged is None else averaged.state()
        save_checkpoint(self.checkpoint, self.state, self.method, optimizer.optimizer, self.fingerprint)

    def _new_average(self, stage: Stage) -> AveragedMethod | None:
        """The average of what this stage trains, if wanted; restored if the run is resumed."""
        share = AVERAGED if self.settings.average is None else self.settings.average
        if not stage.selects or not share:
            return None
        averaged = AveragedMethod(self.method, share)
        if self.state.average is not None:
            averaged.restore(self.state.average)
        return averaged

    def _report(self, stage: Stage, terms: Mapping[str, float], value: float | None) -> Report:
        state = self.state
        total = sum(n for _, n in self.plan if n is not None)
        if any(n is None for _, n in self.plan):
            total += last_step(state.best_stage_step)  # as long as nothing better comes
        return Report(stage.name, state.step, max(total, state.step), terms, value, self.started, self.first_step)

    def _seconds(self) -> float:
        return self.earlier + time.monotonic() - self.started

    def finished(self) -> History:
        """The history, with the settings that were used and the number of passes over the log."""
        history = self.state.history
        average = AVERAGED if self.settings.average is None else self.settings.average
        history.settings = asdict(replace(self.settings, steps=self.state.step, average=average))
        per_pass = [b.per_epoch for b in self.sources.values() if not isinstance(b, SourceBatches)]
        history.passes = self.state.step / max(per_pass) if per_pass else None
        return history


def _writer(checkpoint: Path) -> AbstractContextManager[None]:
    return sole_writer(checkpoint) if is_first() else nullcontext()


def _step(
    method: Method, stage: Stage, batches: Batches, optimizer: StageOptimizer, n_steps: int | None, run: RunState
) -> dict[str, float]:
    """One update; returns the loss terms per session, or nothing if they were not finite."""
    lists = batches(run.step, share()).to(next(method.parameters()).device)
    mine = lists.sessions.sum() if isinstance(lists, ClickedLists) else torch.tensor(lists.n_lists)
    total_sessions = total_later(mine)  # summed while the networks run
    terms = stage.loss(lists)
    n_sessions = total_sessions()
    optimizer.optimizer.zero_grad(set_to_none=True)
    learned = [term for term in terms.values() if term.requires_grad]
    if learned:
        torch.autograd.backward(learned, [torch.ones_like(term) / n_sessions for term in learned])
    shares = torch.stack([term.detach() for term in terms.values()]) / n_sessions
    shares = add_up(shares, method.parameters())
    if learned:
        optimizer.clip()
    *values, value = torch.cat([shares, shares.sum().unsqueeze(0)]).tolist()  # a GPU is waited for here only
    named = dict(zip(terms, values, strict=True))
    if not math.isfinite(value):
        _note_bad_step(run, stage, named)
        return {}
    if learned:
        optimizer.step(run.stage_step, n_steps)
    run.skipped = 0
    _watch_divergence(run, value)
    return named


def _note_bad_step(run: RunState, stage: Stage, terms: Mapping[str, float]) -> None:
    bad = next((name for name, value in terms.items() if not math.isfinite(value)), max(terms, key=terms.__getitem__))
    _warn(run, f"step {run.step} of stage '{stage.name}': loss term '{bad}' is {terms[bad]}; this batch was skipped")
    run.skipped += 1
    if run.skipped >= MOST_SKIPPED:
        raise FloatingPointError(
            f"{run.skipped} batches in a row, up to step {run.step}, gave no finite loss ('{bad}' in stage "
            f"'{stage.name}'): lower the learning rate, or check the features for extreme values"
        )


def _watch_divergence(run: RunState, loss: float) -> None:
    """Note a loss far above the first one; without a validated state to return to, training ends as an error."""
    if run.first_loss is None:
        run.first_loss = loss
    elif loss > 100 * abs(run.first_loss) + 100:
        run.diverged = True
        if run.best is None:
            raise FloatingPointError(
                f"training diverges: the loss is {loss:.3g} at step {run.step}, up from {run.first_loss:.3g}; lower "
                "the learning rate, or check the features for extreme values"
            )


def _warn(run: RunState, message: str) -> None:
    run.history.warnings.append(message)
    if is_first():
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def _note_best(run: RunState, method: Method, value: float, patience: int | None) -> bool:
    """Keep the state if it is the best of this stage; returns whether to stop."""
    if value != value:
        _warn(run, f"validation is not a number at step {run.step}; this state was not considered")
    elif run.best_value is None or value > run.best_value:
        run.best_value, run.unimproved, run.best_stage_step = value, 0, run.stage_step
        run.best = {name: tensor.detach().clone() for name, tensor in method.state_dict().items()}
        run.history.best_step, run.history.best_value = run.step, value
        return False
    run.unimproved += 1
    return patience is not None and run.unimproved >= patience


def _batches(stage: Stage, logs: Mapping[str, Source], method: Method, settings: Settings) -> Batches:
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


def _fingerprint(
    method: Method,
    plan: Plan,
    sources: Mapping[str, Batches],
    settings: Settings,
) -> dict[str, Any]:
    def content(batches: Batches) -> str:
        """SHA-256 of all training data."""
        if isinstance(batches, ClickBatches):
            return batches.log.digest
        if isinstance(batches, ShardBatches):
            return batches.folder.digest
        if isinstance(batches, SourceBatches):
            return batches.source.digest
        judged = batches.judged
        return array_digest([judged.features, judged.grades, judged.offsets])

    return {
        "method": type(method).__name__,
        "settings": settings.to_json(),
        "stages": [[stage.name, steps] for stage, steps in plan],
        "data": {name: content(batches) for name, batches in sources.items()},
        "parameters": sum(tensor.numel() for tensor in _tensors(method)),
    }


def _tensors(method: Method) -> Iterator[Tensor]:
    yield from method.state_dict().values()


@contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """A separate random state for the run; the caller's state is unchanged."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
