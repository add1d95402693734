import numpy as np
import pytest
import torch

from unskew.data.judged.judged_set import JudgedSet
from unskew.simulation.display import check_interventions, intervene
from unskew.simulation.policies import Fixed, Mixed, NoisyOracle, PlackettLuce, Random, RankingSVM, make_policy
from unskew.simulation.showings import Candidates, Showings, in_slabs


def linear_set(n_queries=40, n_docs=8, seed=0):
    """Grades rise with feature 0 and fall with feature 1, which has another scale; feature 2 is noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n_queries * n_docs, 3)) * [1.0, 100.0, 1.0] + [0.0, 500.0, 3.0]
    grades = np.clip(np.round(X[:, 0] * 2 - (X[:, 1] - 500) / 50 + 2), 0, 4)
    return JudgedSet.from_arrays(X, grades, np.full(n_queries, n_docs))


def by_first_feature(judged):
    return judged.features[:, 0]


def show(policy, judged, sessions=10, n_shown=3, seed=0):
    candidates = Candidates.of(judged, np.arange(judged.n_queries), policy.scores(judged))
    per_query = np.broadcast_to(np.asarray(sessions), (judged.n_queries,)).astype(np.int64)
    return policy.show(candidates, per_query, n_shown, np.random.default_rng(seed))


def pairs_in_order(judged, scores):
    """Share of the pairs of different grades in a query that the scores order rightly."""
    right = total = 0
    for start, end in zip(judged.offsets[:-1], judged.offsets[1:], strict=True):
        better = judged.grades[start:end, None] > judged.grades[None, start:end]
        right += (better & (scores[start:end, None] > scores[None, start:end])).sum()
        total += better.sum()
    return right / total


def test_the_best_scored_documents_are_shown_from_the_top_down():
    judged = JudgedSet.from_arrays([[1.0], [3.0], [2.0], [5.0], [4.0]], np.zeros(5), [3, 2])
    shown = show(Fixed(ranker=by_first_feature), judged, sessions=7, n_shown=3)
    np.testing.assert_array_equal(shown.places, [[1, 2, 0], [0, 1, 0]])
    np.testing.assert_array_equal(shown.sessions, [7, 7])
    alike = JudgedSet.from_arrays(np.zeros((4, 1)), np.zeros(4), [4])  # equal scores keep the order they came in
    np.testing.assert_array_equal(show(Fixed(ranker=by_first_feature), alike).places, [[0, 1, 2]])


def test_queries_without_sessions_or_documents_are_not_shown():
    judged = JudgedSet.from_arrays(np.zeros((4, 1)), np.zeros(4), [2, 0, 2])
    for policy in (Fixed(ranker=by_first_feature), Random()):
        np.testing.assert_array_equal(np.unique(show(policy, judged, sessions=[3, 3, 0], n_shown=2).queries), [0])


def test_a_torch_ranker_shows_in_the_order_of_its_scores():
    class FirstFeature(torch.nn.Module):
        def forward(self, features, mask):
            return features[..., 0].masked_fill(~mask, 1e9)

    judged = JudgedSet.from_arrays([[1.0], [3.0], [2.0], [4.0], [5.0]], np.zeros(5), [3, 2])
    np.testing.assert_array_equal(Fixed(ranker=FirstFeature()).scores(judged), [1, 3, 2, 4, 5])


def test_scores_of_the_wrong_shape_or_not_finite_are_refused():
    judged = linear_set()
    with pytest.raises(ValueError, match=r"scores of shape \(3,\), not \[320\]"):
        Fixed(ranker=lambda judged: np.zeros(3)).scores(judged)
    with pytest.raises(ValueError, match="score of document 2 is not finite"):
        Fixed(ranker=lambda judged: np.where(np.arange(320) == 2, np.nan, 0.0)).scores(judged)
    with pytest.raises(ValueError, match="policy 'fixed' needs a ranker"):
        make_policy("fixed")


def test_the_ranking_svm_learns_from_few_queries():
    train, test = linear_set(100), linear_set(50, seed=1)
    svm = RankingSVM(fraction=0.05).fit(train)
    assert pairs_in_order(test, svm.scores(test)) > 0.9
    assert not RankingSVM().fitted
    np.testing.assert_array_equal(svm.scores(test), RankingSVM(fraction=0.05).fit(train).scores(test))


def test_more_judgements_make_a_better_svm_and_another_seed_another_one():
    train, test = linear_set(200), linear_set(50, seed=1)
    one_query = RankingSVM(fraction=1e-9).fit(train)
    many = RankingSVM(fraction=0.5).fit(train)
    assert pairs_in_order(test, many.scores(test)) > pairs_in_order(test, one_query.scores(test))
    assert not np.allclose(RankingSVM(fraction=1e-9, seed=1).fit(train).scores(test), one_query.scores(test))


def test_the_svm_goes_on_until_it_finds_two_documents_to_compare():
    X = np.array([[0.0], [1.0], [0.0], [1.0], [0.0], [1.0]])
    only_last = JudgedSet.from_arrays(X, [1, 1, 0, 0, 0, 1], [2, 2, 2])
    for seed in range(3):
        scores = RankingSVM(fraction=0.3, seed=seed).fit(only_last).scores(only_last)
        assert scores[1] > scores[0]
    with pytest.raises(ValueError, match="no training query has documents of different grades"):
        RankingSVM().fit(JudgedSet.from_arrays(X, np.ones(6), [2, 2, 2]))


def test_the_svm_refuses_other_features_than_it_knows():
    svm = RankingSVM().fit(linear_set())
    with pytest.raises(ValueError, match="trained on 3 features, this set has 1"):
        svm.scores(JudgedSet.from_arrays([[0.0]], [0], [1]))
    with pytest.raises(ValueError, match=r"call fit\(train\) first"):
        RankingSVM().scores(linear_set())


def test_a_stronger_oracle_orders_more_pairs_rightly():
    judged = linear_set(300)
    right = [pairs_in_order(judged, NoisyOracle(strength=s).scores(judged)) for s in (0.0, 0.5, 0.9, 1.0)]
    assert right[0] == pytest.approx(0.5, abs=0.03)
    assert right[0] < right[1] < right[2] < right[3] == 1.0
    correlation = np.corrcoef(judged.grades, NoisyOracle(strength=0.5).scores(judged))[0, 1]
    assert correlation == pytest.approx(0.5, abs=0.05)


def test_plackett_luce_draws_the_first_document_in_proportion_to_the_exponential_of_its_score():
    judged = JudgedSet.from_arrays(np.log([[1.0], [2.0], [5.0]]), np.zeros(3), [3])
    shown = show(PlackettLuce(logger=Fixed(ranker=by_first_feature)), judged, sessions=80_000, n_shown=2)
    assert shown.sessions.sum() == 80_000
    first = np.bincount(shown.places[:, 0], weights=shown.sessions) / 80_000
    np.testing.assert_allclose(first, [1 / 8, 2 / 8, 5 / 8], atol=0.006)
    then_1 = shown.sessions[(shown.places == [2, 1]).all(axis=1)].sum() / 80_000
    assert then_1 == pytest.approx(5 / 8 * 2 / 3, abs=0.006)
    assert len(np.unique(shown.places, axis=0)) == 6


def test_a_low_temperature_gives_the_loggers_own_order_and_a_high_one_a_random_one():
    judged = JudgedSet.from_arrays([[1.0], [2.0], [3.0]], np.zeros(3), [3])
    logger = Fixed(ranker=by_first_feature)
    cold = show(PlackettLuce(logger=logger, temperature=1e-3), judged, sessions=1_000)
    np.testing.assert_array_equal(np.unique(cold.places, axis=0), [[2, 1, 0]])
    hot = show(PlackettLuce(logger=logger, temperature=1e3), judged, sessions=60_000)
    np.testing.assert_allclose(np.bincount(hot.places[:, 0], weights=hot.sessions), 20_000, rtol=0.04)


def test_sessions_share_the_orders_asked_for_as_evenly_as_they_can():
    judged = linear_set(5, 8)
    shown = show(Random(orders_per_query=3), judged, sessions=11, n_shown=8).merged()
    for query in range(5):
        assert sorted(shown.sessions[shown.queries == query]) == [3, 4, 4]


def test_merging_counts_equal_lists_together_and_sorts_by_query():
    places = np.array([[0, 1], [1, 0], [0, 1], [0, 1]])
    shown = Showings.plain(np.array([1, 0, 1, 0]), places, np.array([2, 3, 4, 5])).merged()
    np.testing.assert_array_equal(shown.queries, [0, 0, 1])
    np.testing.assert_array_equal(shown.sessions, [3, 5, 6])


def test_mixed_loggers_take_turns_in_their_shares():
    judged = JudgedSet.from_arrays([[1.0], [2.0]] * 50, np.zeros(100), np.full(50, 2))
    up, down = Fixed(ranker=by_first_feature), Fixed(ranker=lambda judged: -judged.features[:, 0])
    shown = show(Mixed(loggers=(up, down), shares=(0.3, 0.7)), judged, sessions=1_000, n_shown=2)
    assert shown.sessions.sum() == 50_000
    assert shown.sessions[shown.loggers == 0].sum() / 50_000 == pytest.approx(0.3, abs=0.01)
    np.testing.assert_array_equal(shown.places[shown.loggers == 0], [[1, 0]] * 50)
    np.testing.assert_array_equal(shown.places[shown.loggers == 1], [[0, 1]] * 50)
    assert (shown.interventions == 0).all()


def test_policies_inside_policies_are_fitted_with_them():
    train = linear_set()
    for policy in (PlackettLuce(), Mixed(loggers=("svm", "random"))):
        assert not policy.fitted
        assert policy.fit(train).fitted
        assert not policy.fitted


@pytest.mark.parametrize(
    ("name", "hyper", "message"),
    [
        (
            "oracle",
            {},
            r"unknown policy 'oracle' \(did you mean 'noisy_oracle'\?\): choose one of svm, random, noisy_oracle",
        ),
        ("svm", {"fraction": 0.0}, "fraction"),
        ("svm", {"cost": 0.0}, "cost"),
        ("svm", {"strength": 1.0}, "policy 'svm' has no option 'strength'; it accepts fraction, cost, seed"),
        ("noisy_oracle", {"strength": 1.2}, "strength"),
        ("plackett_luce", {"temperature": 0.0}, "temperature"),
        ("plackett_luce", {"logger": "svn"}, "unknown policy 'svn'"),
        ("random", {"orders_per_query": 0}, "orders_per_query"),
        ("mixed", {"shares": (0.5, 0.6)}, "shares must be 2 numbers that add up to 1"),
        ("mixed", {"loggers": ()}, "at least one logger"),
    ],
)
def test_policies_that_make_no_sense_are_refused(name, hyper, message):
    with pytest.raises(ValueError, match=message):
        make_policy(name, **hyper)


def test_slabs_repeat_every_index_in_order_and_number_the_repetitions():
    slabs = list(in_slabs(np.array([2, 0, 3]), width=4, size=8))  # two repetitions a slab
    assert [len(index) for index, _ in slabs] == [2, 2, 1]
    np.testing.assert_array_equal(np.concatenate([index for index, _ in slabs]), [0, 0, 2, 2, 2])
    np.testing.assert_array_equal(np.concatenate([number for _, number in slabs]), [0, 1, 0, 1, 2])
    assert list(in_slabs(np.array([], dtype=np.int64), width=4)) == []


# Interventions.


def plan(n_lists=3, n_shown=4, sessions=40_000):
    places = np.tile(np.arange(n_shown), (n_lists, 1))
    return Showings.plain(np.arange(n_lists), places, np.full(n_lists, sessions))


def test_interventions_happen_in_their_share_of_the_sessions():
    shares = {"swap_top": 0.2, "shuffle": 0.05, "swap_neighbours": 0.1}
    shown = intervene(plan(), np.full(3, 4), shares, np.random.default_rng(0))
    rates = np.bincount(shown.interventions, weights=shown.sessions) / 120_000
    np.testing.assert_allclose(rates, [0.65, 0.2, 0.05, 0.1], atol=0.006)
    assert shown.sessions.sum() == 120_000


def test_the_top_is_swapped_with_every_position_alike_its_own_included():
    shown = intervene(plan(1), np.array([4]), {"swap_top": 1.0}, np.random.default_rng(0))
    orders = {tuple(places): count for places, count in zip(shown.places, shown.sessions, strict=True)}
    assert set(orders) == {(0, 1, 2, 3), (1, 0, 2, 3), (2, 1, 0, 3), (3, 1, 2, 0)}
    np.testing.assert_allclose(list(orders.values()), 10_000, rtol=0.04)


def test_every_pair_of_neighbours_is_swapped_alike():
    shown = intervene(plan(1), np.array([4]), {"swap_neighbours": 1.0}, np.random.default_rng(0))
    orders = {tuple(places): count for places, count in zip(shown.places, shown.sessions, strict=True)}
    assert set(orders) == {(1, 0, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2)}
    np.testing.assert_allclose(list(orders.values()), 40_000 / 3, rtol=0.04)


def test_a_shuffle_gives_every_order_alike():
    shown = intervene(plan(1, n_shown=3), np.array([3]), {"shuffle": 1.0}, np.random.default_rng(0)).merged()
    assert len(np.unique(shown.places, axis=0)) == shown.n_lists == 6
    np.testing.assert_allclose(shown.sessions, 40_000 / 6, rtol=0.06)


@pytest.mark.parametrize("name", ["swap_top", "swap_neighbours", "shuffle"])
def test_interventions_leave_padding_at_the_end(name):
    shown = intervene(plan(2), np.array([1, 2]), {name: 1.0}, np.random.default_rng(0))
    np.testing.assert_array_equal(shown.places[:, 2:], np.tile([2, 3], (shown.n_lists, 1)))
    assert (shown.places[shown.queries == 0, 0] == 0).all()
    assert set(shown.places[shown.queries == 1, 0]) >= {1}


def test_interventions_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match=r"unknown intervention 'swap'.*: choose one of swap_top, swap_neighbours"):
        check_interventions({"swap": 0.1})
    with pytest.raises(ValueError, match="must be between 0 and 1"):
        check_interventions({"shuffle": -0.1})
    with pytest.raises(ValueError, match=r"interventions add up to 1.2"):
        check_interventions({"shuffle": 0.6, "swap_top": 0.6})
