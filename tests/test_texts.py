"""Text from data is text in every form, and no secret leaves the command line."""

import csv
import html.parser
import io
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import unskew
from unskew import texts
from unskew.cli import COMMANDS, app
from unskew.command_line.declarations import options_of
from unskew.display import Screen
from unskew.reporting.sheets import latex, markdown

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "=HYPERLINK(1)",
    "@SUM(A1)",
    "\x1b[2J\x1b]0;owned\x07",
    "a|b*c`d[e](javascript:f)",
    "\\input{/etc/passwd} $x_{",
    "../../up",
    "{{7*7}} ${7*7} %s",
    "\u202egnp.exe",
    "]]></svg><script>",
    "line\nbreak,'quoted'",
]
CANARY, OTHER, ENVIRONMENT = "canary-7f3a", "c%40nary-9b", "canary-of-environment"
URL = f"postgresql://ann:{CANARY}@127.0.0.1:9/shop?user=u&password={OTHER}"
SEEN = (CANARY, OTHER, "c@nary-9b", ENVIRONMENT)

any_text = st.text(max_size=30) | st.sampled_from(HOSTILE)


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.data = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.data.append(data)


def tags_of(page):
    parser = Tags()
    parser.feed(page)
    parser.close()
    return parser


@given(any_text)
def test_one_escaper_per_form(text):
    page = tags_of(f"<p>{texts.for_html(text)}</p>")
    assert [tag for tag, _ in page.tags] == ["p"]
    assert "".join(page.data) == texts.shown(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", texts.shown(text))
    assert re.fullmatch(r"[\w.-]+", texts.file_name(text))
    assert not texts.file_name(text).startswith((".", "-"))
    line = texts.for_markdown(text)
    assert "\n" not in line
    assert not re.search(r"<|(?<!\\)(\\\\)*[|*`\[\]]", line)
    bare = re.sub(
        r"\\textbackslash\{\}|\\[\^~]\{\}|\\dots\{\}|\$\\?\w*(?:<|>|-)?\$|\\[&%_#{}$]", "", texts.for_latex(text)
    )
    assert not re.search(r"[\\{}$%#&_^~]", bare)
    assert not texts.is_formula(texts.for_spreadsheet(text))


@given(st.lists(any_text, min_size=2, max_size=2))
def test_a_table_keeps_its_shape_whatever_its_texts(cells):
    sheet = Screen(cells[0], cells, [cells], [cells[1]], name="name")
    for line in markdown(sheet).splitlines()[2:5]:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3
    rows = [line for line in latex(sheet).splitlines() if line.endswith(r" \\")]
    assert len(rows) == 2
    assert all(len(re.findall(r"(?<!\\)&", row)) == 1 for row in rows)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot reach s3://key:s3/cret@bucket/log", "cannot reach s3://***@bucket/log"),
        ("s3:/key:secret@bucket", "s3:/***@bucket"),
        ("jdbc:db://host;user=me;password=it", "jdbc:db://host;user=***;password=***"),
        ("https://host/x?X-Amz-Signature=abc&day=1", "https://host/x?X-Amz-Signature=***&day=1"),
        ("host=db password='two words' port=1", "host=db password='***' port=1"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": "***", "n": 1}'),
        ("world:tiny@train", "world:tiny@train"),
        ("--user user_id=20", "--user user_id=20"),
        ("https://arxiv.org/abs/1804.05938", "https://arxiv.org/abs/1804.05938"),
    ],
)
def test_secrets_are_cut_and_nothing_else(text, expected):
    assert texts.redacted(text) == expected


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A log of hostile names, and a model of it."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    n = 20 * len(HOSTILE)
    session = np.repeat(np.arange(n), 3)
    which = session % len(HOSTILE)
    shown = np.concatenate([rng.permutation(3) + 4 for _ in range(n)])
    rows = {
        "session": session,
        "query": [HOSTILE[number] for number in which],
        "document": [HOSTILE[number] for number in shown],
        "position": np.tile([1, 2, 3], n),
        "click": rng.integers(0, 2, 3 * n),
        HOSTILE[6]: [HOSTILE[number] for number in rng.integers(0, len(HOSTILE), n)[session]],
        **{f"{text}{place}": (shown * (place + 1)) % 5 + 0.5 for place, text in enumerate(HOSTILE)},
        "brand": [HOSTILE[(number + query) % 3] for number, query in zip(shown, which, strict=True)],
    }
    table = pa.table(rows)
    pq.write_table(table, folder / "events.parquet")
    first = np.unique([f"{query} {document}" for query, document in zip(which, shown, strict=True)], return_index=True)
    pq.write_table(table.take(first[1]).sort_by("query"), folder / "candidates.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unskew.ingestion.users.LEAST_SESSIONS", 1)
        unskew.ingest(folder / "events.parquet", folder / "log", bias=[HOSTILE[6]], progress=False)
    model = unskew.fit("dla", unskew.read_log(folder / "log"), steps=4, hidden=[4], progress=False)
    unskew.save_model(model, folder / "model")
    return folder


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*apostrophe")
def test_hostile_names_are_text_in_reports_and_exports(hostile, tmp_path):
    log, model, candidates = hostile / "log", hostile / "model", hostile / "candidates.parquet"
    lines = [
        ("diagnose", log, "--out", tmp_path / "report.html", "--quick", "--quiet"),
        ("judgements", log, "--out", tmp_path / "judgements.csv"),
        ("judgements", log, "--out", tmp_path / "judgements.json"),
        ("rank", model, candidates, "--out", tmp_path / "ranking.csv", "--quiet"),
        ("look", model, log, "--out", tmp_path / "look.html"),
        ("explain", model, candidates, "--by-order", "--repeats", 1, "--out", tmp_path / "why"),
        ("export", model, "--to", tmp_path / "model.onnx"),
        ("drift", log, log),
        ("ingest", hostile / "events.parquet", "--dry-run"),
    ]
    for line in lines:
        done = run(*line)
        assert done.exit_code == 0, (line[0], done.output, done.exception)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", done.output), line[0]
    for page in tmp_path.glob("*.html"):
        found = tags_of(page.read_text())
        assert not [tag for tag, about in found.tags if "onerror" in about or tag == "img"], page.name
        for script in re.findall(r"<script>(.*?)</script>", page.read_text(), flags=re.DOTALL):
            assert "alert(1)" not in script
    card = (hostile / "model" / "README.md").read_text()
    assert "<script" not in card
    assert "<img" not in card
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", card)
    for name in ("judgements.csv", "ranking.csv"):
        rows = list(csv.reader(io.StringIO((tmp_path / name).read_text())))
        assert not [cell for row in rows for cell in row if texts.is_formula(cell)], name
        assert {row[0] for row in rows[1:]} == {texts.for_spreadsheet(text) for text in HOSTILE}
    ratings = json.loads((tmp_path / "judgements.json").read_text())["judgmentRatings"]
    assert {entry["query"] for entry in ratings} == set(HOSTILE)
    about = json.loads((hostile / "model" / "card.json").read_text())
    assert {f"{text}{place}" for place, text in enumerate(HOSTILE)} <= set(about["features"])


