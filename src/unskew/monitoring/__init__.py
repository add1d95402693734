"""Monitoring: what changed between two logs, what an online test says, and a model trained further on a few labels."""
