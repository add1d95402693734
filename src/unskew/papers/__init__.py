"""Papers: their experiments as TOML files, what they claim and measured, and their figures."""
