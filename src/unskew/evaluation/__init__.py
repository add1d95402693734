"""How good a ranker is, query by query, and whether it is better than another."""
