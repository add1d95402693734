import numpy as np
import pytest
from scipy.stats import chi2

from unskew.data.clicks.storage import read_log
from unskew.data.judged.judged_set import JudgedSet
from unskew.simulation import patterns
from unskew.simulation import simulate as simulation
from unskew.simulation.policies import Fixed, Mixed, NoisyOracle, PlackettLuce, Random
from unskew.simulation.simulate import simulate
from unskew.simulation.truth import read_truth, truth_path
from unskew.simulation.users import USERS, make_user

THETA = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06])


def judged_set(n_queries=12, low=8, high=14, seed=0):
    """Grades 0 to 4 without end; the highest occurs for sure."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(low, high + 1, n_queries)
    grades = rng.integers(0, 5, sizes.sum())
    grades[0] = 4
    return JudgedSet.from_arrays(rng.normal(size=(sizes.sum(), 4)), grades, sizes)


def fixed_user(name, **hyper):
    """A user that needs no forest."""
    return make_user(name, **hyper, **({"crux": (0, 2)} if name in ("coupled", "query_context") else {}))


def same(one, other):
    for name in ("documents", "mask", "clicks", "sessions", "positions", "policy_scores"):
        np.testing.assert_array_equal(getattr(one.log, name), getattr(other.log, name))
    np.testing.assert_array_equal(one.truth.seen, other.truth.seen)
    assert one.log.joint == other.log.joint
    if one.log.joint:
        for name in ("lists", "clicks", "sessions"):
            np.testing.assert_array_equal(getattr(one.log.patterns, name), getattr(other.log.patterns, name))


@pytest.mark.parametrize("name", USERS)
@pytest.mark.parametrize("joint", [False, True])
def test_a_log_agrees_with_its_truth(name, joint):
    result = simulate(judged_set(), NoisyOracle(), fixed_user(name), sessions=20_000, joint=joint)
    log, truth = result.log, result.truth
    assert log.joint == (joint or not make_user(name).independent)
    np.testing.assert_array_equal(log.sessions, 20_000)
    error = np.sqrt(truth.click_probability * (1 - truth.click_probability) / 20_000) + 1e-7
    standardized = (log.clicks / 20_000 - truth.click_probability) / error
    assert np.abs(standardized).max() < 4.5
    if joint and make_user(name).independent:
        real = log.mask & (truth.click_probability > 0) & (truth.click_probability < 1)
        assert chi2.sf((standardized[real] ** 2).sum(), real.sum()) > 1e-3
    assert (log.clicks <= truth.seen).all()
    assert (log.clicks[~log.mask] == 0).all()


@pytest.mark.parametrize("coupling", [0.0, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("form", ["power", "logistic"])
@pytest.mark.parametrize("crux_scale", ["minmax", "standard"])
def test_coupled_clicks_follow_the_crux_features_of_the_shown_documents(coupling, form, crux_scale):
    judged = judged_set(low=10)
    user = make_user("coupled", coupling=coupling, form=form, crux_scale=crux_scale, crux=(3, 1), noise=0.0)
    log = simulate(judged, NoisyOracle(), user, sessions=50_000, seed=3).log
    columns = judged.features[:, [3, 1]].astype(float)
    if crux_scale == "minmax":
        low, high = columns.min(axis=0), columns.max(axis=0)
        scaled = 2 * (columns - low) / (high - low) - 1
    else:
        scaled = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    pull = (scaled @ (coupling * np.array([-1.0, -0.05693])))[log.documents]
    if form == "power":
        seen = THETA ** np.maximum(1 + pull, 0)
    else:
        seen = 1 / (1 + (1 - THETA) / THETA * np.exp(-2 * pull))
    probability = seen * (2 ** judged.grades[log.documents] - 1) / 15
    real = (probability > 0) & (probability < 1)
    np.testing.assert_array_equal(log.clicks[~real], 50_000 * probability[~real])
    p, clicks = probability[real], log.clicks[real]
    assert chi2.sf(((clicks - 50_000 * p) ** 2 / (50_000 * p * (1 - p))).sum(), real.sum()) > 1e-3


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("name", ["coupled", "query_context"])
def test_without_coupling_the_log_is_the_position_based_one(name, joint):
    settings = {"sessions": 300, "joint": joint, "seed": 5}
    judged = judged_set()
    plain = simulate(judged, NoisyOracle(), "position_based", **settings)
    same(plain, simulate(judged, NoisyOracle(), make_user(name, coupling=0.0), **settings))
    trusting = make_user("trust", clicks_if_relevant=(1.0,), clicks_if_not=(0.0,), noise=0.1)
    same(plain, simulate(judged, NoisyOracle(), trusting, **settings))


def test_patterns_add_up_to_the_counts():
    log = simulate(judged_set(), NoisyOracle(), "ubm", sessions=500).log
    for number in range(log.n_lists):
        rows = log.patterns.lists == number
        total = (log.patterns.clicks[rows] * log.patterns.sessions[rows, None]).sum(axis=0)
        np.testing.assert_array_equal(total, log.clicks[number])
        assert log.patterns.sessions[rows].sum() == 500
        assert len(np.unique(log.patterns.clicks[rows], axis=0)) == rows.sum()
    assert (np.diff(log.patterns.lists) >= 0).all()


@pytest.mark.parametrize(("name", "joint"), [("position_based", False), ("position_based", True), ("dbn", True)])
def test_chunks_and_threads_do_not_change_the_log(name, joint):
    judged = judged_set(700, low=3, high=6)  # three blocks of queries
    settings = {"sessions": 20, "n_shown": 5, "joint": joint, "interventions": {"swap_top": 0.2}, "seed": 9}
    policy = PlackettLuce(logger=NoisyOracle(), orders_per_query=3)
    one = simulate(judged, policy, name, threads=1, chunk=1, **settings)
    same(one, simulate(judged, policy, name, threads=3, chunk=10_000, **settings))
    another = simulate(judged, policy, name, **{**settings, "seed": 10})
    assert one.log.clicks.shape != another.log.clicks.shape or (one.log.clicks != another.log.clicks).any()


def test_users_of_one_seed_meet_the_same_lists():
    judged, policy = judged_set(), Random(orders_per_query=4)
    one = simulate(judged, policy, "position_based", sessions=30, seed=2).log
    other = simulate(judged, policy, "cascade", sessions=30, seed=2).log
    np.testing.assert_array_equal(one.documents, other.documents)


def test_sessions_of_several_slabs_are_all_counted(monkeypatch):
    whole = simulate(judged_set(3), NoisyOracle(), "position_based", sessions=1_000, joint=True)
    monkeypatch.setattr(patterns, "SLAB", 700)
    log = simulate(judged_set(3), NoisyOracle(), "position_based", sessions=1_000, joint=True).log
    np.testing.assert_array_equal(log.sessions, 1_000)
    keys = np.column_stack([log.patterns.lists, log.patterns.clicks])
    assert len(np.unique(keys, axis=0)) == len(keys)
    rate = whole.truth.click_probability
    assert (np.abs(log.clicks / 1_000 - rate) <= 4.5 * np.sqrt(rate * (1 - rate) / 1_000) + 1e-6).all()


def test_pages_of_many_documents_keep_their_patterns():
    judged = judged_set(4, low=40, high=40)
    user = make_user("position_based", power=0.0)
    log = simulate(judged, NoisyOracle(), user, sessions=200, n_shown=40, joint=True).log
    total = np.zeros_like(log.clicks)
    np.add.at(total, log.patterns.lists, log.patterns.clicks * log.patterns.sessions[:, None])
    np.testing.assert_array_equal(total, log.clicks)
    assert (np.diff(log.patterns.lists) >= 0).all()


def test_short_lists_are_masked():
    judged = JudgedSet.from_arrays(np.arange(5.0)[:, None], [4, 4, 4, 4, 4], [2, 3])
    result = simulate(judged, Fixed(ranker=lambda judged: judged.features[:, 0]), "position_based", n_shown=3)
    np.testing.assert_array_equal(result.log.mask, [[True, True, False], [True, True, True]])
    np.testing.assert_array_equal(result.log.documents, [[1, 0, 0], [4, 3, 2]])
    np.testing.assert_array_equal(result.log.policy_scores, [[1, 0, 0], [4, 3, 2]])
    assert result.truth.examination[0, 2] == 0


def test_sessions_without_a_click_are_left_out_when_asked():
    judged = judged_set(50)
    kept = simulate(judged, NoisyOracle(), "position_based", sessions=5, drop_clickless=True)
    everything = simulate(judged, NoisyOracle(), "position_based", sessions=5, joint=True)
    assert kept.log.joint
    assert (kept.log.patterns.clicks.sum(axis=1) > 0).all()
    assert kept.log.n_clicks == everything.log.n_clicks
    clickless = everything.log.patterns.clicks.sum(axis=1) == 0
    assert kept.log.n_sessions == 250 - everything.log.patterns.sessions[clickless].sum() < 250


def test_lists_that_lose_all_their_sessions_leave_the_log_and_the_truth():
    judged = judged_set(50)
    everything = simulate(judged, NoisyOracle(), "position_based", sessions=1, joint=True)
    kept = simulate(judged, NoisyOracle(), "position_based", sessions=1, drop_clickless=True)
    clicked = everything.log.clicks.sum(axis=1) > 0
    assert 0 < kept.log.n_lists == clicked.sum() < 50
    np.testing.assert_array_equal(kept.log.documents, everything.log.documents[clicked])
    np.testing.assert_array_equal(kept.log.patterns.clicks, kept.log.clicks)
    np.testing.assert_array_equal(kept.log.patterns.lists, np.arange(kept.log.n_lists))
    np.testing.assert_array_equal(kept.truth.examination, everything.truth.examination[clicked])
    np.testing.assert_array_equal(kept.truth.seen, everything.truth.seen[clicked])


def test_a_log_in_which_nothing_is_left_is_refused():
    judged = JudgedSet.from_arrays(np.zeros((2, 1)), [0, 0], [2])
    nobody = make_user("position_based", noise=0.0)
    with pytest.raises(ValueError, match="no session is left"):
        simulate(judged, "random", nobody, n_shown=2, drop_clickless=True)


def test_interventions_are_recorded_in_the_log():
    shares = {"swap_top": 0.1, "shuffle": 0.3}
    log = simulate(judged_set(), NoisyOracle(), "position_based", sessions=10_000, interventions=shares).log
    assert log.interventions.levels == ("none", "swap_top", "shuffle")
    rates = np.bincount(log.interventions.values, weights=log.sessions) / log.n_sessions
    np.testing.assert_allclose(rates, [0.6, 0.1, 0.3], atol=0.01)
    assert log.intervened().n_sessions == log.sessions[log.interventions.values > 0].sum()
    assert simulate(judged_set(), NoisyOracle(), "position_based").log.interventions is None


def test_scores_of_the_logger_that_showed_a_list_are_kept():
    judged = judged_set()
    up, down = Fixed(ranker=lambda judged: judged.features[:, 0]), Fixed(ranker=lambda judged: -judged.features[:, 0])
    result = simulate(judged, Mixed(loggers=(up, down)), "position_based", sessions=50)
    sign = np.where(result.truth.loggers == 0, 1, -1)[:, None]
    expected = np.where(result.log.mask, sign * judged.features[result.log.documents, 0], 0)
    np.testing.assert_allclose(result.log.policy_scores, expected, rtol=1e-6)
    assert set(result.truth.loggers) == {0, 1}


def test_each_query_may_have_its_own_number_of_sessions():
    judged = judged_set(3)
    log = simulate(judged, NoisyOracle(), "position_based", sessions=[5, 0, 10**9]).log
    np.testing.assert_array_equal(log.sessions, [5, 10**9])
    np.testing.assert_array_equal(log.queries, [0, 2])


def test_policy_and_user_are_fitted_to_the_training_data():
    train, test = judged_set(30), judged_set(10, seed=1)
    about = simulate(test, "svm", make_user("coupled", crux=(1,)), train=train).truth.about
    assert about["user"]["crux"] == (1,)
    fitted = make_user("coupled", crux=(1,)).fit(train)
    one = simulate(test, "svm", make_user("coupled", crux=(1,)), train=train)
    other = simulate(test, "svm", fitted, train=train)
    same(one, other)
    own = simulate(test, "svm", make_user("coupled", crux=(1,)))
    assert not np.allclose(own.log.policy_scores, one.log.policy_scores)


def test_progress_counts_sessions_up_to_all():
    calls = []
    simulate(
        judged_set(600, low=2, high=3),
        "random",
        "cascade",
        sessions=2,
        n_shown=3,
        progress=lambda *at: calls.append(at),
    )
    assert calls == [(512, 1200), (1024, 1200), (1200, 1200)]
    assert simulation.QUERIES_PER_BLOCK == 256


@pytest.mark.parametrize("name", ["trust", "ubm"])
def test_log_and_truth_come_back_from_disk(tmp_path, name):
    shares = {"swap_neighbours": 0.5}
    result = simulate(judged_set(), "random", name, sessions=20, interventions=shares, out=tmp_path / "log")
    log, truth = read_log(tmp_path / "log"), read_truth(tmp_path / "log")
    np.testing.assert_array_equal(log.clicks, result.log.clicks)
    for field in ("examination", "attraction", "click_probability", "seen", "loggers"):
        np.testing.assert_array_equal(getattr(truth, field), getattr(result.truth, field))
    if name == "trust":
        np.testing.assert_array_equal(truth.position_curve, THETA)
        np.testing.assert_array_equal(truth.click_probability_on_top, result.truth.click_probability_on_top)
    else:
        assert truth.position_curve is None
        assert truth.click_probability_on_top is None
    assert truth.about["user"]["name"] == name
    assert truth.about["policy"]["name"] == "random"
    assert not any("truth" in file.name for file in (tmp_path / "log").iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.truth.parquet"]


def test_the_mean_examination_weighs_lists_by_sessions():
    judged = JudgedSet.from_arrays([[0.0], [1.0], [0.0]], [4, 0, 0], [2, 1])
    result = simulate(judged, NoisyOracle(), "cascade", sessions=[30, 10], n_shown=2)
    looks_on = 1 - result.truth.attraction[0, 0]
    np.testing.assert_allclose(result.truth.mean_examination(result.log), [1.0, looks_on], rtol=1e-6)


def test_policies_and_users_are_also_tables_as_in_experiment_files():
    tables = {"name": "noisy_oracle", "strength": 0.9}, {"name": "position_based", "power": 2.0}
    parts = NoisyOracle(strength=0.9), make_user("position_based", power=2.0)
    same(simulate(judged_set(), *tables, sessions=4), simulate(judged_set(), *parts, sessions=4))


# What is refused, before any work is done.


def explode(judged):
    raise AssertionError("work was done before the arguments were checked")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_shown": 15}, "n_shown is 15, but no query has more than 14 documents"),
        ({"n_shown": 0}, "n_shown must be at least 1"),
        ({"sessions": 0}, "sessions must be whole numbers"),
        ({"sessions": -3}, "sessions must be whole numbers"),
        ({"sessions": 2.5}, "sessions must be whole numbers"),
        ({"sessions": [1, 2]}, "one per query, 12"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"interventions": {"swap_top": 1.5}}, "must be between 0 and 1"),
        ({"interventions": {"swap_top": "much"}}, "'swap_top' must be between 0 and 1, got much"),
        ({"user": make_user("position_based", max_grade=2)}, "outside the scale 0 to 2"),
        ({"user": "nobody"}, "unknown user 'nobody'"),
        ({"policy": "nothing"}, "unknown policy 'nothing'"),
        ({"policy": {"name": "noisy-oracle"}}, "unknown policy 'noisy-oracle' .did you mean 'noisy_oracle'"),
        ({"policy": {"strength": 0.5}}, "policy .* has no name"),
        ({"user": {"name": "trust", "severe": 1}}, "user 'trust' has no option 'severe'"),
    ],
)
def test_bad_arguments_are_refused_before_any_work(tmp_path, arguments, message):
    settings = {"policy": Fixed(ranker=explode), "user": "position_based", "out": tmp_path / "log", **arguments}
    with pytest.raises(ValueError, match=message):
        simulate(judged_set(), **settings)
    assert list(tmp_path.iterdir()) == []


def test_paths_that_cannot_be_written_are_refused_before_any_work(tmp_path):
    policy = Fixed(ranker=explode)
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder: create it first"):
        simulate(judged_set(), policy, "cascade", out=tmp_path / "nowhere" / "log")
    (tmp_path / "taken").mkdir()
    with pytest.raises(FileExistsError, match=r"taken exists: choose another path, or pass overwrite=True"):
        simulate(judged_set(), policy, "cascade", out=tmp_path / "taken")
    truth_path(tmp_path / "other").touch()
    with pytest.raises(FileExistsError, match=r"other\.truth\.parquet exists"):
        simulate(judged_set(), policy, "cascade", out=tmp_path / "other")


def test_what_is_no_log_is_not_overwritten_and_refused_before_any_work(tmp_path):
    (tmp_path / "thesis").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"thesis contains no log\.json"):
        simulate(judged_set(), Fixed(ranker=explode), "cascade", out=tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis").read_text() == "years of work"


def test_features_that_are_not_finite_never_get_into_a_log():
    judged = judged_set()
    judged.features[3, 1] = np.inf
    with pytest.raises(ValueError, match="feature number 1 of document 3 is inf"):
        simulate(judged, Fixed(ranker=explode), "cascade")


def test_a_failure_leaves_no_half_written_log(tmp_path, monkeypatch):
    result = simulate(judged_set(), "random", "cascade", sessions=3)
    monkeypatch.setattr(
        "unskew.simulation.truth.write_log", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full"))
    )
    with pytest.raises(OSError, match="disk full"):
        result.save(tmp_path / "log")
    assert list(tmp_path.iterdir()) == []


def test_a_log_may_be_overwritten_when_asked(tmp_path):
    for seed in (1, 2):
        simulate(judged_set(), "random", "cascade", sessions=3, seed=seed, out=tmp_path / "log", overwrite=True)
    assert read_truth(tmp_path / "log").about["seed"] == 2


def test_a_missing_or_damaged_truth_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="only simulated logs have a truth"):
        read_truth(tmp_path / "log")
    truth_path(tmp_path / "log").write_text("no parquet")
    with pytest.raises(ValueError, match="cannot be read as a truth"):
        read_truth(tmp_path / "log")


def test_a_scale_longer_than_the_grades_that_occur_gets_a_warning(caplog):
    judged = JudgedSet.from_arrays(np.zeros((3, 1)), [0, 1, 2], [3])
    simulate(judged, "random", "position_based", n_shown=3)
    assert "no grade above 2 occurs, but max_grade is 4" in caplog.text
    caplog.clear()
    simulate(judged, "random", make_user("position_based", max_grade=2), n_shown=3)
    assert caplog.text == ""
    simulate(judged, "random", "real_click", n_shown=3)
    assert "pass rows=(0, 2, 4)" in caplog.text
    caplog.clear()
    simulate(judged, "random", make_user("real_click", rows=(0, 2, 4)), n_shown=3)
    assert caplog.text == ""
