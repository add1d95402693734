"""Build the page of results from the folders that experiments left.

    unskew reproduce NAME --data DATA --out RUNS/NAME-DATA --json > RUNS/NAME-DATA/out.json
    python docs/build_results.py RUNS

Every number of the page comes from such a folder (see `finished_runs.py`), words beyond the numbers from
`results_notes.toml`. A folder that is not finished is an error; experiments without a folder are listed as not run yet.
"""

from __future__ import annotations

import argparse
import logging
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from finished_runs import Done, Sheet, figures_of, folder_of, read_done

from unskew.comparison.plan import folds_of, repetitions_of
from unskew.evaluation.differences import MARKS
from unskew.papers.claims import ALPHA
from unskew.papers.experiment_files import load_experiment, shipped
from unskew.papers.settings import PaperExperiment as Experiment
from unskew.reporting.page import VERDICTS, ClaimResult
from unskew.reporting.sheets import NOTHING, options_text

HERE = Path(__file__).parent
DATA = {
    "world:small": "the built-in synthetic world",
    "world:small:100-104": "other worlds of that kind, not looked at before",
    "mq2007-agg": "LETOR 4.0, MQ2007-agg",
    "mq2008": "LETOR 4.0, MQ2008",
}
PAPERS = {  # how `paper` of an experiment begins -> where it stands on the page
    "LBD, Table 2": "Data",
    "Chen et al., NeurIPS 2022": "LBD",
    "Chen et al., KDD 2022": "Vectorization",
    "Yu et al., 2024": "CDLA-LD",
    "our own": "Our own",
}
DETAILS = ("tests", "truth", "choices")  # tables that are folded away
MANY_ROWS, MANY_COMPARISONS = 30, 5  # more than these are, too
INTRO = "intro"  # of the notes, the one that is not on an experiment


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table whose first columns are text; numbers are not broken over lines, headings may be."""
    rule = ["---" if number < left else "---:" for number in range(len(columns))]
    head = [column.replace(", ", ",<br>").replace(": ", ":<br>") for column in columns]
    body = [[*cells[:left], *(cell.replace(" ", "\u00a0") for cell in cells[left:])] for cells in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *body)) + "\n"


def folded(summary: str, text: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{text}\n</details>\n"


def shown(sheet: Sheet) -> str:
    return table(sheet.columns, sheet.rows, sheet.left) + (f"\n{sheet.note}\n" if sheet.note else "")


def ours_of(sheet: Sheet) -> Sheet:
    """The table without the paper's columns, which another table has."""
    kept = [place for place, column in enumerate(sheet.columns) if not column.startswith("paper, ")]
    rows = [[row[place] for place in kept] for row in sheet.rows]
    return replace(sheet, columns=[sheet.columns[place] for place in kept], rows=rows)


def setting_in(sheet: Sheet, done: Done) -> str:
    return sheet.title.removeprefix(f"{done.experiment.title}, ").removesuffix(f", on {done.data}")


def by_setting(done: Done, sheets: Sequence[Sheet]) -> Sheet:
    """One table of the main metric from those of several settings; what the paper measured stands last."""
    own: dict[str, dict[str, str]] = {}
    papers: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}  # column -> settings that have it
    for sheet in sheets:
        setting = setting_in(sheet, done)
        for place, column in enumerate(sheet.columns):
            values = {row[0]: row[place] for row in sheet.rows}
            if column.startswith(f"{done.experiment.metric} "):
                own[setting] = values
            elif column.startswith("paper, "):
                papers.setdefault((column.partition(":")[0], tuple(values.items())), []).append(setting)
    columns = own | {
        name if len(settings) == len(own) else f"{name}, {settings[0]}": dict(values)
        for (name, values), settings in papers.items()
    }
    labels = dict.fromkeys(label for values in own.values() for label in values)
    rows = [[label, *(values.get(label, NOTHING) for values in columns.values())] for label in labels]
    notes: dict[str, list[str]] = {}  # note -> settings
    for setting, sheet in zip(own, sheets, strict=True):
        notes.setdefault(sheet.note, []).append(setting)
    told = list(notes) if len(notes) == 1 else [f"{', '.join(settings)}: {note}" for note, settings in notes.items()]
    return Sheet(done.experiment.metric, ["method", *columns], rows, "\n\n".join(told))


