"""Pages generated while the site is built: one per method, one per notebook, and the reference of all public names."""

from __future__ import annotations

import ast
import csv
import html
import inspect
import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

HERE = Path(__file__).parent
TOP = HERE.parent
SOURCE = TOP / "src" / "unskew" / "__init__.py"
TUTORIALS = sorted((TOP / "examples").glob("*.ipynb"))
OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md")  # pages at the top of the repository
PARTS = ("METHODS", "USERS", "POLICIES", "METRICS", "__version__")  # data, described on pages of their own


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    from unskew.methods import METHODS

    files.append(File.generated(config, "methods/index.md", content=index_page(METHODS)))
    for name, method in METHODS.items():
        files.append(File.generated(config, f"methods/{name}.md", content=method_page(name, method)))
    files.append(File.generated(config, "reference.md", content=reference_page(public_names())))
    for name in OUTSIDE:
        files.append(File.generated(config, name.lower(), content=outside_page(TOP / name)))
    for path in TUTORIALS:
        files.append(File.generated(config, f"tutorials/{path.stem}.md", content=notebook_page(path)))
    return files


def on_nav(nav: Any, config: Any, files: Files) -> Any:
    """Put the pages of each method below Methods, and those of each paper below Results."""
    from mkdocs.structure.pages import Page

    listed = {page.file.src_uri for page in nav.pages}
    for title in ("Methods", "Results"):
        section = next(item for item in nav.items if item.title == title)
        inside = [entry for entry in files.documentation_pages() if entry.src_uri.startswith(f"{title.lower()}/")]
        for file in sorted(inside, key=lambda entry: entry.src_uri):
            if file.src_uri not in listed:
                page = Page(Path(file.src_uri).stem if title == "Methods" else None, file, config)
                page.parent = section
                section.children.append(page)
                nav.pages.append(page)
    return nav


BEFORE = re.compile(r"(?<=</mi>|</mo>)(?=<mi>(?:log|ln|exp)</mi>)|(?<=</msub>)(?=<mi>(?:log|ln|exp)</mi>)")
AFTER = re.compile(r"(?<=<mi>log</mi>)(?=<m(?!o))")
SPACE = '<mspace width="0.17em"/>'
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Turn formulas into MathML, which browsers render without a script."""
    from latex2mathml.converter import convert

    def as_mathml(found: re.Match[str]) -> str:
        formula = re.sub(r"\\[lr]Vert", r"\\|", html.unescape(found[3]))  # the converter stretches those by the line
        drawn = convert(formula, display="inline" if found[2] == "(" else "block")
        return AFTER.sub(SPACE, BEFORE.sub(SPACE, drawn))

    return FORMULA.sub(as_mathml, content)


def on_post_page(output: str, **_: Any) -> str:
    """Name what a screen reader announces and the theme leaves without a name of its own."""
    named = output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
    named = re.sub(r'aria-labelledby="__nav_([\d_]+)_label"', r'aria-label="Section \1"', named)
    named = re.sub(r"<th([^>]*)>\s*</th>", r"<td\1></td>", named)  # a cell that heads nothing
    return named.replace(
        '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"',
        '<math tabindex="0" xmlns="http://www.w3.org/1998/Math/MathML" display="block"',
    )


def public_names() -> list[str]:
    """The names in `unskew.__all__`, read without importing the package."""
    for node in ast.parse(SOURCE.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [name for name in ast.literal_eval(node.value) if name not in PARTS]
    raise LookupError(f"{SOURCE} has no __all__")


def index_page(methods: dict[str, Any]) -> str:
    """All methods in one table."""
    rows = [f"| [`{name}`]({name}.md) | {method.paper} | {method.assumes} |" for name, method in methods.items()]
    head = ["# Methods", "", "[Which method?](../choosing.md) helps to choose. `unskew methods` prints this table.", ""]
    return "\n".join([*head, "| name | paper | assumes |", "|---|---|---|", *rows, ""])


def method_page(name: str, method: Any) -> str:
    """What a method assumes, needs, is related to and takes, from its class; an example; what was measured."""
    about, relation = described_module(inspect.getmodule(method))
    return "\n".join(
        [
            f"# {name}",
            "",
            f"**Paper.** {method.paper}  ",
            f"**Assumes** that {method.assumes}.  ",
            f"**Needs** {ALSO_NEEDS.get(name, NEEDS[method.detail])}.",
            "",
            "## The model",
            "",
            about,
            "",
            "## Relation to others",
            "",
            linked(relation, name),
            "",
            "## Hyper-parameters",
            "",
            *option_table(method),
            "",
            "Settings of [training](../reference.md#unskew.fit) (`steps`, `learning_rate`, …) and of the "
            "[network](../features.md) (`hidden`, …) apply as well.",
            "",
            "## Example",
            "",
            f"```python\n{example_code(name, method)}```",
            "",
            "## Measured strengths and limits",
            "",
            *measured_text(name),
            "",
        ]
    )


def described_module(module: Any) -> tuple[str, str]:
    """The docstring of a method's module without its title, and its paragraph on the relation to other methods."""
    about, _, relation = (inspect.getdoc(module) or "").partition("\n\nRelation to others: ")
    if not relation:
        raise LookupError(f"the docstring of {module.__name__} does not end with 'Relation to others: …'")
    return about, " ".join(relation.split())


