"""Click models: exact probabilities, what they recover, and what they do with ids they do not know."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.vocabulary import Vocabulary
from unskew.data.files import file_digest, json_digest
from unskew.data.judged.catalogue import load_split
from unskew.lists import ClickedLists
from unskew.methods import METHODS
from unskew.methods.click_models.click_model import ClickModel
from unskew.networks.registry import Problem
from unskew.options import options_of
from unskew.serving.exports import export_model
from unskew.serving.model_files import load_model, save_model
from unskew.serving.saved_ranker import SavedRanker, ranks_by_ids
from unskew.simulation.browsing import Shown
from unskew.simulation.sequential import Cascade, DependentClick, DynamicBayesian, UserBrowsing
from unskew.simulation.simulate import simulate
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe

CLICK_MODELS = [name for name, method in METHODS.items() if issubclass(method, ClickModel)]
every_model = pytest.mark.parametrize("name", CLICK_MODELS)


TYPES = {"depth_spread": 0.5, "user_types": 3}


PARTS = ("attraction", "satisfaction")


def kinds_of_parts(name):
    """Each part a table of ids, a network of features or both, in every combination."""
    parts = [part for part in PARTS if part in options_of(METHODS[name])]
    return [dict(zip(parts, kinds, strict=True)) for kinds in product(("ids", "features", "both"), repeat=len(parts))]


def new_model(name, n_docs=10, seed=0, n_features=0, **options):
    """A click model in double precision, all of its numbers drawn at random."""
    model = METHODS[name](Problem(n_features, n_docs, {}, n_ids=(n_docs, n_docs, 1)), **options).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
    return model


def page(clicks):
    """One page of documents 1, 2, 3, …, shown in this order, once for each row of clicks."""
    n_rows, n_docs = clicks.shape
    numbers = torch.arange(1, n_docs + 1)
    codes = torch.stack([numbers, numbers, torch.ones_like(numbers)], -1)
    return ClickedLists(
        features=torch.zeros(n_rows, n_docs, 0),
        mask=torch.ones(n_rows, n_docs, dtype=torch.bool),
        codes=codes.expand(n_rows, -1, -1),
        positions=torch.arange(n_docs).expand(n_rows, -1),
        clicks=clicks,
        sessions=torch.ones(n_rows, dtype=clicks.dtype),
    )


def all_patterns(n_docs):
    return torch.tensor(list(product((0.0, 1.0), repeat=n_docs)), dtype=torch.float64)


def pattern_probabilities(model, lists):
    return model.conditional(lists).log_likelihood(lists.clicks, lists.sessions, lists.mask).sum(1).exp()


@every_model
def test_all_1024_patterns_of_a_page_sum_to_one_with_every_kind_of_parts(name):
    features = torch.randn(10, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lists = replace(page(all_patterns(10)), features=features.expand(1024, -1, -1))
    for kinds in kinds_of_parts(name):
        model = new_model(name, n_features=3, **kinds)
        assert_close(pattern_probabilities(model, lists).sum().item(), 1.0)
        assert_close(model.log_likelihood(lists).exp().sum().item(), 1.0)


@every_model
def test_the_likelihood_of_a_page_is_what_its_conditional_chances_add_up_to(name):
    model, lists = new_model(name), page(all_patterns(6))
    shorter = replace(lists, mask=lists.mask & (torch.arange(6) < 4), clicks=lists.clicks * (torch.arange(6) < 4))
    for pages in (lists, shorter):
        assert_close(model.log_likelihood(pages).exp(), pattern_probabilities(model, pages))


@every_model
def test_the_marginal_probability_is_the_sum_over_the_patterns_with_that_click(name):
    model, lists = new_model(name), page(all_patterns(6))
    summed = (pattern_probabilities(model, lists).unsqueeze(1) * lists.clicks).sum(0)
    assert_close(model.marginal(lists).log_click[0].exp(), summed)


def test_users_of_several_types_have_proper_probabilities_too():
    model = new_model("ubm", **TYPES)
    assert_close(pattern_probabilities(model, page(all_patterns(10))).sum().item(), 1.0)
    lists = page(all_patterns(6))
    patterns = pattern_probabilities(model, lists)
    assert_close(model.log_likelihood(lists).exp(), patterns)
    assert_close(model.marginal(lists).log_click[0].exp(), (patterns.unsqueeze(1) * lists.clicks).sum(0))


def test_a_mixture_of_types_is_the_mean_of_their_models():
    """Types of shares 1/3 each, with a pattern probability of their own."""
    model, lists = new_model("ubm", 5, **TYPES), page(all_patterns(5))
    with torch.no_grad():
        model.shares.zero_()
        alone = []
        for table in model.table:
            single = new_model("ubm", 5, depth_spread=0.5)
            single.load_state_dict({**model.state_dict(), "table": table[None], "shares": torch.zeros(1)})
            alone.append(pattern_probabilities(single, lists))
        assert_close(pattern_probabilities(model, lists), torch.stack(alone).mean(0))


def test_users_of_one_query_look_deeper_than_those_of_another():
    rng = np.random.default_rng(0)
    reach = {"deep": [0.4, 0.4, 0.4], "flat": [0.4, 0.1, 0.05]}
    rows = [
        {"session": f"{query}{session}", "query": query, "document": str(place), "position": place, "click": click}
        for query, rates in reach.items()
        for session in range(300)
        for place, click in enumerate((rng.random(3) < rates).astype(int).tolist())
    ]
    log = ClickLog.from_table(pa.Table.from_pylist(rows), features=())
    model = fit_recipe(Recipe.of("pbm", depth_spread=1.0, spread=0.01, url_spread=0.0, query_spread=0.0), log)
    slopes = dict(zip(["unknown", *log.query_ids.tolist()], model.method.depth.table.tolist(), strict=True))
    assert slopes["deep"] > 0.5
    assert slopes["flat"] < -0.5
    assert slopes["unknown"] == 0.0
    with pytest.raises(ValueError, match="depth_spread needs query ids"):
        METHODS["pbm"](Problem(3, 5), depth_spread=0.3)


@pytest.mark.parametrize("name", ["pbm", "ubm"])
def test_depth_by_query_is_the_default_with_ids_only(name):
    known = Problem(3, 5, n_ids=(6, 4, 2))
    assert METHODS[name](known).depth.table.numel() == 0  # features
    assert METHODS[name](known, attraction="both").depth.table.numel() == 3  # two queries, and unknown ones
    assert METHODS[name](known, attraction="ids", depth_spread=0.0).depth.table.numel() == 0


@every_model
def test_no_pattern_has_an_infinite_likelihood_however_extreme_the_numbers(name):
    model = new_model(name).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e4)
    lists = page(all_patterns(6).float())
    terms = model.loss(lists)["clicks"]
    terms.backward()
    assert torch.isfinite(terms)
    assert all(entry.grad is None or bool(entry.grad.isfinite().all()) for entry in model.parameters())


GRADES = np.array([[4.0, 0.0, 2.0, 1.0, 3.0]])
LOGIT_OF_ONE = 40.0  # 1 - 4e-18


def logit(probability):
    return torch.as_tensor(np.log(probability) - np.log1p(-np.asarray(probability)))


def set_part(part, probabilities):
    """The probabilities of documents 1, 2, 3, … of a part."""
    part.offset.zero_()
    for level, table in enumerate(part.ids.tables):
        table.zero_()
        if level == 0:
            table[1:] = logit(probabilities) / part.ids.spreads[0]


def as_cascade(user, shown):
    model = new_model("cascade", 5)
    set_part(model.attraction, user.attraction(shown)[0])
    model.stray.fill_(-LOGIT_OF_ONE)
    return model


def as_dcm(user, shown):
    model = new_model("dcm", 5)
    set_part(model.attraction, user.attraction(shown)[0])
    model.continuation.logits.copy_(logit(user.continuation(shown)[0][0]))
    return model


def as_dbn(user, shown):
    model = new_model("dbn", 5)
    set_part(model.attraction, user.attraction(shown)[0])
    set_part(model.satisfaction, user.satisfaction * user.usefulness(shown.grades)[0] + 1e-300)
    model.continuation.logits.copy_(logit([user.persistence]))
    return model


def as_sdbn(user, shown):
    model = new_model("sdbn", 5)
    set_part(model.attraction, user.attraction(shown)[0])
    set_part(model.satisfaction, user.satisfaction * user.usefulness(shown.grades)[0] + 1e-300)
    return model


def as_ubm(user, shown):
    model = new_model("ubm", 5, depth_spread=0.0)
    set_part(model.attraction, user.attraction(shown)[0])
    model.observation.logits.zero_()
    model.table.copy_(logit(np.minimum(user.table(5), 1 - 1e-16)))
    return model


def as_pbm(user, shown):
    model = new_model("pbm", 5, depth_spread=0.0)
    set_part(model.attraction, user.attraction(shown)[0])
    model.observation.logits.copy_(logit(user.position_curve(5)))
    return model


def step_by_step(user, shown, pattern):
    """The probability of a click pattern, followed down the page as the simulator's rules say."""
    attraction = user.attraction(shown)[0]
    if isinstance(user, UserBrowsing):
        table, last, chance = user.table(len(pattern)), 0, 1.0
        for place, click in enumerate(pattern):
            clicked = table[place, last] * attraction[place]
            chance *= clicked if click else 1 - clicked
            last = place + 1 if click else last
        return chance
    after_click, after_skip = (part[0] for part in user.continuation(shown))

    def from_here(place):
        """Probability of the rest of the pattern, given that the document at this place is examined."""
        if place == len(pattern):
            return 1.0
        own = attraction[place] if pattern[place] else 1 - attraction[place]
        go_on = after_click[place] if pattern[place] else after_skip[place]
        return own * (go_on * from_here(place + 1) + (1 - go_on) * (not any(pattern[place + 1 :])))

    return from_here(0)