def _has_metric(sheet: Sheet, done: Done) -> bool:
    return any(column.startswith(f"{done.experiment.metric} ") for column in sheet.columns)


def results_of(done: Done) -> str:
    """Tables and figures of one data set."""
    leading = {name: sheet for name, sheet in done.sheets.items() if name not in (*DETAILS, "chosen")}
    parts = [f"### On `{done.data}`\n", counted(done)]
    alone = len(leading) == 1 or not any(_has_metric(sheet, done) for sheet in leading.values())
    if not alone:
        parts.append(f"{done.experiment.metric}:\n\n" + shown(by_setting(done, list(leading.values()))))
        parts += [
            folded(f"All metrics, {setting_in(sheet, done)}", shown(ours_of(sheet))) for sheet in leading.values()
        ]
    for sheet in leading.values() if alone else ():
        text = (f"{setting_in(sheet, done)}:\n\n" if len(leading) > 1 else "") + shown(sheet)
        parts.append(text if len(sheet.rows) <= MANY_ROWS else folded(f"{len(sheet.rows)} rows", text))
    parts += [folded(done.sheets[name].title, shown(done.sheets[name])) for name in DETAILS if name in done.sheets]
    for title, source in figures_of(done).items():
        parts.append(f"![{title}](figures/results/{done.folder.name}-{source.name})\n\n*{title}.*\n")
    return "\n".join(parts)


def counted(done: Done) -> str:
    failed = done.said["failed"]
    code = ", ".join(done.code)
    text = f"Repetitions: {done.repetitions}. Runs: {done.trained}. Failed: {len(failed)}. Code: {code}.\n"
    return text + "".join(f"\n* failed: {entry['run']}: {entry['error']}\n" for entry in failed)


def in_words(verdict: Mapping[str, Any]) -> str:
    """A verdict, with what its comparisons said where they do not agree."""
    counts = [verdict.get(name, 0) for name in ("held", "failed", "of")]
    return ClaimResult("", verdict["verdict"], "", *counts).words


def verdicts_of(all_done: Sequence[Done]) -> str:
    """Each claim of an experiment with its verdict and numbers on every data set."""
    lines = []
    for number, claim in enumerate(all_done[0].experiment.claims):
        lines.append(f"* {claim.text}")
        for done in all_done:
            found = done.said["verdicts"][number]
            numbers = found["detail"].split("; ")
            many = len(numbers) > MANY_COMPARISONS
            lines.append(f"  * `{done.data}`: **{in_words(found)}**" + ("" if many else f": {found['detail']}."))
            if many:
                items = "".join(f"    - {text}\n" for text in numbers)
                lines.append(f"    <details><summary>{len(numbers)} comparisons</summary>\n\n{items}\n    </details>\n")
    return "\n".join(lines) + "\n"


def chosen_of(all_done: Sequence[Done]) -> str:
    """Hyper-parameters that validation chose on every data set, and the paper's."""
    chosen: dict[str, dict[str, str]] = {}
    for done in all_done:
        rows = done.sheets["chosen"].rows if "chosen" in done.sheets else []
        chosen[done.data] = {where: options for where, options, source in rows if source == "ours"}
    places = dict.fromkeys(place for values in chosen.values() for place in values)
    choices = [[place, *(values.get(place, NOTHING) for values in chosen.values())] for place in places]
    text = table(["chosen for", *chosen], choices, left=1 + len(chosen))
    papers = all_done[0].experiment.chosen_in_paper
    told = "; ".join(f"{where}: {options_text(options)}" for where, options in papers.items())
    return (f"{text}\n" if places else "") + (f"The paper chose {told}.\n" if told else "")


