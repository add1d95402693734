"""Propensities: examination curves estimated from the clicks of a log, without a ranker.

They know only `data`. Methods, training and diagnosis take the curves from `estimate`.
"""
