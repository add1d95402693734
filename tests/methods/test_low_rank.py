"""Low-rank observation: what clicks leave open, who chooses it, and what is found when the truth has this form."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from sample_lists import DEVICES, N_FEATURES, N_POSITIONS, clicked_lists, problem
from unskew import Recipe, fit, load_model, save_model
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.lists import ClickedLists
from unskew.methods.bias.low_rank import Loadings, LowRank, by_looks, covariance
from unskew.methods.bias.two_tower import TwoTower
from unskew.methods.line_search import LENGTHS
from unskew.methods.losses import log_shares
from unskew.networks.documents import Ranker
from unskew.networks.registry import Network, Problem
from unskew.serving.exports import export_model
from unskew.serving.onnx_file import OnnxRanker
from unskew.training.settings import Settings
from unskew.training.train import train
from unskew.training.validation import on_judgements

FAST = {"steps": 6, "hidden": (8,), "batch_size": 64}


def new_low_rank(seed=0, bias=DEVICES, network=None, **hyper):
    """A method with random networks and tables."""
    torch.manual_seed(seed)
    hyper = {"choose": "pinned", **hyper}
    method = LowRank(problem(bias, **(network or {})), **hyper).double().eval()
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.normal_()
    return method


def shares(method, lists):
    """Click probabilities of the documents of each list, given one click."""
    with torch.no_grad():
        return log_shares(method.click_logits(lists), lists.mask).exp()


def scores(method, lists):
    with torch.no_grad():
        return method.ranker()(lists.features, lists.mask)


def differences(values, mask):
    """Differences within each list: what a ranking is made of."""
    within = values.unsqueeze(2) - values.unsqueeze(1)
    return within.masked_fill(~(mask.unsqueeze(2) & mask.unsqueeze(1)), 0.0)


def same_ranking(one, other, mask):
    return bool(torch.equal(differences(one, mask) > 1e-9, differences(other, mask) > 1e-9))


class Changed(Ranker):
    """Relevance plus some function of the features."""

    def __init__(self, relevance, added):
        super().__init__()
        self.relevance = relevance
        self.added = added

    def forward(self, features, mask):
        return self.relevance(features, mask) + self.added(features)


def in_other_places(lists, seed=1):
    """The same documents, each at a position drawn at random: what swaps and shuffles do."""
    places = torch.tensor(np.random.default_rng(seed).permuted(np.tile(np.arange(4), (lists.n_lists, 1)), axis=1))
    return replace(lists, positions=torch.where(lists.mask, places, 0))


# -- invariances of the log-linear model


def test_traits_and_loadings_may_be_mixed():
    method, lists = new_low_rank(rank=2, choose="free"), clicked_lists(30)
    clicks, order = shares(method, lists), scores(method, lists)
    mixing = torch.tensor([[2.0, 1.0], [0.5, -1.0]], dtype=torch.float64)
    with torch.no_grad():
        last = method.traits[-1]
        last.weight.copy_(mixing @ last.weight)
        last.bias.copy_(mixing @ last.bias)
        table = torch.linalg.inv(mixing).T @ method.loadings()
        method.loadings.flat.copy_(table.flatten())
    assert_close(shares(method, lists), clicks)
    assert torch.equal(scores(method, lists), order)


@pytest.mark.parametrize("places", [lambda lists: lists, in_other_places])
def test_loadings_moved_alike_at_all_positions_change_the_ranking_and_no_click_wherever_documents_stand(places):
    method, lists = new_low_rank(rank=2, choose="free"), places(clicked_lists(30))
    clicks, order = shares(method, lists), scores(method, lists)
    moved = torch.tensor([1.5, -2.0], dtype=torch.float64)
    traits = method.traits
    with torch.no_grad():
        method.loadings.flat.add_(moved.repeat_interleave(N_POSITIONS))
    method.relevance = Changed(method.relevance, lambda features: -(traits(features) @ moved))
    assert_close(shares(method, lists), clicks)
    assert not same_ranking(scores(method, lists), order, lists.mask)


def test_traits_may_have_any_mean_so_that_the_table_of_positions_is_no_examination_curve():
    method, lists = new_low_rank(rank=2, choose="free", bias={}).train(), replace(clicked_lists(30), bias={})
    for _ in range(400):  # the running mean forgets 5% of its past at each step: .95^400 is 1e-9
        method.loss(lists)
    clicks, order, curve, table = (
        shares(method, lists),
        scores(method, lists),
        method.examination(),
        method.observation.curve(),
    )
    shift = torch.tensor([0.7, -1.1], dtype=torch.float64)
    with torch.no_grad():
        method.traits[-1].bias.add_(shift)
        method.observation.logits.sub_(shift @ method.loadings())
        method.mean_traits.value.add_(shift)
    assert_close(shares(method, lists), clicks)
    assert torch.equal(scores(method, lists), order)
    assert_close(method.examination(), curve)  # of the document with mean traits
    assert float((method.observation.curve() - table).abs().max()) > 0.1


def test_constants_of_positions_and_of_queries_change_nothing():
    method, lists = new_low_rank(choose="free"), clicked_lists(30)
    clicks, order = shares(method, lists), scores(method, lists)
    with torch.no_grad():
        method.observation.logits.add_(3.0)
    method.relevance = Changed(method.relevance, lambda features: torch.arange(30.0).unsqueeze(1))
    assert_close(shares(method, lists), clicks)
    assert_close(differences(scores(method, lists), lists.mask), differences(order, lists.mask))


def test_the_examination_curve_does_not_depend_on_the_number_that_is_open():
    method = new_low_rank(choose="free", bias={})
    method.mean_traits.value.fill_(0.8)
    curve = method.examination()
    with torch.no_grad():
        method.loadings.flat.add_(2.0)
    assert_close(method.examination(), curve)


# -- what is ranked by


@pytest.mark.parametrize("rank", [1, 3])
def test_pinned_it_ranks_by_the_click_probability_on_top(rank):
    method, lists = new_low_rank(choose="pinned", bias={}, rank=rank), replace(clicked_lists(30), bias={})
    with torch.no_grad():
        on_top = method.click_logits(replace(lists, positions=torch.zeros_like(lists.positions)))
    assert_close(differences(scores(method, lists), lists.mask), differences(on_top, lists.mask))


def test_pinned_and_free_models_with_the_same_clicks_rank_alike_once_both_rank_by_clicks_on_top():
    free, lists = new_low_rank(rank=2, choose="free"), clicked_lists(30)
    pinned = new_low_rank(rank=2, choose="pinned")
    table, traits = free.loadings().detach(), free.traits
    pinned.load_state_dict(free.state_dict())
    with torch.no_grad():
        pinned.loadings.flat.copy_((table - table[:, :1]).flatten())
    pinned.relevance = Changed(free.relevance, lambda features: traits(features) @ table[:, 0])
    assert_close(shares(pinned, lists), shares(free, lists))
    assert not same_ranking(scores(pinned, lists), scores(free, lists), lists.mask)


def test_the_corrected_ranker_is_one_module_that_a_free_model_does_not_need():
    method = new_low_rank(choose="free")
    assert method.ranker() is method.relevance
    judged = new_low_rank(choose="judged")
    names = {name.split(".")[0] for name in judged.ranker().state_dict()}
    assert names == {"relevance", "traits", "numbers"}


# -- limits


def test_flat_traits_are_two_tower_with_another_table():
    method, plain, lists = new_low_rank(rank=2), TwoTower(problem()).double(), clicked_lists()
    with torch.no_grad():
        method.traits[-1].weight.zero_()
    plain.relevance.load_state_dict(method.relevance.state_dict())
    plain.observation.load_state_dict(method.observation.state_dict())
    with torch.no_grad():
        plain.observation.logits.add_(method.traits[-1].bias @ method.loadings())
    assert_close(shares(method, lists), shares(plain, lists))


def test_loadings_start_at_nothing_on_top_and_fall_to_minus_one():
    assert_close(Loadings(1, 5, pinned=True)().detach()[0, [0, 2, 4]], torch.tensor([0.0, -0.5, -1.0]))


# -- recovery: expected clicks of a truth of exactly this form, without noise

THETA = torch.tensor([0.4, 0.25, 0.12, 0.05], dtype=torch.float64)


def documents(n_lists=400, seed=0):
    features = torch.tensor(np.random.default_rng(seed).normal(size=(n_lists, N_POSITIONS, N_FEATURES)))
    return features, torch.ones(n_lists, N_POSITIONS, dtype=torch.bool), torch.arange(N_POSITIONS).repeat(n_lists, 1)


def lists_of(log_clicks, features, mask, positions):
    return ClickedLists(
        features=features,
        mask=mask,
        positions=positions,
        clicks=log_clicks.exp(),
        sessions=torch.ones(len(mask), dtype=torch.float64),
    )


def truth_of_power_form():
    """log P(c) = r + m log θ_k with r = x_1 - .5 x_2, m = 1 + .4 (x_2 - x_3): seen and relevant by the same feature."""
    features, mask, positions = documents()
    relevance = features[..., 0] - 0.5 * features[..., 1]
    exponent = 1 + 0.4 * (features[..., 1] - features[..., 2])
    return lists_of(relevance + exponent * THETA.log()[positions], features, mask, positions), relevance


def descend(method, lists):
    """Minimize the loss on all lists at once."""
    method.train()
    optimizer = torch.optim.LBFGS(
        method.parameters(), max_iter=400, line_search_fn="strong_wolfe", tolerance_change=1e-14
    )

    def closure():
        optimizer.zero_grad()
        loss = sum(method.loss(lists).values()) / lists.n_lists
        loss.backward()
        return loss

    optimizer.step(closure)
    for _ in range(400):  # averages settle
        method.loss(lists)
    method.eval()


def learnt_on(lists, **hyper):
    torch.manual_seed(0)
    method = LowRank(Problem(N_FEATURES, N_POSITIONS, network=Network(kind="linear")), **hyper).double()
    descend(method, lists)
    return method


def error_of(method, lists, relevance):
    """The largest error of a difference of two documents of a list."""
    return float((differences(scores(method, lists), lists.mask) - differences(relevance, lists.mask)).abs().max())


def test_clicks_of_this_form_are_learnt_up_to_the_number_that_is_open():
    lists, relevance = truth_of_power_form()
    method = learnt_on(lists, choose="pinned")
    trait = 0.4 * (lists.features[..., 1] - lists.features[..., 2])
    assert error_of(method, lists, relevance + trait * THETA[0].log()) < 0.01  # clicks at the top
    assert error_of(method, lists, relevance) > 0.3
    assert_close(method.examination(), THETA / THETA[0], rtol=0, atol=0.02)
    assert_close(shares(method, lists), lists.clicks / lists.clicks.sum(-1, keepdim=True), rtol=0, atol=1e-3)


def test_a_known_examination_of_the_top_finds_relevance_of_the_power_form():
    lists, relevance = truth_of_power_form()
    method = learnt_on(lists, choose="examination", top_examination=0.4)
    assert error_of(method, lists, relevance) < 0.1
    assert error_of(learnt_on(lists, choose="examination", top_examination=0.1), lists, relevance) > 0.5


# -- relevance and visibility apart


def apart(method, lists):
    """Chooses on these lists rather than on a sample of a log."""
    method.sample = lists
    method.finish({})
    return method


def correlation(one, other):
    """Within lists of equal length."""
    one, other = (values - values.mean(1, keepdim=True) for values in (one, other))
    return float((one * other).mean() / (one.std() * other.std()))


def test_relevance_that_has_nothing_to_do_with_visibility_is_found_without_labels():
    features, mask, positions = documents()
    relevance, eye = features[..., 0], features[..., 1] - features[..., 2]
    lists = lists_of(relevance + (1 + 0.4 * eye) * THETA.log()[positions], features, mask, positions)
    method = apart(learnt_on(lists, choose="uncorrelated"), lists)
    assert correlation(scores(method, lists), relevance) > 0.995
    assert correlation(scores(learnt_on(lists, choose="pinned"), lists), relevance) < 0.97


def test_relevance_that_comes_with_visibility_is_not():
    lists, relevance = truth_of_power_form()
    method = apart(learnt_on(lists, choose="uncorrelated"), lists)
    eye = lists.features[..., 1] - lists.features[..., 2]
    assert correlation(relevance, eye) < -0.2
    assert abs(correlation(scores(method, lists), eye)) < 1e-3
    assert correlation(scores(method, lists), relevance) < 0.97


def falling_by_one(lists, slope):
    """A method whose loadings fall by 1 on average, and whose relevance has this slope in the trait, within lists."""
    method = new_low_rank(choose="uncorrelated", bias={})
    with torch.no_grad():
        method.loadings.flat.copy_(torch.tensor([0.0, -0.5, -1.0, -1.5]))
        relevance = method.relevance(lists.features, lists.mask)
        trait = method.traits(lists.features).squeeze(-1)
        own = float(covariance(relevance, trait, lists.mask) / covariance(trait, trait, lists.mask))
    return moved(method, slope - own)


def moved(method, slope):
    method.relevance = Changed(method.relevance, lambda features: slope * method.traits(features).squeeze(-1))
    return method


def test_the_uncorrelated_ranking_does_not_depend_on_where_training_left_the_number():
    lists = clicked_lists(40)
    method = apart(falling_by_one(lists, -0.8), lists)
    before = scores(method, lists)
    assert float(method.numbers) == pytest.approx(0.8)
    assert_close(scores(apart(moved(method, -0.5), lists), lists), before)
    assert float(method.numbers) == pytest.approx(1.3)


@pytest.mark.parametrize(("slope", "found"), [(0.1, 0.0), (-2.5, 2.0)])
def test_observation_varies_on_top_as_it_does_below_and_at_most_twice_as_much(slope, found):
    lists = clicked_lists(40)
    assert float(apart(falling_by_one(lists, slope), lists).numbers) == pytest.approx(found)


def test_the_uncorrelated_number_belongs_to_the_state_that_validation_keeps(log, world):
    model = fit(Recipe.of("low_rank", validate_every=2, **FAST), log, validate=world.valid)
    kept = model.method.numbers.clone()
    model.method.tune(world.valid, "ndcg@10")
    assert torch.equal(model.method.numbers, kept)
    assert model.trained_on["chosen"]["number"] == kept.tolist()


def seen_log(lists, relevance, level="seen"):
    """A log of the same documents, all certainly examined: clicks follow relevance alone."""
    n_lists, n_docs = lists.mask.shape
    return ClickLog(
        features=lists.features.numpy().reshape(-1, N_FEATURES).astype(np.float32),
        versions=np.arange(n_lists * n_docs, dtype=np.int32).reshape(n_lists, n_docs),
        mask=np.ones((n_lists, n_docs), dtype=bool),
        clicks=(1000 * relevance.softmax(-1)).numpy(),
        sessions=np.full(n_lists, 1000.0),
        interventions=BiasColumn(np.ones(n_lists, dtype=np.int64), ("none", level)),
        graded=True,
    )


def test_lists_that_were_surely_seen_choose_the_number():
    lists, relevance = truth_of_power_form()
    method = learnt_on(lists, choose="interventions", caution=0.0)
    before = error_of(method, lists, relevance)
    method.float().finish({"interventions": seen_log(lists, relevance)})
    assert error_of(method.double(), lists, relevance) < 0.35 * before  # as near as the candidates stand


# -- a record of looks


def with_looks(lists, log_seen, recorded=1 / 3):
    """A record of as many looks as are expected, without chance; the others are missed."""
    sessions = torch.full((lists.n_lists,), 1000.0, dtype=torch.float64)
    return replace(lists, seen=1000 * recorded * log_seen.exp() * lists.mask, seen_sessions=sessions)


def test_looks_choose_the_number_though_relevance_comes_with_visibility_and_looks_are_missed():
    lists, relevance = truth_of_power_form()
    exponent = 1 + 0.4 * (lists.features[..., 1] - lists.features[..., 2])
    method = apart(learnt_on(lists, choose="seen"), with_looks(lists, exponent * THETA.log()[lists.positions]))
    assert error_of(method, lists, relevance) < 0.05
    assert error_of(learnt_on(lists, choose="pinned"), lists, relevance) > 0.3


@pytest.mark.parametrize("rank", [1, 2])
def test_looks_tell_as_many_numbers_as_are_open(rank):
    method, lists = new_low_rank(rank=rank, bias={}), replace(clicked_lists(40), bias={})
    true = torch.tensor([0.8, -0.5], dtype=torch.float64)[:rank]
    relevance, traits = method._run_networks(lists)
    loadings = method.loadings().detach()
    log_seen = (traits * (loadings.T[lists.positions] - true)).sum(-1) - 0.3 * lists.positions
    found = by_looks(relevance, traits, loadings, with_looks(lists, log_seen))
    assert_close(found, true, rtol=0, atol=1e-3)


def test_without_a_record_looks_choose_nothing(log):
    with pytest.raises(ValueError, match="no recorded examination"):
        fit(Recipe.of("low_rank", choose="seen", **FAST), log)


# -- judged queries


def judged_by(lists, relevance):
    grades = np.digitize(relevance.numpy(), [-1.0, 0.0, 1.0, 2.0]).astype(float)
    features = lists.features.numpy().reshape(-1, N_FEATURES)
    return JudgedSet.from_arrays(features, grades.reshape(-1), group=[N_POSITIONS] * lists.n_lists)


def test_the_number_chosen_on_judged_queries_is_the_best_by_brute_force():
    lists, relevance = truth_of_power_form()
    method = learnt_on(lists, choose="judged", caution=0.0).float()
    judged = judged_by(lists, relevance)
    features = torch.from_numpy(judged.features)
    with torch.no_grad():
        plain, trait = method.relevance(features, None), method.traits(features)[:, 0]
    by_list = [column.view(-1, N_POSITIONS) for column in (plain, trait)]
    spread, unit = ((column - column.mean(1, keepdim=True)).square().mean().sqrt() for column in by_list)
    values = {}
    for length in LENGTHS:
        number = length * spread / unit
        values[float(number)] = evaluate_scorer((plain + number * trait).numpy(), judged).mean("ndcg@10")
    method.tune(judged, "ndcg@10")
    best = max(values.values())
    assert values[0.0] < best - 0.01
    chosen = float(method.numbers)
    closest = min(values, key=lambda number: abs(number - chosen))
    assert chosen == pytest.approx(closest, rel=1e-4)
    assert values[closest] == pytest.approx(best, abs=1e-12)
    assert evaluate_scorer(method.ranker(), judged).mean("ndcg@10") == pytest.approx(best, abs=1e-4)
    low, moved, high = (float(value) for value in method.lengths)
    assert low <= moved <= high


def test_a_cautious_choice_on_few_queries_moves_less():
    lists, relevance = truth_of_power_form()
    method = learnt_on(lists, choose="judged", caution=0.0).float()
    few = judged_by(lists, relevance).select(np.arange(8))
    moved = []
    for caution in (0.0, 1.0, 100.0):
        method.caution = caution
        method.tune(few, "ndcg@10")
        moved.append(abs(float(method.lengths[1, 0])))
    assert moved[0] >= moved[1] >= moved[2] == 0.0


@pytest.mark.parametrize("rank", [1, 2])
def test_a_tuned_ranker_is_never_worse_on_its_judged_queries_without_caution(rank):
    lists, relevance = truth_of_power_form()
    method = new_low_rank(choose="judged", caution=0.0, bias={}, rank=rank).float()
    judged = judged_by(lists, relevance)
    before = evaluate_scorer(method.ranker(), judged).mean("ndcg@10")
    method.tune(judged, "ndcg@10")
    assert evaluate_scorer(method.ranker(), judged).mean("ndcg@10") > before
    assert bool(method.numbers.any())


def test_choosing_on_judged_queries_does_not_touch_training(log, world):
    settings = Settings(steps=4, batch_size=16, validate_every=2)
    validation = on_judgements(world.valid)

    def validate(method):
        validation(method)
        return float(method.relevance.layers[-1].bias.detach())  # something that both have in common

    methods = []
    for choose in ("pinned", "judged"):
        torch.manual_seed(0)
        method = LowRank(Problem(log.n_features, log.n_positions, network=Network(hidden=(6,))), choose=choose)
        train(method, {"clicks": log}, settings, validate)
        methods.append(method)
    pinned, judged = (method.state_dict() for method in methods)
    for name, value in pinned.items():
        if name not in ("numbers", "lengths"):
            assert torch.equal(judged[name], value), name


def test_the_chosen_number_is_saved_with_the_model_and_goes_into_onnx(log, world, tmp_path):
    model = fit(Recipe.of("low_rank", choose="judged", caution=0.0, **FAST), log, validate=world.valid)
    assert set(model.trained_on["chosen"]) == {"number", "low", "moved", "high"}
    model.method.numbers.fill_(-1.7)
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert float(loaded.method.numbers) == pytest.approx(-1.7)
    lists = world.test.lists(np.arange(3))
    with torch.inference_mode():
        expected = model.ranker()(lists.features, lists.mask)
        plain = model.method.relevance(model.transform(lists.features, lists.mask), lists.mask)
        assert torch.equal(loaded.ranker()(lists.features, lists.mask), expected)
    assert float((expected - plain)[lists.mask].abs().max()) > 0.01
    onnx = OnnxRanker(export_model(loaded, tmp_path / "model.onnx").path.read_bytes())
    exported = torch.as_tensor(onnx(lists.features, lists.mask))
    assert_close(exported[lists.mask], expected[lists.mask], rtol=1e-4, atol=1e-4)


# -- refusals


@pytest.mark.parametrize("validate", [None, 0.2])
def test_without_judged_queries_nothing_can_be_chosen_on_them(log, validate):
    with pytest.raises(ValueError, match=r"choose='judged' needs judged queries, and there are none"):
        fit(Recipe.of("low_rank", choose="judged", **FAST), log, validate=validate)


def test_shuffled_lists_cannot_choose_the_number(log):
    assert "shuffle" in log.interventions.levels
    with pytest.raises(ValueError, match="changed positions, such as swaps, cannot identify"):
        fit(Recipe.of("low_rank", choose="interventions", **FAST), log)
