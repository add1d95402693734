"""Diagnosis of a log: what its clicks can tell, and what to do about the rest.

Each file answers one kind of question, `parts` is the table of them, `advice` judges, `page` reports. It may import
everything below `comparison`, and hands on a `Diagnosis`.
"""
