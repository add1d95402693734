"""The public door: `import unskew`, and the table of commands."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.cli import COMMANDS

HEAVY = ("torch", "numpy", "pyarrow", "sklearn", "scipy", "matplotlib", "duckdb", "ibis")


@pytest.mark.parametrize(
    "program",
    [
        "import unskew",
        "import unskew; assert unskew.__version__",
        "from unskew.cli import app; app(['--version'], standalone_mode=False)",
        "from unskew.cli import app; app(['--help'], standalone_mode=False)",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(program: str) -> None:
    end = f"; import sys; print('HEAVY:', *(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program + end], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].strip() == "HEAVY:"


SLOW = ("torch", "scipy", "sklearn", "ibis", "duckdb", "matplotlib", "jinja2", "safetensors", "pandas")  # .1 to 1.5 s
COMMAND_LINES = f"""
import json, sys
from unskew.cli import app
for line in json.loads(sys.argv[1]):
    try:
        app(line)
    except SystemExit as end:
        print("EXIT", end.code, *(name for name in {SLOW} if name in sys.modules))
"""


def command_lines(*lines: list[str], cwd: Path | None = None) -> tuple[list[str], str]:
    """For each of these command lines, run in one process: the exit code and the slow modules; and standard error."""
    program = [sys.executable, "-c", COMMAND_LINES, json.dumps(lines)]
    done = subprocess.run(program, capture_output=True, text=True, check=True, cwd=cwd)
    return [line for line in done.stdout.splitlines() if line.startswith("EXIT")], done.stderr


def test_the_help_of_no_command_imports_what_its_work_needs() -> None:
    ends, _ = command_lines(*([name, "--help"] for name in COMMANDS))
    assert dict(zip(COMMANDS, ends, strict=True)) == dict.fromkeys(COMMANDS, "EXIT 0")


def test_wrong_columns_and_options_of_ingest_are_refused_before_an_engine_is_imported(tmp_path: Path) -> None:
    events = pa.table({"sid": [1, 1], "query": ["q", "q"], "doc": ["a", "b"], "pos": [1, 2], "clicked": [0, 1]})
    pq.write_table(events, tmp_path / "events.parquet")
    pa.csv.write_csv(events, tmp_path / "events.csv")
    pq.write_table(pa.table({"item": ["a", "b"], "price": [1.0, 2.0]}), tmp_path / "features.parquet")
    wrong = ["--position", "poss", "--feature", "f_*", "--out", "log"]
    beside = ["events.parquet", "--session", "sid", "--features", "features.parquet", *wrong[2:]]
    options = (["--memory", "much"], ["--engine", "duck"], ["--form", "event"], ["--window", "soon"])
    lines = [["events.csv", *wrong], ["events.parquet", *wrong], ["none.csv", "--out", "log"], beside]
    lines += [["events.parquet", "--session", "sid", "--out", "log", *option] for option in options]
    ends, errors = command_lines(*(["ingest", *line] for line in lines), cwd=tmp_path)
    assert ends == ["EXIT 2"] * len(lines)
    every = (
        "no column 'poss' (did you mean 'pos'?); no column 'f_*'; no column looks like the session. Pass --session "
        'COLUMN (or session = "…" in a TOML file). Found: sid, query, doc, pos, clicked'
    )
    for text in (
        *(f"events.{kind}: {every}" for kind in ("csv", "parquet")),
        *("none.csv does not exist", "features.parquet: no column 'f_*'. Found: item, price"),
        *("memory 'much'", "unknown engine 'duck' (did you mean 'duckdb'?)", "window 'soon'"),
        "unknown form 'event' (did you mean 'events'?)",
    ):
        assert text in errors


@pytest.mark.parametrize("name", unskew.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert name in dir(unskew)
    if not name.isupper():
        assert inspect.getdoc(getattr(unskew, name))


def test_a_name_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'frobnicate'; it has METHODS, .*write_log"):
        unskew.frobnicate  # noqa: B018


def test_no_public_name_is_that_of_a_module() -> None:
    modules = [
        entry.name for entry in pkgutil.walk_packages(unskew.__path__, "unskew.") if "__main__" not in entry.name
    ]
    for name in modules:
        importlib.import_module(name)
    assert not {name.split(".")[1] for name in modules} & set(unskew.__all__)
    for name in unskew.__all__:
        assert not inspect.ismodule(getattr(unskew, name))


# What has no example that runs here, and why.
@pytest.mark.parametrize("name", [name for name in unskew.__all__ if not name.isupper()])
def test_public_names_have_true_examples_and_name_a_neighbour(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # examples may write files
    public = getattr(unskew, name)
    documentation = inspect.getdoc(public) or ""
    assert ">>>" in documentation
    assert any(f"`{other}" in documentation for other in unskew.__all__ if other != name), "say what it goes with"
    examples = doctest.DocTestFinder(recurse=False).find(public, name, globs=vars(inspect.getmodule(public)).copy())
    for example in examples:
        assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example).failed == 0


PYTHON_NAMES = {"train": "fit", "methods": "METHODS", "data": "data_sets"}  # of commands; the others have one name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_function_of_its_name(name: str) -> None:
    assert PYTHON_NAMES.get(name, name) in unskew.__all__


def test_the_page_on_architecture_has_the_layers_of_the_import_contract() -> None:
    root = Path(__file__).parents[1]
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [part.strip() for layer in contracts[0]["layers"] for part in layer.split(":")]
    rows = re.findall(r"^\| (`[a-z_.`, ]+) \|", (root / "docs" / "architecture.md").read_text(), re.MULTILINE)
    named = re.findall(r"`([a-z_.]+)`", " ".join(rows))
    assert named == layers
