"""What is peculiar to naive, labelled, ipw, dla and two_tower: weights by hand, and one as a case of the other."""

import math

import pytest
import torch
from torch.testing import assert_close

from unskew.lists import ClickedLists, JudgedLists
from unskew.methods import METHODS
from unskew.networks.registry import Network, Problem

PROBLEM = Problem(1, 3, network=Network(kind="linear"))
SHARES = (0.5, 0.3, 0.2)  # of the scores of the one list below
CLICKS = (1.0, 2.0, 4.0)
LISTS = ClickedLists(
    features=torch.tensor(SHARES).log().reshape(1, 3, 1),
    mask=torch.ones(1, 3, dtype=torch.bool),
    positions=torch.arange(3).unsqueeze(0),
    clicks=torch.tensor([CLICKS]),
    sessions=torch.tensor([5.0]),
)


def method_of_one_feature(name, **hyper):
    """The score is the one feature."""
    method = METHODS[name](PROBLEM, **hyper)
    torch.nn.init.ones_(method.relevance.layers[0].weight)
    torch.nn.init.zeros_(method.relevance.layers[0].bias)
    return method


def value(term):
    return float(term.detach())


def weighted(weights):
    """-Σ c w log f by hand."""
    return -sum(c * w * math.log(f) for c, w, f in zip(CLICKS, weights, SHARES, strict=True))


def test_naive_takes_every_click_alike():
    assert value(method_of_one_feature("naive").loss(LISTS)["clicks"]) == pytest.approx(weighted((1, 1, 1)))


def test_ipw_divides_clicks_by_propensities_relative_to_the_top():
    method = method_of_one_feature("ipw", propensities=[0.8, 0.4, 0.1])
    assert value(method.loss(LISTS)["clicks"]) == pytest.approx(weighted((1, 2, 8)))
    assert_close(method.examination(), torch.tensor([1.0, 0.5, 0.125]))


def test_ipw_bounds_weights_when_asked():
    method = method_of_one_feature("ipw", propensities=[0.8, 0.4, 0.1], max_weight=3.0)
    assert value(method.loss(LISTS)["clicks"]) == pytest.approx(weighted((1, 2, 3)))


def test_ipw_reuses_the_last_propensity_further_down():
    method = METHODS["ipw"](Problem(1, 2, network=PROBLEM.network), propensities=[1.0, 0.5])
    assert_close(method.propensity(LISTS), torch.tensor([[1.0, 0.5, 0.5]]))


@pytest.mark.parametrize(
    ("propensities", "message"),
    [
        (None, "ipw and doubly_robust need propensities"),
        ([1.0, 0.5], "one value for each of 3 positions"),
        ([1.0, 0.5, 0.0], "propensities must be a list of numbers above 0"),
        ([1.0, 0.5, float("nan")], "propensities must be a list of numbers above 0"),
    ],
)
def test_ipw_refuses_propensities_that_cannot_be_divided_by(propensities, message):
    with pytest.raises(ValueError, match=message):
        METHODS["ipw"](PROBLEM, propensities=propensities)


def test_dla_of_the_paper_weighs_clicks_by_the_other_network():
    method = method_of_one_feature("dla", observed_by="weights")
    method.observation.logits.data = torch.tensor([0.6, 0.3, 0.1]).log()
    terms = method.loss(LISTS)
    assert value(terms["relevance"]) == pytest.approx(weighted((1, 0.6 / 0.3, 0.6 / 0.1)))
    seen = -sum(c * 0.5 / f * math.log(g) for c, f, g in zip(CLICKS, SHARES, (0.6, 0.3, 0.1), strict=True))
    assert value(terms["observation"]) == pytest.approx(seen)
    assert_close(method.examination(), torch.tensor([1.0, 0.5, 1 / 6]))


def test_dla_bounds_both_kinds_of_weights():
    method = method_of_one_feature("dla", max_weight=2.2, observed_by="weights")
    method.observation.logits.data = torch.tensor([0.6, 0.3, 0.1]).log()
    terms = method.loss(LISTS)
    assert value(terms["relevance"]) == pytest.approx(weighted((1, 2.0, 2.2)))
    seen = -sum(c * w * math.log(g) for c, w, g in zip(CLICKS, (1, 0.5 / 0.3, 2.2), (0.6, 0.3, 0.1), strict=True))
    assert value(terms["observation"]) == pytest.approx(seen)


@pytest.mark.parametrize("observed_by", ["likelihood", "weights"])
def test_dla_rests_where_clicks_are_the_product_of_the_two(observed_by):
    method = method_of_one_feature("dla", observed_by=observed_by)
    seen = torch.tensor([0.6, 0.3, 0.1])
    method.observation.logits.data = seen.log()
    lists = ClickedLists(**{**vars(LISTS), "clicks": 100 * seen * torch.tensor([SHARES])})
    sum(method.loss(lists).values()).backward()
    assert_close(method.observation.logits.grad, torch.zeros(3), rtol=0, atol=1e-4)
    assert_close(method.relevance.layers[0].weight.grad, torch.zeros(1, 1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("constant", [0.0, 2.5])
def test_two_tower_with_constant_observation_is_naive(constant):
    naive, two_tower = method_of_one_feature("naive"), method_of_one_feature("two_tower")
    two_tower.observation.logits.data.fill_(constant)
    results = []
    for method in (naive, two_tower):
        term = method.loss(LISTS)["clicks"]
        results.append((value(term), *torch.autograd.grad(term, list(method.relevance.parameters()))))
    assert_close(results[1], results[0])


def test_two_tower_adds_the_logit_of_the_position():
    method = method_of_one_feature("two_tower")
    method.observation.logits.data = torch.tensor([0.6, 0.3, 0.1]).log()
    product = [f * g for f, g in zip(SHARES, (0.6, 0.3, 0.1), strict=True)]
    by_hand = -sum(c * math.log(p / sum(product)) for c, p in zip(CLICKS, product, strict=True))
    assert value(method.loss(LISTS)["clicks"]) == pytest.approx(by_hand)
    assert_close(method.ranker()(LISTS.features, LISTS.mask), torch.tensor([SHARES]).log())  # relevance alone


@pytest.mark.parametrize("name", ["dla", "two_tower"])
def test_observation_learns_at_its_own_rate(name):
    method = METHODS[name](PROBLEM, observation_rate=0.5)
    assert method.stages()[0].trains == {method.relevance: 1.0, method.observation: 0.5}


@pytest.mark.parametrize(("gain", "weights"), [("grade", (0, 1, 3)), ("exponential", (0, 1, 7))])
def test_labelled_weighs_documents_by_the_gain_of_their_grade(gain, weights):
    method = method_of_one_feature("labelled", gain=gain)
    lists = JudgedLists(features=LISTS.features, mask=LISTS.mask, grades=torch.tensor([[0.0, 1.0, 3.0]]))
    by_hand = -sum(w * math.log(f) for w, f in zip(weights, SHARES, strict=True)) / sum(weights)  # one unit a list
    assert value(method.loss(lists)["grades"]) == pytest.approx(by_hand)


def test_labelled_learns_from_judgements_alone():
    assert [stage.source for stage in METHODS["labelled"](PROBLEM).stages()] == ["judgements"]
