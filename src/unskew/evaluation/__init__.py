"""Evaluation of rankers per query, and comparison of rankers."""
