"""Readers of public click logs."""