USERS = {
    "cascade": (Cascade(), as_cascade),
    "dcm": (DependentClick(), as_dcm),
    "dbn": (DynamicBayesian(persistence=0.8), as_dbn),
    "sdbn": (DynamicBayesian(persistence=1.0), as_sdbn),
    "ubm": (UserBrowsing(), as_ubm),
    "pbm": (UserBrowsing(dependence=0.0), as_pbm),
}


@pytest.mark.parametrize("name", USERS)
def test_at_the_true_parameters_the_likelihood_is_the_simulators_probability(name):
    user, model_of = USERS[name]
    attraction = Shown(np.minimum(GRADES, 3.99), np.ones(GRADES.shape, dtype=bool))  # none attracts for certain
    with torch.no_grad():
        model = model_of(user, attraction)
        found = pattern_probabilities(model, page(all_patterns(5)))
        marginal = model.marginal(page(all_patterns(5))).log_click[0].exp()
    exact = torch.tensor([step_by_step(user, attraction, row) for row in all_patterns(5).bool().tolist()])
    assert_close(found, exact.double(), rtol=1e-6, atol=1e-12)
    assert_close(marginal, torch.tensor(user.expect(attraction).clicks[0]), rtol=1e-6, atol=1e-12)


def simulated_log(user, n_sessions, seed=0, n_docs=5):
    """Clicks on five documents of one query in random orders, and their grades."""
    rng = np.random.default_rng(seed)
    orders = rng.permuted(np.tile(np.arange(n_docs), (120, 1)), axis=1)
    grades = np.array([3.5, 0.0, 2.0, 1.0, 3.0])
    shown = Shown(grades[orders], np.ones(orders.shape, dtype=bool))
    lists = rng.integers(0, len(orders), n_sessions)
    clicks = user.browse(shown, lists, rng).clicks
    table = {
        "session": np.repeat(np.arange(n_sessions), n_docs),
        "query": np.zeros(n_sessions * n_docs, dtype=np.int64),
        "document": orders[lists].reshape(-1),
        "position": np.tile(np.arange(n_docs), n_sessions),
        "click": clicks.reshape(-1).astype(np.int64),
    }
    log = ClickLog.from_table(pa.table(table), features=())
    return log, Shown(grades[None], np.ones((1, n_docs), dtype=bool))


