"""The notebook runs from top to bottom, and its outputs are there."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "clicks_to_ranker.ipynb"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries that run notebooks
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    done = NotebookClient(notebook, timeout=1000, resources={"metadata": {"path": str(tmp_path)}}).execute()
    kinds = {kind for cell in done.cells for output in cell.get("outputs", []) for kind in output.get("data", {})}
    assert {"text/plain", "text/html", "image/png"} <= kinds
    assert (tmp_path / "ranker.onnx").exists()


def test_the_notebook_is_kept_with_its_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert all(cell.outputs for cell in cells if cell.cell_type == "code")
