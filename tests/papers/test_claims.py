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
    """A method that is better than the clicks by so much in each setting, give or take .001 a seed."""
    rows = []
    for number, gain in enumerate(gains):
        rows += [result("clicks", QUERIES, seed, setting=f"s{number}") for seed in range(3)]
        rows += seeds("own", gain, setting=f"s{number}")
    return Table(rows)


def judged(claim, table):
    (found,) = judge([claim], {"d": table}, "ndcg@10")
    return found


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ((0.1, 0.1), "holds"),
        ((0.1, -0.1), "fails (of 2: 1 hold, 1 fail, 0 undecided)"),
        ((-0.1, -0.1), "fails"),
        ((0.1, 0.0001), "undecided (of 2: 1 hold, 0 fail, 1 undecided)"),
    ],
)
def test_a_claim_holds_fails_or_is_undecided_over_repetitions(gains, words):
    found = judged(Claim("own beats clicks", "better", "own", ("clicks",)), worlds(gains))
    assert found.words == words
    assert "s0: own − clicks" in found.detail


def test_a_claim_about_some_settings_looks_at_those_only():
    claim = Claim("own beats clicks in s0", "better", "own", ("clicks",), settings=("s0",))
    assert judged(claim, worlds((0.1, -0.1))).verdict == "holds"


@pytest.mark.parametrize(("gain", "verdict"), [(0.002, "holds"), (0.05, "fails"), (0.0099, "undecided")])
def test_alike_means_equivalent_within_a_margin_not_that_no_difference_was_found(gain, verdict):
    assert judged(Claim("alike", "similar", "own", ("clicks",), margin=0.01), worlds((gain,))).verdict == verdict


@pytest.mark.parametrize(("gain", "verdict"), [(0.05, "holds"), (-0.005, "holds"), (-0.05, "fails")])
def test_no_worse_is_non_inferiority(gain, verdict):
    assert judged(Claim("no worse", "no_worse", "own", ("clicks",), margin=0.01), worlds((gain,))).verdict == verdict


def test_claims_of_an_experiment_are_corrected_together():
    one = Claim("own beats clicks", "better", "own", ("clicks",))
    rows = [result("clicks", QUERIES, seed) for seed in range(3)]
    rows += [result("own", QUERIES + gain, seed) for seed, gain in enumerate((0.02, 0.03, 0.04))]  # p = .037
    assert judged(one, Table(rows)).verdict == "holds"
    assert [found.verdict for found in judge([one, one], {"d": Table(rows)}, "ndcg@10")] == ["undecided", "undecided"]


def test_a_trend_follows_the_order_of_settings_unit_by_unit():
    table = worlds((0.3, 0.2, 0.1))
    noise = RNG.normal(0, 0.001, 3)
    for number, ((_, label), results) in enumerate(table.results.items()):
        if label == "own":
            for seed, found in enumerate(results.values()):
                found.outcome.per_query["ndcg@10"][:] += noise[(number + seed) % 3]
    assert judged(Claim("falls", "falls", "own"), table).verdict == "holds"
    assert judged(Claim("rises", "rises", "own"), table).verdict == "fails"


def test_what_cannot_be_tested_says_why():
    table = worlds((0.1,))
    assert judged(Claim("x", "untestable", reason="no data"), table).detail == "no data"
    assert judged(Claim("x", "better", "own", ("nobody",)), table).verdict == "cannot be tested here"
    alone = Table([result("clicks", QUERIES), result("own", QUERIES + 0.1)])
    assert judged(Claim("x", "better", "own", ("clicks",)), alone).verdict == "cannot be tested here"


def test_on_several_data_sets_a_claim_holds_if_it_does_on_each_and_they_are_named():
    claim = Claim("own beats clicks", "better", "own", ("clicks",))
    (found,) = judge([claim], {"one": worlds((0.1,)), "other": worlds((-0.1,))}, "ndcg@10")
    assert found.words == "fails (of 2: 1 hold, 1 fail, 0 undecided)"
    assert "one: s0: own − clicks" in found.detail
    assert "other: s0: own − clicks" in found.detail


def test_a_claim_does_not_hold_while_one_of_its_comparisons_was_not_run():
    found = judged(Claim("own beats all", "better", "own", ("clicks", "other")), worlds((0.1,)))
    assert found.verdict == "undecided"
    assert "1 comparisons of the claim were not run" in found.detail
    assert judged(Claim("own is below", "better", "clicks", ("own", "other")), worlds((0.1,))).verdict == "fails"
