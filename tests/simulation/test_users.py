"""Every user against its closed form, written out here once more, and against brute force over click patterns."""

import itertools

import numpy as np
import pytest
from scipy.stats import chi2

from unskew.data.judged.judged_set import JudgedSet
from unskew.simulation.browsing import Shown, count_sessions
from unskew.simulation.independent import REAL_CLICKS, neighbours_mean
from unskew.simulation.users import USERS, make_user

THETA = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06])
GAMMA = np.array([0.1, 0.16, 0.28, 0.52, 1.0])  # attraction of grades 0 to 4 with noise 0.1
SURPRISE = 1e-3  # a correct program fails a check of one seed with this probability


def lists_of(grades, n_shown=None, traits=None):
    grades = np.asarray(grades, dtype=float)
    n_shown = grades.shape[1] if n_shown is None else n_shown
    mask = np.broadcast_to(np.arange(grades.shape[1]) < n_shown, grades.shape)
    return Shown(grades=grades, mask=mask, traits=traits)


def some_lists(n_lists=6, n_docs=10, seed=0):
    rng = np.random.default_rng(seed)
    return lists_of(rng.integers(0, 5, (n_lists, n_docs)), traits=rng.normal(0, 0.7, (n_lists, n_docs)))


def draw(user, shown, sessions, seed=1):
    """Click rates of single sessions, `[lists, docs]`."""
    lists = np.repeat(np.arange(len(shown.mask)), sessions)
    clicks = user.browse(shown, lists, np.random.default_rng(seed)).clicks
    return clicks.reshape(len(shown.mask), sessions, -1).mean(axis=1)


def p_value_of_rates(rates, probabilities, sessions):
    """Chi-square of independent rates; documents that are never or always clicked must match exactly."""
    certain = (probabilities == 0) | (probabilities == 1)
    np.testing.assert_array_equal(rates[certain], probabilities[certain])
    if certain.all():
        return 1.0
    rates, probabilities = rates[~certain], probabilities[~certain]
    statistic = (sessions * (rates - probabilities) ** 2 / (probabilities * (1 - probabilities))).sum()
    return chi2.sf(statistic, len(rates))


def position_based(shown, power):
    return THETA**power * GAMMA[shown.grades.astype(int)]


def trust(shown, power):
    rank = np.arange(1, 11)
    gamma = (2**shown.grades - 1) / 15
    return THETA**power * ((1 - (rank + 1) / 100) * gamma + 0.65 / rank * (1 - gamma))


def real_click(shown):
    return REAL_CLICKS[shown.grades.astype(int), np.arange(10)]


def coupled_power(shown):
    return THETA ** np.maximum(shown.traits + 1, 0) * GAMMA[shown.grades.astype(int)]


def coupled_logistic(shown):
    logit = np.log(THETA / (1 - THETA)) + 2 * shown.traits
    return GAMMA[shown.grades.astype(int)] / (1 + np.exp(-logit))


def query_context(shown):
    mean = shown.traits.mean(axis=1, keepdims=True)
    return THETA ** np.maximum(mean + 1, 0) * GAMMA[shown.grades.astype(int)]


def page_context(shown, influence):
    gamma = GAMMA[shown.grades.astype(int)]
    around = np.empty_like(gamma)
    around[:, 0], around[:, -1] = gamma[:, 1], gamma[:, -2]
    around[:, 1:-1] = (gamma[:, :-2] + gamma[:, 2:]) / 2
    return THETA ** np.maximum(1 + influence * around, 0) * gamma


CLOSED_FORMS = [
    *[("position_based", {"power": power}, position_based, (power,)) for power in (0.0, 0.5, 1.0, 2.0)],
    *[("trust", {"power": power}, trust, (power,)) for power in (0.5, 1.0, 2.0)],
    ("real_click", {}, real_click, ()),
    ("coupled", {}, coupled_power, ()),
    ("coupled", {"form": "logistic"}, coupled_logistic, ()),
    ("query_context", {}, query_context, ()),
    *[("page_context", {"influence": s}, page_context, (s,)) for s in (-0.8, 0.0, 1.0, 2.0)],
]


@pytest.mark.parametrize(("name", "hyper", "closed_form", "arguments"), CLOSED_FORMS)
def test_click_rates_follow_the_closed_form(name, hyper, closed_form, arguments):
    user, shown = make_user(name, **hyper), some_lists()
    probabilities = closed_form(shown, *arguments)
    np.testing.assert_allclose(user.expect(shown).clicks, probabilities, rtol=1e-12)
    assert p_value_of_rates(draw(user, shown, 20_000), probabilities, 20_000) > SURPRISE


