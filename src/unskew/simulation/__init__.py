"""Simulation: logging policies that show documents, users who examine and click, and the truth behind their clicks.

It may import data, and nothing that learns from clicks imports it. It hands on a `Simulation`: a log as real ones are,
and its truth beside it.
"""
