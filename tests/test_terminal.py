"""What the terminal shows."""

from unskew.reporting.terminal import show_table, show_warning


def test_ids_that_look_like_markup_are_shown_as_they_are(capsys):
    show_table("[/b]", ("[/i]", "count"), [("[/b]", "[bold]")])
    show_warning("query [/b]")
    shown = capsys.readouterr()
    assert shown.out.count("[/b]") == 2
    assert "[/i]" in shown.out
    assert "[bold]" in shown.out
    assert "query [/b]" in shown.err