@pytest.mark.parametrize(("name", "hyper", "closed_form", "arguments"), CLOSED_FORMS)
def test_counted_clicks_follow_the_closed_form(name, hyper, closed_form, arguments):
    user, shown = make_user(name, **hyper), some_lists()
    sessions = np.full(len(shown.mask), 100_000)
    clicks, seen = count_sessions(user.expect(shown), sessions, np.random.default_rng(2))
    assert p_value_of_rates(clicks / 100_000, closed_form(shown, *arguments), 100_000) > SURPRISE
    assert p_value_of_rates(seen / 100_000, user.expect(shown).examination, 100_000) > SURPRISE
    assert (clicks <= seen).all()


# Users whose clicks depend on each other: the probability of a whole click pattern, document after document.


def cascade(pattern, grades):
    probability, looking = 1.0, True
    for click, grade in zip(pattern, grades, strict=True):
        attraction = GAMMA[grade] if looking else 0.0
        probability *= attraction if click else 1 - attraction
        looking = looking and not click
    return probability


def downward(pattern, grades, after_click, after_skip):
    """P(pattern) when the user looks on with these probabilities: a sum over how far the user got."""
    if not pattern:
        return 1.0
    attraction = GAMMA[grades[0]]
    here = attraction if pattern[0] else 1 - attraction
    go_on = after_click(0, grades[0]) if pattern[0] else after_skip
    rest = downward(pattern[1:], grades[1:], lambda place, grade: after_click(place + 1, grade), after_skip)
    return here * (go_on * rest + (1 - go_on) * (not any(pattern[1:])))


def dcm(pattern, grades):
    return downward(pattern, grades, lambda place, grade: 1 / (place + 2), 1.0)


def dcm_half(pattern, grades):
    return downward(pattern, grades, lambda place, grade: (place + 2) ** -0.5, 1.0)


def dbn(pattern, grades):
    return downward(pattern, grades, lambda place, grade: 0.9 * (1 - 0.5 * (2**grade - 1) / 15), 0.9)


def ubm(pattern, grades, dependence=1.0):
    table = [[1.0], [0.98, 1.0], [1.0, 0.62, 0.95], [1.0, 0.77, 0.42, 0.82]]  # by distance of the last click; none
    probability, last = 1.0, None
    for place, (click, grade) in enumerate(zip(pattern, grades, strict=True)):
        gamma = table[place][-1 if last is None else place - last - 1]
        attraction = (dependence * gamma + (1 - dependence) * THETA[place]) * GAMMA[grade]
        probability *= attraction if click else 1 - attraction
        last = place if click else last
    return probability


def ubm_half(pattern, grades):
    return ubm(pattern, grades, dependence=0.5)


PATTERN_FORMS = [
    ("cascade", {}, cascade),
    ("dcm", {}, dcm),
    ("dcm", {"power": 0.5}, dcm_half),
    ("dbn", {}, dbn),
    ("ubm", {}, ubm),
    ("ubm", {"dependence": 0.5}, ubm_half),
]


@pytest.mark.parametrize(("name", "hyper", "pattern_probability"), PATTERN_FORMS)
def test_click_patterns_occur_as_often_as_brute_force_says(name, hyper, pattern_probability):
    grades, sessions = [2, 0, 4, 3], 50_000
    patterns = list(itertools.product((0, 1), repeat=4))
    probabilities = np.array([pattern_probability(pattern, grades) for pattern in patterns])
    assert probabilities.sum() == pytest.approx(1.0)
    user, shown = make_user(name, **hyper), lists_of([grades])
    clicks = user.browse(shown, np.zeros(sessions, dtype=int), np.random.default_rng(3)).clicks
    counts = np.bincount(clicks @ [8, 4, 2, 1], minlength=16)
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    expected = sessions * probabilities[possible]
    statistic = ((counts[possible] - expected) ** 2 / expected).sum()
    assert chi2.sf(statistic, possible.sum() - 1) > SURPRISE
    marginal = probabilities @ np.array(patterns)
    np.testing.assert_allclose(user.expect(shown).clicks[0], marginal, rtol=1e-12)


@pytest.mark.parametrize("name", USERS)
def test_what_was_seen_is_as_likely_as_the_truth_says_and_holds_all_clicks(name):
    user, shown = make_user(name), some_lists(n_lists=4)
    lists = np.repeat(np.arange(4), 20_000)
    browsing = user.browse(shown, lists, np.random.default_rng(4))
    assert not (browsing.clicks & ~browsing.seen).any()
    rates = browsing.seen.reshape(4, 20_000, -1).mean(axis=1)
    truth = user.expect(shown)
    error = np.sqrt(truth.examination * (1 - truth.examination) / 20_000)
    assert (np.abs(rates - truth.examination) <= 4.5 * error + 1e-12).all()
    if name != "trust":  # others click what is seen and wanted
        np.testing.assert_allclose(truth.clicks, truth.examination * truth.attraction)


