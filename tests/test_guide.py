"""Every command of the guide is run in the order of the page, in one folder; and so is the example in Python."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from unskew.cli import COMMANDS, app

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(python|bash)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLE = ROOT / "examples" / "own_log.py"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder after all blocks were run, and what each command printed."""
    folder = tmp_path_factory.mktemp("guide")
    said = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for language, text in BLOCKS:
            if language == "python":
                exec(compile(text, "guide.md", "exec"), {"__name__": "guide"})
                continue
            for line in filter(None, text.splitlines()):
                program, *words = shlex.split(line, comments=True)
                assert program == "unskew", f"how is this run? {line}"
                result = CliRunner().invoke(app, words, catch_exceptions=False)
                assert result.exit_code == 0, f"{line}\n{result.output}"
                said[line] = " ".join(result.output.split())
    return folder, said


def command(said, start):
    return next(text for line, text in said.items() if line.startswith(f"unskew {start}"))


def test_the_guide_goes_from_events_to_a_ranking(done):
    _, said = done
    words = [line.split()[1] for line in said]
    assert list(dict.fromkeys(words)) == [
        *("simulate", "events", "ingest", "shop", "diagnose", "compare", "train", "export", "rank")
    ]
    assert set(words) <= set(COMMANDS)


def test_what_the_guide_says_of_its_numbers_is_so(done):
    folder, said = done
    assert "12,800 sessions" in command(said, "ingest events.parquet --features features.parquet --yes")
    assert "Nothing is left out" in command(said, "ingest events.parquet --features features.parquet --yes")
    assert "yes: documents link all 10 positions" in command(said, "diagnose")
    ranking = pq.read_table(folder / "ranking.parquet")
    assert ranking.column_names == ["query", "document", "score", "rank"]
    assert len(ranking) == pq.read_metadata(folder / "features.parquet").num_rows
    assert len((folder / "ranking.trec").read_text().splitlines()) == len(ranking)


def test_the_table_of_events_is_as_the_guide_shows_it(done):
    folder, _ = done
    shown = re.search(r"^\| (session_id .*) \|$", PAGE, re.MULTILINE)
    assert shown is not None
    assert pq.read_schema(folder / "events.parquet").names == shown[1].split(" | ")


def test_the_example_runs_on_the_events_of_the_guide(done, capsys, monkeypatch):
    folder, _ = done
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["own_log.py", "events.parquet", "features.parquet", "from_python"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    said = capsys.readouterr().out
    assert "production" in said
    assert (folder / "from_python" / "ranker.onnx").exists()


def test_the_example_is_short():
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 60
