"""unskew: learning to rank from biased clicks."""

from importlib.metadata import version

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.storage import open_log, read_log, write_log
from unskew.data.judged.catalogue import load
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.letor import read_letor
from unskew.estimator import UnbiasedRanker
from unskew.evaluation.compare import compare
from unskew.evaluation.evaluate import evaluate
from unskew.fitting import fit
from unskew.metrics import metric
from unskew.model import Model
from unskew.recipe import Recipe
from unskew.serving.model_files import load_model, save_model
from unskew.simulation.simulate import simulate

__version__ = version("unskew")

__all__ = [
    "ClickLog",
    "JudgedSet",
    "Model",
    "Recipe",
    "UnbiasedRanker",
    "compare",
    "evaluate",
    "fit",
    "load",
    "load_model",
    "metric",
    "open_log",
    "read_letor",
    "read_log",
    "save_model",
    "simulate",
    "write_log",
]
