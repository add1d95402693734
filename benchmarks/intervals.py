"""Shared by the benchmarks: a mean of differences and its interval, as text."""

from __future__ import annotations

from numpy.typing import ArrayLike

from unskew.evaluation.differences import mean_interval


def mean_text(differences: ArrayLike, digits: int = 4, overlap: float = 0.0) -> str:
    """The mean and its 95% t-interval; `overlap` of training parts as in `mean_interval`."""
    mean, low, high = (f"{value:+.{digits}f}" for value in mean_interval(differences, overlap=overlap))
    return f"{mean} ({low} to {high})"
