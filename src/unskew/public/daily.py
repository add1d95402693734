"""Living with a model: `drift`, `tune` and `readout`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike

from unskew.daily import drift as changes
from unskew.daily import readout as online
from unskew.daily import tune as tuning
from unskew.daily.drift import Drift
from unskew.daily.readout import Readout
from unskew.daily.tune import Plan, Tuned
from unskew.data.clicks.storage import LogFolder
from unskew.public.inputs import Judged, Log, Place, as_judged, as_log_or_folder, as_model
from unskew.public.progress import Follow, followed
from unskew.terminal import counting_progress
from unskew.training.model import Model


def drift(a: Log | LogFolder, b: Log | LogFolder) -> Drift:
    """What changed from one log to another: features, clicks, order, traffic, bias columns, coverage.

    Use `diagnose` for a single log. Logs that share no query or no document are refused. Logs from `open_log` are
    read in parts and may be larger than memory.

    >>> import unskew
    >>> days = [unskew.simulate("world:tiny", sessions=8, seed=seed, progress=False) for seed in (1, 2)]
    >>> [row.name for row in unskew.drift(*days).changed]
    []
    """
    return changes.drift(as_log_or_folder(a), as_log_or_folder(b))


def tune(
    model: Model | Place,
    judged: Judged,
    *,
    checkpoint: Place | None = None,
    progress: Follow = True,
    **options: Any,
) -> Tuned:
    """Train a model further on judged queries; cross-validation chooses how long. `.model` is the new model.

    Use `fit("labelled", judged=...)` to train on judged queries alone.

    Args:
        judged: judged queries, or a data set of the catalogue (its valid split).
        checkpoint: file for finished trainings of cross-validation; an existing one is resumed.
        progress: False for no bar, or a function that receives the number of finished and of all trainings.
        options: fields of `unskew.daily.tune.Plan`: metric, steps (the largest number tried), rates, folds, seed.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> model = unskew.fit("naive", log, steps=3, progress=False)
    >>> tuned = unskew.tune(model, "world:tiny", steps=2, rates=(0.01,))
    >>> tuned.model.recipe.method
    'naive'
    """
    with followed(progress, counting_progress, "tune", "trainings") as report:
        return tuning.tune(
            as_model(model), as_judged(judged, "valid"), Plan(**options), progress=report, checkpoint=checkpoint
        )


def readout(
    log: Log | LogFolder,
    *,
    arm: str | None = None,
    team: str | None = None,
    baseline: str | None = None,
    curve: ArrayLike | None = None,
    grades: Mapping[str, float] | None = None,
) -> Readout:
    """Evaluate an A/B test or a team-draft interleaving from a column of the log; use `compare` before a test.

    Args:
        arm: bias column of lists that names the arm; default: "arm", if there is one.
        team: bias column that names the team that contributed each document; default: "team", if there is one.
        baseline: the arm or team that the others are compared with; default: the first level.
        curve: examination by position; default: estimated from the log.
        grades: weights of event types (`ClickLog.with_grades`), for graded outcomes.

    >>> import pyarrow as pa
    >>> import unskew
    >>> shown = {"session": [1, 2, 3, 4], "query": ["a", "a", "b", "b"], "document": ["x", "x", "y", "y"]}
    >>> told = {"position": [0] * 4, "price": [1.0] * 4, "click": [0, 1, 0, 1], "arm": ["old", "new"] * 2}
    >>> rows = pa.table(shown | told)
    >>> test = unskew.readout(unskew.ClickLog.from_table(rows, bias=["arm"]), baseline="old", curve=[1.0])
    >>> test.outcomes[0].name, test.outcomes[0].difference
    ('clicks per session', 1.0)
    """
    return online.readout(as_log_or_folder(log), arm=arm, team=team, baseline=baseline, curve=curve, grades=grades)
