"""The training loop: every method is trained here, and nowhere else.

A stage ends before the next begins. Loss terms are sums over sessions and are divided once, here, by the sessions of
the batch. What a stage reads is decided in `plan`, when it ends in `ending`, what it trains and how fast in
`optimizing`. Several processes (`distributed`) take each step together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from unskew.data.files import sole_writer
from unskew.lists import ClickedLists
from unskew.methods.method import Method, Stage
from unskew.processes import is_first, largest, once, share, state_from_first, total_later
from unskew.training.checkpoint import Stopped, load_checkpoint, restore_optimizer, save_checkpoint, stop_requests
from unskew.training.distributed import add_up, file_of_first
from unskew.training.ending import MOST, Ending, is_validated, last_step
from unskew.training.history import History, Report
from unskew.training.optimizing import AVERAGED, AveragedMethod, StageOptimizer
from unskew.training.plan import Batches, Plan, Source, batch_size, batches_of, fingerprint_of, passes_end, plan_of
from unskew.training.run_state import RunState
from unskew.training.settings import Settings
from unskew.training.watching import Watch

Progress = Callable[[Report], None]


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
    if settings.batch_size is None:
        settings = replace(settings, batch_size=batch_size(logs, settings))
    stages = method.stages()
    sources = {stage.source: batches_of(stage, logs, method, settings) for stage in stages}
    plan = plan_of(stages, settings.steps, sources, validated=validate is not None)
    trainable = [parameter.requires_grad for parameter in method.parameters()]
    run = _Run(method, plan, sources, settings, validate, progress, watch, time_limit)
    try:
        with _own_randomness(settings.seed):
            if not checkpoint:
                run.all_stages()
            else:
                run.checkpoint = Path(checkpoint)
                run.fingerprint = {**fingerprint_of(method, plan, sources, settings), **(fingerprint or {})}
                with _writer(run.checkpoint), stop_requests() as run.stop_requested:
                    run.all_stages()
        return run.finished()
    finally:
        for parameter, flag in zip(method.parameters(), trainable, strict=True):
            parameter.requires_grad_(flag)
        method.eval()


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
            optimizer = StageOptimizer.of(self.method, stage, self.settings)
            if self.saved:
                restore_optimizer(optimizer.optimizer, self.saved)
                self.saved = {}
            averaged = self._new_average(stage)
            chosen = self.method if averaged is None else averaged.method  # the method to validate and keep
            reason = self._steps(stage, n_steps, optimizer, averaged, chosen)
            self._end(chosen, reason)

    def _steps(
        self,
        stage: Stage,
        n_steps: int | None,
        optimizer: StageOptimizer,
        averaged: AveragedMethod | None,
        chosen: Method,
    ) -> str:
        """Take the steps of a stage; returns why it ended."""
        state, most = self.state, MOST if n_steps is None else n_steps
        self.method.train()
        while state.stage_step < most:
            terms = self._step(stage, optimizer, n_steps)
            state.means.add(terms)
            state.step += 1
            state.stage_step += 1
            if self.watch is not None and is_first():
                self.watch(self._report(stage, terms, None))
            if averaged is not None:
                averaged.update()
            if self.checkpoint is not None and (number := largest(self.stop_requested() or 0)):
                self._save(optimizer.optimizer, averaged)
                raise Stopped(number, state.step)
            if state.diverged and state.best is not None:
                return "diverged"
            late = self.time_limit is not None and bool(largest(int(self._seconds() > self.time_limit)))
            if late or state.stage_step == most or self._is_recorded():
                self._record(stage, chosen)
                if reason := self._ended(late=late, fixed=n_steps is not None):
                    return reason
                if self.checkpoint is not None and state.stage_step < most:
                    self._save(optimizer.optimizer, averaged)
        return "most" if n_steps is None else "steps" if self.settings.steps is not None else "usual"

    def _step(self, stage: Stage, optimizer: StageOptimizer, n_steps: int | None) -> dict[str, float]:
        """One update; returns the loss terms per session, or nothing if they were not finite."""
        lists = self.sources[stage.source](self.state.step, share()).to(next(self.method.parameters()).device)
        mine = lists.sessions.sum() if isinstance(lists, ClickedLists) else torch.tensor(lists.n_lists)
        total_sessions = total_later(mine)  # summed while the networks run
        terms = stage.loss(lists)
        n_sessions = total_sessions()
        optimizer.optimizer.zero_grad(set_to_none=True)
        learned = [term for term in terms.values() if term.requires_grad]
        if learned:
            torch.autograd.backward(learned, [torch.ones_like(term) / n_sessions for term in learned])
        shares = torch.stack([term.detach() for term in terms.values()]) / n_sessions
        shares = add_up(shares, self.method.parameters())
        if learned:
            optimizer.clip()
        *values, value = torch.cat([shares, shares.sum().unsqueeze(0)]).tolist()  # a GPU is waited for here only
        named = dict(zip(terms, values, strict=True))
        if not math.isfinite(value):
            self.state.note_skipped(stage, named)
            return {}
        if learned:
            optimizer.step(self.state.stage_step, n_steps)
        self.state.note_loss(value)
        return named

    def _is_recorded(self) -> bool:
        every, step = self.settings.validate_every, self.state.stage_step
        return is_validated(step) if every is None else step % every == 0

    def _ended(self, *, late: bool, fixed: bool) -> str | None:
        """Why the stage ends after this record."""
        if late:
            return "time"
        if self.settings.patience is not None and self.state.unimproved >= self.settings.patience:
            return "patience"
        learned = not fixed and self.state.stage_step >= last_step(self.state.best_stage_step)
        return "learned" if learned else None

    def _record(self, stage: Stage, chosen: Method) -> None:
        """Validate, and add a row to the history."""
        state, value = self.state, None
        if stage.selects and self.validate is not None:
            validate = self.validate
            value = once(lambda: validate(chosen), chosen)  # one process computes it for all
        self.method.train()  # validation may have changed that
        terms = state.means.take()
        row = {"step": state.step, "stage": stage.name, "seconds": self._seconds(), **terms}
        state.history.rows.append(row if value is None else {**row, "validation": value})
        if value is not None:
            state.note_validation(chosen, value)
        report = self._report(stage, terms, value)
        if self.progress is not None and is_first():
            self.progress(report)
        if self.watch is not None and value is not None and is_first():
            self.watch(report)

    def _end(self, chosen: Method, reason: str) -> None:
        """Keep the best state of a stage, or the last one, and go on to the next."""
        state = self.state
        self.method.load_state_dict(chosen.state_dict() if state.best is None else state.best)
        if reason not in ("steps", "usual") or state.history.ending is None:  # later stages of a fixed length say less
            kept = None if state.best is None else state.best_stage_step
            state.history.ending = Ending(state.stage_step, kept, reason)
        if reason == "diverged":
            state.warn(str(state.history.ending))
        self.state = state.next_stage()
        if self.checkpoint is not None:
            self._save(torch.optim.SGD(self.method.parameters()), None)  # the next stage starts with a new optimizer

    def _save(self, optimizer: torch.optim.Optimizer, averaged: AveragedMethod | None) -> None:
        assert self.checkpoint is not None
        self.state.average = None if averaged is None else averaged.state()
        save_checkpoint(self.checkpoint, self.state, self.method, optimizer, self.fingerprint)

    def _new_average(self, stage: Stage) -> AveragedMethod | None:
        """The average of what this stage trains, if wanted; restored if the run is resumed."""
        if not stage.selects or not self._average:
            return None
        averaged = AveragedMethod(self.method, self._average)
        if self.state.average is not None:
            averaged.restore(self.state.average)
        return averaged

    @property
    def _average(self) -> float:
        return AVERAGED if self.settings.average is None else self.settings.average

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
        history.settings = asdict(replace(self.settings, steps=self.state.step, average=self._average))
        per_pass = [n for n in map(passes_end, self.sources.values()) if n is not None]
        history.passes = self.state.step / max(per_pass) if per_pass else None
        return history


def _writer(checkpoint: Path) -> AbstractContextManager[None]:
    return sole_writer(checkpoint) if is_first() else nullcontext()


@contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """A separate random state for the run; the caller's state is unchanged."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
