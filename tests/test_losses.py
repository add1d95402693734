"""Losses: each against hand arithmetic and finite differences; padding counts nothing, empty lists give no NaN."""

import math

import pytest
import torch
from torch.testing import assert_close

from unskew.methods import losses

# The shares of these scores are 0.5, 0.3, 0.2 and 0.25, 0.75.
SHARES = torch.tensor([[0.5, 0.3, 0.2], [0.25, 0.75, 0.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, True, False]])
SCORES = torch.where(MASK, SHARES, 1.0).log()
CLICKS = torch.tensor([[1.0, 2.0, 0.0], [3.0, 1.0, 0.0]], dtype=torch.float64)
SESSIONS = torch.tensor([2.0, 4.0], dtype=torch.float64)

# Every loss as a function of scores alone, on a batch with padding.
OF_SCORES = {
    "softmax": lambda scores, clicks, sessions, mask: losses.softmax(scores, clicks, mask),
    "sigmoid": losses.sigmoid,
    "squared": losses.squared,
    "pairs": lambda scores, clicks, sessions, mask: (
        losses.preference_pairs(scores) * clicks.unsqueeze(2) * mask.unsqueeze(1)
    ).sum(),
    "dual": lambda scores, clicks, sessions, mask: sum(losses.dual(scores, scores / 2, clicks, mask).values()),
    "dual_by_likelihood": lambda scores, clicks, sessions, mask: sum(
        losses.dual(scores, scores / 2, clicks, mask, observed_by="likelihood").values()
    ),
}


def test_log_shares_are_logarithms_of_shares_and_zero_in_padding():
    assert_close(losses.log_shares(SCORES, MASK), torch.where(MASK, SHARES, 1.0).log())


def test_shares_do_not_change_when_all_scores_rise_together():
    assert_close(losses.log_shares(SCORES + 7.0, MASK), losses.log_shares(SCORES, MASK))


def test_softmax_is_clicks_times_minus_log_shares():
    by_hand = -(1 * math.log(0.5) + 2 * math.log(0.3) + 3 * math.log(0.25) + 1 * math.log(0.75))
    assert float(losses.softmax(SCORES, CLICKS, MASK)) == pytest.approx(by_hand)


def test_sigmoid_counts_clicks_and_their_absence():
    scores = torch.tensor([[0.8, 0.25]], dtype=torch.float64).logit()
    clicks, sessions = torch.tensor([[3.0, 1.0]]), torch.tensor([4.0])
    by_hand = -(3 * math.log(0.8) + 1 * math.log(0.2) + 1 * math.log(0.25) + 3 * math.log(0.75))
    assert float(losses.sigmoid(scores, clicks, sessions, torch.ones(1, 2, dtype=torch.bool))) == pytest.approx(by_hand)


def test_sigmoid_of_extreme_scores_is_finite():
    scores = torch.tensor([[200.0, -200.0]])
    value = losses.sigmoid(scores, torch.tensor([[0.0, 1.0]]), torch.ones(1), torch.ones(1, 2, dtype=torch.bool))
    assert float(value) == pytest.approx(400.0)


def test_squared_is_squared_error_less_a_constant():
    scores, targets = torch.tensor([[0.5, -1.0]]), torch.tensor([[3.0, -2.0]])
    value = losses.squared(scores, targets, torch.tensor([4.0]), torch.ones(1, 2, dtype=torch.bool))
    assert float(value) == pytest.approx(4 * 0.25 - 2 * 3 * 0.5 + 4 * 1 - 2 * 2)


def test_a_pair_costs_more_when_the_clicked_document_scores_lower():
    pairs = losses.preference_pairs(torch.tensor([[2.0, 1.0]]))
    by_hand = torch.tensor([[[math.log(2), math.log(1 + math.exp(-1))], [math.log(1 + math.exp(1)), math.log(2)]]])
    assert_close(pairs, by_hand)  # [i, j]: i was clicked, j was not


