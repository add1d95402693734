"""LBD: its limits are naive and two_tower, its penalty is the gradient's length, its certificate holds."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sample_lists import DEVICES, N_FEATURES, N_POSITIONS, clicked_lists, problem
from unskew.data.clicks.batches import ClickBatches
from unskew.data.judged.world import make_world
from unskew.data.transformed import transform_log
from unskew.lists import ClickedLists, Distinct
from unskew.methods.bias.lbd import LBD
from unskew.methods.bias.naive import Naive
from unskew.methods.bias.two_tower import TwoTower
from unskew.networks.limited_observation import log_odds, penalized_pairs
from unskew.simulation.simulate import simulate
from unskew.simulation.users import make_user
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe
from unskew.training.validation import click_likelihood

VARIANTS = {  # of the paper
    "lbd": {},
    "lips": {"cancel": 0.0},
    "ber": {"penalty": 0.0},
    "unlimited": {"cancel": 0.0, "penalty": 0.0},
}


def new_lbd(seed=0, *, flat=False, bias=DEVICES, network=None, **hyper):
    """LBD with random tables, and unless it is `flat` a random dependence on the document."""
    torch.manual_seed(seed)
    method = LBD(problem(bias, **(network or {})), **hyper).double().train()
    with torch.no_grad():
        for parameter in method.observation.parameters():
            parameter.normal_()
        if hasattr(method, "dependence"):
            for parameter in method.dependence.parameters():
                parameter.normal_()
        if flat:
            method.dependence[-1].weight.zero_()
    return method


def gradients(method, term):
    method.zero_grad()
    term.backward()
    return {
        name: torch.zeros_like(entry) if entry.grad is None else entry.grad.clone()
        for name, entry in method.named_parameters()
    }


def only(prefix, values):
    return {name: value for name, value in values.items() if name.startswith(prefix)}


# -- limits


@pytest.mark.parametrize("hyper", [{}, {"cancel_to": "sure"}])
def test_always_cancelled_it_is_naive(hyper):
    method, naive = new_lbd(cancel=1.0, **hyper), Naive(problem()).double()
    naive.relevance.load_state_dict(method.relevance.state_dict())
    lists = clicked_lists()
    terms, plain = method.loss(lists), naive.loss(lists)
    assert torch.equal(terms["clicks"], plain["clicks"])
    learnt = gradients(method, sum(terms.values()))
    for name, gradient in gradients(naive, plain["clicks"]).items():
        assert torch.equal(learnt[name], gradient), name


def test_never_cancelled_and_the_same_for_all_documents_it_is_two_tower():
    method, plain = new_lbd(cancel=0.0, penalty=0.0, flat=True), TwoTower(problem()).double()
    plain.relevance.load_state_dict(method.relevance.state_dict())
    plain.observation.load_state_dict(method.observation.positions.state_dict())
    lists = clicked_lists()
    terms, expected = method.loss(lists), plain.loss(lists)
    assert_close(terms, expected, rtol=1e-12, atol=1e-12)
    learnt = gradients(method, terms["clicks"])
    for name, gradient in gradients(plain, expected["clicks"]).items():
        here = name.replace("observation.", "observation.positions.")
        assert_close(learnt[here], gradient, rtol=1e-9, atol=1e-12)
    assert_close(method.examination(), plain.examination())


def test_the_ablations_of_the_paper_are_arguments():
    for hyper in VARIANTS.values():
        terms = {"clicks"} if hyper.get("penalty") == 0 else {"clicks", "penalty"}
        assert set(new_lbd(**hyper).loss(clicked_lists())) == terms


# -- scale


def test_nothing_is_seen_more_surely_than_surely():
    method = new_lbd().eval()
    method.dependence[-1].weight.data *= 100
    seen = method.seen(torch.randn(200, N_FEATURES, dtype=torch.float64))
    assert float(seen.detach().min()) < 0.01
    assert 0.99 < float(seen.detach().max()) <= 1.0
    lists = clicked_lists()
    observed = method.click_logits(lists) - method.relevance(lists.features, lists.mask)
    assert float(observed.detach().max()) <= 0.0


def test_the_average_document_is_seen_as_the_table_says():
    method = new_lbd(flat=True, bias={}, top_seen=0.8).eval()
    with torch.no_grad():
        method.dependence[-1].bias.zero_()
        method.observation.positions.logits.copy_(torch.tensor([1.0, 0.5, 0.25, 0.125]).log())
    assert_close(method.seen(torch.zeros(N_FEATURES).double()), 0.8 * torch.tensor([1.0, 0.5, 0.25, 0.125]).double())
    assert_close(method.examination(), torch.tensor([1.0, 0.5, 0.25, 0.125]).double())


def test_observation_cannot_shrink_as_a_whole_to_escape_the_penalty():
    method, lists = new_lbd(cancel=0.0, exact=True), clicked_lists()
    before = method.loss(lists)
    method.dependence[-1].bias.data -= 7.0
    method.observation.positions.logits.data -= 7.0
    assert_close(method.loss(lists), before)


def test_outside_training_documents_are_compared_with_the_mean_of_training():
    method, lists = new_lbd(cancel=0.0, penalty=0.0), clicked_lists()
    for _ in range(400):  # a running mean forgets 5% of its past at each step: .95^400 is 1e-9
        method.loss(lists)
    learnt = method.loss(lists)["clicks"]
    assert_close(method.eval().loss(lists)["clicks"], learnt, rtol=1e-6, atol=0)


def test_log_odds_of_a_half_are_zero():
    assert_close(
        log_odds(torch.tensor([0.5, 0.2, 1e-9]).log()), torch.tensor([0.5, 0.2, 1e-9]).logit(), atol=1e-6, rtol=1e-6
    )


def test_a_numeric_column_cannot_lift_observation_above_one():
    method = new_lbd(bias={"age": None})
    lists = replace(clicked_lists(), bias={"age": torch.full((5, N_POSITIONS), 100.0, dtype=torch.float64)})
    observed = method.eval().click_logits(lists) - method.relevance(lists.features, lists.mask)
    assert float(observed.detach().max()) <= 0.0


# -- cancelling


def cancelled(method, lists, n_draws):
    """Whether each document's observation was cancelled, in many draws, `[draws, batch, docs]`."""
    return torch.stack([method.gamma(lists) == 0 for _ in range(n_draws)])


