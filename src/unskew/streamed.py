"""What a method needs from a log in advance, estimated from a part of a log that is larger than the memory limit.

`fitting.fit` reads a log on disk shard by shard, but estimates propensities and the like from all of its lists. This
estimates them from the part that fits into memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.looks import false_alarms, look_rates
from unskew.data.clicks.storage import LogFolder
from unskew.methods import Method
from unskew.methods.bias.attention import HIGHEST_RATE
from unskew.networks.registry import Problem
from unskew.training.fitting import ESTIMATES, fit
from unskew.training.model import Model
from unskew.training.recipe import Recipe


def fit_streamed(recipe: Recipe, log: LogFolder, part: ClickLog, **more: Any) -> Model:
    """Train on a log shard by shard; what the method needs in advance comes from a part of it in memory.

    Args:
        more: arguments of `fitting.fit`.
    """
    if more.get("interventions") is None:
        more["interventions"] = _interventions(recipe, part)
    return fit(_estimated(recipe, log, part), log, **more)


def _interventions(recipe: Recipe, part: ClickLog) -> ClickLog | None:
    """The lists that an intervention changed, if the method may use them."""
    if recipe.method_class.prepare is Method.prepare or part.interventions is None:
        return None
    return part.intervened() if (part.interventions.values > 0).any() else None


def _estimated(recipe: Recipe, log: LogFolder, part: ClickLog) -> Recipe:
    """The recipe with hyper-parameters that are estimated from clicks."""
    hyper = dict(recipe.hyper_parameters)
    bias = {name: column.levels for name, column in part.bias.items()}
    problem = Problem(part.n_inputs, log.n_positions, bias, recipe.network)
    for name in recipe.method_class.estimated:
        if hyper.get(name) is None:
            hyper[name] = ESTIMATES[name](part, problem, hyper)
    if hyper.get("false_alarms", 0.0) is None:
        most = min(float(np.nanmin(look_rates(part))), HIGHEST_RATE)
        hyper["false_alarms"] = min(max(false_alarms(part).rate, 0.0), most)
    return replace(recipe, hyper_parameters=hyper)