def setting_of(experiment: Experiment) -> str:
    """The setting in one line."""
    simulation = experiment.simulation
    names = (f"{s.name} ({options_text(s.options)})" if s.options else s.name for s in experiment.settings)
    parts = {
        "Shown by": options_text(simulation.policy).removeprefix("name "),
        "clicked by": options_text(simulation.user).removeprefix("name "),
        "sessions": f"{simulation.sessions} a query, {simulation.n_shown} documents shown",
        "training": options_text(experiment.training) or "defaults",
        "settings": ", ".join(names),
    }
    return "; ".join(f"{name}: {text}" for name, text in parts.items() if text) + "." if experiment.methods else ""


def data_sheet(all_done: Sequence[Done]) -> str:
    """Sizes of all data sets in one table, those of the papers last."""
    rows = {tuple(row): None for done in all_done for row in done.sheets["results"].rows}
    ours = {name for done in all_done for name in folds_of(done.data)}
    return table(all_done[0].sheets["results"].columns, sorted(rows, key=lambda row: row[0].split("@")[0] not in ours))


def command_of(done: Done) -> str:
    command = f"unskew reproduce {done.experiment.name} --data {done.data}"
    usual = len(repetitions_of(done.data, done.experiment.seeds))
    seeds = done.repetitions // len(folds_of(done.data))
    return command if not done.trained or done.repetitions == usual else f"{command} --seeds {seeds}"


def section(all_done: Sequence[Done], notes: Mapping[str, str]) -> str:
    """One experiment on all data sets."""
    experiment = all_done[0].experiment
    chosen = chosen_of(all_done)
    parts = [
        f'<a id="{experiment.name}"></a>\n\n## {experiment.title}\n',
        f"*{experiment.paper[0].upper()}{experiment.paper[1:]}.* {' '.join(experiment.question.split())}\n",
        notes.get(experiment.name, "").strip() + "\n",
        f"### Claims\n\n{verdicts_of(all_done)}" if experiment.claims else "",
        data_sheet(all_done) if experiment.task == "data_statistics" else "\n".join(map(results_of, all_done)),
        f"### Chosen hyper-parameters\n\n{chosen}" if chosen else "",
        "### Setting\n",
        setting_of(experiment) + "\n",
        "".join(f"* {note}\n" for note in experiment.notes),
        "```bash\n" + "".join(f"{command_of(done)}\n" for done in all_done) + "```\n",
    ]
    return "\n".join(part for part in parts if part.strip())


def group_of(experiment: Experiment) -> str:
    return next(name for start, name in PAPERS.items() if experiment.paper.startswith(start))


def ordered(names: Iterable[str]) -> list[Experiment]:
    """Experiments paper by paper, tables before figures."""
    experiments = [load_experiment(name) for name in names]
    groups = list(PAPERS.values())
    return sorted(experiments, key=lambda e: (groups.index(group_of(e)), "table" not in e.name, e.name))


def summary(experiments: Sequence[Experiment], found: Mapping[tuple[str, str], Done]) -> str:
    """Every claim of every paper, with its verdict on every data set."""
    rows, counts = [], {data: Counter[str]() for data in DATA}
    for experiment in experiments:
        for number, claim in enumerate(experiment.claims):
            cells = []
            for data in DATA:
                done = found.get((experiment.name, data))
                verdict = done.said["verdicts"][number] if done else {"verdict": NOTHING}
                counts[data][verdict["verdict"]] += 1
                cells.append(in_words(verdict))
            ran = any(cell != NOTHING for cell in cells)
            name = f"[{experiment.name}](#{experiment.name})" if ran else experiment.name
            rows.append([f"{group_of(experiment)}, {name}", claim.text, *cells])
    totals = [[f"*{verdict}*", *(str(counts[data][verdict]) for data in DATA)] for verdict in VERDICTS]
    return (
        f"## All claims\n\n{NOTHING}: not run.\n\n{table(['paper', 'claim', *DATA], rows, left=5)}\n"
        f"How many:\n\n{table(['verdict', *DATA], totals)}"
    )