def test_satisfaction_is_not_lost_while_attraction_is_learnt():
    """Queries differ in how good their documents are, so that early on clicks seem to follow each other."""
    judged = load_split("world:tiny:100", "train")
    user = DynamicBayesian(satisfaction=0.8)
    log = simulate(judged, "svm", user, sessions=64, interventions={"shuffle": 0.3}).log
    vocabulary = Vocabulary.of([log])
    model = METHODS["dbn"](Problem(0, 10, {}, n_ids=vocabulary.sizes))
    codes = vocabulary.encode(log).codes
    model.finish({"clicks": replace(log, codes=codes)})
    with torch.no_grad():
        satisfaction = (model.satisfaction.offset + model.satisfaction.ids(torch.from_numpy(codes))).sigmoid()
    assert satisfaction.max() > 0.8 * user.satisfaction
    assert satisfaction.mean() > 0.1
    assert abs(model.continuation.logits.sigmoid().item() - user.persistence) < 0.02


@pytest.mark.parametrize("name", ["dbn", "sdbn"])
def test_networks_of_satisfaction_wait_until_attraction_has_been_learnt(name):
    model = METHODS[name](Problem(3, 5))
    first, second = model.stages()
    assert model.satisfaction not in first.trains
    assert model.attraction in first.trains
    assert 0 < second.trains[model.satisfaction] < second.trains[model.attraction]


