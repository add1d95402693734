"""Serving: models saved, loaded and run outside of training."""
