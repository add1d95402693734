"""Comparison: a plan of trainings, run side by side, one row on disk per run; tables and tests of the rows."""