def intro(text: str, found: Iterable[Done]) -> str:
    """What is said of all experiments, with the numbers filled in."""
    folds = {name: len(folds_of(name)) for name in DATA}
    parts = {name: "worlds" if name.startswith("world:") else "folds" for name in DATA}
    data = [
        f"`{name}`: {about}{f', {folds[name]} {parts[name]}' if folds[name] > 1 else ''}"
        for name, about in DATA.items()
    ]
    repetitions = {done.folder.name: done.repetitions for done in found if done.trained}
    usual = max(Counter(repetitions.values()).items(), key=lambda entry: entry[1])[0] if repetitions else 0
    others = [f"{number} in {name}" for name, number in repetitions.items() if number != usual]
    numbers = {
        "papers": ", ".join(list(PAPERS.values())[1:-1]),
        "data": "; ".join(data),
        "repetitions": ", ".join([str(usual), *others]),
        "marks": ", ".join(f"{'+' * n}/{'−' * n} p < {threshold:g}" for threshold, n in MARKS.items()),
        "alpha": f"{ALPHA:g}",
        **{f"verdict_{number}": f"**{verdict}**" for number, verdict in enumerate(VERDICTS, start=1)},
    }
    return text.format(**numbers)


def build(runs: Path, page: Path, notes: Mapping[str, str], draft: bool = False) -> list[str]:
    """Write page and figures. Folders that cannot be used are an error; a draft leaves them out and returns why."""
    strangers = [name for name in notes if name not in (INTRO, *shipped())]
    if strangers:
        raise ValueError(f"there is a note on '{strangers[0]}', which is no experiment")
    experiments, found, problems = ordered(shipped()), {}, []
    for name, data in ((e.name, data) for e in experiments for data in DATA if folder_of(runs, e.name, data).is_dir()):
        try:
            found[name, data] = read_done(runs, name, data)
        except (OSError, ValueError) as problem:
            problems.append(str(problem))
    if problems and not draft:
        raise ValueError("\n".join([*problems, "--draft builds a page without them"]))
    by_name = {e.name: [found[e.name, data] for data in DATA if (e.name, data) in found] for e in experiments}
    parts = [intro(notes[INTRO], found.values()), summary(experiments, found)]
    parts += [section(all_done, notes) for all_done in by_name.values() if all_done]
    not_run = [f"* `{e.name}`: {e.title}\n" for e in experiments if not by_name[e.name]]
    if not_run:
        parts.append(f"## Not run yet\n\n{''.join(not_run)}")
    copy_figures(found.values(), page.parent / "figures" / "results")
    page.write_text("\n".join(parts), encoding="utf-8")
    return problems


def copy_figures(found: Iterable[Done], folder: Path) -> None:
    """Put the figures that the page shows beside it, and take away those it no longer shows."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = set()
    for done in found:
        for source in figures_of(done).values():
            kept.add(target := folder / f"{done.folder.name}-{source.name}")
            target.write_bytes(source.read_bytes())
    for old in set(folder.glob("*.svg")) - kept:
        old.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, help="folder with one folder a finished experiment and data set")
    parser.add_argument("--page", type=Path, default=HERE / "results.md")
    parser.add_argument("--notes", type=Path, default=HERE / "results_notes.toml")
    parser.add_argument("--draft", action="store_true", help="leave out what is not finished, instead of refusing")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        problems = build(options.runs, options.page, tomllib.loads(options.notes.read_text("utf-8")), options.draft)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    for problem in problems:
        logging.warning("left out: %s", problem)
    logging.info("wrote %s", options.page)


if __name__ == "__main__":
    main()