def linked(text: str, own: str) -> str:
    """The text with a capital, and with a link at the first mention of each other method."""
    from unskew.methods import METHODS

    for name in METHODS:
        if name != own:
            text = text.replace(f"`{name}`", f"[`{name}`]({name}.md)", 1)
    return text[0].upper() + text[1:]


def option_table(method: Any) -> list[str]:
    """Hyper-parameters, from the signature and the `Args:` of class and constructor."""
    from unskew.methods import hyper_parameters
    from unskew.options import described

    documented = [part for kind in reversed(method.__mro__) for part in (kind, kind.__init__)]
    meanings = {
        name: meaning
        for part in documented
        for name, meaning in described_arguments(inspect.cleandoc(part.__doc__ or "")).items()
    }
    options = [
        f"| `{entry.name}` = `{entry.default!r}`<br>{described(entry.kind)} | {meanings[entry.name]} |"
        for entry in hyper_parameters(method).values()
    ]
    return ["| name, default, type | meaning |", "|---|---|", *options] if options else ["None of its own."]


def measured_text(name: str) -> list[str]:
    """What was measured of a method, and the pages with the numbers."""
    words = tomllib.loads((HERE / "measured.toml").read_text(encoding="utf-8"))
    known = words["methods"][name]
    pages = [f"[{words['pages'][page]}](../{page})" for page in known["pages"]]
    said = [f"Numbers, measured with 0.2 unless a page says otherwise: {', '.join(pages)}.", ""] if pages else []
    return [known["text"].strip(), "", *said, *result_rows(name)]


def result_rows(name: str) -> list[str]:
    """Rows of the method, and of raw clicks, in the tables of results that `make results` has written."""
    from unskew.papers.experiment_files import load_experiment, shipped

    lines: list[str] = []
    for experiment in map(load_experiment, shipped()):
        methods = {entry.label: entry.method for entry in experiment.methods}
        for path in sorted((HERE / "results" / "tables").glob(f"{experiment.name}-results*.csv")):
            columns, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
            kept = [row for row in rows if methods.get(row[0]) in (name, "naive")]
            if any(methods[row[0]] == name for row in kept):
                lines += [f"**{experiment.title}**", ""]
                lines += [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *kept)] + [""]
    return lines


def example_code(name: str, method: Any) -> str:
    """A program that trains the method on a simulated log that has what it needs."""
    needed = ["joint=True"] if method.detail != "counts" else []
    needed += [SIMULATED[name]] if name in SIMULATED else []
    options = ", ".join(["sessions=128", *needed, "seed=1"])
    data = "judged=world.train" if method.learns_from == "judgements" else "clicks"
    simulated = "" if data != "clicks" else f"clicks = unskew.simulate(world.train, {options}).log\n"
    lines = f'import unskew\n\nworld = unskew.load("world:tiny")\n{simulated}'
    return f'{lines}model = unskew.fit("{name}", {data}, steps=200)\n'


SIMULATED = {
    "ipw": 'interventions={"shuffle": 0.1}',
    "doubly_robust": 'interventions={"shuffle": 0.1}',
    "hte": 'interventions={"swap_top": 0.1}',
    "attention": 'record={"share": 1.0}',
}


def described_arguments(docstring: str) -> dict[str, str]:
    """The entries of `Args:` in a docstring, by name; `a, b: …` describes both."""
    text = docstring.partition("Args:\n")[2].split("\n\n")[0]
    entries = re.findall(r"^ {4}([\w, ]+): (.*?)(?=^ {4}\w[\w, ]*: |\Z)", text, re.MULTILINE | re.DOTALL)
    return {
        name: " ".join(meaning.split()).replace("|", "\\|") for names, meaning in entries for name in names.split(", ")
    }


