"""Vectorization: what a dot product can represent, Eq. 8 to 10 by hand, and what must not change a score."""

import pytest
import torch
from torch.testing import assert_close

from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.bias.vectorization import Vectorization, gaussian
from unskew.networks.embeddings import BASES as LEARNT_BASES
from unskew.networks.embeddings import base_vector
from unskew.networks.registry import Network, Problem

N_FEATURES, N_POSITIONS = 4, 6
BASES = [*LEARNT_BASES, "position", "mean", "pca"]
BIAS = {"device": ("desk", "phone"), "scroll": None}


def new_method(seed=0, bias=None, network=None, **hyper):
    torch.manual_seed(seed)
    problem = Problem(N_FEATURES, N_POSITIONS, bias or {}, network or Network(hidden=(8, 5)))
    return Vectorization(problem, **hyper)


def shaken(method, seed=1):
    """The method with every number moved by chance, as if it had been trained."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    return method.eval()


def lists(n_lists=3, n_docs=5, seed=0, sessions=1.0):
    rng = torch.Generator().manual_seed(seed)
    mask = torch.ones(n_lists, n_docs, dtype=torch.bool)
    mask[-1, 3:] = False
    clicks = torch.randint(0, 2, (n_lists, n_docs), generator=rng) * mask
    places = torch.arange(n_docs).expand(n_lists, n_docs) * mask
    return ClickedLists(
        features=torch.randn(n_lists, n_docs, N_FEATURES, generator=rng) * mask.unsqueeze(-1),
        mask=mask,
        positions=places,
        clicks=clicks * sessions,
        sessions=torch.full((n_lists,), float(sessions)),
        bias={"device": places % 2, "scroll": 0.5 * places.float()},
    )


# -- what a dot product in an exponent can represent

ATTRACTION = torch.tensor([0.1, 0.28, 1.0], dtype=torch.float64)
SEEN = torch.tensor([0.68, 0.48, 0.2, 0.06], dtype=torch.float64)
EVERY_PAIR = torch.ones(1, 12, dtype=torch.bool)  # one list that shows every document at every position


def test_two_dimensions_represent_position_based_clicks():
    relevance = torch.stack([ATTRACTION.log(), torch.ones(3)], -1)
    observation = torch.stack([torch.ones(4), SEEN.log()], -1)
    shares = losses.log_shares((relevance @ observation.T).reshape(1, -1), EVERY_PAIR).exp()
    clicks = torch.outer(ATTRACTION, SEEN).reshape(1, -1)
    assert_close(shares, clicks / clicks.sum())


@pytest.mark.parametrize("level", [0.0, -3.0, 50.0])
def test_one_dimension_cannot_represent_position_based_clicks(level):
    # Of logits r_i o_k every 2 x 2 minor is 0. Clicks fix logits up to one number added to all of a list, and whatever
    # it is, a minor of log a_i + log theta_k is (log a_1 - log a_2) (log theta_2 - log theta_1).
    logits = ATTRACTION.log().unsqueeze(1) + SEEN.log() + level
    minor = logits[0, 0] * logits[1, 1] - logits[0, 1] * logits[1, 0]
    expected = torch.log(ATTRACTION[0] / ATTRACTION[1]) * torch.log(SEEN[1] / SEEN[0])
    assert_close(minor, expected)
    assert expected > 0.3


def test_training_starts_as_a_naive_ranker_with_a_constant_beside_it():
    method, batch = new_method(dimensions=3).eval(), lists()
    relevance = method.embedding(batch.features, batch.mask)
    assert_close(relevance[..., 1], torch.ones_like(relevance[..., 1]))
    assert_close(method.click_logits(batch), relevance[..., 0])
    assert_close(method.ranker()(batch.features, batch.mask), relevance[..., 0])


def test_one_dimension_multiplies_relevance_by_the_position():
    method, batch = shaken(new_method(dimensions=1)), lists()
    expected = method.embedding(batch.features, batch.mask).squeeze(-1) * method.observation.table[batch.positions, 0]
    assert_close(method.click_logits(batch), expected)


# -- equations 8 to 10


def test_the_base_vector_weighs_means_by_their_precision():
    mean = torch.tensor([[[1.0, 2.0], [4.0, 0.0], [100.0, 100.0]]])
    variance = torch.tensor([[[1.0, 2.0], [0.5, 1.0], [1.0, 1.0]]])
    mask = torch.tensor([[True, True, False]])
    # First dimension: (1/1 + 4/0.5) / (1/1 + 1/0.5) = 9/3; second: (2/2 + 0/1) / (1/2 + 1/1) = 1/1.5.
    assert_close(base_vector(mean, variance.log(), mask), torch.tensor([[3.0, 2 / 3]]))


def test_scores_are_projections_onto_the_base_vector():
    method, batch = shaken(new_method(dimensions=3)), lists()
    trunk = method.embedding.trunk(batch.features, batch.mask)
    mean, log_variance = method.base(batch.features, trunk)
    scores = method.ranker()(batch.features, batch.mask)
    for row in range(batch.n_lists):
        real = batch.mask[row]
        precision = 1 / log_variance[row, real].exp()
        base = (precision * mean[row, real]).sum(0) / precision.sum(0)
        assert_close(scores[row, real], method.embedding.last(trunk[row, real]) @ base)


def test_the_gaussian_loss_by_hand():
    mean, observed = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[3.0, 1.0]]])
    log_variance = torch.log(torch.tensor([[[4.0, 0.5]]]))
    # 3 impressions of ((1 - 3)^2 / 4 + log 4 + 1 / 0.5 + log 0.5) / 2 = (1 + 2 + log 2) / 2
    expected = 3 * 0.5 * (3 + torch.log(torch.tensor(2.0)))
    assert_close(gaussian(mean, log_variance, observed, torch.tensor([[3.0]])), expected)


def test_the_base_loss_counts_impressions_and_the_penalty_counts_sessions():
    method = shaken(new_method(base_decay=0.1))
    once, often = (method.base_loss(lists(sessions=n)) for n in (1.0, 7.0))
    assert_close(often, {name: 7 * value for name, value in once.items()})
    squares = sum(float(parameter.detach().square().sum()) for parameter in method.base.parameters())
    assert_close(float(once["base decay"].detach()), 0.1 * squares * 3)  # three lists, one session each


def test_the_base_model_recovers_a_known_gaussian():
    # Every document is shown at position 0 in 1 of 4 sessions and at position 1 in 3 of 4, its features tell nothing:
    # o is 2 with probability 1/4 and 1 with 3/4, mean 5/4 and variance 3/16.
    method = new_method(dimensions=1, base_decay=0.0)
    with torch.no_grad():
        method.observation.table[:2, 0] = torch.tensor([2.0, 1.0])
    shown = ClickedLists(
        features=torch.ones(2, 1, N_FEATURES),
        mask=torch.ones(2, 1, dtype=torch.bool),
        positions=torch.tensor([[0], [1]]),
        clicks=torch.zeros(2, 1),
        sessions=torch.tensor([1.0, 3.0]),
    )
    optimizer = torch.optim.Adam(method.base.parameters(), lr=0.02)
    for _ in range(600):
        optimizer.zero_grad()
        method.base_loss(shown)["base"].backward()
        optimizer.step()
    trunk = method.embedding.trunk(shown.features, shown.mask)
    mean, log_variance = method.base(shown.features, trunk)
    assert_close(mean.flatten(), torch.full((2,), 5 / 4), atol=1e-3, rtol=0)
    assert_close(log_variance.exp().flatten(), torch.full((2,), 3 / 16), atol=1e-3, rtol=0)


@pytest.mark.parametrize("base", LEARNT_BASES)
def test_the_base_model_teaches_neither_relevance_nor_observation(base):
    method = shaken(new_method(base=base)).train()
    terms = method.loss(lists())
    (terms["base"] + terms["base decay"]).backward()
    assert all(parameter.grad is None for parameter in method.embedding.parameters())
    assert all(parameter.grad is None for parameter in method.observation.parameters())
    assert all(parameter.grad.abs().sum() > 0 for parameter in method.base.parameters())


@pytest.mark.parametrize("raw", [-1e6, 1e6])
def test_log_variance_stays_in_its_range_and_keeps_weights_finite(raw):
    method, batch = new_method(), lists()
    with torch.no_grad():
        method.base.layers[-1].bias[2:] = raw
    _, log_variance = method.base(batch.features, method.embedding.trunk(batch.features, batch.mask))
    assert log_variance.abs().max() <= 4.0
    assert method.ranker()(batch.features, batch.mask).isfinite().all()


# -- what must not change a score


@pytest.mark.parametrize("base", BASES)
def test_flipping_the_sign_of_a_dimension_in_both_factors_changes_nothing(base):
    method, batch = shaken(new_method(base=base, dimensions=3)), lists()
    if method.moments is not None:
        method.train()
        method.click_loss(batch)  # meets the documents
        method.eval()
    before = method.click_logits(batch), method.ranker()(batch.features, batch.mask)
    with torch.no_grad():
        for tensor in (method.embedding.last.weight, method.embedding.last.bias, method.observation.table.T):
            tensor[1] *= -1
        if method.base is not None:
            for tensor in (method.base.layers[-1].weight, method.base.layers[-1].bias):
                tensor[1] *= -1  # the mean of this dimension
        if method.moments is not None:
            method.moments.value[1] *= -1
            method.moments.value[:, 1] *= -1
    assert_close((method.click_logits(batch), method.ranker()(batch.features, batch.mask)), before)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("network", [Network(hidden=(8, 5)), Network(kind="linear")], ids=["mlp", "linear"])
def test_neither_order_nor_padding_changes_scores(base, network):
    ranker, batch = shaken(new_method(base=base, network=network)).ranker(), lists()
    scores = ranker(batch.features, batch.mask)
    order = torch.tensor([3, 0, 4, 1, 2])
    assert_close(ranker(batch.features[:, order], batch.mask[:, order]), scores[:, order])
    wide = torch.cat([batch.features, torch.full((3, 4, N_FEATURES), 7.0)], 1)  # padding may hold anything
    mask = torch.cat([batch.mask, torch.zeros(3, 4, dtype=torch.bool)], 1)
    assert_close(ranker(wide, mask)[:, :5][batch.mask], scores[batch.mask])


def test_the_base_vector_of_a_list_depends_on_its_other_documents():
    ranker, batch = shaken(new_method()).ranker(), lists(n_lists=1, n_docs=3)
    alone = ranker(batch.features[:, :1], batch.mask[:, :1])
    assert not torch.allclose(ranker(batch.features, batch.mask)[:, :1], alone)


# -- other base vectors


def test_fixed_bases_are_a_position_and_the_mean_of_all():
    for base, expected in (("position", [3.0, 1.0]), ("mean", [2.5, 0.0])):
        method = new_method(base=base)
        with torch.no_grad():
            method.observation.table.copy_(torch.tensor([[3.0, 1.0], [2.0, -1.0]]).repeat(3, 1))
        assert_close(method.ranker().base.value, torch.tensor(expected))


def test_the_principal_direction_is_where_embeddings_vary_and_clicks_grow():
    method, batch = new_method(base="pca"), lists()
    with torch.no_grad():
        method.observation.table.copy_(torch.tensor([-1.0, 0.5]).expand(N_POSITIONS, 2))
        # Mean (5, 0), variance 9 along (0.8, -0.6) and 1 across.
        along, across = torch.tensor([0.8, -0.6]), torch.tensor([0.6, 0.8])
        mean = torch.tensor([5.0, 0.0])
        second = 9 * along.outer(along) + across.outer(across) + mean.outer(mean)
        method.moments.value.copy_(torch.cat([torch.cat([second, mean.unsqueeze(1)], 1), torch.tensor([[5.0, 0, 1]])]))
    assert_close(method.ranker().base.value, -along)  # observation on it is negative
    assert method.ranker()(batch.features, batch.mask).isfinite().all()


# -- bias columns, stages


def test_with_bias_columns_observation_depends_on_them():
    method, batch = shaken(new_method(bias=BIAS)), lists()
    before = method.click_logits(batch)
    for name, other in (("device", 1 - batch.bias["device"]), ("scroll", batch.bias["scroll"] + 1)):
        changed = ClickedLists(**{**vars(batch), "bias": {**batch.bias, name: other}})
        assert not torch.allclose(method.click_logits(changed), before)


def test_with_bias_columns_a_position_stands_for_the_average_level():
    method = shaken(new_method(bias=BIAS))
    half = torch.tensor([[0.0, 1, 0, 0, 0, 0, 0.5, 0.5, 0.0]])  # position 1, each device half, scroll 0
    assert_close(method.observation.at_positions()[1:2], method.observation.layers(half))


def test_positions_below_the_last_known_one_are_seen_as_it_is():
    method, batch = shaken(new_method()), lists(n_docs=5)
    last = ClickedLists(**{**vars(batch), "positions": torch.full_like(batch.positions, N_POSITIONS - 1)})
    below = ClickedLists(**{**vars(batch), "positions": torch.full_like(batch.positions, N_POSITIONS + 3)})
    assert_close(method.click_logits(below), method.click_logits(last))


def test_observation_is_frozen_first_and_the_base_model_learns_last():
    method = new_method()
    warm_up, joint, base = method.stages()
    assert set(warm_up.trains) == {method.embedding}
    assert set(joint.trains) == {method.embedding, method.observation, method.base}
    assert set(base.trains) == {method.base}
    assert not warm_up.selects
    assert [stage.name for stage in new_method(base="mean").stages()] == ["warm-up", "joint"]
