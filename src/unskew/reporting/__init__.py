"""How results are told: answers and refusals, tables as Markdown and LaTeX, drawings, pages, and the terminal.

It knows only `data` and `display`. Rooms above hand it what they found; nothing here computes a result.
"""
