"""Evaluation: how good rankers are, by judgements or by held-out clicks, and how sure that is.

It knows data and methods, but nothing of training. Values are one per query; `differences` compares them.
"""
