"""What a diagnosis says of a record of looks."""

import json
from dataclasses import replace

import numpy as np
import pytest

import unskew
from sample_logs import log_of
from unskew.data.judged.judged_set import JudgedSet
from unskew.diagnosis.advice import DOUBTFUL, TRAIN, advise, facts
from unskew.diagnosis.examination_record import faults_of_looks, left_for_relevance, looks_by_half
from unskew.diagnosis.page import diagnose, position_rows, write_diagnosis
from unskew.simulation.simulate import simulate

SEEN = [[820, 460], [820, 460]]


def recorded_log(seen):
    """Two documents of one query in both orders, 1,000 sessions each."""
    counts = {"seen": np.array(seen), "seen_sessions": np.array([1000, 1000])}
    return log_of([[0, 1], [1, 0]], [[400, 200]] * 2, [1000] * 2, document_queries=np.zeros(2, int), **counts)


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        ([[20, 10], [820, 460]], "at least 48% of the clicks have no recorded examination"),  # 380 + 190 of 1,200
        ([[1000, 1000], [1000, 999]], "constant: 100.0% of the impressions"),
        ([[0, 0], [0, 0]], "constant: 0.0% of the impressions"),
        ([[500, 600], [500, 600]], "does not decrease"),
    ],
)
def test_faults_of_a_record_are_named(seen, fault):
    assert any(fault in found for found in faults_of_looks(recorded_log(seen)))
    assert not faults_of_looks(recorded_log(SEEN))


def test_documents_that_are_looked_at_most_may_stand_low():
    """0.3 on top, 0.6 below: one order cannot tell a strange record from a document that attracts looks."""
    one_order = replace(recorded_log([[300, 600], [300, 600]]), versions=np.array([[0, 1], [0, 1]], dtype=np.int32))
    clicked = replace(one_order, clicks=np.array([[200, 300], [200, 300]]))
    assert not any("does not decrease" in fault for fault in faults_of_looks(clicked))
    # Seen on top: 600 of 1,000 and 900 of 1,000; below: 300 and 500. Clicks are fewer than looks.
    both = replace(recorded_log([[600, 500], [900, 300]]), clicks=np.array([[100, 100], [100, 100]]))
    assert looks_by_half(both) == pytest.approx((0.75, 0.4))


def test_looks_missed_now_and_then_are_no_fault():
    assert not faults_of_looks(recorded_log([[350, 190], [820, 460]]))  # 60 of 1,200 clicks have none


@pytest.fixture(scope="module")
def judged():
    rng = np.random.default_rng(0)
    return JudgedSet.from_arrays(rng.normal(size=(1000, 3)), rng.integers(0, 5, 1000), group=[10] * 100)


def recorded(judged, **record):
    return simulate(judged, "svm", "position_based", sessions=64, record=record).log


def test_clicks_per_look_tell_a_record_that_grows_with_interest(judged):
    # Looks by position alone leave all of the variance to relevance, whatever is missed; looks that are clicks nothing.
    assert left_for_relevance(recorded(judged, misses=0.2)) == pytest.approx(1, abs=0.05)
    assert left_for_relevance(recorded(judged, misses=1.0, on_click=True)) == 0
    assert left_for_relevance(recorded(judged, interest=1.0)) < 0.15
    (fault,) = [fault for fault in faults_of_looks(recorded(judged, interest=1.0)) if "interest" in fault]
    assert "hardly differ between documents" in fault


def word(diagnosis, method="attention"):
    (advice,) = [entry for entry in advise(facts(diagnosis)) if entry.method == method]
    return advice


def test_the_record_stands_beside_the_other_curves(judged, tmp_path):
    found = diagnose(recorded(judged, share=0.5), quick=True)
    columns, rows = position_rows(found)
    assert "recorded examination" in columns
    assert float(rows[-1][columns.index("recorded examination")]) == pytest.approx(0.06 / 0.68, abs=0.02)
    assert found.to_table()["seen_propensity"][0].as_py() == 1
    assert (
        "recorded examination"
        in write_diagnosis(found, tmp_path / "page.html", "log", "unskew diagnose log").read_text()
    )
    json.dumps(found.to_json(), allow_nan=False)
    assert word(found).word == TRAIN
    assert "pass estimator=seen" in word(found, "ipw").reason


def test_false_alarms_and_faults_change_the_advice(judged):
    log = simulate(
        judged,
        "random",
        "position_based",
        sessions=256,
        record={"false_alarms": 0.2},
        interventions={"shuffle": 0.3},
    ).log
    advice = word(diagnose(log, quick=True))
    assert (advice.word, "false_alarms=none" in advice.reason) == (TRAIN, True)
    constant = diagnose(replace(log, seen=np.where(log.mask, log.seen_sessions[:, None], 0)), quick=True)
    assert word(constant).word == DOUBTFUL
    assert any("the record is constant" in found.answer for found in constant.findings())


def test_auto_tries_what_learns_from_looks(judged):
    log = simulate(judged, "random", "position_based", sessions=32, record={}, interventions={"shuffle": 0.5}).log
    found = unskew.auto(log, steps=3, hidden=[4]).verdict
    assert [(step.method, step.over) for step in found.steps] == [("attention", "naive")]
