"""Plans: a run is its complete definition, repetitions go through folds, mistakes are found before work."""

from dataclasses import replace

import pytest

from unskew.comparison.plan import plan, repetitions_of
from unskew.comparison.settings import Entry, Experiment, Setting, SimulationSettings

EXPERIMENT = Experiment(
    name="x",
    title="t",
    question="q",
    metrics=("ndcg@10",),
    training={"steps": 10, "hidden": [4]},
    methods=(Entry("Clicks", "naive"), Entry("DLA", "dla", grid={"max_weight": [2.0, 5.0]})),
)


def keys(experiment, data="world:tiny", seeds=1):
    return [run.key for group in plan(experiment, data, seeds) for run in group.candidates]


def test_candidates_are_on_the_first_repetition_and_the_chosen_one_is_repeated_on_the_others():
    _, group = plan(EXPERIMENT, "world:tiny", 3)
    assert [run.point for run in group.candidates] == [{"max_weight": 2.0}, {"max_weight": 5.0}]
    assert [run.repetition.seed for run in group.candidates] == [0, 0]
    later = group.again(group.candidates[1])
    assert [(run.point["max_weight"], run.repetition.seed) for run in later] == [(5.0, 1), (5.0, 2)]


def test_a_seed_changes_clicks_and_training_but_not_the_data():
    group = plan(EXPERIMENT, "world:tiny", 2)[0]
    first, second = group.candidates[0], group.again(group.candidates[0])[0]
    assert [run.definition["simulation_seed"] for run in (first, second)] == [0, 1]
    assert [run.definition["recipe"]["settings"]["seed"] for run in (first, second)] == [0, 1]
    assert first.definition["data"] == second.definition["data"]


@pytest.mark.parametrize(
    "change",
    [
        {"training": {"steps": 11, "hidden": [4]}},
        {"metrics": ("ndcg@10", "arp")},
        {"simulation": SimulationSettings(sessions=129)},
        {"simulation": SimulationSettings(user={"name": "position_based", "power": 0.5})},
        {"settings": (Setting("s", simulation={"n_shown": 5}),)},
        {"methods": (Entry("Clicks", "two_tower"), Entry("DLA", "dla", options={"observation_rate": 1.0}))},
    ],
)
def test_a_change_of_the_definition_is_another_row(change):
    assert not set(keys(EXPERIMENT)) & set(keys(replace(EXPERIMENT, **change)))


def test_what_is_only_shown_does_not_change_the_row():
    assert keys(EXPERIMENT) == keys(replace(EXPERIMENT, title="another", baseline=("Clicks",)))


def test_a_method_that_learns_from_judgements_does_not_depend_on_clicks():
    labelled = replace(EXPERIMENT, methods=(Entry("Labelled", "labelled"),))
    assert keys(labelled) == keys(replace(labelled, simulation=SimulationSettings(sessions=5)))


def test_every_point_is_a_row_of_its_own_when_all_are_wanted():
    groups = plan(replace(EXPERIMENT, selection="all"), "world:tiny", 1)
    assert [group.label for group in groups] == ["Clicks", "DLA max_weight=2.0", "DLA max_weight=5.0"]


def test_folds_and_seeds_are_kept_apart():
    found = [(repetition.data, repetition.seed) for repetition in repetitions_of("mq2008", 2, folds=[1, 4])]
    assert found == [("mq2008/1", 0), ("mq2008/4", 0), ("mq2008/1", 1), ("mq2008/4", 1)]
    assert len(repetitions_of("mq2008")) == 5  # one seed of each fold
    assert [repetition.draw for repetition in repetitions_of("mq2008", 2)] == list(range(10))  # each another logger
    assert [repetition.draw for repetition in repetitions_of("mq2008", 1, folds=[4])] == [3]  # as among all folds
    assert [repetition.seed for repetition in repetitions_of("world:tiny")] == [0, 1, 2, 3, 4]
    worlds = repetitions_of("world:small:100-102", 2)
    assert [repetition.data for repetition in worlds[:3]] == ["world:small:100", "world:small:101", "world:small:102"]
    assert {repetition.overlap for repetition in worlds} == {0.0}  # worlds share nothing
    assert {repetition.overlap for repetition in repetitions_of("mq2008")} == {1 / 3}
    with pytest.raises(ValueError, match="there is no fold 6: mq2008 has folds 1 to 5"):
        repetitions_of("mq2008", folds=[6])


def test_a_repetition_draws_another_logger_unless_the_experiment_fixes_it():
    group = plan(EXPERIMENT, "world:tiny", 2)[0]
    runs = [group.candidates[0], *group.again(group.candidates[0])]
    assert [run.definition["simulation"]["policy"]["seed"] for run in runs] == [0, 1]
    fixed = replace(EXPERIMENT, simulation=SimulationSettings(policy={"name": "svm", "seed": 7}))
    group = plan(fixed, "world:tiny", 2)[0]
    runs = [group.candidates[0], *group.again(group.candidates[0])]
    assert [run.definition["simulation"]["policy"]["seed"] for run in runs] == [7, 7]


@pytest.mark.parametrize(
    ("experiment", "data", "message"),
    [
        (replace(EXPERIMENT, methods=(Entry("a", "lambdarank"),)), "world:tiny", "unknown method 'lambdarank'"),
        (replace(EXPERIMENT, training={"pace": 1}), "world:tiny", "unknown option 'pace' for naive"),
        (
            replace(EXPERIMENT, simulation=SimulationSettings(user={"name": "martian"})),
            "world:tiny",
            "unknown user 'martian'",
        ),
        (
            replace(EXPERIMENT, simulation=SimulationSettings(policy={"name": "fate"})),
            "world:tiny",
            "unknown policy 'fate'",
        ),
        (replace(EXPERIMENT, training={"device": "cuda:99"}), "world:tiny", "device 'cuda:99' is not available"),
        (EXPERIMENT, "world:gigantic", "unknown world 'world:gigantic'"),
    ],
)
def test_what_cannot_be_run_is_refused_before_any_work(experiment, data, message):
    with pytest.raises(ValueError, match=message):
        plan(experiment, data, 1)


def test_missing_files_are_refused_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"data set 'yahoo-set1' lacks set1\.train\.txt"):
        plan(EXPERIMENT, "yahoo-set1", 1)


def test_users_are_told_the_grades_of_the_data(monkeypatch):
    monkeypatch.setattr("unskew.comparison.plan.load", lambda name: None)
    for data, highest in (("world:tiny", 4.0), ("mq2008/1", 2.0)):
        run = plan(EXPERIMENT, data, 1)[0].candidates[0]
        assert run.definition["simulation"]["user"]["max_grade"] == highest
        assert run.definition["max_grade"] == highest
    real = replace(EXPERIMENT, simulation=SimulationSettings(user={"name": "real_click"}))
    assert plan(real, "mq2008/1", 1)[0].candidates[0].definition["simulation"]["user"]["rows"] == [0, 2, 4]


def test_labels_of_the_shown_ten_need_the_logger():
    entry = Entry("shown", "labelled", oracle="shown")
    [group] = plan(replace(EXPERIMENT, methods=(entry,)), "world:tiny", 1)
    assert "simulation" in group.candidates[0].definition
    with pytest.raises(ValueError, match="naive cannot use the oracle"):
        plan(replace(EXPERIMENT, methods=(replace(entry, method="naive"),)), "world:tiny", 1)
