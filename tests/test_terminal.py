"""What the terminal shows."""

import numpy as np

from unskew.display import Screen
from unskew.reporting import terminal
from unskew.reporting.terminal import counting_progress, show_screen, show_warning
from unskew.training.model import curve_rows


def test_ids_that_look_like_markup_are_shown_as_they_are(capsys):
    show_screen(Screen("[/b]", ("[/i]", "count"), [("[/b]", "[bold]")]))
    show_warning("query [/b]")
    shown = capsys.readouterr()
    assert shown.out.count("[/b]") == 2
    assert "[/i]" in shown.out
    assert "[bold]" in shown.out
    assert "query [/b]" in shown.err


def test_without_a_terminal_a_line_is_printed_for_every_tenth_or_minute(capsys, monkeypatch):
    """Work of 1,000 seconds, a thousandth each second: lines at 10 %, 20 %, … , and every minute between them."""
    clock = iter(range(10_000))
    monkeypatch.setattr(terminal.time, "monotonic", lambda: float(next(clock)) / 2)  # read twice per update
    with counting_progress("train", "rows") as update:
        for done in range(1, 1_001):
            update(done, 1_000)
    lines = capsys.readouterr().err.splitlines()
    assert sum("100/1,000" in line or "500/1,000" in line for line in lines) == 2
    assert 15 <= len(lines) <= 25
    assert all(line.startswith("train: ") and " left, rows" in line for line in lines)


def test_a_short_job_prints_no_line(capsys):
    with counting_progress("train", "rows") as update:
        for done in range(1, 101):
            update(done, 100)
    assert capsys.readouterr().err == ""


def test_a_long_curve_is_a_small_table_with_empty_cells_where_a_level_showed_nothing():
    rows = curve_rows([np.ones(48), np.full(48, 0.5)], [[], range(12, 48)])
    assert [row[0] for row in rows] == ["1", "2", "3", "5", "10", "48"]
    assert rows[0] == ("1", "1.000", "0.500")
    assert rows[-1] == ("48", "1.000", "never shown")
