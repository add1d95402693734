"""Click logs: the data, how they are built, stored and read in batches."""
