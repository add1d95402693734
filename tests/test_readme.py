"""Every command and code block of the README and of pages that show how to is run, in the order of the page."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from unskew.cli import app

ROOT = Path(__file__).parent.parent
# Each page runs by itself, in a folder of its own.
# Others: tests/test_guide.py, tests/test_pages.py.
PAGES = [
    "README.md",
    "docs/quickstart.md",
    "docs/propensities.md",
    "docs/diagnose.md",
    "docs/attention.md",
    "docs/peers.md",
]


def blocks(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```(python|bash|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_code_block_runs_as_written(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert blocks(page)
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page, "exec"), {"__name__": page})
            continue
        for line in filter(None, text.splitlines()):
            program, *words = shlex.split(line, comments=True)
            if program == "make":  # these run the tests themselves: it is enough that make knows them
                subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True, check=True)
                continue
            if program == "pip":  # test_wheel.py installs what `make wheel` builds
                assert words == ["install", "dist/unskew-*.whl"]
                continue
            assert program == "unskew", f"how is this run? {line}"
            result = CliRunner().invoke(app, words, catch_exceptions=False)
            assert result.exit_code == 0, f"{line}\n{result.output}"


def test_the_table_of_methods_names_every_method():
    from unskew.methods import METHODS

    listed = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == set(METHODS)


def test_contributing_is_short():
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 120