def small_log(n_sessions=400, seed=0):
    return simulated_log(DynamicBayesian(), n_sessions, seed)[0]


@every_model
def test_every_click_model_learns_a_log_of_ids_and_survives_saving(name, tmp_path):
    log = small_log()
    model = fit_recipe(Recipe.of(name), log)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    encoded = log if model.vocabulary is None else again.vocabulary.encode(log)
    lists = next(ClickBatches(encoded, detail="patterns").all())
    with torch.no_grad():
        assert_close(again.method.click_logits(lists), model.method.click_logits(lists))
    assert (again.vocabulary is None) == (name in ("gctr", "rctr"))


def test_a_model_saved_by_an_earlier_version_is_refused_with_what_to_do(tmp_path):
    """Before there were types of users, the table of `ubm` had no axis for them, and there was no depth of queries."""
    folder = save_model(fit_recipe(Recipe.of("ubm"), small_log()), tmp_path / "model")
    tensors = load_file(folder / "weights.safetensors")
    for name in ("method.depth.table", "method.shares"):
        del tensors[name]
    save_file({**tensors, "method.table": tensors["method.table"][0]}, folder / "weights.safetensors")
    about = json.loads((folder / "model.json").read_text())
    del about["digest"]
    about["digests"]["weights.safetensors"] = file_digest(folder / "weights.safetensors")
    (folder / "model.json").write_text(json.dumps({**about, "digest": json_digest(about)}))
    with pytest.raises(ValueError, match=r"weights do not match .*If an earlier version .* train it again"):
        load_model(folder)


@pytest.mark.parametrize("name", ["gctr", "rctr"])
def test_models_that_do_not_tell_documents_apart_have_no_ranker(name):
    with pytest.raises(ValueError, match=f"{name} does not distinguish documents.*train pbm"):
        new_model(name).ranker()


def test_rates_of_gctr_rctr_and_a_free_dctr_are_those_of_the_log():
    log = small_log()
    lists = next(ClickBatches(Vocabulary.of([log]).encode(log), detail="patterns").all())
    rate = fit_recipe(Recipe.of("gctr"), log).method.marginal(lists).log_click.exp()
    assert_close(rate[0, 0].item(), log.n_clicks / (log.n_sessions * 5), rtol=1e-4, atol=1e-4)
    by_rank = fit_recipe(Recipe.of("rctr"), log).method.marginal(lists).log_click[0].exp()
    assert_close(by_rank.detach(), torch.tensor(log.clicks.sum(0) / log.n_sessions).float(), rtol=0.01, atol=0.005)


