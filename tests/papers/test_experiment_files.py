"""Settings: strict where a typing error would cost hours, and every shipped file is sound."""

from dataclasses import replace

import pytest

from unskew.comparison.plan import plan
from unskew.comparison.settings import SimulationSettings
from unskew.methods import METHODS
from unskew.papers.experiment_files import load_experiment, parse_experiment, shipped
from unskew.papers.reproduce import reproduce

pytestmark = pytest.mark.long

SMALLEST = """
title = "t"
paper = "p"
question = "q"
metrics = ["ndcg@10"]
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sedes = 3", r"x.toml: unknown key 'sedes' .did you mean 'seeds'..: choose from name, title, .*seeds"),
        ("seeds = '3'", r"x.toml, seeds must be a whole number from 1, or none, got '3'"),
        ("seeds = 0", r"x.toml, seeds must be a whole number from 1, or none, got 0"),
        ("[[figures]]\nkind = 'bars'\nfile = '../x'\ntitle = 't'", r"figure file '../x' is not a plain name"),
        ("[[methods]]\nlabel = 'a'\nmethod = 'os:system'", r"'os:system' names code outside unskew: pass --allow-code"),
        ("[simulation.user]\nname = 'os:system'", r"'os:system' names code outside unskew"),
        ("[[settings]]\nname = 's'\n[settings.simulation.policy]\nname = 'os:system'", r"names code outside unskew"),
        ("selection = 'worst'", r"selection must be one of best, all, got 'worst'"),
        ("metric = 'ndcg@5'", r"metric 'ndcg@5' is not among metrics"),
        ("baseline = ['DLA']", r"baseline: there is no 'DLA' among none"),
        (
            "[simulation]\nsession = 5",
            r"simulation: unknown key .session. .did you mean .sessions...: choose from policy, user",
        ),
        ("[[methods]]\nlabel = 'a'", r"x.toml, methods 1: 'method' is missing"),
        (
            "[[methods]]\nlabel = 'a'\nmethod = 'dla'\ngrid = { a = [] }",
            r"methods 1, grid must be a table of lists, none",
        ),
        ("[methods]\nlabel = 'a'", r"x.toml, methods must be a list of tables, as in \[\[methods\]\]"),
        (
            "[[settings]]\nname = 's'\nsimulation = { people = {} }",
            r"unknown key 'people' of simulation: choose from policy, user",
        ),
        ("[[settings]]\nname = 's'\n[[settings]]\nname = 's'", r"settings: 's' occurs twice"),
        ("[[claims]]\ntext = 'c'\nrelation = 'beats'", r"relation must be one of better, similar"),
        (
            "[[expected]]\ndata = 'd'\nmetrics = ['ndcg@10']\nvalues = { a = [1, 2] }",
            r"expected values of 'a' need one number",
        ),
        ("title = [", r"x.toml is not TOML"),
    ],
)
def test_a_mistake_is_refused_and_what_would_be_right_is_named(text, message):
    source = text if text.startswith("title") else f"{SMALLEST}{text}"
    with pytest.raises(ValueError, match=message):
        parse_experiment(source, "x")


def test_a_grid_has_all_combinations_of_its_values():
    text = "[[methods]]\nlabel = 'a'\nmethod = 'lbd'\ngrid = { penalty = [1, 2], cancel = [0.1, 0.2] }"
    experiment = parse_experiment(SMALLEST + text, "x")
    assert experiment.methods[0].points() == [
        {"penalty": 1, "cancel": 0.1},
        {"penalty": 1, "cancel": 0.2},
        {"penalty": 2, "cancel": 0.1},
        {"penalty": 2, "cancel": 0.2},
    ]


def test_a_change_of_the_user_keeps_the_other_options_unless_it_names_another_user():
    simulation = SimulationSettings(user={"name": "coupled", "coupling": 0.1, "noise": 0.2})
    assert simulation.changed({"user": {"coupling": 0.5}}).user == {"name": "coupled", "coupling": 0.5, "noise": 0.2}
    assert simulation.changed({"user": {"name": "trust"}}).user == {"name": "trust"}


def test_a_variant_changes_training_grids_and_seeds_and_is_called_for_by_its_data():
    text = (
        "[training]\nsteps = 10\nbatch_size = 4\n[[methods]]\nlabel = 'a'\nmethod = 'dla'\n"
        "[variants.paper]\nabout = 'large'\ndata = ['yahoo-set1']\nseeds = 8\ntraining = { steps = 99 }\n"
        "grids = { a = { max_weight = [1, 2] } }"
    )
    experiment = parse_experiment(SMALLEST + text, "x")
    assert (experiment.variant_for("yahoo-set1"), experiment.variant_for("world:small")) == ("paper", "")
    large = experiment.varied("paper")
    assert (large.training, large.seeds) == ({"steps": 99, "batch_size": 4}, 8)
    assert large.methods[0].grid == {"max_weight": [1, 2]}
    with pytest.raises(ValueError, match=r"x has no variant 'huge'\. Found: paper"):
        experiment.varied("huge")


def test_an_unknown_experiment_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown experiment 'lbd-table9': choose one of .*lbd-table1"):
        load_experiment("lbd-table9")


def test_an_experiment_of_ones_own_is_a_file(tmp_path):
    (tmp_path / "mine.toml").write_text(SMALLEST)
    assert load_experiment(str(tmp_path / "mine.toml")).name == "mine"
    with pytest.raises(FileNotFoundError, match=r"other\.toml does not exist"):
        load_experiment(str(tmp_path / "other.toml"))


@pytest.mark.parametrize("name", list(shipped()))
def test_every_shipped_experiment_can_be_planned_with_the_methods_and_options_there_are(name):
    experiment = load_experiment(name)
    missing = [entry.method for entry in experiment.methods if entry.method not in METHODS]
    if missing:
        pytest.skip(f"{missing[0]} is not a method yet")
    for variant in ("", *experiment.variants):
        named = experiment.variants[variant] if variant else None
        assert named is None or {*named.methods, *named.grids} <= {entry.label for entry in experiment.methods}
        groups = plan(experiment.varied(variant), "world:tiny", 2)
        keys = [run.key for group in groups for run in group.candidates]
        assert len(set(keys)) >= 1 or not experiment.methods


def test_a_variant_adds_settings_in_their_order():
    experiment = parse_experiment(
        'title = "t"\npaper = "p"\nquestion = "q"\n'
        '[[settings]]\nname = "low"\nx = 0.0\n[[settings]]\nname = "high"\nx = 1.0\n'
        "[[methods]]\nlabel = 'a'\nmethod = 'dla'\n"
        '[variants.paper]\nabout = "more"\nsettings = [{ name = "middle", x = 0.5 }]\n',
        "own",
    )
    assert [entry.name for entry in experiment.varied("paper").settings] == ["low", "middle", "high"]
    assert [entry.name for entry in experiment.settings] == ["low", "high"]


def test_code_of_ones_own_is_imported_where_it_is_allowed():
    text = "title = 't'\npaper = 'p'\nquestion = 'q'\n[[methods]]\nlabel = 'a'\nmethod = 'unskew.methods.bias.dla:DLA'"
    (entry,) = parse_experiment(text, "x", allow_code=True).methods
    assert entry.method is METHODS["dla"]


PAPERS = [name for name in shipped() if "paper" in load_experiment(name).variants]


ALL = ()  # methods
SOME = [("lbd-table1", ("LBD",)), ("vectorization-table1", ("Vectorization",)), ("cdla-table1", ("CDLA-LD",))]


@pytest.mark.parametrize(
    ("name", "labels"), [*SOME, *(pytest.param(name, ALL, marks=pytest.mark.slow) for name in PAPERS)]
)
def test_the_papers_own_settings_run(name, labels, tmp_path):
    experiment = load_experiment(name).varied("paper")
    if labels:
        methods = tuple(entry for entry in experiment.methods if entry.label in labels)
        settings = experiment.settings[:1]
        experiment = replace(experiment, methods=methods, settings=settings, rows=(), claims=(), baseline=())
    options = {"steps": 6, "validate_every": 3, "hidden": [8], "batch_size": 16, "expand": 8}
    few = {
        "methods": tuple(
            replace(entry, grid={key: values[:1] for key, values in entry.grid.items()}) for entry in experiment.methods
        ),
        "simulation": replace(experiment.simulation, sessions=8),
    }
    done = reproduce(
        replace(experiment, **few, figures=(), variants={}),
        data="world:tiny",
        seeds=1,
        jobs=1,
        options=options,
        out=tmp_path / "out",
    )
    assert [(run.title, error) for run, error in done.results.failed] == []
