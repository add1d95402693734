"""The terminal output of `reproduce` and `compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from unskew.terminal import console, errors, show_json, show_table

if TYPE_CHECKING:
    from unskew.comparison.outputs import Finished

FILES_ONLY = ("meaning", "truth", "choices")  # too wide for a terminal; see the output folder and the report


def show_experiment(done: Finished, json: bool) -> None:
    """Tables, verdicts and failures of a finished experiment; exit code 1 if a run failed."""
    results, shown = done.results, done.shown
    if json:
        show_json(
            {
                "experiment": done.experiment.name,
                "data": done.data,
                "out": done.out,
                "runs": len(results.results),
                "found": results.found,
                "changed": list(results.changed),
                "failed": [{"run": run.title, "error": error} for run, error in results.failed],
                "tables": {sheet.name: [[cell.text for cell in row] for row in sheet.rows] for sheet in shown.sheets},
                "verdicts": [
                    {
                        "claim": v.text,
                        "verdict": v.verdict,
                        "held": v.held,
                        "failed": v.failed,
                        "of": v.of,
                        "detail": v.detail,
                    }
                    for v in shown.claims
                ],
                **({} if shown.outlook is None else {"against_production": shown.outlook.to_json()}),
            }
        )
    else:
        for sheet in shown.sheets:
            if sheet.name in FILES_ONLY:
                continue
            left = sheet.is_text.index(False) if False in sheet.is_text else len(sheet.columns)
            rows = [[cell.text for cell in row] for row in sheet.rows]
            show_table(sheet.title, sheet.columns, rows, left=max(left, 1))
            if sheet.note:
                console.print(sheet.note, highlight=False, markup=False)
        for verdict in shown.claims:
            console.print(
                f"[bold]{verdict.words}[/]: {escape(verdict.text)}\n  {escape(verdict.detail)}", highlight=False
            )
        if shown.outlook is not None:
            console.print(f"\n[bold]{escape(shown.outlook.line)}[/]", highlight=False)
            if shown.outlook.explanation:
                pointer = f"What each criterion shows, and what it does not: {done.out / 'meaning.md'}"
                console.print(f"{shown.outlook.explanation} {pointer}", highlight=False, markup=False)
        for run, error in results.failed:
            errors.print(f"[red]failed:[/] {escape(f'{run.title}: {error}')}", highlight=False, soft_wrap=True)
        if results.changed:
            titles = "; ".join(results.changed[:3]) + ("; …" if len(results.changed) > 3 else "")
            errors.print(
                f"{len(results.changed)} runs were repeated because your own code has changed: {escape(titles)}"
            )
        if results.other_code:
            errors.print(
                f"{results.other_code} rows come from an earlier version of the code; run them again with --fresh all"
            )
        finished = f"{results.found} runs had already finished; " if results.found else ""
        console.print(f"{finished}Results: {done.out}", markup=False, highlight=False)
    if results.failed:
        raise typer.Exit(1)
