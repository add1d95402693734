"""Claims: what results say about sentences of a paper."""

import numpy as np
import pytest

from unskew.comparison.plan import Repetition, Run
from unskew.comparison.rows import Outcome
from unskew.comparison.run import Result
from unskew.comparison.statistics import Table
from unskew.papers.claims import judge
from unskew.papers.settings import Claim

RNG = np.random.default_rng(0)
QUERIES = RNG.random(40)


def result(label, values, seed=0, data="d", setting="s", validation=0.5, metric="ndcg@10", **point):
    run = Run(setting, label, point, Repetition(seed, data, seed), {})
    return Result(run, Outcome({metric: np.asarray(values, dtype=float)}, None, {"validation": validation}))


def seeds(label, shift, **more):
    """Three seeds of a method that is better than the queries' own values by `shift`, give or take .001 a seed."""
    return [result(label, QUERIES + shift + 0.001 * (seed - 1), seed, **more) for seed in range(3)]


def worlds(gains):
    """A method that is better than the clicks by so much in each setting, with noise."""
    rows = []
    for number, gain in enumerate(gains):
        rows += seeds("clicks", 0.0, setting=f"s{number}")
        noise = RNG.normal(0, 0.001, 40)
        rows += [result("own", QUERIES + gain + noise, seed, setting=f"s{number}") for seed in range(3)]
    return Table(rows)


@pytest.mark.parametrize(
    ("gains", "words"),
    [((0.1, 0.1), "holds"), ((0.1, -0.1), "holds in part (1 of 2)"), ((-0.1, -0.1), "does not hold here")],
)
def test_a_claim_holds_where_the_difference_is_significant_in_its_direction(gains, words):
    claim = Claim("own beats clicks", "better", "own", ("clicks",))
    found = judge(claim, worlds(gains), "ndcg@10")
    assert found.words == words
    assert "s0: own − clicks" in found.detail


def test_a_claim_about_some_settings_looks_at_those_only():
    claim = Claim("own beats clicks in s0", "better", "own", ("clicks",), settings=("s0",))
    assert judge(claim, worlds((0.1, -0.1)), "ndcg@10").verdict == "holds"


def test_alike_means_that_no_difference_was_found():
    claim = Claim("alike", "similar", "own", ("clicks",))
    assert judge(claim, worlds((0.1,)), "ndcg@10").verdict == "does not hold here"
    noise = RNG.normal(0, 0.1, 40)
    table = Table([result("clicks", QUERIES), result("own", QUERIES + noise - noise.mean())])
    assert judge(claim, table, "ndcg@10").verdict == "holds"


def test_a_trend_follows_the_order_of_settings():
    table = worlds((0.3, 0.2, 0.1))
    assert judge(Claim("falls", "falls", "own"), table, "ndcg@10").verdict == "holds"
    assert judge(Claim("rises", "rises", "own"), table, "ndcg@10").verdict == "does not hold here"


def test_what_cannot_be_tested_says_why():
    table = worlds((0.1,))
    assert judge(Claim("x", "untestable", reason="no data"), table, "ndcg@10").detail == "no data"
    missing = judge(Claim("x", "better", "own", ("nobody",)), table, "ndcg@10")
    assert missing.verdict == "cannot be tested here"