NEEDS = {
    "counts": "clicks counted per list",
    "pairs": "which documents were clicked and which were not, in the same session (a joint log)",
    "patterns": "the click pattern of every session (a joint log)",
}
ALSO_NEEDS = {
    "labelled": "judged queries; no clicks",
    "ipw": "clicks counted per list, and propensities: known ones, or a log that identifies them "
    "([Propensities](../propensities.md))",
    "doubly_robust": "clicks counted per list, and propensities: known ones, or a log that identifies them "
    "([Propensities](../propensities.md))",
    "hte": "clicks counted per list, and a log in which documents were swapped with the top one",
    "attention": "clicks counted per list, and a record of what was examined in at least part of the sessions",
}


def outside_page(path: Path) -> str:
    """A page of the repository's top, with its links into docs/ as the site has them."""
    text = path.read_text(encoding="utf-8").replace("](docs/", "](")
    return re.sub(r"^```python file=(\S+)", r'```python title="\1"', text, flags=re.MULTILINE)


def notebook_page(path: Path) -> str:
    """A notebook as a page: its text, its code and the outputs stored with it."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [shown for output in cell["outputs"] if (shown := output_text(output))]
    return "\n\n".join([*parts, f"*Run it yourself: `examples/{path.name}`.*", ""])


def output_text(output: dict[str, Any]) -> str:
    """An output of a cell: its picture, its HTML, or its text; progress bars are left out."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        return f'<img alt="Output of the cell above" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    if "text/html" in data:
        return f'<div class="output">{"".join(data["text/html"])}</div>'
    if output["output_type"] == "display_data":
        return ""
    return f"```text\n{''.join(data['text/plain']).rstrip()}\n```"


GROUPS = {
    "Your log": "propose ingest preview_ingest ClickLog read_log open_log write_log forget events judgements diagnose "
    "estimate_propensities",
    "Train and choose": "auto fit UnbiasedRanker compare Recipe Model save_model load_model weights",
    "Rank, evaluate, serve": "rank evaluate look metric paired_differences export explain serve",
    "Day by day": "tune drift readout",
    "Data and simulation": "load read_letor data_sets JudgedSet simulate shop FreshClicks ClickSource demo",
    "Experiments": "reproduce TensorBoard MLflow",
}


def reference_page(names: list[str]) -> str:
    """All public names in groups: a table of what each does, then their docstrings."""
    import unskew

    listed = [name for group in GROUPS.values() for name in group.split()]
    if set(listed) != set(names):
        raise LookupError(f"put these into GROUPS, or take them out: {set(listed) ^ set(names)}")
    parts = ["# API reference", "", "Everything below is an attribute of `unskew`, loaded when you first use it.", ""]
    parts += ["| | name | |", "|---|---|---|"]
    for title, group in GROUPS.items():
        for number, name in enumerate(group.split()):
            first = (inspect.getdoc(getattr(unskew, name)) or "").split("\n\n")[0].replace("\n", " ").replace("|", "or")
            parts.append(f"| {title if not number else ''} | [`{name}`](#unskew.{name}) | {first} |")
    parts.append("| Names | `METHODS`, `USERS`, `POLICIES`, `METRICS` | What you can name, [below](#names). |")
    for name in listed:
        parts += ["", f"::: unskew.{name}"]
    return "\n".join([*parts, "", *registries()])


def registries() -> list[str]:
    """The names that functions accept, from the dictionaries that hold them."""
    from unskew import METRICS, POLICIES, USERS

    lines = ["## Names", "", "### unskew.METHODS", "", "Methods by name: see [Methods](methods/index.md).", ""]
    for title, known in {"unskew.USERS": USERS, "unskew.POLICIES": POLICIES}.items():
        rows = [f"| `{name}` | {(inspect.getdoc(part) or '').splitlines()[0]} |" for name, part in known.items()]
        lines += [f"### {title}", "", "| name | |", "|---|---|", *rows, ""]
    metrics = ", ".join(f"`{name}`" for name in METRICS)
    return [*lines, "### unskew.METRICS", "", f"Names for `metric`, with a cut-off such as `ndcg@10`: {metrics}.", ""]