@pytest.mark.parametrize(("max_weight", "lowest"), [(None, 0.5 / 0.2), (2.0, 2.0)])
def test_clicks_lower_down_weigh_more_up_to_a_bound(max_weight, lowest):
    weights = losses.inverse_share(SCORES, MASK, max_weight=max_weight)
    assert_close(weights, torch.tensor([[1.0, 0.5 / 0.3, lowest], [1.0, 0.25 / 0.75, 0.0]], dtype=torch.float64))


def test_weights_have_no_gradient():
    assert not losses.inverse_share(SCORES.clone().requires_grad_(), MASK).requires_grad


def test_weights_of_hopeless_scores_do_not_overflow():
    weights = losses.inverse_share(torch.tensor([[500.0, -500.0]]), torch.ones(1, 2, dtype=torch.bool))
    assert bool(weights.isfinite().all())


def test_dual_weighs_each_side_by_the_other():
    observation = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64).log()
    clicks = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    terms = losses.dual(SCORES[:1], observation, clicks, MASK[:1])
    f, g = (0.5, 0.3, 0.2), (0.6, 0.3, 0.1)
    relevance = -sum(c * g[0] / g[i] * math.log(f[i]) for i, c in enumerate((1, 2, 4)))
    seen = -sum(c * f[0] / f[i] * math.log(g[i]) for i, c in enumerate((1, 2, 4)))
    assert float(terms["relevance"]) == pytest.approx(relevance)
    assert float(terms["observation"]) == pytest.approx(seen)


@pytest.mark.parametrize("observed_by", losses.OBSERVED_BY)
def test_dual_sends_each_term_to_its_own_network(observed_by):
    relevance, observation = SCORES.clone().requires_grad_(), (SCORES / 3).requires_grad_()
    terms = losses.dual(relevance, observation, CLICKS, MASK, observed_by=observed_by)
    assert torch.autograd.grad(terms["relevance"], observation, allow_unused=True) == (None,)
    assert torch.autograd.grad(terms["observation"], relevance, allow_unused=True) == (None,)


def dual_gradients(relevance, observation, clicks, mask):
    """Gradients of `dual` by the scores of each side, if observation learns by likelihood."""
    sides = relevance.clone().requires_grad_(), observation.clone().requires_grad_()
    sum(losses.dual(*sides, clicks, mask, observed_by="likelihood").values()).backward()
    return tuple(side.grad for side in sides)


def test_dual_by_likelihood_explains_clicks_by_relevance_times_observation():
    f, g, clicks = (0.5, 0.3, 0.2), (0.6, 0.3, 0.1), (1, 2, 4)
    shown = [f[i] * g[i] / (0.30 + 0.09 + 0.02) for i in range(3)]  # shares of the products
    observation = torch.tensor([g], dtype=torch.float64).log()
    counts = torch.tensor([clicks], dtype=torch.float64)
    terms = losses.dual(SCORES[:1], observation, counts, MASK[:1], observed_by="likelihood")
    by_hand = {
        "relevance": -sum(c * g[0] / g[i] * math.log(f[i]) for i, c in enumerate(clicks)),
        "observation": -sum(c * math.log(shown[i]) for i, c in enumerate(clicks)),
    }
    assert {name: float(term) for name, term in terms.items()} == pytest.approx(by_hand)
    relevance_gradient, gradient = dual_gradients(SCORES[:1], observation, counts, MASK[:1])
    corrected = [1, 2 * 0.6 / 0.3, 4 * 0.6 / 0.1]
    assert relevance_gradient[0].tolist() == pytest.approx([sum(corrected) * f[i] - corrected[i] for i in range(3)])
    assert gradient[0].tolist() == pytest.approx([7 * shown[i] - clicks[i] for i in range(3)])


