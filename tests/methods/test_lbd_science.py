"""The penalty of LBD by chance, five seeds, from its experiment. What LBD is worth is on its page of results.

Runs are kept in `runs/` and go on where they were cut off.
"""

from pathlib import Path

import pytest

from unskew.comparison.statistics import Table, summarize
from unskew.papers.reproduce import reproduce

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

RUNS = Path(__file__).parents[2] / "runs"


def test_the_penalty_by_chance_ranks_like_the_penalty_of_every_position():
    table = Table(reproduce("lbd-estimate", out=RUNS / "lbd-estimate-world-small").results.results)
    cells = {cell.label: cell for cell in summarize(table, table.settings[0], "ndcg@10", "every position")}
    assert cells["by chance"].n_repetitions >= 5
    assert abs(cells["by chance"].difference) < 0.002
