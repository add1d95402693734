"""Reporting: tables as Markdown and LaTeX, drawings, and a page that holds all of it."""
