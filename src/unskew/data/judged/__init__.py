"""Judged queries: data sets by name, LETOR files, the built-in world."""
