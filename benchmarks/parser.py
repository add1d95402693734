"""Reading LETOR files: time against scikit-learn, memory against the result, and what the cache saves.

The file is generated in the form of MSLR-WEB10K, 136 dense raw features, about 60 MB.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from timing import Row, in_turn
from unskew.data.judged.letor import read_letor

N_FEATURES = 136
DOCUMENTS_PER_QUERY = 120
DISTINCT_LINES = 500  # formatting numbers is slow, so the features of these lines are used again and again
N_SMALL, N_LARGE = 10_000, 60_000  # documents
REPEATS = 3

PEAK_MEMORY = """
import sys
from pathlib import Path
from unskew.data.judged.letor import read_letor

judged = read_letor(sys.argv[1], cache=False)
peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
print(peak, judged.features.nbytes)
"""


def run() -> list[Row]:
    """One row per ratio."""
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small.txt"), Path(folder, "large.txt")
        write_web_form(small, N_SMALL, np.random.default_rng(0))
        write_web_form(large, N_LARGE, np.random.default_rng(0))
        rows = time_rows(large, Path(folder, "cache"))
        if Path("/proc/self/status").exists():
            rows.append(memory_row(small, large))
    return rows


def write_web_form(path: Path, n_documents: int, rng: np.random.Generator) -> None:
    """A file of small counts, scores with six digits and a few huge numbers, as MSLR-WEB has them."""
    counts = rng.poisson(2.0, (DISTINCT_LINES, N_FEATURES)).astype(str)
    scores = np.char.mod("%.6f", rng.gamma(1.0, 8.0, (DISTINCT_LINES, N_FEATURES)))
    values = np.where(rng.random((DISTINCT_LINES, N_FEATURES)) < 0.6, counts, scores)
    values[:, -10:] = rng.integers(0, 10**7, (DISTINCT_LINES, 10)).astype(str)
    lines = [" ".join(f"{i}:{value}" for i, value in enumerate(row, start=1)) for row in values]
    with path.open("w") as file:
        for document in range(n_documents):
            query = document // DOCUMENTS_PER_QUERY
            file.write(f"{document % 5} qid:{query} {lines[document % DISTINCT_LINES]} \n")


def time_rows(path: Path, cache: Path) -> list[Row]:
    """Seconds of each way of reading, measured in turns."""
    read_letor(path, cache=cache)
    ways: dict[str, Callable[[], object]] = {
        "sklearn": lambda: load_svmlight_file(str(path), query_id=True),
        "parse": lambda: read_letor(path, cache=False),
        "cached": lambda: read_letor(path, cache=cache),
    }
    median = {name: statistics.median(times) for name, times in in_turn(ways, REPEATS).items()}
    rate = path.stat().st_size / 1e6 / median["parse"]
    return [
        ("LETOR parser", f"{rate:.0f} MB/s", ""),
        ("LETOR parser, times as fast as load_svmlight_file", f"{median['sklearn'] / median['parse']:.1f}", "> 1"),
        ("second load from the cache, times as fast as parsing", f"{median['parse'] / median['cached']:.0f}", ">= 50"),
    ]


def memory_row(small: Path, large: Path) -> Row:
    """Growth of peak memory over growth of the result: what does not depend on the file's size cancels."""
    (peak_small, result_small), (peak_large, result_large) = (peak_memory(path) for path in (small, large))
    ratio = (peak_large - peak_small) / (result_large - result_small)
    return "peak memory of parsing, times the result (plus a constant)", f"{ratio:.2f}", "<= 1.5"


def peak_memory(path: Path) -> tuple[int, int]:
    """Peak of a process that reads this file, and the size of what it read, in bytes."""
    command = [sys.executable, "-c", PEAK_MEMORY, str(path)]
    peak, result = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(peak), int(result)
