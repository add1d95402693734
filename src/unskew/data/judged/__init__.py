"""Judged queries: data sets by name, LETOR files and tables as a `JudgedSet`, and the metrics of rankings of them."""
