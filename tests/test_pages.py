"""Every command of every page is one that the command line accepts; commands with placeholders are run on small data.

Pages whose blocks run as written are in the tests that `RUN_BY` names.
"""

import ast
import importlib.util
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from ingestion.raw_tables import hotel_site, media_site
from unskew.cli import COMMANDS, app, command_of
from unskew.methods import METHODS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# The test that runs the Python and shell blocks of a page; a new page with such blocks belongs here.
RUN_BY = {
    "README.md": "test_readme.py",
    "quickstart.md": "test_readme.py",
    "propensities.md": "test_readme.py",
    "diagnose.md": "test_readme.py",
    "attention.md": "test_readme.py",
    "peers.md": "test_readme.py",
    "guide.md": "test_guide.py",
    "CONTRIBUTING.md": "test_contributing.py",
    "serving.md": "serving/test_export.py",
    "click_log.md": "data/test_log_files.py",
    "experiments.md": "papers/test_reproduce.py",
    "ingest.md": "test_pages.py",
    "privacy.md": "test_pages.py",
    "daily.md": "test_pages.py",
    "selection.md": "test_pages.py",
    "choosing.md": "test_pages.py",
}
NEEDS_A_CLUSTER = {"scale.md"}  # of Spark: its blocks must parse
# Experiments take minutes: their names and options are checked below, and tests/papers runs them in small.
NOT_RUN = {"reproduce"}
FAST = {
    "train": ["--set", "steps=2", "--set", "hidden=4", "--overwrite"],
    "compare": ["--set", "steps=2", "--seeds", "1", "--jobs", "1", "--out", "compared"],
    "auto": ["--set", "steps=2", "--force", "--overwrite"],
    "diagnose": ["--quick"],
    "ingest": ["--overwrite"],
    "simulate": ["--sessions", "4"],
}
# What stands for the placeholders of a page: made before its first command.
PREPARED = {
    "ingest.md": ["unskew shop --sessions 200 --out shop"],
    "privacy.md": [],
    "daily.md": [
        "unskew ingest events.parquet --features features.parquet --time timestamp --period day --out today",
        "unskew train today --method dla --out yesterday",
    ],
    "selection.md": ["unskew ingest events.parquet --features features.parquet --out LOG"],
    "choosing.md": ["unskew ingest events.parquet --features features.parquet --out LOG"],
}
INSTEAD = {"DATA": "world:tiny", "world:small": "world:tiny", "2026-11-10": "2024-01-01"}


def commands(page):
    """Command lines of all code blocks, fenced or indented; comments and continued lines taken care of."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"^```(?:bash|sh)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^ {4}(unskew .*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.M)
    lines = [line for block in fenced for line in block.replace("\\\n", " ").splitlines()] + indented
    return [line for line in lines if line.startswith("unskew ")]


def code_blocks(page):
    return re.findall(r"^```([^\n]*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_every_page_with_code_is_run_by_a_test():
    with_code = {
        page.name
        for page in PAGES
        if any(language.startswith("python") for language, _ in code_blocks(page)) or commands(page)
    }
    assert with_code - NEEDS_A_CLUSTER <= set(RUN_BY)
    for page, test in RUN_BY.items():
        assert page in (ROOT / "tests" / test).read_text(encoding="utf-8"), f"{test} does not run {page}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_parses_and_imports_what_exists(page):
    for language, text in code_blocks(page):
        if language == "toml":
            tomllib.loads(text)
        elif language.startswith("python"):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unskew"):
                    exec(ast.unparse(node), {})


def test_every_link_of_a_page_leads_to_a_file_or_to_a_page_that_the_site_makes():
    made = {"reference.md", "contributing.md", "changelog.md", "methods/index.md"}
    made |= {f"methods/{name}.md" for name in METHODS}
    made |= {f"tutorials/{path.stem}.md" for path in (ROOT / "examples").glob("*.ipynb")}
    broken = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", text):
            target = (page.parent / link).resolve()
            known = target.exists() or str(target).removeprefix(f"{ROOT / 'docs'}/") in made
            if not known and not link.startswith(("http:", "https:")):
                broken.append(f"{page.name}: {link}")
    assert not broken


def words_of(line):
    words = shlex.split(line.partition(" > ")[0], comments=True)
    return words[1:]


LINES = [(page.name, line) for page in PAGES for line in commands(page)]


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}-{number}" for number, (page, _) in enumerate(LINES)])
def test_every_command_of_every_page_is_accepted(page, line):
    name, *rest = words_of(line)
    assert name in COMMANDS, line
    single = typer.Typer()
    single.command(name)(command_of(name))
    get_command(single).make_context(name, list(rest))  # raises what the command line would refuse


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Event and feature tables with every column that the pages name."""
    folder = tmp_path_factory.mktemp("tables")
    made = "simulate world:tiny --sessions 8 --intervene shuffle=0.3 --seed 1 --out made"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in (made, "events made --out events.parquet --features features.parquet"):
            assert CliRunner().invoke(app, line.split(), catch_exceptions=False).exit_code == 0
    events = pq.read_table(folder / "events.parquet")
    clicked = events["clicked"].to_numpy()
    for column in ("add_to_cart", "purchase"):
        events = events.append_column(column, pa.array(clicked))
    events = events.append_column("user_id", pa.array([f"u{number // 40}" for number in range(len(clicked))]))
    events = events.append_column("discount", pa.array(np.random.default_rng(0).random(len(clicked))))
    pq.write_table(events, folder / "events.parquet")
    (folder / "users.txt").write_text("nobody\n", encoding="utf-8")
    hotel_site(folder)
    media_site(folder)
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] if page == "selection.md" else []) for page in PREPARED]
)
def test_commands_with_placeholders_run_on_small_data(page, tables, tmp_path, monkeypatch):
    for file in tables.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    for line in [*PREPARED[page], *commands(ROOT / "docs" / page)]:
        name, *rest = words_of(line)
        if name in NOT_RUN:
            continue
        rest = [INSTEAD.get(word, word) for word in rest]
        result = CliRunner().invoke(app, [name, *rest, *FAST.get(name, [])])
        assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception}"


def site_hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    return hooks


@pytest.mark.parametrize("name", METHODS)
def test_the_page_of_a_method_says_all_of_it_and_links_to_pages_that_exist(name):
    page = site_hooks().method_page(name, METHODS[name])
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert headings == [
        *("The model", "Relation to others", "Hyper-parameters", "Example", "Measured strengths and limits")
    ]
    assert "Relation to others" not in page.partition("## Relation to others")[0]
    links = re.findall(r"\]\(([\w./]+\.md)", page)
    made = {"reference.md", *(f"methods/{other}.md" for other in METHODS)}
    for link in links:
        target = str(Path("methods", link)) if not link.startswith("../") else link.removeprefix("../")
        assert target in made or (ROOT / "docs" / target).is_file(), link


@pytest.mark.filterwarnings("ignore:the learned order reverses:RuntimeWarning")  # two steps teach little
@pytest.mark.parametrize("name", METHODS)
def test_the_example_on_the_page_of_a_method_runs(name):
    code = site_hooks().example_code(name, METHODS[name])
    names = {}
    exec(compile(code.replace("steps=200", "steps=2").replace("sessions=128", "sessions=16"), name, "exec"), names)
    assert names["model"].recipe.method == name


def test_the_reference_lists_every_public_name_once():
    hooks = site_hooks()
    listed = [name for group in hooks.GROUPS.values() for name in group.split()]
    assert sorted(listed) == sorted(hooks.public_names())
