"""Training: the one loop, its settings, checkpoints and history."""
