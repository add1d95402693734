"""`unskew compare`, as a person types it."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from unskew.cli import app
from unskew.comparison import held_out
from unskew.data.clicks.storage import write_log

FAST = ["--set", "steps=8", "--set", "hidden=4", "--seeds", "1", "--jobs", "1", "--quiet"]


@pytest.fixture(autouse=True, scope="module")
def _no_trees():
    """A model of relevance that takes no time; tests of `selection` use the real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_out, "fit_relevance", lambda *_: lambda features: np.full(len(features), 0.1))
        yield


@pytest.fixture(scope="module")
def folder(log, tmp_path_factory):
    return str(write_log(log, tmp_path_factory.mktemp("compare") / "log"))


def run(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def test_without_labels_it_prints_production_and_a_verdict(folder, tmp_path):
    shown = run(folder, "--methods", "naive,dla", *FAST, "--out", tmp_path / "out")
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    assert "Against production" in text
    assert any(line in text for line in ("beats production by", "difference from production", "production beats"))
    assert "Decided by" in text
    assert "What each criterion shows, and what it does not:" in text


def test_json_holds_the_verdict_and_every_standing(folder, tmp_path):
    shown = run(folder, "--methods", "naive,dla", *FAST, "--criterion", "ips", "--out", tmp_path / "out", "--json")
    against = json.loads(shown.stdout)["against_production"]
    assert [entry["label"] for entry in against["standings"]] == ["production", "naive", "dla"]
    assert against["measure"] == "IPS DCG@10"
    assert against["production"] == "policy score, which orders 100% of shown pairs as shown"
    assert against["standings"][0]["low"] < against["standings"][0]["mean"] < against["standings"][0]["high"]
    assert "production" in against["verdict"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--test", "world:tiny"], "pass both validate and test"),
        (["--criterion", "magic"], "unknown criterion 'magic'"),
        (["--held-out", "1.5"], "held_out is the share"),
        (["--grid", "penalty=1"], "lbd.penalty=0.1,1,10"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_line(folder, tmp_path, arguments, message):
    found = run(folder, "--methods", "naive", *arguments, "--out", tmp_path / "out")
    assert found.exit_code == 2
    assert message in " ".join(found.stderr.split())
    assert not (tmp_path / "out" / "runs").exists()
