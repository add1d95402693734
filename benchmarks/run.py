"""All benchmarks, one after the other: what was measured, the ratio or rate, and the target."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
RUNS = "\ndef run("  # what has no such function is a script of its own


def main(names: list[str]) -> None:
    sys.path.insert(0, str(HERE))
    console = Console()
    modules = names or sorted(path.stem for path in HERE.glob("*.py") if RUNS in path.read_text())
    for name in modules:
        started = time.perf_counter()
        rows = importlib.import_module(name).run()
        table = Table(title=f"{name} ({time.perf_counter() - started:.0f} s)", title_justify="left", box=None)
        table.add_column("what")
        table.add_column("measured", justify="right")
        table.add_column("target", justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table, "")


if __name__ == "__main__":
    main(sys.argv[1:])
