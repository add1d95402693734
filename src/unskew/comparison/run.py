"""Run a plan: independent runs in parallel processes, each a row on disk as soon as it is finished.

Processes that work on one folder share its runs. Hyper-parameters are chosen first, on the first
repetition and on validation queries only; then the chosen ones are run on the other repetitions. Finished rows are not
run again, so an interrupted experiment resumes. A run that fails leaves its traceback and does not stop the others; a
run whose process dies is tried once more, alone.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from unskew.comparison.code_digest import code_digest
from unskew.comparison.plan import Group, Run
from unskew.comparison.rows import (
    Claims,
    Outcome,
    error_path,
    families_in,
    read_row,
    row_path,
    write_error,
    write_row,
)
from unskew.comparison.tasks import Task, perform
from unskew.data.judged.metrics import metric
from unskew.extensions import pickler_for
from unskew.training.watching import Watch, of_run

WAIT = 1.0  # seconds between checks of other processes
DIED = "its process died, perhaps because memory ran out: try fewer jobs"


@dataclass(frozen=True)
class State:
    """What a progress display receives."""

    done: int
    total: int
    running: tuple[str, ...]
    failed: tuple[str, ...]
    found: int  # rows that had already finished
    seconds_left: float | None  # None: no run has finished yet
    elsewhere: int = 0  # runs of other processes


Progress = Callable[[State], None]
Fresh = bool | Collection[str]  # whether to run everything again, or the labels of methods to run again


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run."""

    run: Run
    outcome: Outcome


@dataclass(frozen=True, eq=False)
class Results:
    """All results of an experiment."""

    results: tuple[Result, ...]  # of the chosen hyper-parameters
    tried: tuple[Result, ...]  # of every point of the grids, on the first repetition
    failed: tuple[tuple[Run, str], ...]  # with the last line of the error
    found: int
    other_code: int  # rows from an earlier version of the code
    changed: tuple[str, ...] = ()  # runs that were repeated because user-defined code changed

    @property
    def data_sets(self) -> list[str]:
        return list(dict.fromkeys(result.run.repetition.data_set for result in self.results))

    def of(self, data_set: str) -> Results:
        """The results on one data set."""

        def only(results: tuple[Result, ...]) -> tuple[Result, ...]:
            return tuple(result for result in results if result.run.repetition.data_set == data_set)

        return replace(self, results=only(self.results), tried=only(self.tried))


@dataclass
class _Board:
    """The progress so far."""

    folder: Path
    total: int
    jobs: int
    progress: Progress | None
    tasks: Mapping[str, Task]
    claims: Claims
    watch: Watch | None
    fresh: Fresh
    stale: dict[str, int] = field(default_factory=dict)  # when the rows to be replaced were written
    elsewhere: dict[str, Run] = field(default_factory=dict)  # runs of other processes
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failed: dict[str, tuple[Run, str]] = field(default_factory=dict)
    running: dict[str, str] = field(default_factory=dict)
    found: int = 0
    changed: list[str] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)

    def task(self, run: Run) -> Task:
        return self.tasks[run.definition["task"]]

    def tell(self) -> None:
        if self.progress is None:
            return
        done = len(self.outcomes) + len(self.failed)
        left = (self.total - done) * sum(self.spent) / len(self.spent) / self.jobs if self.spent else None
        titles = tuple(run.title for run, _ in self.failed.values())
        self.progress(
            State(done, self.total, tuple(self.running.values()), titles, self.found, left, len(self.elsewhere))
        )

    def claim(self, run: Run) -> bool:
        """Whether this process should do the run: not if another process is doing it, or has just done it."""
        if not self.claims.take(run.key):
            self.elsewhere[run.key] = run
            return False
        new = _written_at(row_path(self.folder, run.key)) != self.stale[run.key]
        row = read_row(self.folder, run.key) if new else None
        self.elsewhere.pop(run.key, None)
        if row is None:
            return True
        self.claims.release(run.key)
        self.outcomes[run.key] = row
        return False


