"""Tables: ours alongside the paper's."""

import numpy as np

from unskew.comparison.plan import Repetition, Run
from unskew.comparison.rows import Outcome
from unskew.comparison.run import Result
from unskew.comparison.settings import Entry, Setting
from unskew.comparison.statistics import Table
from unskew.comparison.tables import chosen_sheet, difference_sheet, result_sheets
from unskew.display import Best
from unskew.papers.settings import Expected, PaperExperiment
from unskew.papers.sheets import expected_beside

QUERIES = np.linspace(0.1, 0.9, 30)
WOBBLE = np.tile([0.001, -0.001, 0.0], 10)  # differences must not be all alike
EXPERIMENT = PaperExperiment(
    name="x",
    title="Rankers",
    paper="p",
    question="q",
    metrics=("ndcg@10", "arp"),
    baseline=("Clicks",),
    methods=(Entry("Labels", "labelled"), Entry("Clicks", "naive"), Entry("DLA", "dla", grid={"max_weight": [2, 5]})),
    expected=(
        Expected("Yahoo!", ("arp", "ndcg@10"), {"Clicks": [3.6, 0.741], "DLA": [3.5, 0.755]}, catalogue="yahoo-set1"),
        Expected("Istella-S", ("ndcg@10",), {"DLA": [0.696]}, catalogue="istella-s"),
    ),
)


def results(setting=""):
    shifts = {"Labels": 0.05, "Clicks": 0.0, "DLA": 0.02}
    return [
        Result(
            Run(setting, label, {"max_weight": 5} if label == "DLA" else {}, Repetition(seed, "d", seed), {}),
            Outcome(
                {"ndcg@10": QUERIES + shift + WOBBLE * seed, "arp": 10 - QUERIES - shift - WOBBLE * seed},
                None,
                {"validation": 0.5},
            ),
        )
        for label, shift in shifts.items()
        for seed in (1, 2)
    ]


def texts(sheet):
    return [list(row) for row in sheet.rows]


def test_results_stand_beside_the_papers_numbers_with_marks():
    (sheet,) = result_sheets(EXPERIMENT, Table(results()), "world:tiny", expected_beside(EXPERIMENT, "world:tiny"))
    assert sheet.columns == ("method", "ndcg@10 ↑", "arp ↓", "paper, Yahoo!: ndcg@10", "paper, Istella-S: ndcg@10")
    assert texts(sheet) == [
        ["Labels", "0.5500 ± 0.0000 ++", "9.4500 ± 0.0000 ++", "–", "–"],
        ["Clicks", "0.5000 ± 0.0000", "9.5000 ± 0.0000", "0.741", "–"],
        ["DLA", "0.5200 ± 0.0000 ++", "9.4800 ± 0.0000 ++", "0.755", "0.696"],
    ]
    assert "against Clicks" in sheet.notes[0]
    for column in (1, 2):  # the best of those that learn from clicks; of arp, the smallest
        assert [isinstance(row[column], Best) for row in sheet.rows] == [False, False, True]


def test_on_the_papers_own_data_only_its_number_on_that_data_is_shown():
    (sheet,) = result_sheets(EXPERIMENT, Table(results()), "istella-s", expected_beside(EXPERIMENT, "istella-s"))
    assert sheet.columns[3:] == ("paper, Istella-S: ndcg@10",)


def test_many_settings_make_one_table_of_the_main_metric():
    names = [f"η = {level}" for level in (0, 1, 2, 3)]
    experiment = PaperExperiment(
        **{**EXPERIMENT.__dict__, "settings": tuple(Setting(name, x=float(n)) for n, name in enumerate(names))}
    )
    table = Table([entry for name in names for entry in results(name)])
    (sheet,) = result_sheets(experiment, table, "world:tiny")
    assert sheet.columns == ("method", *names)
    assert texts(sheet)[2][1] == "0.5200 ± 0.0000 ++"


def test_a_method_with_fewer_repetitions_is_named():
    (sheet,) = result_sheets(EXPERIMENT, Table(results()[:-1]), "world:tiny")
    assert "Fewer repetitions: DLA (1)." in sheet.notes[0]


def test_differences_come_with_an_interval_and_both_tests():
    sheet = difference_sheet(EXPERIMENT, Table(results()))
    assert [row[0] for row in texts(sheet)] == ["Labels", "DLA"]
    assert texts(sheet)[1][:3] == ["DLA", "Clicks", "+0.0200"]
    assert len(sheet.columns) == len(sheet.rows[0]) == 6


def test_chosen_hyper_parameters_stand_beside_the_papers():
    assert texts(chosen_sheet(EXPERIMENT, Table(results()), {"Yahoo!": {"λ": 100}})) == [
        ["DLA", "max_weight 5", "ours"],
        ["Yahoo!", "λ 100", "paper"],
    ]
