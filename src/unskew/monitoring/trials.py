"""Trials: the trainings of a cross-validation, stored on disk so that an interrupted run resumes.

Their order is fixed, so a finished training is identified by its number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from unskew.data.files import sole_writer, write_file
from unskew.data.untrusted import read_json

Curve = list[tuple[int, float]]  # steps and the metric on held-out queries
Progress = Callable[[int, int], None]


@dataclass
class Trials:
    """Runs trainings, or returns the results of those that have finished before."""

    n_trials: int
    digest: str  # of everything that they depend on
    place: Path | None = None
    progress: Progress | None = None
    finished: list[Curve] = field(default_factory=list)
    done: int = 0

    @classmethod
    @contextmanager
    def opened(
        cls, place: str | Path | None, n_trials: int, digest: str, progress: Progress | None
    ) -> Iterator[Trials]:
        """Trials stored in a file, which is locked; results of another tuning are not used."""
        if place is None:
            yield cls(n_trials, digest, progress=progress)
            return
        with sole_writer(Path(place)):
            yield cls(n_trials, digest, Path(place), progress, _read(Path(place), digest))

    def __call__(self, train: Callable[[], Curve]) -> Curve:
        if self.progress is not None:
            self.progress(self.done, self.n_trials)
        if self.done == len(self.finished):
            self.finished.append(train())
            if self.place is not None:
                content = json.dumps({"digest": self.digest, "finished": self.finished})
                write_file(self.place, content.encode())
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.n_trials)
        return self.finished[self.done - 1]


def _read(place: Path, digest: str) -> list[Curve]:
    try:
        data = read_json(place)
        if data["digest"] != digest:
            return []
        return [[(int(step), float(value)) for step, value in curve] for curve in data["finished"]]
    except (OSError, ValueError, KeyError, TypeError):  # missing or truncated: start over
        return []
