"""Every command and code block of the README and of pages that show how to is run, in the order of the page."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Each page runs by itself, in a folder of its own.
PAGES = ["README.md", "docs/propensities.md", "docs/diagnose.md"]  # docs/guide.md: tests/test_guide.py


def blocks(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```(python|bash)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_code_block_runs_as_written(page, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert blocks(page)
    for language, text in blocks(page):
        if language == "python":
            _run([sys.executable, "-c", text], tmp_path, environment)
            continue
        for line in filter(None, text.splitlines()):
            words = shlex.split(line, comments=True)
            if words[0] == "make":  # these run the tests themselves: it is enough that make knows them
                _run(["make", "--dry-run", *words[1:]], ROOT, environment)
            else:
                assert words[0] == "unskew", f"how is this run? {line}"
                _run([sys.executable, "-m", *words], tmp_path, environment)


def test_the_table_of_methods_names_every_method():
    from unskew.methods import METHODS

    listed = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == set(METHODS)


def test_contributing_fits_a_screen():
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 60


def _run(command, folder, environment):
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
