"""unskew: learning to rank from biased clicks.

The public names. Each is loaded when it is first used, so that `import unskew` costs no more than Python itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.comparison.own_log import compare
    from unskew.daily.drift import drift
    from unskew.daily.tune import tune
    from unskew.data.clicks.click_log import ClickLog
    from unskew.data.clicks.storage import open_log, read_log, write_log
    from unskew.data.judged.catalogue import load
    from unskew.data.judged.judged_set import JudgedSet
    from unskew.data.judged.letor import read_letor
    from unskew.estimator import UnbiasedRanker
    from unskew.evaluation.evaluate import evaluate
    from unskew.fitting import fit
    from unskew.metrics import metric
    from unskew.model import Model
    from unskew.recipe import Recipe
    from unskew.serving.explanation import explain
    from unskew.serving.model_files import load_model, save_model
    from unskew.simulation.simulate import simulate

    __version__: str

# Where each name is defined: the imports above, for Python itself.
PLACES = {
    "ClickLog": "data.clicks.click_log",
    "JudgedSet": "data.judged.judged_set",
    "Model": "model",
    "Recipe": "recipe",
    "UnbiasedRanker": "estimator",
    "compare": "comparison.own_log",
    "drift": "daily.drift",
    "evaluate": "evaluation.evaluate",
    "explain": "serving.explanation",
    "fit": "fitting",
    "load": "data.judged.catalogue",
    "load_model": "serving.model_files",
    "metric": "metrics",
    "open_log": "data.clicks.storage",
    "read_letor": "data.judged.letor",
    "read_log": "data.clicks.storage",
    "save_model": "serving.model_files",
    "simulate": "simulation.simulate",
    "tune": "daily.tune",
    "write_log": "data.clicks.storage",
}

__all__ = [
    "ClickLog",
    "JudgedSet",
    "Model",
    "Recipe",
    "UnbiasedRanker",
    "compare",
    "drift",
    "evaluate",
    "explain",
    "fit",
    "load",
    "load_model",
    "metric",
    "open_log",
    "read_letor",
    "read_log",
    "save_model",
    "simulate",
    "tune",
    "write_log",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("unskew")
    elif name in PLACES:
        value = getattr(import_module(f"unskew.{PLACES[name]}"), name)
    else:
        raise AttributeError(f"module 'unskew' has no attribute '{name}'; it has {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
