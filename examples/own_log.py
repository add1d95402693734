"""From event tables of one's own to a ranker as ONNX: ingest, diagnose, compare with production, fit, export.

    python examples/own_log.py events.parquet features.parquet result

The tables are those that docs/guide.md describes: a row per impression, and a row per candidate with its features.
"""

# %% What goes in, and where results go
import sys
from pathlib import Path

import unskew

events, features, result = map(Path, sys.argv[1:4])
result.mkdir(exist_ok=True)

# %% Events become a log of counted lists; what is left out is counted, too
made = unskew.ingest(events, result / "log", features=features, overwrite=True)
print(made)
log = made.log

# %% What can this log tell, and which methods are worth training on it?
print("\n".join(unskew.diagnose(log, quick=True).verdict.lines))

# %% Two methods learn from a part of the queries; the clicks on the others tell how they stand against production
compared = unskew.compare(result / "log", ["naive", "dla"], seeds=1, jobs=1, out=result / "compare")
print(compared)

# %% The better one learns from all queries and is exported, checked against torch
standings = compared.to_pandas().dropna(subset="difference")
best = standings.loc[standings["difference"].idxmax(), "method"]
model = unskew.fit(best, log)
print(model)
unskew.save_model(model, result / "model", overwrite=True)
print(unskew.export(model, result / "ranker.onnx", overwrite=True))
