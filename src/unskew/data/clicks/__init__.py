"""Click logs: `row_fields` declares what one carries; `build`, `tables` and `shards` make, show and store it.

A log is one shard in memory, or several on disk (`storage`); `batches` and `shard_batches` hand lists to training.
"""

ABOUT = "log.json"  # the file that makes a folder a log
