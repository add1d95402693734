"""From event tables of one's own to a ranker as ONNX: ingest, diagnose, fit, compare with production, export.

    python examples/own_log.py events.parquet features.parquet result

The tables are those that docs/guide.md describes: a row per impression, and a row per candidate with its features.
"""

# %% What goes in, and where results go
import sys
from pathlib import Path

import unskew
from unskew.comparison.held_out import contender_of, make_case
from unskew.diagnosis.assemble import diagnose
from unskew.diagnosis.verdict import verdict
from unskew.evaluation.criteria import DEFAULT_CRITERION, measure_all
from unskew.ingestion.opening import Tables
from unskew.ingestion.run import ingest
from unskew.serving.export import export_model

events, features, result = map(Path, sys.argv[1:4])
result.mkdir(exist_ok=True)

# %% Events become a log of counted lists; what is left out is counted, too
done = ingest(Tables(events, features), result / "log", overwrite=True)
log = unskew.read_log(result / "log")
print(log)
print("left out:", dict(done.dropped) or "nothing")

# %% What can this log tell, and which methods are worth training on it?
print("\n".join(verdict(diagnose(log, quick=True)).lines))

# %% Two methods learn from four fifths of the queries
case = make_case(log)
recipes = {name: unskew.Recipe.of(name, steps=200) for name in ("naive", "dla")}
models = {name: unskew.fit(recipe, case.learning) for name, recipe in recipes.items()}
print("seen at each position, relative to the top:", models["dla"].examination().round(2))

# %% The clicks on the other queries tell how they stand against production
contenders = {name: contender_of(model, case.evidence.held_out) for name, model in models.items()}
values = {
    name: measure_all(contender, case.evidence, [DEFAULT_CRITERION])[0][DEFAULT_CRITERION]
    for name, contender in {"production": case.production, **contenders}.items()
}
rows = unskew.compare(values, "production")
for row in rows:
    low, high = row.difference_interval
    over = f"{row.difference:+.4f} ({low:+.4f} to {high:+.4f})"
    print(f"{row.name:10} {DEFAULT_CRITERION} {row.mean:.4f}, over production {over}")

# %% The better one learns from all queries and is exported, checked against torch
best = max(models, key=lambda name: next(row.mean for row in rows if row.name == name))
model = unskew.fit(recipes[best], log)
unskew.save_model(model, result / "model", overwrite=True)
print(export_model(model, result / "ranker.onnx", overwrite=True))