@pytest.mark.parametrize("name", USERS)
def test_padding_is_never_seen_or_clicked(name):
    grades = np.full((3, 10), 4.0)
    shown = lists_of(grades, n_shown=4, traits=np.zeros((3, 10)))
    user = make_user(name, noise=1.0) if hasattr(USERS[name], "noise") else make_user(name)
    browsing = user.browse(shown, np.repeat(np.arange(3), 2_000), np.random.default_rng(5))
    assert browsing.clicks[:, :4].any()
    assert not browsing.clicks[:, 4:].any()
    assert not browsing.seen[:, 4:].any()
    truth = user.expect(shown)
    for values in (truth.examination, truth.attraction, truth.clicks):
        assert (values[:, 4:] == 0).all()


def test_positions_below_the_tenth_reuse_the_last_value():
    shown = lists_of(np.zeros((1, 13)))
    examination = make_user("position_based").expect(shown).examination[0]
    np.testing.assert_allclose(examination[9:], [0.06, 0.06, 0.06, 0.06])
    assert make_user("ubm").table(13)[12, 0] == 0.43
    assert make_user("ubm").table(13)[12, 1] == 0.12  # twelve places below a click counts as nine
    real = make_user("real_click").expect(shown).clicks[0]
    np.testing.assert_allclose(real[9:], 0.002286)


def test_relevance_follows_the_grades():
    shown = lists_of([[0, 1, 2, 3, 4]])
    np.testing.assert_allclose(make_user("position_based").expect(shown).attraction[0], [0.1, 0.16, 0.28, 0.52, 1.0])
    three = make_user("position_based", max_grade=2, noise=0.0).expect(lists_of([[0, 1, 2]]))
    np.testing.assert_allclose(three.attraction[0], [0, 1 / 3, 1])


@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("coupled", {"coupling": 0.0}),
        ("coupled", {"coupling": 0.0, "form": "logistic"}),
        ("query_context", {"coupling": 0.0}),
        ("page_context", {"influence": 0.0}),
        ("ubm", {"dependence": 0.0}),
    ],
)
def test_without_its_peculiarity_a_user_is_position_based(name, hyper):
    shown = lists_of(some_lists().grades, traits=np.zeros((6, 10)))
    special, plain = make_user(name, **hyper), make_user("position_based")
    np.testing.assert_allclose(special.expect(shown).examination, plain.expect(shown).examination, rtol=1e-15)
    np.testing.assert_array_equal(draw(special, shown, 500), draw(plain, shown, 500))
    np.testing.assert_array_equal(special.position_curve(10), THETA)


@pytest.mark.parametrize(
    "name", ["coupled", "query_context", "page_context", "cascade", "dcm", "dbn", "ubm", "real_click"]
)
def test_there_is_no_position_curve_where_more_than_position_counts(name):
    assert make_user(name).position_curve(10) is None


def test_three_grades_use_the_rows_asked_for():
    clicks = make_user("real_click", rows=(0, 2, 4)).expect(lists_of([[0, 1, 2]])).clicks[0]
    np.testing.assert_allclose(clicks, [0.590531, 0.097210, 0.241987])


def test_on_top_a_document_is_clicked_as_if_it_stood_first():
    for name in ("position_based", "trust", "coupled", "query_context", "real_click"):
        user, shown = make_user(name), some_lists()
        third_first = [2, 1, 0, 3, 4, 5, 6, 7, 8, 9]
        moved = Shown(shown.grades[:, third_first], shown.mask, shown.traits[:, third_first])
        np.testing.assert_allclose(user.expect(shown).clicks_on_top[:, 2], user.expect(moved).clicks[:, 0])


def test_neighbours_are_averaged_without_the_document_and_without_padding():
    values, mask = np.array([[1.0, 2.0, 4.0, 8.0]]), np.array([[True, True, True, False]])
    np.testing.assert_allclose(neighbours_mean(values, mask, 1)[0, :3], [2.0, 2.5, 2.0])
    np.testing.assert_allclose(neighbours_mean(values, mask, 9)[0, :3], [3.0, 2.5, 1.5])
    np.testing.assert_allclose(neighbours_mean(values[:, :1], mask[:, :1], 1), [[0.0]])


# What users refuse.


def test_unknown_names_list_the_known_ones():
    with pytest.raises(
        ValueError, match=r"unknown user 'pbm' \(did you mean 'ubm'\?\): choose one of position_based, trust"
    ):
        make_user("pbm")
    with pytest.raises(
        ValueError, match=r"user 'cascade' has no option 'coupling'; it accepts noise, max_grade, persistence"
    ):
        make_user("cascade", coupling=0.1)


