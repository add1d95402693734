"""Experiments: a TOML file says what is run; runs become rows on disk; rows become tables, figures and a report."""
