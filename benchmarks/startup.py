"""Start-up: CPU seconds of `import unskew`, `--version` and `--help`, beside bare Python."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

REPEATS = 7
LIMIT = 0.4  # CPU seconds
WAYS = {
    "bare Python": ["-c", "pass"],
    "import unskew": ["-c", "import unskew"],
    "unskew --version": ["-m", "unskew", "--version"],
    "unskew --help": ["-m", "unskew", "--help"],
}


def run() -> list[tuple[str, str, str]]:
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(REPEATS):
        for name, arguments in WAYS.items():
            seconds[name].append(cpu_seconds([sys.executable, *arguments]))
    return [
        (f"{name}, CPU seconds", f"{statistics.median(times):.2f}", "" if name == "bare Python" else f"<= {LIMIT}")
        for name, times in seconds.items()
    ]


def cpu_seconds(command: list[str]) -> float:
    """User and system time of a process that ends by itself."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    for row in run():
        print(*row, sep=" | ")