def test_a_document_shown_rarely_is_shrunk_more_than_one_shown_often():
    rows = [(session, "q", "often", 0, 1) for session in range(50)] + [(60, "q", "once", 0, 1)]
    rows += [(70 + session, "q", "never clicked", 0, 0) for session in range(50)]
    table = pa.Table.from_pylist(
        [dict(zip(("session", "query", "document", "position", "click"), row, strict=True)) for row in rows]
    )
    model = fit_recipe(Recipe.of("dctr", url_spread=0.0, query_spread=0.0), ClickLog.from_table(table, features=()))
    codes = torch.tensor(model.vocabulary.numbers(["q"] * 4, ["often", "once", "unheard of", "never clicked"]))
    often, once, unknown, never = model.ranker()(torch.zeros(1, 4, 0), torch.ones(1, 4, dtype=torch.bool), codes[None])[
        0
    ]
    assert often > once > unknown > never


def test_numbers_of_documents_count_from_one_and_unknown_ones_fall_back():
    vocabulary = Vocabulary(pa.array(["a", "a", "b"]), pa.array(["x", "y", "x"]))
    assert vocabulary.sizes == (3, 2, 2)
    found = vocabulary.numbers(["a", "b", "b", "c", "c"], ["y", "x", "y", "x", "z"])
    assert found.tolist() == [[2, 2, 1], [3, 1, 2], [0, 2, 2], [0, 1, 0], [0, 0, 0]]
    assert Vocabulary.from_table(vocabulary.to_table()).numbers(["b"], ["x"]).tolist() == [[3, 1, 2]]


def test_ids_of_whole_numbers_and_of_text_are_the_same_ids():
    vocabulary = Vocabulary(pa.array(["1"]), pa.array(["2"]))
    assert vocabulary.numbers(np.array([1]), np.array([2])).tolist() == [[1, 1, 1]]


@every_model
def test_lists_longer_than_any_seen_are_predicted_as_the_last_known_position(name):
    model = fit_recipe(Recipe.of(name), small_log())
    lists = page(torch.zeros(1, 8))
    with torch.no_grad():
        assert bool(model.method.click_logits(replace(lists, codes=torch.zeros_like(lists.codes))).isfinite().all())


def test_methods_that_need_features_say_so_by_name():
    with pytest.raises(ValueError, match=r"dla ranks by features, and the log has none.*pbm"):
        fit_recipe(Recipe.of("dla"), small_log())
    with pytest.raises(ValueError, match=r"attraction=features needs features.*attraction=ids"):
        fit_recipe(Recipe.of("pbm", attraction="features"), small_log())


def with_features(log, seed=0):
    features = np.random.default_rng(seed).normal(size=(len(log.features), 3)).astype(np.float32)
    return replace(log, features=features)


@pytest.mark.parametrize("kind", ["features", "both"])
def test_parts_of_features_and_of_both_learn_and_rank(kind):
    log = with_features(small_log())
    model = fit_recipe(Recipe.of("ubm", attraction=kind, steps=20), log)
    assert (model.vocabulary is not None) == (kind == "both")
    scores = model.ranker()(torch.from_numpy(log.features)[None], torch.ones(1, 5, dtype=torch.bool))
    assert bool(scores.isfinite().all())


@pytest.mark.parametrize(("rank_by", "by_ids"), [("relevance", True), ("attraction", False)])
def test_a_ranker_is_of_ids_if_one_of_the_parts_it_ranks_by_is(rank_by, by_ids, tmp_path):
    options = {"attraction": "features", "satisfaction": "ids", "rank_by": rank_by}
    model = fit_recipe(Recipe.of("dbn", steps=4, hidden=[4], **options), with_features(small_log()))
    assert ranks_by_ids(model) == by_ids
    assert (SavedRanker.of(model).vocabulary is not None) == by_ids  # else no document is unknown to it
    if by_ids:
        with pytest.raises(ValueError, match=r"dbn ranks by document ids.*train with attraction"):
            export_model(model, tmp_path / "model.onnx")
