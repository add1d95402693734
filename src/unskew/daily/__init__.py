"""Life with a model: what changed, what a few labels are worth, what the online test says."""