def test_documents_are_cancelled_with_the_chance_asked_for():
    method, lists = new_lbd(cancel=0.3), clicked_lists(50)
    torch.manual_seed(1)
    share = cancelled(method, lists, 100).float().mean((0, 1))  # 5,000 draws at each place: standard error .0065
    assert_close(share, torch.full((N_POSITIONS,), 0.3), rtol=0, atol=0.03)


@pytest.mark.parametrize("level", ["sure", "average"])
def test_a_cancelled_document_competes_as_if_it_were_seen_surely_or_as_the_mean(monkeypatch, level):
    method, lists = new_lbd(cancel=0.5, cancel_to=level, penalty=0.0), clicked_lists()
    kept = torch.tensor([False, True, True, True]).expand_as(lists.mask)
    monkeypatch.setattr(method, "gamma", lambda _: kept.double())
    loss = method.loss(lists)["clicks"]

    scores, outputs = method.outputs(lists)
    seen = method.observation(outputs - method.observation.centre(outputs, lists), lists)
    shown = (lists.sessions.unsqueeze(-1) * lists.mask).double()
    mean = (shown * seen).sum() / shown.sum()
    logits = scores + torch.where(kept, seen, mean if level == "average" else torch.zeros_like(mean))
    logits = logits.masked_fill(~lists.mask, -torch.inf)
    assert_close(loss, -(lists.clicks * logits.log_softmax(-1)).nan_to_num(0.0).sum())


def test_nothing_is_cancelled_outside_training():
    method, lists = new_lbd(cancel=0.5).eval(), clicked_lists()
    first = method.loss(lists)["clicks"]
    assert all(torch.equal(method.loss(lists)["clicks"], first) for _ in range(5))
    logits = method.click_logits(lists).masked_fill(~lists.mask, -torch.inf)
    assert_close(first, -(lists.clicks * logits.log_softmax(-1)).nan_to_num(0.0).sum())


# -- penalty


def slopes_by_differences(method, features, step=1e-6):
    """Length of the gradient at every position by central differences, `[docs, positions]`."""
    squares = 0.0
    for column in range(features.shape[-1]):
        nudge = torch.zeros(features.shape[-1], dtype=features.dtype)
        nudge[column] = step
        ahead, behind = (method.seen(features + sign * nudge) for sign in (1, -1))
        squares = squares + ((ahead - behind) / (2 * step)) ** 2
    return squares.sqrt()


