"""The training loop: every method is trained here, and nowhere else.

A stage ends before the next begins. Everything that a stage does not train is frozen. Loss terms are sums over sessions
and are divided once, here, by the sessions of the batch. The gradients of every network are clipped separately: with a
joint norm one term would starve the other. Several processes (`distributed`) take each step together.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unskew.data.clicks.batches import ClickBatches, JudgedBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.shard_batches import ShardBatches
from unskew.data.clicks.source import SourceBatches
from unskew.data.files import array_digest, sole_writer
from unskew.data.judged.judged_set import JudgedSet
from unskew.lists import ClickedLists
from unskew.methods.method import Method, Stage
from unskew.networks.documents import FeatureLayer
from unskew.networks.tables import decays
from unskew.processes import is_first, largest, once, share, state_from_first, total_later
from unskew.training.averaging import UNVALIDATED, AveragedMethod
from unskew.training.checkpoint import RunState, load_checkpoint, restore_optimizer, save_checkpoint
from unskew.training.distributed import add_up, file_of_first
from unskew.training.history import History, Report
from unskew.training.settings import Settings, usual_steps
from unskew.training.stopping import Stopped, stop_requests
from unskew.training.watching import Watch

# ShardBatches: for logs larger than memory. SourceBatches: new lists in every step.
Source = ClickLog | JudgedSet | ClickBatches | ShardBatches | SourceBatches
Batches = ClickBatches | JudgedBatches | ShardBatches | SourceBatches
Progress = Callable[[Report], None]
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
) -> History:
    """Train a method on its sources, `logs["clicks"]` for most; the best validated state is kept.

    Args:
        validate: returns a number, higher is better; called every `settings.validate_every` steps and at the end of a
            stage.
        progress: called after every recorded step.
        checkpoint: file for checkpoints; an existing one is resumed. With one, SIGTERM and Ctrl-C stop the run after
            its current step and write the checkpoint (`stopping.Stopped`).
        fingerprint: further values that must be equal to resume a run, e.g. hyper-parameters.
        watch: called after every step, and again after a validation.
    """
    method.to(settings.torch_device())
    state_from_first(method)
    stages = method.stages()
    sources = {stage.source: _batches(stage, logs, method, settings) for stage in stages}
    steps = settings.steps or _usual_steps(sources.values(), validated=validate is not None)
    plan = plan_stages(stages, steps)
    trainable = [parameter.requires_grad for parameter in method.parameters()]
    try:
        with _own_randomness(settings.seed):
            if not checkpoint:
                history = _run(method, plan, sources, settings, validate, progress, None, {}, lambda: None, watch)
            else:
                place, same = Path(checkpoint), {**_fingerprint(method, plan, sources, settings), **(fingerprint or {})}
                with _writer(place), stop_requests() as stopped:
                    history = _run(method, plan, sources, settings, validate, progress, place, same, stopped, watch)
        average = _averaged_share(settings, validated=validate is not None)
        history.settings = asdict(replace(settings, steps=steps, average=average))
        return history
    finally:
        for parameter, flag in zip(method.parameters(), trainable, strict=True):
            parameter.requires_grad_(flag)
        method.eval()


def _usual_steps(sources: Iterable[Batches], *, validated: bool) -> int:
    passes = [None if validated or isinstance(batches, SourceBatches) else batches.per_epoch for batches in sources]
    return max(usual_steps(per_pass) for per_pass in passes)


def plan_stages(stages: Sequence[Stage], steps: int) -> list[tuple[Stage, int]]:
    """Steps of each stage: fixed numbers first, the rest shared; fixed stages get at most half if others need steps."""
    fixed = sum(stage.steps for stage in stages if stage.steps is not None)
    n_open = sum(stage.steps is None for stage in stages)
    limit = steps // 2 if n_open else steps
    shrink = min(1.0, limit / fixed) if fixed else 1.0
    share = max(1, (steps - int(fixed * shrink)) // n_open) if n_open else 0
    return [(stage, share if stage.steps is None else max(1, int(stage.steps * shrink))) for stage in stages]


def _run(
    method: Method,
    plan: Sequence[tuple[Stage, int]],
    sources: Mapping[str, Batches],
    settings: Settings,
    validate: Callable[[Method], float] | None,
    progress: Progress | None,
    checkpoint: Path | None,
    fingerprint: dict[str, Any],
    stop_requested: Callable[[], int | None],
    watch: Watch | None,
) -> History:
    run = RunState()
    saved: dict[str, dict[str, Any]] = {}
    if checkpoint is not None:
        with file_of_first(checkpoint) as written:
            if written is not None:
                run, saved = load_checkpoint(written, method, fingerprint)
    started, first_step = time.monotonic(), run.step
    earlier = run.history.seconds
    total = sum(n for _, n in plan)
    while run.stage < len(plan):
        stage, n_steps = plan[run.stage]
        optimizer, networks = _new_optimizer(method, stage, settings)
        method.train()
        restore_optimizer(optimizer, saved) if saved else None
        saved = {}
        averaged = _new_average(method, stage, n_steps, settings, run, validated=validate is not None)
        chosen = method if averaged is None else averaged.method  # the method to validate and keep
        while run.stage_step < n_steps:
            settings.set_rates(optimizer, run.stage_step, n_steps)
            terms = _step(method, stage, sources[stage.source], optimizer, networks, settings, run)
            run.means.add(terms)
            run.step += 1
            run.stage_step += 1
            if watch is not None and is_first():
                watch(Report(stage.name, run.step, total, terms, None, started, first_step))
            if averaged is not None:
                averaged.update()
            if checkpoint is not None and (number := largest(stop_requested() or 0)):
                run.average = None if averaged is None else averaged.state()
                save_checkpoint(checkpoint, run, method, optimizer, fingerprint)
                raise Stopped(number, run.step)
            if run.stage_step % settings.validate_every and run.stage_step != n_steps:
                continue
            value = _validated(validate, chosen) if stage.selects else None
            method.train()  # validation may have changed that
            seconds, terms = earlier + time.monotonic() - started, run.means.take()
            row = {"step": run.step, "stage": stage.name, "seconds": seconds, **terms}
            run.history.rows.append(row if value is None else {**row, "validation": value})
            stop = value is not None and _note_best(run, chosen, value, settings.patience)
            report = Report(stage.name, run.step, total, terms, value, started, first_step)
            if progress is not None and is_first():
                progress(report)
            if watch is not None and value is not None and is_first():
                watch(report)
            if stop:
                break
            if checkpoint is not None and run.stage_step < n_steps:
                run.average = None if averaged is None else averaged.state()
                save_checkpoint(checkpoint, run, method, optimizer, fingerprint)
        method.load_state_dict(chosen.state_dict() if run.best is None else run.best)
        run.stage, run.stage_step, run.unimproved = run.stage + 1, 0, 0
        run.best, run.best_value, run.average = None, None, None
        run.first_loss = None  # the next stage has another loss, on another scale
        if checkpoint is not None:
            nothing = torch.optim.SGD(method.parameters())  # the next stage starts with a new optimizer
            save_checkpoint(checkpoint, run, method, nothing, fingerprint)
    return run.history


def _validated(validate: Callable[[Method], float] | None, method: Method) -> float | None:
    """The current validation value; one process computes it for all."""
    return None if validate is None else once(lambda: validate(method), method)


def _writer(checkpoint: Path) -> AbstractContextManager[None]:
    return sole_writer(checkpoint) if is_first() else nullcontext()


def _averaged_share(settings: Settings, *, validated: bool) -> float:
    usual = 0.0 if validated else UNVALIDATED
    return usual if settings.average is None else settings.average


def _new_average(
    method: Method, stage: Stage, n_steps: int, settings: Settings, run: RunState, *, validated: bool
) -> AveragedMethod | None:
    """The average of what this stage trains, if wanted; restored if the run is resumed."""
    share = _averaged_share(settings, validated=validated)
    if not stage.selects or not share:
        return None
    averaged = AveragedMethod(method, max(1, round(share * n_steps)))
    if run.average is not None:
        averaged.restore(run.average)
    return averaged


def _step(
    method: Method,
    stage: Stage,
    batches: Batches,
    optimizer: torch.optim.Optimizer,
    networks: Sequence[Sequence[nn.Parameter]],
    settings: Settings,
    run: RunState,
) -> dict[str, float]:
    """One update; returns the loss terms per session, or nothing if they were not finite."""
    lists = batches(run.step, share()).to(next(method.parameters()).device)
    mine = lists.sessions.sum() if isinstance(lists, ClickedLists) else torch.tensor(lists.n_lists)
    total_sessions = total_later(mine)  # summed while the networks run
    terms = stage.loss(lists)
    n_sessions = total_sessions()
    optimizer.zero_grad(set_to_none=True)
    learned = [term for term in terms.values() if term.requires_grad]
    if learned:
        torch.autograd.backward(learned, [torch.ones_like(term) / n_sessions for term in learned])
    shares = torch.stack([term.detach() for term in terms.values()]) / n_sessions
    shares = add_up(shares, method.parameters())
    if learned and settings.max_gradient_norm is not None:
        for parameters in networks:
            _clip(parameters, settings.max_gradient_norm)
    *values, value = torch.cat([shares, shares.sum().unsqueeze(0)]).tolist()  # a GPU is waited for here only
    named = dict(zip(terms, values, strict=True))
    if not math.isfinite(value):
        _note_bad_step(run, stage, named)
        return {}
    if learned:
        optimizer.step()
    run.skipped = 0
    _watch_divergence(run, value)
    return named


def _clip(parameters: Sequence[nn.Parameter], most: float) -> None:
    """Scale the gradients of a network down to this norm; those below it are left alone."""
    norm = nn.utils.get_total_norm([entry.grad for entry in parameters if entry.grad is not None], foreach=True)
    if norm.device.type != "cpu" or not norm + 1e-6 <= most:  # a GPU would have to be waited for
        nn.utils.clip_grads_with_norm_(parameters, most, norm, foreach=True)


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
    if run.first_loss is None:
        run.first_loss = loss
    elif loss > 100 * abs(run.first_loss) + 100 and not any("diverge" in text for text in run.history.warnings):
        _warn(
            run,
            f"training seems to diverge: the loss is {loss:.3g} at step {run.step}, up from {run.first_loss:.3g}; "
            "lower the learning rate",
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
        run.best_value, run.unimproved = value, 0
        run.best = {name: tensor.detach().clone() for name, tensor in method.state_dict().items()}
        run.history.best_step, run.history.best_value = run.step, value
        return False
    run.unimproved += 1
    return patience is not None and run.unimproved >= patience


def _new_optimizer(
    method: Method, stage: Stage, settings: Settings
) -> tuple[torch.optim.Optimizer, list[list[nn.Parameter]]]:
    """An optimizer of what the stage trains, and the networks whose gradients are clipped separately."""
    groups = []
    networks: list[list[nn.Parameter]] = []
    trained: set[int] = set()
    decayed = {
        id(entry) for part in method.modules() for entry in part.parameters(recurse=False) if decays(part, entry)
    }
    slower = {
        id(part.weight): part.rate if settings.feature_rate is None else settings.feature_rate
        for part in method.modules()
        if isinstance(part, FeatureLayer)
    }
    for module, factor in stage.trains.items():
        parameters = [entry for entry in module.parameters() if id(entry) not in trained]
        trained |= {id(entry) for entry in parameters}
        if not 0 <= factor < math.inf:
            raise ValueError(f"stage '{stage.name}' has a learning-rate factor of {factor}: it must be 0 or more")
        kinds: dict[tuple[bool, float], list[nn.Parameter]] = {}
        for entry in parameters:
            kinds.setdefault((id(entry) in decayed, slower.get(id(entry), 1.0)), []).append(entry)
        for (decay, slowly), alike in sorted(kinds.items(), key=lambda kind: not kind[0][0]):
            group = {"params": alike, "lr": settings.learning_rate * factor * slowly}
            groups.append(group if decay else {**group, "weight_decay": 0.0})
        own = {id(entry) for entry in parameters}
        parts = [list(module.parameters(recurse=False)), *(list(child.parameters()) for child in module.children())]
        parts = [[entry for entry in part if id(entry) in own] for part in parts]
        networks += [part for part in parts if part] if module is method else [parameters]
    for entry in method.parameters():
        entry.requires_grad_(id(entry) in trained)
    return settings.new_optimizer(groups), networks


def _batches(stage: Stage, logs: Mapping[str, Source], method: Method, settings: Settings) -> Batches:
    source = logs.get(stage.source)
    if source is None:
        raise ValueError(
            f"stage '{stage.name}' of {type(method).__name__} learns from {stage.source}: pass logs['{stage.source}']"
        )
    if isinstance(source, ClickBatches | ShardBatches | SourceBatches):
        return source
    if isinstance(source, JudgedSet):
        return JudgedBatches(source, settings.batch_size, seed=settings.seed)
    if source.n_clicks == 0:
        warnings.warn("the log has no clicks: there is nothing to learn from it", RuntimeWarning, stacklevel=4)
    return ClickBatches(
        source, settings.batch_size, seed=settings.seed, detail=method.detail, together=settings.together
    )


def _fingerprint(
    method: Method,
    plan: Sequence[tuple[Stage, int]],
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
