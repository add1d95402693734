"""Click logs: the data, how they are built, stored and read in batches."""

ABOUT = "log.json"  # the file that makes a folder a log