def without_secrets(where, output, folder):
    assert not [secret for secret in SEEN if secret in output], (where, output)
    for file in folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not [secret for secret in SEEN if secret.encode() in content], (where, file)


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_a_secret_typed_anywhere_is_not_repeated(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_PASSWORD", ENVIRONMENT)
    options = options_of(name)
    arguments = COMMANDS[name].arguments
    plain = [f"no-{argument}" for argument in arguments]
    lines = [[*plain, f"--pasword={URL}"], [*plain, f"{URL} of {ENVIRONMENT}"]]
    for key, option in options.items():
        if key in arguments:
            lines.append([URL if argument == key else f"no-{argument}" for argument in arguments])
        elif option.kind is not bool:
            lines.append([*plain, option.flag.partition("/")[0], URL])
    for line in lines:
        done = CliRunner().invoke(app, [name, *line])
        said = done.output + repr(done.exception) * (done.exit_code == 1)
        without_secrets((name, line), texts.redacted(said) if done.exit_code == 1 else said, tmp_path)


@pytest.mark.long
def test_a_secret_in_a_path_is_in_no_file_and_no_output(tmp_path, monkeypatch):
    sys.path.insert(0, str(BENCHMARKS))
    monkeypatch.setenv("SHOP_PASSWORD", ENVIRONMENT)
    try:
        from campaign_commands import commands, write_inputs
    finally:
        sys.path.remove(str(BENCHMARKS))
    inputs = tmp_path / f"in;password={CANARY}"
    inputs.mkdir()
    write_inputs(inputs)
    made = commands(inputs)
    out = tmp_path / f"out;password={CANARY}"
    out.mkdir()
    for command in [command for command in made if not command.lasting]:
        if command.start:
            shutil.copytree(inputs / command.start, out / command.place)
            for entry in inputs.glob(f"{command.start}.*"):
                shutil.copy(entry, out / entry.name)
        done = CliRunner().invoke(app, command.line(out))
        assert done.exit_code == 0, (command.name, done.output)
        without_secrets(command.name, done.output, tmp_path)