def run_plan(
    groups: Sequence[Group],
    folder: Path,
    metric_name: str,
    *,
    tasks: Mapping[str, Task],
    jobs: int = 2,
    fresh: Fresh = False,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Results:
    """Run everything that has not finished yet.

    Args:
        folder: folder for the rows.
        metric_name: the metric that chooses among the points of a grid, on validation.
        tasks: the tasks of runs, by name; worker processes import these functions, so they must be in a module.
        jobs: number of parallel runs; threads are divided among them.
        fresh: run again what has finished: everything, or the methods with these labels.
        watch: receives every step and validation; with several jobs it is sent to their processes.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    folder.mkdir(parents=True, exist_ok=True)
    n_runs = sum(len(group.candidates) + len(group.again(group.candidates[0])) for group in groups)
    with Claims(folder) as claims:
        return _run_plan(groups, _Board(folder, n_runs, jobs, progress, tasks, claims, watch, fresh), metric_name)


def _run_plan(groups: Sequence[Group], board: _Board, metric_name: str) -> Results:
    first = [run for group in groups for run in group.candidates]
    _run_all(first, board)
    chosen = [run for group in groups if (run := best_candidate(group, board.outcomes, metric_name)) is not None]
    again = {id(run): group.again for group in groups for run in group.candidates}
    later = [run for candidate in chosen for run in again[id(candidate)](candidate)]
    board.total = len(first) + len(later)
    # Runs that share a log are adjacent.
    _run_all(sorted(later, key=lambda run: (run.repetition.number, run.setting)), board)
    return Results(
        results=tuple(_finished([*chosen, *later], board)),
        tried=tuple(_finished(first, board)),
        failed=tuple(board.failed.values()),
        found=board.found,
        other_code=sum(outcome.about.get("code") != code_digest() for outcome in board.outcomes.values()),
        changed=tuple(board.changed),
    )


def best_candidate(group: Group, outcomes: dict[str, Outcome], metric_name: str) -> Run | None:
    """The best candidate on validation; None if all have failed. Test queries do not count."""
    finished = [run for run in group.candidates if run.key in outcomes]
    if len(finished) < 2:
        return finished[0] if finished else None
    sign = 1 if metric(metric_name).higher_is_better else -1
    return max(finished, key=lambda run: sign * outcomes[run.key].about["validation"])


def _finished(runs: Iterable[Run], board: _Board) -> Iterator[Result]:
    for run in runs:
        if run.key in board.outcomes:
            yield Result(run, board.outcomes[run.key])


def _written_at(row: Path) -> int:
    return row.stat().st_mtime_ns if row.is_file() else 0


def _run_all(runs: Iterable[Run], board: _Board) -> None:
    waiting: dict[str, Run] = {}
    for run in runs:
        board.stale[run.key] = _written_at(row_path(board.folder, run.key))
        anew = board.fresh if isinstance(board.fresh, bool) else run.label in board.fresh
        row = None if anew or run.key in board.outcomes else read_row(board.folder, run.key)
        if row is not None:
            board.outcomes[run.key] = row
            board.found += 1
        elif run.key not in board.outcomes:
            waiting[run.key] = run
    families = families_in(board.folder) if any(run.family for run in waiting.values()) else set()
    board.changed += [run.title for run in waiting.values() if run.family in families]
    board.tell()
    while waiting:
        _side_by_side(list(waiting.values()), board) if board.jobs > 1 else _one_by_one(waiting.values(), board)
        waiting = dict(board.elsewhere)
        board.tell()
        if waiting:
            time.sleep(WAIT)


def _one_by_one(runs: Iterable[Run], board: _Board) -> None:
    for run in runs:
        if not board.claim(run):
            continue
        board.running = {run.key: run.title}
        board.tell()
        _note(run, board, *_perform_and_write(run, board.folder, board.task(run), board.watch))


def _side_by_side(waiting: Sequence[Run], board: _Board) -> None:
    """Keep all processes busy until no run waits; runs that were active when a process died are then run alone."""
    left = list(waiting)
    while left:
        with _pool(board.jobs) as pool:
            suspects, left = _drain(left, board, pool, board.jobs)
        for run in suspects:
            with _pool(1) as pool:
                for guilty in _drain([run], board, pool, 1)[0]:
                    write_error(board.folder, guilty.key, guilty.title, guilty.record, DIED)
                    _note(guilty, board, None, 0.0, DIED)


def _drain(runs: Sequence[Run], board: _Board, pool: ProcessPoolExecutor, jobs: int) -> tuple[list[Run], list[Run]]:
    """Run until no run waits or a process has died; return the runs active at that time, and those still waiting."""
    queue = list(reversed(runs))
    at_work: dict[Future, Run] = {}
    suspects: list[Run] = []
    while at_work or (queue and not suspects):
        while queue and not suspects and len(at_work) < jobs:
            run = queue.pop()
            if not board.claim(run):
                continue
            pack = pickler_for(run.definition)
            try:
                at_work[pool.submit(_perform_packed, pack((run, board.folder, board.task(run), board.watch)))] = run
            except BrokenProcessPool:
                suspects.append(run)
        board.running = {run.key: run.title for run in at_work.values()}
        board.tell()
        if not at_work:
            continue
        for future in wait(at_work, return_when=FIRST_COMPLETED).done:
            run = at_work.pop(future)
            try:
                _note(run, board, *future.result())
            except BrokenProcessPool:
                suspects.append(run)
    return suspects, list(reversed(queue))


def _note(run: Run, board: _Board, outcome: Outcome | None, seconds: float, error: str) -> None:
    board.running.pop(run.key, None)
    board.claims.release(run.key)
    if outcome is None:
        board.failed[run.key] = (run, error)
    else:
        board.outcomes[run.key] = outcome
        board.spent.append(seconds)
    board.tell()


def _perform_packed(packed: bytes) -> tuple[Outcome | None, float, str]:
    return _perform_and_write(*pickle.loads(packed))


def _perform_and_write(
    run: Run, folder: Path, task: Task, watch: Watch | None = None
) -> tuple[Outcome | None, float, str]:
    """Do a run and write its row; return the outcome or None, its seconds, and the error."""
    started = time.monotonic()
    try:
        outcome = perform(task, run.definition, of_run(watch, run.title))
        write_row(folder, run.key, run.record, outcome, run.family)
        # Read back from disk, so that a finished and a resumed experiment report the same.
        return read_row(folder, run.key), time.monotonic() - started, ""
    except Exception as error:  # any error: the other runs continue
        try:
            write_error(folder, run.key, run.title, run.record, traceback.format_exc())
        except OSError:
            error_path(folder, run.key).unlink(missing_ok=True)  # the disk is full; the error is reported anyway
        last = str(error).splitlines()[0] if str(error) else ""
        return None, time.monotonic() - started, f"{type(error).__name__}: {last}"


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes with their share of the threads; an interrupted experiment leaves none behind."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker, initargs=(max(1, cores // jobs),))
    try:
        yield pool
    except BaseException:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        raise
    pool.shutdown(wait=True)


def _start_worker(threads: int) -> None:
    torch.set_num_threads(threads)
    threadpool_limits(threads)  # forests and matrix products outside torch
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker with its parent: a killed experiment must not leave processes behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
