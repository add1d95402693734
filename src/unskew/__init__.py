"""unskew: learning to rank from biased clicks.

The public names. Each is loaded when it is first used, so that `import unskew` takes almost no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.data.clicks.click_log import ClickLog
    from unskew.data.clicks.source import ClickSource
    from unskew.data.clicks.storage import open_log, read_log, write_log
    from unskew.data.judged.catalogue import load
    from unskew.data.judged.judged_set import JudgedSet
    from unskew.data.judged.letor import read_letor
    from unskew.data.judged.metrics import METRICS, metric
    from unskew.demonstration import demo
    from unskew.estimator import UnbiasedRanker
    from unskew.evaluation.differences import paired_differences
    from unskew.methods import METHODS
    from unskew.public.comparing import compare, data_sets
    from unskew.public.daily import drift, readout, tune
    from unskew.public.learning import auto, diagnose, estimate_propensities, fit, weights
    from unskew.public.logs import events, forget, ingest, judgements, preview_ingest, shop, simulate
    from unskew.public.ranking import evaluate, export, rank
    from unskew.public.reproduction import reproduce
    from unskew.serving.explanation import explain
    from unskew.serving.model_files import load_model, save_model
    from unskew.simulation.fresh import FreshClicks
    from unskew.simulation.policies import POLICIES
    from unskew.simulation.users import USERS
    from unskew.training.model import Model
    from unskew.training.recipe import Recipe
    from unskew.training.watching import MLflow, TensorBoard

    __version__: str

# The module of each public name: the imports above, but at run time.
PLACES = {
    "ClickLog": "data.clicks.click_log",
    "ClickSource": "data.clicks.source",
    "FreshClicks": "simulation.fresh",
    "JudgedSet": "data.judged.judged_set",
    "METHODS": "methods",
    "METRICS": "data.judged.metrics",
    "MLflow": "training.watching",
    "Model": "training.model",
    "POLICIES": "simulation.policies",
    "Recipe": "training.recipe",
    "TensorBoard": "training.watching",
    "USERS": "simulation.users",
    "UnbiasedRanker": "estimator",
    "auto": "public.learning",
    "compare": "public.comparing",
    "data_sets": "public.comparing",
    "demo": "demonstration",
    "diagnose": "public.learning",
    "drift": "public.daily",
    "estimate_propensities": "public.learning",
    "evaluate": "public.ranking",
    "events": "public.logs",
    "explain": "serving.explanation",
    "export": "public.ranking",
    "fit": "public.learning",
    "forget": "public.logs",
    "ingest": "public.logs",
    "judgements": "public.logs",
    "load": "data.judged.catalogue",
    "load_model": "serving.model_files",
    "metric": "data.judged.metrics",
    "open_log": "data.clicks.storage",
    "paired_differences": "evaluation.differences",
    "preview_ingest": "public.logs",
    "rank": "public.ranking",
    "read_letor": "data.judged.letor",
    "read_log": "data.clicks.storage",
    "readout": "public.daily",
    "reproduce": "public.reproduction",
    "save_model": "serving.model_files",
    "shop": "public.logs",
    "simulate": "public.logs",
    "tune": "public.daily",
    "weights": "public.learning",
    "write_log": "data.clicks.storage",
}

__all__ = [
    "METHODS",
    "METRICS",
    "POLICIES",
    "USERS",
    "ClickLog",
    "ClickSource",
    "FreshClicks",
    "JudgedSet",
    "MLflow",
    "Model",
    "Recipe",
    "TensorBoard",
    "UnbiasedRanker",
    "auto",
    "compare",
    "data_sets",
    "demo",
    "diagnose",
    "drift",
    "estimate_propensities",
    "evaluate",
    "events",
    "explain",
    "export",
    "fit",
    "forget",
    "ingest",
    "judgements",
    "load",
    "load_model",
    "metric",
    "open_log",
    "paired_differences",
    "preview_ingest",
    "rank",
    "read_letor",
    "read_log",
    "readout",
    "reproduce",
    "save_model",
    "shop",
    "simulate",
    "tune",
    "weights",
    "write_log",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("unskew")
    elif name == "losses":  # a module: part of the contract of your own method
        value = import_module("unskew.methods.losses")
    elif name in PLACES:
        value = getattr(import_module(f"unskew.{PLACES[name]}"), name)
    else:
        raise AttributeError(f"module 'unskew' has no attribute '{name}'; it has {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
