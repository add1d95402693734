"""Pages generated while the site is built: one per method, one per notebook, and the reference of all public names."""

from __future__ import annotations

import ast
import html
import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

SOURCE = Path(__file__).parent.parent / "src" / "unskew" / "__init__.py"
TUTORIALS = sorted((SOURCE.parents[2] / "examples").glob("*.ipynb"))
PARTS = ("METHODS", "USERS", "POLICIES", "METRICS", "__version__")  # data, described on pages of their own


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    from unskew.methods import METHODS

    files.append(File.generated(config, "methods/index.md", content=index_page(METHODS)))
    for name, method in METHODS.items():
        files.append(File.generated(config, f"methods/{name}.md", content=method_page(name, method)))
    files.append(File.generated(config, "reference.md", content=reference_page(public_names())))
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


FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Turn formulas into MathML, which browsers render without a script."""
    from latex2mathml.converter import convert

    def drawn(found: re.Match[str]) -> str:
        return convert(html.unescape(found[3]), display="inline" if found[2] == "(" else "block")

    return FORMULA.sub(drawn, content)


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
    """What a method assumes, needs and takes, from its class."""
    from unskew.methods import hyper_parameters

    about = inspect.getdoc(inspect.getmodule(method)) or ""
    meanings = described_arguments(inspect.getdoc(method) or "")
    options = [
        f"| `{entry.name}` | `{entry.default!r}` | {kind_name(entry.kind)} | {meanings.get(entry.name, '')} |"
        for entry in hyper_parameters(method).values()
    ]
    table = ["| name | default | type | meaning |", "|---|---|---|---|", *options] if options else ["None of its own."]
    measured = " · ".join(
        f"[{title}](../{page})" for title, (page, names) in MEASUREMENTS.items() if name in names.split()
    )
    return "\n".join(
        [
            f"# {name}",
            "",
            f"**Paper.** {method.paper}  ",
            f"**Assumes** that {method.assumes}.  ",
            f"**Needs** {NEEDS[method.detail]}.",
            "",
            about,
            "",
            "## Hyper-parameters",
            "",
            *table,
            "",
            "Training settings (`steps`, `learning_rate`, …) and network settings (`hidden`, …) apply as well.",
            "",
            "## Measured strengths and limits",
            "",
            f"{measured} · [Which method?](../choosing.md)",
            "",
            "## Example",
            "",
            f"```python\n{example_code(name, method)}```",
            "",
        ]
    )


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
    "hte": 'interventions={"swap_top": 0.1}',
    "attention": 'record={"share": 1.0}',
}


def kind_name(kind: Any) -> str:
    """A type as a reader writes it."""
    return f"`{kind.__name__}`" if isinstance(kind, type) else f"`{str(kind).replace('|', 'or')}`"


def described_arguments(docstring: str) -> dict[str, str]:
    """The entries of `Args:` in a docstring, by name."""
    text = docstring.partition("Args:\n")[2].split("\n\n")[0]
    entries = re.findall(r"^ {4}(\w+): (.*?)(?=^ {4}\w+: |\Z)", text, re.MULTILINE | re.DOTALL)
    return {name: " ".join(meaning.split()).replace("|", "\\|") for name, meaning in entries}


MEASUREMENTS = {
    "Group-level methods": ("methods.md", "naive labelled ipw dla two_tower regression_em pair_debias affine"),
    "Vectorization": ("vectorization.md", "vectorization affine_softmax"),
    "LBD": ("lbd.md", "lbd hte"),
    "CDLA-LD and contextual methods": ("cdla_ld.md", "cdla_ld xpa upe iobm"),
    "Low-rank observation": ("low_rank.md", "low_rank"),
    "Recorded examination": ("attention.md", "attention"),
    "Click models": ("click_models.md", "gctr rctr dctr pbm cascade ubm dcm ccm dbn sdbn"),
    "Choosing without labels": ("selection.md", "naive ipw dla two_tower regression_em lbd vectorization pair_debias"),
}
NEEDS = {
    "counts": "clicks counted per list",
    "pairs": "which documents were clicked and which were not, in the same session (a joint log)",
    "patterns": "the click pattern of every session (a joint log)",
}


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


def reference_page(names: list[str]) -> str:
    """All public names, described by their docstrings."""
    parts = ["# Python reference", "", "Everything below is an attribute of `unskew`.", ""]
    for name in names:
        parts += [f"::: unskew.{name}", ""]
    return "\n".join([*parts, *registries()])


def registries() -> list[str]:
    """The names that functions accept, from the dictionaries that hold them."""
    from unskew import METRICS, POLICIES, USERS

    lines = ["## unskew.METHODS", "", "Methods by name: see [Methods](methods/index.md).", ""]
    for title, known in {"unskew.USERS": USERS, "unskew.POLICIES": POLICIES}.items():
        rows = [f"| `{name}` | {(inspect.getdoc(part) or '').splitlines()[0]} |" for name, part in known.items()]
        lines += [f"## {title}", "", "| name | |", "|---|---|", *rows, ""]
    metrics = ", ".join(f"`{name}`" for name in METRICS)
    return [*lines, "## unskew.METRICS", "", f"Names for `metric`, with a cut-off such as `ndcg@10`: {metrics}.", ""]
