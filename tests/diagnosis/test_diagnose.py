"""The whole diagnosis says the right thing of logs whose truth is known."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import unskew.diagnosis.model_based as fitted
from unskew.data.clicks.click_log import ClickLog
from unskew.diagnosis.advice import CANNOT, DOUBTFUL, TRAIN, TRY, WORDS, advise, facts, how_to_link, verdict
from unskew.diagnosis.page import diagnose, write_diagnosis
from unskew.methods import METHODS
from unskew.propensities.curve import Curve
from unskew.reporting.answers import BAD, GOOD, Refusal
from unskew.simulation.policies import make_policy
from unskew.simulation.simulate import simulate
from unskew.simulation.users import make_user


@pytest.fixture(scope="module")
def policy(world):
    return make_policy("svm").fit(world.train)


def word_of(diagnosis):
    return {entry.method: entry.word for entry in advise(facts(diagnosis))}


def answer(diagnosis, question):
    (found,) = [finding for finding in diagnosis.findings() if finding.question == question]
    return found


@pytest.fixture(scope="module")
def linked(world, policy):
    return simulate(
        world.train, policy, "position_based", sessions=64, interventions={"shuffle": 0.4}, joint=True, seed=1
    )


@pytest.fixture(scope="module")
def good(linked):
    return diagnose(linked.log, quick=True)


@pytest.fixture(scope="module")
def one_order(world, policy):
    return diagnose(simulate(world.train, policy, "position_based", sessions=64, seed=1).log, quick=True)


def test_a_position_based_log_with_interventions_is_identified_and_its_curve_recovered(linked, good):
    true = linked.truth.position_curve / linked.truth.position_curve[0]
    assert good.connectivity.connected
    for name in ("randomization", "pivot", "adjacent_chain", "all_pairs"):
        curve = good.curves[name]
        assert isinstance(curve, Curve)
        inside = (curve.low <= true) & (true <= curve.high)
        assert inside.sum() >= 8, name  # nine are free, at 95%: fewer than eight of ten is a rare accident
    assert good.rank.scalar_is_enough
    assert not good.coupling.found
    assert answer(good, "positions linked?").tone == GOOD


def test_a_position_based_log_is_worth_training_position_based_methods_on(good):
    words = word_of(good)
    assert {words[name] for name in ("naive", "ipw", "dla", "two_tower", "regression_em", "pair_debias")} == {TRAIN}
    assert {words[name] for name in ("affine", "vectorization", "lbd", "hte")} == {TRY}
    assert words["labelled"] == CANNOT
    assert verdict(good).lines[0].startswith("The log identifies relevance")
    assert "But" not in verdict(good).lines[0]


def test_a_log_of_one_order_is_not_identified_and_says_what_to_shuffle(one_order):
    assert not one_order.connectivity.connected
    assert len(one_order.connectivity.groups) == 10
    assert one_order.curve is None
    for part in (one_order.rank, one_order.trust, one_order.coupling, one_order.strength, one_order.shuffled):
        assert isinstance(part, Refusal)
        assert part.reason
    words = word_of(one_order)
    assert {words[name] for name in ("ipw", "hte", "iobm", "pair_debias")} == {CANNOT}
    assert words["dla"] == TRY
    text = "\n".join(verdict(one_order).lines)
    assert "does not identify relevance" in text
    # The lowest position has so many clicks; a hundred of them are this share of the sessions.
    clicks = one_order.rates.clicks.min()
    assert one_order.connectivity.shuffle_share == pytest.approx(100 / clicks)
    assert f"shuffle {100 / clicks:.0%} of as many sessions" in text


def test_shuffling_as_advised_makes_the_log_tell(world, policy, one_order):
    share = one_order.connectivity.shuffle_share
    mended = simulate(world.train, policy, "position_based", sessions=64, interventions={"shuffle": share}, seed=2).log
    curve = diagnose(mended, quick=True).curves["randomization"]
    true = np.array(make_user("position_based").position_curve(10))
    error = np.log(curve.values / (true / true[0]))
    assert np.abs(error).max() < 0.5  # a tenth each, times three, and a little more for the top


def test_trust_bias_shows_its_sign_and_its_methods(world, policy):
    log = simulate(world.train, policy, "trust", sessions=128, interventions={"shuffle": 0.5}, seed=1).log
    found = diagnose(log, quick=True)
    assert found.trust.sign == "trust"
    assert not found.rank.scalar_is_enough
    words = word_of(found)
    assert {words[name] for name in ("affine", "affine_softmax", "vectorization")} == {TRAIN}
    assert {words[name] for name in ("ipw", "dla")} == {DOUBTFUL}
    assert words["low_rank"] == TRY  # it fails under trust bias, which looks like what it is made for
    assert "But this does not seem to hold" in verdict(found).lines[0]


def test_coupling_is_found_and_lbd_advised(world, policy):
    user = make_user("coupled", coupling=0.3, crux=(0, 1, 2))
    log = simulate(world.train, policy, user, sessions=128, interventions={"swap_top": 0.5}, seed=1).log
    found = diagnose(log, quick=True)
    assert found.coupling.found
    words = word_of(found)
    assert (words["lbd"], words["hte"], words["dla"]) == (TRAIN, TRAIN, DOUBTFUL)
    assert answer(found, "examination by document?").tone == BAD
    weak = replace(found, coupling=replace(found.coupling, strength=0.07))  # 7% of the effect of positions
    assert facts(weak).coupled is False
    assert answer(weak, "examination by document?").answer.startswith("yes, but 7%")
    unseen = replace(found.coupling, found=False, high=0.12)
    assert (unseen.notable, replace(unseen, high=0.09).notable) == (None, False)


def test_planted_features_are_to_be_left_out(linked):
    log = linked.log
    score = np.zeros(len(log.features), dtype=np.float32)
    score[log.documents[log.mask]] = log.policy_scores[log.mask]
    names = (*(f"f{number}" for number in range(log.n_features)), "production")
    planted = replace(log, features=np.column_stack([log.features, score]), feature_names=names)
    found = diagnose(planted, quick=True)
    assert "Leave out production: nearly identical to the shown order." in verdict(found).lines


def test_a_robot_is_capped_and_counted():
    rng = np.random.default_rng(0)
    rows = {name: [] for name in ("session", "query", "user", "document", "position", "click", "length")}
    for session in range(600):
        user = "robot" if session < 300 else f"p{session % 50}"
        order = rng.permutation(4)
        for place, document in enumerate(order.tolist()):
            click = 1 if user == "robot" else int(rng.random() < 0.5 / (place + 1))
            entry = (session, f"q{session % 60}", user, document, place, click, float(document))
            for name, value in zip(rows, entry, strict=True):
                rows[name].append(value)
    log = ClickLog.from_table(pa.table(rows), bias=["user"])
    whole, capped = diagnose(log, quick=True, users="user"), diagnose(log, quick=True, users="user", cap=6)
    assert (whole.users.heaviest, whole.users.heaviest_share) == ("robot", 0.5)
    assert (capped.users.n_capped, capped.users.sessions_dropped) == (1, 294)
    assert capped.traffic.n_sessions == pytest.approx(306)
    assert whole.rates.rates[-1] > 0.5 > capped.rates.rates[-1]  # the robot clicks at the bottom, too
    assert capped.by_column == {}  # a user is no bias factor
    assert "1 capped at 6, 294 sessions left out" in answer(capped, "heavy users").answer
    with pytest.raises(ValueError, match="--users"):
        diagnose(log, cap=6)


def test_a_bias_column_is_looked_at_as_a_factor():
    rng = np.random.default_rng(0)
    rows = {name: [] for name in ("session", "query", "document", "position", "click", "device", "length")}
    for session in range(400):
        device = ("desk", "phone")[session % 2]
        for place, document in enumerate(rng.permutation(3).tolist()):
            click = int(rng.random() < 0.5)
            entry = (session, f"q{session % 40}", document, place, click, device, float(document))
            for name, value in zip(rows, entry, strict=True):
                rows[name].append(value)
    found = diagnose(ClickLog.from_table(pa.table(rows), bias=["device"]), quick=True)
    assert not found.by_column["device"].connected  # even queries are on desks, odd ones on phones
    assert answer(found, "linked, with device?").tone == BAD


def test_every_method_gets_advice_with_a_reason(good, one_order):
    for diagnosis in (good, one_order):
        advice = verdict(diagnosis).methods
        assert {entry.method for entry in advice} == set(METHODS)
        assert all(entry.word in WORDS and entry.reason for entry in advice)
        places = [WORDS.index(entry.word) for entry in advice]
        assert places == sorted(places)


def test_without_a_click_nothing_can_work(good):
    assert {entry.word for entry in advise(replace(facts(good), n_clicks=0.0))} == {CANNOT}
    alone = {entry.method: entry.word for entry in advise(replace(facts(good), n_positions=1))}
    assert (alone["naive"], alone["dla"]) == (TRAIN, DOUBTFUL)


def test_feedback_that_is_graded_is_refused_part_by_part(linked):
    graded = replace(linked.log.marginal(), graded=True, clicks=linked.log.clicks * 2.5)
    found = diagnose(graded, quick=True)
    assert isinstance(found.curves["pivot"], Curve)
    for part in (found.curves["all_pairs"], found.rank, found.coupling, found.click_leaks):
        assert isinstance(part, Refusal)
    assert word_of(found)["affine"] == CANNOT


def test_a_swap_of_few_groups_is_spelt_out(good):
    links = good.connectivity
    link = type("Link", (), {"one": 2, "other": 3, "share": 0.02, "rate_ratio": 0.8})()
    torn = replace(links, groups=(("0", "1", "2"), ("3",)), links=(link,), merges=(link,), shuffle_share=0.04)
    text = how_to_link(torn)
    assert "shuffle 4.0% of as many sessions, or swap positions 3 and 4 in 2.0% of as many sessions" in text
    assert "Merging positions 3 and 4 (click rates 0.80 to 1)" in text


def test_the_answer_is_plain_data(good, one_order):
    for diagnosis in (good, one_order):
        data = json.loads(json.dumps(diagnosis.to_json(), allow_nan=False))
        assert {"rates", "curves", "connectivity", "coupling", "methods", "verdict", "findings"} <= set(data)
    assert "refused" in json.loads(json.dumps(one_order.to_json()))["coupling"]
    assert len(good.to_json()["curves"]["all_pairs"]["values"]) == 10


def test_progress_ends_where_it_said(linked):
    said = []
    diagnose(linked.log, quick=True, progress=lambda done, total: said.append((done, total)))
    assert said[-1][0] == said[-1][1]
    assert [done for done, _ in said] == sorted(done for done, _ in said)
    assert len({total for _, total in said}) == 1


def test_an_empty_log_is_refused(log):
    with pytest.raises(ValueError, match="empty"):
        diagnose(log.select(np.zeros(log.n_lists, dtype=bool)))


def test_fitted_parts_are_told_with_their_condition(linked, monkeypatch):
    monkeypatch.setattr(fitted, "SMALL", {"hidden": (8,), "steps": 30})
    monkeypatch.setattr(fitted, "N_PAIRS", 20)
    monkeypatch.setattr(fitted, "N_PARTS", 2)
    curve = fitted.learnt_curve(linked.log, "regression_em")
    assert curve.values[0] == 1
    assert (curve.low <= curve.values).all()
    assert (curve.values <= curve.high).all()
    bounds = fitted.model_bounds(linked.log)
    assert bounds.n_pairs == 20
    assert 0 <= bounds.lipschitz_possible <= 1
    assert bounds.least_cancel > 0


def small_log(lists, clicks, sessions, n_features=2):
    documents = np.array(lists, dtype=np.int32)
    return ClickLog(
        features=np.random.default_rng(0).normal(size=(documents.max() + 1, n_features)).astype(np.float32),
        versions=documents,
        mask=np.ones(documents.shape, dtype=bool),
        clicks=np.array(clicks, dtype=np.float32),
        sessions=np.array(sessions, dtype=np.float32),
    )


@pytest.mark.parametrize(
    "odd",
    [
        small_log([[0, 1, 2]], [[1, 0, 0]], [1]),
        small_log([[0], [1]], [[1], [0]], [1, 1]),
        small_log([[0, 1, 2], [1, 0, 2]], [[0, 0, 0], [0, 0, 0]], [3, 3]),
        small_log([[0, 1, 2], [1, 0, 2]], [[3, 1, 0], [2, 1, 0]], [3, 3], n_features=0),
        small_log([[0, 1, 2], [1, 0, 2]], [[0.3, 0.1, 0.1], [0.2, 0.1, 0]], [0.3, 0.4]),
    ],
    ids=["one list", "one document per list", "no click", "no feature", "weights below one"],
)
def test_odd_logs_are_diagnosed_without_a_fall(odd, tmp_path):
    found = diagnose(odd, quick=True)
    json.dumps(found.to_json(), allow_nan=False)
    assert write_diagnosis(found, tmp_path / "report.html", "odd", "unskew diagnose odd").exists()
    single = verdict(found).lines[0].startswith("All documents were shown at one position")
    assert single == (odd.versions.shape[1] == 1)


def test_a_log_without_clicks_can_tell_nothing():
    orders = [[0, 1, 2], [1, 0, 2], [2, 1, 0]] * 2
    lists = [[document + 3 * query for document in order] for query in range(10) for order in orders]
    found = verdict(diagnose(small_log(lists, np.zeros((60, 3)), [2] * 60), quick=True))
    assert found.lines[0].startswith("The log has no clicks, so nothing can be learned")
    assert not any("computed from clicks" in line for line in found.lines)


def test_too_few_clicks_for_a_curve_identify_relevance_in_principle_only():
    lists = [[document + 3 * query for document in order] for query in range(10) for order in ([0, 1, 2], [1, 2, 0])]
    clicks = np.zeros((20, 3))
    clicks[:, 0] = 1  # never lower down
    found = diagnose(small_log(lists, clicks, [2] * 20), quick=True)
    assert found.connectivity.connected
    assert "too few clicks on documents" in answer(found, "examination curve").answer
    assert "in principle only" in found.verdict.lines[0]


def test_one_next_command_ends_the_diagnosis(good, one_order):
    assert good.verdict.command == one_order.verdict.command == "unskew auto LOG --out model"
    assert good.verdict.lines[-1] == "Next: unskew auto LOG --out model"
    silent = small_log([[0, 1, 2]], np.zeros((1, 3)), [1])
    assert diagnose(silent, quick=True).verdict.command.startswith("unskew ingest")


def test_categories_that_no_test_looks_at_are_named(good):
    names = tuple(f"f{number}" for number in range(good.log.n_features))
    log = replace(good.log, feature_names=names, categories={"f0": ("a", "b")})
    text = answer(replace(good, log=log), "categories").answer
    assert text == "f0: the tests of coupling, leaks and order use numeric features only and ignore them"
    assert "categories" not in [finding.question for finding in good.findings()]
