"""Papers: their experiments as TOML files, what they claim and measured, and their figures.

A guest of the house: it may import everything, and only `unskew reproduce` imports it. It hands on a folder of results.
"""
