"""unskew: learning to rank from biased clicks.

The public names. Each is loaded when it is first used, so that `import unskew` takes almost no time.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.comparison.automatic import auto
    from unskew.comparison.demonstration import demo
    from unskew.comparison.learning import fit, weights
    from unskew.comparison.own_log import compare
    from unskew.data.clicks.click_log import ClickLog
    from unskew.data.clicks.forgetting import forget
    from unskew.data.clicks.shard_batches import ClickSource
    from unskew.data.clicks.storage import open_log, read_log, write_log
    from unskew.data.judged.catalogue import data_sets, load
    from unskew.data.judged.judged_set import JudgedSet
    from unskew.data.judged.letor import read_letor
    from unskew.data.judged.metrics import METRICS, metric
    from unskew.diagnosis.page import diagnose
    from unskew.estimator import UnbiasedRanker
    from unskew.evaluation.differences import paired_differences
    from unskew.ingestion.event_table import events
    from unskew.ingestion.preview import preview_ingest
    from unskew.ingestion.proposal import propose
    from unskew.ingestion.run import ingest
    from unskew.methods import METHODS
    from unskew.monitoring.changes import drift
    from unskew.monitoring.online_test import readout
    from unskew.monitoring.tuning import tune
    from unskew.papers.reproduce import reproduce
    from unskew.propensities.estimate import estimate_propensities
    from unskew.serving.explanation import explain
    from unskew.serving.exports import export
    from unskew.serving.model_files import load_model, save_model
    from unskew.serving.ratings import judgements
    from unskew.serving.scoring import evaluate, rank
    from unskew.serving.server import serve
    from unskew.serving.side_by_side import look
    from unskew.simulation.fresh import FreshClicks
    from unskew.simulation.policies import POLICIES
    from unskew.simulation.shop_log import shop
    from unskew.simulation.simulate import simulate
    from unskew.simulation.users import USERS
    from unskew.training.model import Model
    from unskew.training.recipe import Recipe
    from unskew.training.watching import MLflow, TensorBoard

    __version__: str

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
    "look",
    "metric",
    "open_log",
    "paired_differences",
    "preview_ingest",
    "propose",
    "rank",
    "read_letor",
    "read_log",
    "readout",
    "reproduce",
    "save_model",
    "serve",
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
    elif name in __all__:
        value = getattr(import_module(_places()[name]), name)
    else:
        raise AttributeError(f"module 'unskew' has no attribute '{name}'; it has {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


@cache
def _places() -> dict[str, str]:
    """The module of each public name, as the imports above say."""
    import ast  # only now: they would double the time of `import unskew`
    from pathlib import Path

    source = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(source) if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in nodes for alias in node.names}