@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("position_based", {"noise": 1.5}),
        ("position_based", {"noise": float("nan")}),
        ("position_based", {"curve": (0.9, -0.1)}),
        ("position_based", {"curve": ()}),
        ("trust", {"clicks_if_not": (2.0,)}),
        ("cascade", {"persistence": -0.2}),
        ("dcm", {"looks_on": (0.5, 1.2)}),
        ("dbn", {"satisfaction": 7}),
        ("ubm", {"dependence": 1.1}),
        ("position_based", {"power": -1}),
        ("position_based", {"max_grade": 0}),
        ("coupled", {"coupling": -0.1}),
        ("position_based", {"noise": "high"}),
        ("page_context", {"window": 1.5}),
        ("coupled", {"form": "cubic"}),
        ("coupled", {"crux_scale": "rank"}),
        ("coupled", {"direction": "up"}),
        ("page_context", {"window": 0}),
        ("real_click", {"rows": (0, 5)}),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name_and_class(name, hyper):
    with pytest.raises(ValueError, match=f"{next(iter(hyper))} .*must be"):
        make_user(name, **hyper)
    with pytest.raises(ValueError, match=f"{next(iter(hyper))} must be"):
        USERS[name](**hyper)


def test_one_number_is_a_curve_for_all_positions():
    np.testing.assert_array_equal(make_user("position_based", curve=0.5, power=2).position_curve(3), [0.25, 0.25, 0.25])


def test_grades_outside_the_scale_are_refused():
    with pytest.raises(ValueError, match="document 1 has grade 3, outside the scale 0 to 2: pass the highest grade"):
        make_user("position_based", max_grade=2).check(np.array([0.0, 3.0]))
    with pytest.raises(ValueError, match="grade -1"):
        make_user("dbn").check(np.array([-1.0]))
    with pytest.raises(ValueError, match="fractions"):
        make_user("real_click").check(np.array([0.5]))


# The crux features of coupled users.


def judged_with_known_importance(n_queries=60):
    """Feature 3 decides the grade, feature 1 a little, the others are noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_queries * 10, 6)) * [1, 2, 1, 5, 1, 0]
    grades = np.clip(np.round(X[:, 3] / 5 + 0.3 * X[:, 1] / 2 + 1.5), 0, 4)
    return JudgedSet.from_arrays(X, grades, np.full(n_queries, 10))


def test_crux_features_are_those_that_decide_the_grade():
    user = make_user("coupled").fit(judged_with_known_importance())
    assert user.crux[:2] == (3, 1)
    assert len(user.crux) == 6
    assert user.fitted
    assert not make_user("coupled").fitted


def test_traits_are_the_weighted_sum_of_scaled_crux_features():
    X = np.array([[0.0, 5.0, 0.0], [2.0, 5.0, 1.0], [4.0, 5.0, 1.0]])
    judged = JudgedSet.from_arrays(X, [0, 1, 2], [3])
    user = make_user("coupled", coupling=0.3, crux=(2, 0, 1)).fit(judged)
    # scaled to [-1, 1]: column 2 is -1, 1, 1; column 0 is -1, 0, 1; column 1 is constant
    w = 3 * np.array([-0.1, -0.005693])
    np.testing.assert_allclose(user.document_traits(judged), [-w[0] - w[1], w[0], w[0] + w[1]], rtol=1e-6)
    standard = make_user("coupled", coupling=0.3, crux=(0,), crux_scale="standard").fit(judged)
    deviation = np.sqrt(8 / 3)
    np.testing.assert_allclose(standard.document_traits(judged), -0.3 * np.array([-2, 0, 2]) / deviation, atol=1e-12)


def test_a_random_direction_scales_with_the_coupling_and_follows_its_seed():
    weights = make_user("coupled", direction="random", coupling=0.2, direction_seed=5).weights()
    assert np.abs(weights).max() <= 0.2
    assert len(weights) == 10
    np.testing.assert_allclose(
        make_user("coupled", direction="random", coupling=0.6, direction_seed=5).weights(), 3 * weights
    )
    assert not np.allclose(make_user("coupled", direction="random", coupling=0.2, direction_seed=6).weights(), weights)


def test_crux_columns_that_do_not_exist_or_are_not_finite_are_refused():
    judged = judged_with_known_importance(5)
    with pytest.raises(ValueError, match="crux names column 9, but the data have columns 0 to 5"):
        make_user("coupled", crux=(9,)).fit(judged)
    with pytest.raises(ValueError, match="call fit"):
        make_user("coupled").document_traits(judged)
    holes = JudgedSet.from_arrays([[0.0, np.nan], [1.0, 2.0]], [0, 1], [2])
    with pytest.raises(ValueError, match="feature '1' of document 0 is nan"):
        make_user("coupled", crux=(0, 1)).fit(holes)
    fitted = make_user("coupled", crux=(5,)).fit(judged)
    with pytest.raises(ValueError, match="needs feature 5, but this set has only 2 features"):
        fitted.document_traits(JudgedSet.from_arrays(np.zeros((2, 2)), [0, 1], [2]))
