"""Data in: judged sets, click logs, the built-in world, feature transforms, batches."""
