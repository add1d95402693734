"""Results of public functions say what they are: on one screen, in notebooks, as tables, in pictures."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pytest

import unskew
from unskew.comparison.demonstration import Demonstration
from unskew.simulation.policies import Mixed, NoisyOracle

QUIET: dict[str, Any] = {"progress": False}
FAST: dict[str, Any] = {"steps": 3, "hidden": (4,), **QUIET}
EVENTS = {"session": [1, 1], "query": ["q", "q"], "document": ["a", "b"], "position": [0, 1], "click": [0, 1]}
# Functions whose results are plain: places of files, a few counts, parts of Python itself.
PLAIN = {
    "demo",
    "forget",
    "metric",
    "save_model",
    "serve",
    "write_log",
}  # demo takes half a minute: its result is tested by itself; serve runs until it is stopped


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def made() -> Any:
    return unskew.simulate("world:tiny", sessions=8, interventions={"shuffle": 0.5}, seed=1, **QUIET)


@pytest.fixture(scope="module")
def model(made: Any) -> Any:
    return unskew.fit("dla", made.log, **FAST)


def arms() -> Any:
    policy = Mixed(loggers=[NoisyOracle(strength=0.3), NoisyOracle(strength=0.7)], arms=True)
    return unskew.simulate("world:tiny", policy, sessions=8, **QUIET).log


def letor(place: Path) -> Path:
    (place / "judged.txt").write_text("2 qid:7 1:0.5\n0 qid:7 1:0.2\n")
    return place / "judged.txt"


# One call of each public function.
CALLS: dict[str, Any] = {
    "auto": lambda made, model, place: unskew.auto(made.log, steps=3, hidden=(4,)),
    "compare": lambda made, model, place: unskew.compare(
        made.log, ["naive", "dla"], options={"steps": 3}, out=place / "compare", jobs=1, **QUIET
    ),
    "data_sets": lambda made, model, place: unskew.data_sets(),
    "diagnose": lambda made, model, place: unskew.diagnose(made.log, quick=True, **QUIET),
    "drift": lambda made, model, place: unskew.drift(made.log, made.log),
    "estimate_propensities": lambda made, model, place: unskew.estimate_propensities(made.log, n_bootstrap=20),
    "evaluate": lambda made, model, place: unskew.evaluate(model, "world:tiny"),
    "events": lambda made, model, place: unskew.events(made.log, place / "events.parquet"),
    "explain": lambda made, model, place: unskew.explain(
        model.ranker(), unskew.load("world:tiny").valid.select(np.arange(5)), repeats=1
    ),
    "export": lambda made, model, place: unskew.export(model, place / "model.onnx"),
    "fit": lambda made, model, place: model,
    "ingest": lambda made, model, place: unskew.ingest(pa.table(EVENTS | {"price": [1.0, 2.0]}), **QUIET),
    "judgements": lambda made, model, place: unskew.judgements(made.log, curve=np.ones(10)),
    "look": lambda made, model, place: unskew.look(model, made.log, place / "look.html"),
    "load": lambda made, model, place: unskew.load("world:tiny"),
    "load_model": lambda made, model, place: unskew.load_model(unskew.save_model(model, place / "model")),
    "open_log": lambda made, model, place: unskew.open_log(unskew.write_log(made.log, place / "opened")),
    "paired_differences": lambda made, model, place: unskew.paired_differences(
        {"old": [0.1, 0.2, 0.4], "new": [0.2, 0.4, 0.5]}, "old"
    ),
    "preview_ingest": lambda made, model, place: unskew.preview_ingest(pa.table(EVENTS)),
    "propose": lambda made, model, place: unskew.propose(pa.table(EVENTS)),
    "rank": lambda made, model, place: unskew.rank(model, "world:tiny", **QUIET),
    "read_letor": lambda made, model, place: unskew.read_letor(letor(place), cache=False),
    "read_log": lambda made, model, place: unskew.read_log(unskew.write_log(made.log, place / "read")),
    "readout": lambda made, model, place: unskew.readout(arms(), curve=np.ones(10)),
    "reproduce": lambda made, model, place: unskew.reproduce(
        "data-statistics", data="world:tiny", jobs=1, out=place / "paper", **QUIET
    ),
    "shop": lambda made, model, place: unskew.shop(sessions=20),
    "simulate": lambda made, model, place: made,
    "tune": lambda made, model, place: unskew.tune(model, "world:tiny", steps=2, rates=(0.01,)),
    "weights": lambda made, model, place: unskew.weights(made.log, method="dla", **FAST),
}
NO_TABLE = {"events", "export", "load", "open_log", "shop"}  # they say where something is
PICTURES = {
    *("compare", "diagnose", "estimate_propensities", "explain", "fit", "load_model"),
    *("paired_differences", "read_log", "readout", "simulate"),
}


def test_every_public_function_is_called_here() -> None:
    functions = {name for name in unskew.__all__ if inspect.isfunction(getattr(unskew, name))}
    assert functions == {*CALLS, *PLAIN}


def test_the_result_of_the_demo_is_a_table_of_rankers(model: Any) -> None:
    found = Demonstration({name: unskew.evaluate(model, "world:tiny") for name in ("naive", "dla")})
    assert "over raw clicks" in repr(found)
    assert set(found.to_table()["ranker"].to_pylist()) == {"naive", "dla"}


@pytest.mark.parametrize("name", CALLS)
def test_a_result_shows_itself(name: str, made: Any, model: Any, place: Path) -> None:
    result = CALLS[name](made, model, place)
    text = repr(result)
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 200
    assert "array(" not in text
    assert "object at 0x" not in text
    assert result._repr_html_().startswith("<div>")
    if name not in NO_TABLE:
        table = result.to_table()
        assert isinstance(table, pa.Table)
        assert len(result.to_pandas()) == table.num_rows
    if name in PICTURES:
        axes = plt.figure().add_subplot()
        assert result.plot(ax=axes) is axes
        assert axes.has_data()
        plt.close("all")
