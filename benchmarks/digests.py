"""What verification costs: the time of digests as a share of reading a log and loading a model."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from timing import Row, in_turn
from unskew.data.clicks.storage import read_log, write_log
from unskew.data.files import file_digest
from unskew.data.judged.world import make_world
from unskew.serving.model_files import load_model, save_model
from unskew.simulation.simulate import simulate
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe

LIMIT = 0.25  # of the time
WORLD, REPEATS = "small", 9


def run() -> list[Row]:
    log = simulate(make_world(WORLD, seed=0).train, "svm", "position_based", sessions=32, joint=True, seed=0).log
    with tempfile.TemporaryDirectory() as scratch:
        log_folder = write_log(log, Path(scratch) / "log")
        model_folder = save_model(fit_recipe(Recipe.of("dla", steps=2), log), Path(scratch) / "model")
        places = {"reading a log": (log_folder, read_log), "loading a model": (model_folder, load_model)}
        shares = {name: share(folder, partial(read, folder)) for name, (folder, read) in places.items()}
    return [(f"digests, share of {name}", f"{value:.2f}", f"<= {LIMIT}") for name, value in shares.items()]


def share(folder: Path, read: Callable[[], object]) -> float:
    """Time of the digests of a folder's files over that of reading it, which includes them."""
    files = [file for file in folder.iterdir() if file.is_file()]
    sides = {"digests": lambda: [file_digest(file) for file in files], "all": read}
    seconds = {name: statistics.median(times) for name, times in in_turn(sides, REPEATS, warm_up=1).items()}
    return seconds["digests"] / seconds["all"]
