"""Monitoring: what changed between two logs, what an online test says, and a model trained further on a few labels.

`changes` compares logs, `online_test` rankers, `tuning` trains. It may import training and everything below it, and
hands on results that show themselves.
"""
