"""Exported files, loaded by the engines and libraries that can run here, against torch on the same documents.

    npm install --ignore-scripts onnxruntime-node onnxruntime-web   # in FOLDER
    python benchmarks/engines.py OUT --npm FOLDER

The model has numbers with missing values and a category with a new value. Node and a Chromium page run flat ONNX, ONNX
of lists and flat ONNX with codes; LightGBM and XGBoost load the trees; the configuration of Triton in docs/serving.md
is parsed by the messages of its client library. What is not installed is said so. OUT/engines.json has the rows.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import subprocess
import threading
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnxruntime
import pandas as pd
import torch
import xgboost

import unskew
from unskew.serving.distillation import export_trees
from unskew.serving.exports import export_model

ONNX = ("flat", "lists", "codes")
SCORE = """
function tensors(ort, name, data) {
  const n = data.scores.length, numbers = data.numbers[0].length, wide = numbers + 1;
  const real = value => value === null ? NaN : value;
  if (name === "codes") {
    const rows = data.numbers.flatMap((row, place) => [...row, data.codes[place]].map(real));
    return {features: new ort.Tensor("float32", Float32Array.from(rows), [n, wide])};
  }
  const shape = name === "flat" ? [n] : [1, n];
  const inputs = {
    features: new ort.Tensor("float32", Float32Array.from(data.numbers.flat().map(real)), [...shape, numbers]),
    texts: new ort.Tensor("string", data.texts, [...shape, 1]),
  };
  return name === "flat" ? inputs : {...inputs, mask: new ort.Tensor("bool", new Uint8Array(n).fill(1), [1, n])};
}
async function largest(ort, load, data) {
  const found = {};
  for (const name of ["flat", "lists", "codes"]) {
    const session = await load(name);
    const scores = (await session.run(tensors(ort, name, data))).scores.data;
    found[name] = Math.max(...data.scores.map((score, place) => Math.abs(score - scores[place])));
  }
  return found;
}
"""
NODE = """
const ort = require("onnxruntime-node"), fs = require("fs"), folder = process.argv[2];
const data = JSON.parse(fs.readFileSync(folder + "/case.json"));
largest(ort, name => ort.InferenceSession.create(folder + "/" + name + ".onnx"), data)
  .then(found => console.log(JSON.stringify(found)));
"""
PAGE = """<!doctype html><title>Ranking in the browser</title><script type="module">
import * as ort from "/npm/node_modules/onnxruntime-web/dist/ort.all.bundle.min.mjs";
ort.env.wasm.wasmPaths = "/npm/node_modules/onnxruntime-web/dist/";
ort.env.wasm.numThreads = 1;
%s
const data = await (await fetch("case.json")).json();
try { window.found = await largest(ort, name => ort.InferenceSession.create(name + ".onnx"), data); }
catch (error) { window.found = {error: String(error)}; }
</script>"""


def make(out: Path) -> tuple[unskew.Model, unskew.ClickLog, np.ndarray]:
    """A model on disk in all forms, and documents with missing and new values beside its scores."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((600, 20)), columns=[f"f{number}" for number in range(20)])
    table["brand"] = rng.choice(["a", "b", "c"], 600)
    table.iloc[::7, 3] = np.nan
    clicks = (table.f0 + (table.brand == "a") > 0).astype(int)
    log = unskew.ClickLog.from_arrays(table, clicks, [10] * 60, np.tile(np.arange(10), 60))
    model = unskew.fit("dla", log, steps=50, progress=False)
    export_model(model, out / "flat.onnx", flat=True, overwrite=True)
    export_model(model, out / "lists.onnx", overwrite=True)
    export_model(model, out / "codes.onnx", flat=True, codes=True, overwrite=True)
    numbers = rng.standard_normal((6, 20)).astype(np.float32)
    numbers[2, 3] = np.nan
    codes = np.array([0, np.nan, 2, -1, 1, 0], dtype=np.float32)
    rows = np.column_stack([numbers, codes])
    with torch.inference_mode():
        scores = model.ranker()(torch.from_numpy(rows)[None], torch.ones(1, 6, dtype=torch.bool))[0].numpy()

    def plain(values: np.ndarray) -> Any:
        return json.loads(pd.DataFrame(values).to_json(orient="values", double_precision=15))

    case = {
        "numbers": plain(numbers),
        "texts": ["a", "", "c", "zenith", "b", "a"],
        "codes": [row[0] for row in plain(codes)],
        "scores": scores.tolist(),
    }
    (out / "case.json").write_text(json.dumps(case))
    return model, log, rows


