"""`python -m unskew` is the command line."""

from unskew.cli import app

app()