def test_dual_by_likelihood_rests_at_the_truth_of_position_based_clicks():
    relevance = torch.tensor([[0.9, 0.3, 0.6], [0.2, 0.8, 0.0]], dtype=torch.float64)  # of what stands there
    examined = torch.tensor([1.0, 0.5, 0.2], dtype=torch.float64).expand(2, 3)
    expected = torch.zeros(2, 3, dtype=torch.float64)
    for seen in (0, 1):  # by enumeration: examined or not, relevant or not
        for wanted in (0, 1):
            chance = (examined if seen else 1 - examined) * (relevance if wanted else 1 - relevance)
            expected += 1000 * chance * seen * wanted
    scores = 3.0 + torch.where(MASK, relevance, 1.0).log()  # f is proportional to relevance, g to examination
    for gradient in dual_gradients(scores, examined.log() - 2.0, expected, MASK):
        assert_close(gradient, torch.zeros(2, 3, dtype=torch.float64), atol=1e-9, rtol=0)
    for gradient in dual_gradients(scores, 2 * examined.log(), expected, MASK):  # too steep a curve
        assert float(gradient.abs().max()) > 1


WITH_WEIGHTS_HELD = ("dual", "dual_by_likelihood")


@pytest.mark.parametrize("name", [name for name in OF_SCORES if name not in WITH_WEIGHTS_HELD])
def test_gradients_are_those_of_finite_differences(name):
    assert torch.autograd.gradcheck(
        lambda scores: OF_SCORES[name](scores, CLICKS, SESSIONS, MASK), SCORES.clone().requires_grad_()
    )


def test_gradients_of_dual_are_those_of_finite_differences_with_the_weights_held():
    observation = (SCORES / 3).requires_grad_()
    held = CLICKS * losses.inverse_share(SCORES, MASK)
    assert torch.autograd.gradcheck(lambda logits: losses.softmax(logits, held, MASK), observation)
    analytic = torch.autograd.grad(losses.dual(SCORES, observation, CLICKS, MASK)["observation"], observation)
    assert_close(analytic, torch.autograd.grad(losses.softmax(observation, held, MASK), observation))


@pytest.mark.parametrize("name", OF_SCORES)
def test_what_stands_in_padding_changes_neither_value_nor_gradient(name):
    results = []
    for garbage in (0.0, 50.0, -50.0):
        scores = torch.where(MASK, SCORES, garbage).requires_grad_()
        value = OF_SCORES[name](scores, CLICKS, SESSIONS, MASK)
        value.backward()
        results.append((value.detach(), scores.grad))
    assert_close(results[1], results[0])
    assert_close(results[2], results[0])
    assert_close(results[0][1][~MASK], torch.zeros(1, dtype=torch.float64))


@pytest.mark.parametrize("name", OF_SCORES)
def test_a_list_without_documents_costs_nothing(name):
    scores = torch.zeros(1, 3, requires_grad=True)
    nothing = torch.zeros(1, 3)
    value = OF_SCORES[name](scores, nothing, torch.ones(1), torch.zeros(1, 3, dtype=torch.bool))
    value.backward()
    assert float(value.detach()) == 0.0
    assert_close(scores.grad, nothing)


@pytest.mark.parametrize("name", OF_SCORES)
def test_a_list_shown_twice_costs_twice_as_much(name):
    once = OF_SCORES[name](SCORES, CLICKS, SESSIONS, MASK)
    twice = OF_SCORES[name](SCORES, 2 * CLICKS, 2 * SESSIONS, MASK)
    assert_close(twice, 2 * once)


@pytest.mark.parametrize("name", losses.LINEAR_IN_TARGET)
def test_losses_for_corrected_clicks_have_a_gradient_linear_in_the_target(name):
    def gradient(targets):
        scores = SCORES.clone().requires_grad_()
        losses.LINEAR_IN_TARGET[name](scores, targets, SESSIONS, MASK).backward()
        return scores.grad

    other = torch.tensor([[-1.0, 0.5, 2.0], [0.25, -3.0, 0.0]], dtype=torch.float64)
    assert_close(gradient((CLICKS + other) / 2), (gradient(CLICKS) + gradient(other)) / 2)
