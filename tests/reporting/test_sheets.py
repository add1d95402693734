"""Tables as Markdown and LaTeX."""

import pytest

from unskew.display import Best, Screen
from unskew.reporting.sheets import latex, markdown

SHEET = Screen("A & B", ("who", "n_1"), [("x_y", Best("1 ± 2"))], ["100% true"], name="s")


def test_markdown_has_a_line_a_row_and_bold_for_the_best():
    assert markdown(SHEET) == "**A & B**\n\n| who | n_1 |\n| --- | ---: |\n| x_y | **1 ± 2** |\n\n100% true\n"


def test_latex_escapes_what_tex_would_take_for_commands():
    text = latex(SHEET)
    assert r"\begin{tabular}{lr}" in text
    assert r"who & n\_1 \\" in text
    assert r"x\_y & \textbf{1 $\pm$ 2} \\" in text
    assert r"\caption{A \& B. 100\% true}" in text


@pytest.mark.parametrize("write", [markdown, latex])
def test_an_empty_table_can_be_written(write):
    assert write(Screen("t", ("a", "b")))


def test_latex_has_a_label_marks_as_superscripts_and_metrics_as_papers_print_them():
    cells = ("A_{1} \\ $", Best("0.5200 ± 0.0010 ++"), "0.4 −")
    text = latex(Screen("ndcg@10 at λ", ("method", "ndcg@10 ↑", "p@5 ↑"), [cells], name="results"))
    assert r"method & nDCG@10 & P@5 \\" in text
    assert r"A\_\{1\} \textbackslash{} \$ & \textbf{0.5200 $\pm$ 0.0010$^{++}$} & 0.4$^{-}$ \\" in text
    assert r"\caption{nDCG@10 at $\lambda$.}" in text
    assert r"\label{tab:results}" in text
