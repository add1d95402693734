"""unskew: learning to rank from biased clicks."""

__version__ = "0.1.0"
