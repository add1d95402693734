"""Every tutorial runs from top to bottom, and is stored with its outputs."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def by_name(path: Path):
    return pytest.param(path, id=path.stem, marks=[] if path.stem == "own_log" else [pytest.mark.slow])


def test_there_is_a_tutorial_for_every_reader() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["movies", "own_log", "own_method", "shop", "ubi", "with_labels"]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by the libraries that run notebooks
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem == "own_log" else [pytest.mark.slow])
        for path in NOTEBOOKS
    ],
)
def test_a_tutorial_runs_from_top_to_bottom(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stem == "movies" and not (Path(os.environ.get("UNSKEW_DATA", ".")) / "ranklens").exists():
        pytest.skip("RankLens is not in UNSKEW_DATA")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    notebook = nbformat.read(path, as_version=4)
    done = NotebookClient(notebook, timeout=1000, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert all(cell.execution_count for cell in done.cells if cell.cell_type == "code")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_is_stored_with_its_outputs(path: Path) -> None:
    outputs = [output for cell in nbformat.read(path, as_version=4).cells for output in cell.get("outputs", [])]
    assert outputs
    assert not any(output.output_type == "error" for output in outputs)
