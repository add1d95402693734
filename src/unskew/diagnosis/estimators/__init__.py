"""Estimators: examination curves with intervals, or the reason why a log does not identify them."""