def test_the_exact_penalty_is_the_length_of_the_gradient_by_finite_differences():
    method, lists = new_lbd(exact=True, penalty=3.0, bias={}).eval(), clicked_lists()
    with torch.no_grad():
        slopes = slopes_by_differences(method, lists.features).sum(-1)  # over positions
        expected = 3.0 * (lists.sessions.unsqueeze(-1) * slopes)[lists.mask].sum()
    assert_close(method.loss(lists)["penalty"], expected, rtol=1e-6, atol=0)


def test_the_gradient_of_the_penalty_agrees_with_finite_differences():
    method, lists = new_lbd(exact=True, penalty=1.0), clicked_lists()
    weight = method.dependence[-1].weight
    learnt = gradients(method, method.loss(lists)["penalty"])[
        "dependence." + str(len(method.dependence) - 1) + ".weight"
    ]
    for place in [(0, 0), (1, 3), (3, 5)]:
        values = []
        for step in (1e-6, -1e-6):
            weight.data[place] += step
            values.append(method.loss(lists)["penalty"].detach())
            weight.data[place] -= step
        assert_close(learnt[place], (values[0] - values[1]) / 2e-6, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_the_estimated_penalty_and_its_gradient_are_right_on_average(share):
    method, lists = new_lbd(share=share, penalty=1.0), clicked_lists()
    name = "dependence.1.weight"

    def both():
        term = method.loss(lists)["penalty"]
        return torch.cat([term.detach().reshape(1), gradients(method, term)[name].flatten()])

    method.exact = True
    exact = both()
    method.exact = False
    torch.manual_seed(0)
    draws = torch.stack([both() for _ in range(300)])
    error = draws.std(0) / 300**0.5
    assert bool(((draws.mean(0) - exact).abs() <= 4.5 * error).all())
    assert float(error[0] / exact[0]) < 0.08  # the comparison above means something


def test_each_document_is_penalized_with_the_chance_asked_for():
    method = new_lbd(share=0.25)
    mask = torch.ones(200, N_POSITIONS, dtype=torch.bool)
    mask[:, 3] = False  # 600 documents: 150 are expected, standard error 10.6; each stands for 4 at 4 positions
    lists = replace(
        clicked_lists(200), mask=mask, features=torch.arange(800.0).view(200, N_POSITIONS, 1), sessions=torch.ones(200)
    )
    torch.manual_seed(0)
    chosen = penalized_pairs(lists, lists.bias, N_POSITIONS, share=method.share, exact=method.exact)
    rows = chosen.features.squeeze(-1).long()
    assert set(chosen.weights.tolist()) == {16.0}
    assert abs(len(rows) - 150) < 40
    assert len(set(rows.tolist())) == len(chosen.positions) == len(rows)
    assert set(chosen.positions.tolist()) == set(range(N_POSITIONS))
    assert bool(mask.flatten()[rows].all())


def test_what_is_drawn_for_a_row_does_not_change_with_the_rows_beside_it():
    method, lists = new_lbd(cancel=0.3), clicked_lists(50)
    torch.manual_seed(1)
    whole = cancelled(method, lists, 10)
    torch.manual_seed(1)
    last = ClickedLists(
        lists.features[30:],
        mask=lists.mask[30:],
        positions=lists.positions[30:],
        clicks=lists.clicks[30:],
        sessions=lists.sessions[30:],
        keys=torch.arange(30, 50),
    )
    assert torch.equal(cancelled(method, last, 10), whole[:, 30:])


def test_a_document_of_several_lists_is_penalized_once_with_all_its_showings():
    lists = in_orders(clicked_lists(4), n_orders=3)
    shown = lists.distinct.places[lists.mask]
    chosen = penalized_pairs(lists, {}, N_POSITIONS, share=1.0, exact=False)
    assert len(chosen.positions) == len(shown.unique()) < len(shown)
    assert_close(chosen.weights.sum(), N_POSITIONS * (lists.sessions.unsqueeze(-1) * lists.mask).sum())


def in_orders(lists, n_orders):
    """The same lists in several orders each, as lists that know their distinct documents, and padding at the end."""
    rows = torch.cat([lists.features[lists.mask], torch.zeros_like(lists.features[0, :1])])
    numbers = torch.full(lists.mask.shape, len(rows) - 1).masked_scatter(lists.mask, torch.arange(len(rows) - 1))
    generator = torch.Generator().manual_seed(0)
    orders = [
        torch.rand(lists.mask.shape, generator=generator).masked_fill(~lists.mask, 2.0).argsort(-1)
        for _ in range(n_orders)
    ]
    places = torch.cat([numbers.gather(1, order) for order in orders])
    return replace(repeated(lists, n_orders), features=None, distinct=Distinct(rows, places))


@pytest.mark.parametrize("bias", [{}, DEVICES])
def test_the_penalty_of_distinct_documents_is_on_average_that_of_every_place(bias):
    lists = in_orders(clicked_lists(4), n_orders=3)
    if not bias:
        lists = replace(lists, bias={})
    method = new_lbd(share=0.5, penalty=1.0, bias=bias)
    method.exact = True
    exact = method.loss(replace(lists, features=lists.features.clone()))["penalty"].detach()
    assert_close(method.loss(lists)["penalty"].detach(), exact)
    method.exact = False
    torch.manual_seed(0)
    draws = torch.stack([method.loss(lists)["penalty"].detach() for _ in range(300)])
    error = draws.std() / 300**0.5
    assert abs(draws.mean() - exact) <= 4 * error
    assert error < 0.08 * exact  # the comparison above means something


def repeated(lists, times):
    def again(tensor):
        return torch.cat([tensor] * times)

    return ClickedLists(
        features=again(lists.features),
        mask=again(lists.mask),
        positions=again(lists.positions),
        clicks=again(lists.clicks),
        sessions=again(lists.sessions),
        bias={name: again(column) for name, column in lists.bias.items()},
    )


def test_neither_batch_size_nor_traffic_changes_the_penalty_of_a_session():
    method, lists = new_lbd(exact=True), clicked_lists()
    results = []
    for change in (lists, repeated(lists, 7), replace(lists, sessions=10 * lists.sessions)):
        penalty = method.loss(change)["penalty"] / change.sessions.sum()
        results.append(({"penalty": penalty.detach()}, gradients(method, penalty)))
    assert_close(results[1], results[0])
    assert_close(results[2], results[0])


def test_the_penalty_trains_the_dependence_on_the_document_and_nothing_else():
    method, lists = new_lbd(), clicked_lists()
    learnt = gradients(method, method.loss(lists)["penalty"])
    assert all(not bool(gradient.any()) for gradient in only("relevance", learnt).values())
    assert all(not bool(gradient.any()) for gradient in only("observation", learnt).values())
    assert any(bool(gradient.any()) for gradient in only("dependence", learnt).values())


def test_a_flat_observation_has_no_penalty_and_no_nan():
    method, lists = new_lbd(flat=True, exact=True, cancel=0.0), clicked_lists()
    terms = method.loss(lists)
    assert float(terms["penalty"].detach()) == 0.0
    learnt = gradients(method, sum(terms.values()))
    assert all(bool(gradient.isfinite().all()) for gradient in learnt.values())
    assert any(bool(gradient.any()) for gradient in only("dependence", learnt).values())  # clicks can still move it


# -- architectures


def test_a_shared_network_has_relevance_as_its_first_output():
    method, lists = new_lbd(shared=True, cancel=1.0, exact=True), clicked_lists()
    outputs = method.relevance.layers(lists.features)
    assert outputs.shape == (*lists.mask.shape, 1 + N_POSITIONS)
    assert_close(method.ranker()(lists.features, lists.mask), outputs[..., 0])
    logits = outputs[..., 0].masked_fill(~lists.mask, -torch.inf)
    terms = method.loss(lists)
    assert_close(terms["clicks"], -(lists.clicks * logits.log_softmax(-1)).nan_to_num(0.0).sum())
    learnt = gradients(method, terms["penalty"])
    assert bool(learnt["relevance.layers.1.weight"].any())  # why separate networks are the default


def test_a_linear_ranker_comes_with_a_linear_observation():
    method = new_lbd(network={"kind": "linear"})
    assert [type(layer).__name__ for layer in method.dependence] == ["FeatureLayer"]
    assert set(method.loss(clicked_lists())) == {"clicks", "penalty"}
    deep = LBD(problem(kind="linear"), observation_hidden=(5,))
    assert [layer.out_features for layer in deep.dependence.modules() if isinstance(layer, nn.Linear)] == [
        5,
        N_POSITIONS,
    ]


def steepest_observation(method, n_starts=128, n_steps=60):
    """The largest slope of any observation that climbing finds."""
    points = torch.randn(n_starts, N_FEATURES) * torch.logspace(-2, 1.5, n_starts).unsqueeze(1)
    best = 0.0
    for _ in range(n_steps):
        points = points.detach().requires_grad_()
        seen = method.seen(points)
        slopes = torch.stack(
            [torch.autograd.grad(one.sum(), points, create_graph=True)[0].norm(dim=1) for one in seen.unbind(1)]
        )
        best = max(best, float(slopes.detach().max()))
        climb = torch.autograd.grad(slopes.sum(), points)[0]
        points = points + 0.2 * climb / climb.norm(dim=1, keepdim=True).clamp(min=1e-9)
    return best


@pytest.mark.parametrize("beta", [0.01, 0.5, 20.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_certified_observation_is_never_steeper_than_beta(beta, seed):
    torch.manual_seed(seed)
    method = LBD(problem(hidden=(8, 6)), lipschitz="certified", beta=beta).eval()  # float32, as it is trained
    with torch.no_grad():
        for parameter in method.dependence.parameters():
            if parameter.ndim > 1:  # with large offsets every sigmoid is flat
                parameter.normal_(std=10.0 ** (seed - 1))
        method.observation.positions.logits.normal_()
    assert 0 < steepest_observation(method) <= beta * (1 + 1e-5)


def test_a_certified_observation_can_be_as_steep_as_beta():
    method = LBD(problem(kind="linear"), lipschitz="certified", beta=0.5, top_seen=0.5).eval()
    with torch.no_grad():
        method.dependence.layers[-1].weight[:] = torch.tensor([30.0, 40.0, 0.0])  # length 50, cut to 1
    # Every observation of the average document is .5, where the sigmoid has its slope of 1/4; 4 * .5 * 1/4 = .5.
    features = torch.zeros(1, N_FEATURES, requires_grad=True)
    (slope,) = torch.autograd.grad(method.seen(features)[0, 0], features)
    assert_close(slope, 0.5 * torch.tensor([[0.6, 0.8, 0.0]]), rtol=1e-5, atol=0)


def test_a_certified_observation_stays_so_while_it_is_trained():
    torch.manual_seed(0)
    method = LBD(problem(hidden=(8, 6)), lipschitz="certified", beta=0.3, cancel=0.0)
    lists = clicked_lists(40, dtype=torch.float32)
    optimizer = torch.optim.Adagrad(method.parameters(), lr=0.5)
    first = method.loss(lists)
    assert set(first) == {"clicks"}
    for _ in range(60):
        optimizer.zero_grad()
        loss = method.loss(lists)["clicks"]
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < float(first["clicks"].detach())
    assert 0.03 < steepest_observation(method.eval()) <= 0.3 * (1 + 1e-5)


# -- science


@pytest.mark.slow
def test_a_large_penalty_leaves_two_tower_and_without_limits_clicks_fit_best():
    world = make_world("small", seed=0)
    log = simulate(world.train, "svm", make_user("coupled", coupling=0.2), sessions=128, seed=1).log
    variants = {**VARIANTS, "flat": {"cancel": 0.0, "penalty": 100.0}}
    models = {name: fit_recipe(Recipe.of("lbd", steps=600, **hyper), log) for name, hyper in variants.items()}
    plain = fit_recipe(Recipe.of("two_tower", steps=600), log)
    assert np.abs(models["flat"].examination() - plain.examination()).max() < 0.05

    transformed = transform_log(log, plain.transform)
    batches, features = ClickBatches(transformed), torch.from_numpy(transformed.features[:5000])
    with torch.inference_mode():
        spread = {name: float(model.method.deviation(features).std(0).mean()) for name, model in models.items()}
    fitted = {name: click_likelihood(model.method, batches) for name, model in models.items()}
    assert spread["flat"] < 0.05 < spread["unlimited"]
    assert max(fitted, key=fitted.__getitem__) == "unlimited"