def in_python(out: Path) -> dict[str, float]:
    case = json.loads((out / "case.json").read_text())
    numbers = np.array(case["numbers"], dtype=np.float32)
    texts = np.array(case["texts"], dtype=object)[:, None]
    codes = np.array(case["codes"], dtype=np.float32)[:, None]
    inputs = {
        "flat": {"features": numbers, "texts": texts},
        "lists": {"features": numbers[None], "texts": texts[None], "mask": np.ones((1, len(texts)), bool)},
        "codes": {"features": np.concatenate([numbers, codes], 1)},
    }
    sessions = {name: onnxruntime.InferenceSession(out / f"{name}.onnx") for name in ONNX}
    return {
        name: float(np.abs(sessions[name].run(None, inputs[name])[0].reshape(-1) - case["scores"]).max())
        for name in ONNX
    }


def in_node(out: Path, npm: Path) -> dict[str, float]:
    script = npm / "unskew_engines.cjs"
    script.write_text(SCORE + NODE)
    done = subprocess.run(["node", script, out.resolve()], capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout)


def in_chromium(out: Path, npm: Path) -> dict[str, float]:
    """A page that ranks in the browser."""
    from playwright.sync_api import sync_playwright

    (out / "page.html").write_text(PAGE % SCORE)

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(npm / path.removeprefix("/npm/")) if path.startswith("/npm/") else str(out / path.lstrip("/"))

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/page.html")
        page.wait_for_function("window.found !== undefined", timeout=120_000)
        found = page.evaluate("window.found")
        browser.close()
    server.shutdown()
    return found


def trees(out: Path, model: unskew.Model, log: unskew.ClickLog, rows: np.ndarray) -> dict[str, dict[str, float]]:
    """Files of trees in the library that reads them, against our own evaluation of the same trees."""
    small = {"least_agreement": -1.0, "overwrite": True}
    export_trees(model, out / "trees.txt", log, kind="lightgbm", **small)
    ours = unskew.serving.saved_ranker.open_ranker(out / "trees.txt")
    ours.score.booster = None  # by torch
    mask = torch.ones(1, len(rows), dtype=torch.bool)
    expected = ours.score(torch.from_numpy(rows)[None], mask)[0].numpy()
    of_lightgbm = lightgbm.Booster(model_file=out / "trees.txt").predict(rows)
    export_trees(model, out / "trees.ubj", log, kind="xgboost", missing=float("nan"), **small)
    export_trees(model, out / "xgboost.json", log, kind="xgboost", missing=float("nan"), **small)
    booster = xgboost.Booster(model_file=out / "trees.ubj")
    names = list(model.feature_names)
    of_xgboost = booster.predict(xgboost.DMatrix(rows, feature_names=names))
    dump = unskew.serving.tree_files.parse_trees((out / "xgboost.json").read_bytes(), ".json", names)
    ours = unskew.networks.trees.TreesRanker(dump)(torch.from_numpy(rows)[None], mask)[0].numpy()
    return {
        "LightGBM": {"trees.txt": float(np.abs(of_lightgbm - expected).max())},
        "XGBoost": {"trees.ubj": float(np.abs(of_xgboost - ours).max())},
    }


def triton() -> dict[str, Any]:
    """The configuration of the docs, parsed by the messages of the client library."""
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    page = (Path(__file__).parents[1] / "docs" / "serving.md").read_text(encoding="utf-8")
    text = re.search(r'    name: "ranker"\n(?:    .*\n)+', page)[0]
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    return {"inputs": [entry.name for entry in config.input], "outputs": [entry.name for entry in config.output]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--npm", type=Path, help="folder with node_modules")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    model, log, rows = make(given.out)
    engines: dict[str, Callable[[], Any]] = {
        f"onnxruntime {onnxruntime.__version__}, Python": lambda: in_python(given.out),
        f"LightGBM {lightgbm.__version__}, XGBoost {xgboost.__version__}": lambda: trees(given.out, model, log, rows),
        "Triton's client library": triton,
    }
    if given.npm is not None:
        found = json.loads((given.npm / "node_modules/onnxruntime-web/package.json").read_text())["version"]
        engines[f"onnxruntime-node {found}"] = functools.partial(in_node, given.out, given.npm)
        engines[f"onnxruntime-web {found}, Chromium"] = functools.partial(in_chromium, given.out, given.npm)
    results: dict[str, Any] = {"unskew": version("unskew")}
    for name, run in engines.items():
        try:
            results[name] = run()
        except (ModuleNotFoundError, RuntimeError) as error:  # RuntimeError: tritonclient without grpc
            results[name] = f"not run: {error}"
        print(name, json.dumps(results[name]))
    (given.out / "engines.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
