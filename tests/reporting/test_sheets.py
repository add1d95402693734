"""Tables as Markdown and LaTeX."""

import pytest

from unskew.reporting.sheets import Field, Sheet, latex, markdown

SHEET = Sheet("s", "A & B", ("who", "n_1"), ((Field("x_y"), Field("1 ± 2", 1.0, best=True)),), "100 % true")


def test_markdown_has_a_line_a_row_and_bold_for_the_best():
    assert markdown(SHEET) == "**A & B**\n\n| who | n_1 |\n| --- | ---: |\n| x_y | **1 ± 2** |\n\n100 % true\n"


def test_latex_escapes_what_tex_would_take_for_commands():
    text = latex(SHEET)
    assert r"\begin{tabular}{lr}" in text
    assert r"who & n\_1 \\" in text
    assert r"x\_y & \textbf{1 $\pm$ 2} \\" in text
    assert r"\caption{A \& B. 100 \% true}" in text


@pytest.mark.parametrize("write", [markdown, latex])
def test_an_empty_table_can_be_written(write):
    assert write(Sheet("s", "t", ("a", "b"), ()))
