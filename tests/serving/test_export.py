"""Exported files score as torch does, say what they are, and are not written when they would not."""

import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.testing import assert_close

from unskew import ClickLog, Recipe, fit, save_model
from unskew.data.fitted_transforms import TRANSFORMS, fit_transform
from unskew.methods import METHODS
from unskew.serving import exports
from unskew.serving.engine_json import LinearScores, to_json
from unskew.serving.exports import export_model, sample_lists, undo
from unskew.serving.onnx_file import METADATA, OnnxRanker, depends_on
from unskew.training.model import ModelRanker

DOCS = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)
NAMES = ("bm25", "price", "views", "shop")
FAST = {"steps": 3, "hidden": (4,), "batch_size": 16}
LISTWISE = {"network": "listwise", "expand": 8, "heads": 2, "layers": 1}
LINEAR = {"network": "linear", "transform": "standard"}

# All methods, and with them all transforms, one after the other.
RANKERS = [name for name, method in METHODS.items() if method.has_ranker]
CASES = {name: (name, {"transform": [*TRANSFORMS][number % len(TRANSFORMS)]}) for number, name in enumerate(RANKERS)}
CASES["hte"][1]["trees"] = 2
CASES["vectorization"][1]["base"] = "network"
CASES |= {
    "listwise": ("dla", LISTWISE),
    "listwise vectorization in shown order": ("vectorization", {**LISTWISE, "shown_order": True}),
    "vectorization with a fixed base": ("vectorization", {"base": "pca"}),
}


@pytest.fixture(scope="module")
def named_log():
    """20 lists of 4 documents; columns of other centres and scales, the last one constant."""
    rng = np.random.default_rng(3)
    features = rng.standard_normal((80, 4)) * [1, 100, 3, 0] + [0, 50, 7, 2]
    table = pa.table({name: features[:, column] for column, name in enumerate(NAMES)})
    return ClickLog.from_arrays(table, rng.integers(0, 10, 80), group=[4] * 20, sessions=[10] * 20)


@pytest.fixture(scope="module")
def linear(named_log):
    return fit(Recipe.of("dla", **FAST, **LINEAR), named_log)


@pytest.fixture(scope="module")
def naive(named_log):
    return fit(Recipe.of("naive", **FAST), named_log)


@pytest.fixture(scope="module")
def onnx_file(naive, tmp_path_factory):
    return export_model(naive, tmp_path_factory.mktemp("onnx") / "model.onnx").path


def lists_of(n_lists, n_docs, n_features):
    """Random lists; the first is padding only if there are several."""
    rng = np.random.default_rng(n_lists)
    mask = torch.from_numpy(rng.random((n_lists, n_docs)) < 0.7)
    mask[-1, 0] = True
    mask[0] &= n_lists == 1
    return torch.from_numpy(rng.standard_normal((n_lists, n_docs, n_features)).astype(np.float32)), mask


@pytest.mark.parametrize("case", CASES)
def test_every_ranker_scores_the_same_in_onnxruntime_whatever_the_size_of_lists(case, log, looked_at, world, tmp_path):
    name, options = CASES[case]
    clicks = looked_at if name == "attention" else log
    model = fit(
        Recipe.of(name, **{**FAST, "learning_rate": 0.001, **options}),
        clicks,
        judged=world.train if name == "labelled" else None,
    )
    exported = export_model(model, tmp_path / "model.onnx")
    assert exported.agreement.largest < max(1e-4, exported.agreement.allowed / 10)  # scores may be in the hundreds
    ranker = OnnxRanker(tmp_path / "model.onnx")
    for n_lists, n_docs in ((1, 1), (3, 17), (11, 2)):
        features, mask = lists_of(n_lists, n_docs, log.n_features)
        with torch.inference_mode():
            expected = model.ranker()(features, mask)
        scores = ranker(features, mask)
        assert_close(scores[mask], expected[mask], rtol=1e-4, atol=1e-4)
        assert scores.isfinite().all()
        assert_close(ranker(features.masked_fill(~mask.unsqueeze(-1), torch.nan), mask), scores)


def test_metadata_say_what_the_file_is(onnx_file):
    model = onnx.load(onnx_file)
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert set(about) == set(METADATA) - {"texts"}  # the log has no categories
    assert (about["method"], about["transform"], about["n_features"]) == ("naive", "automatic", "4")
    assert tuple(json.loads(about["feature_names"])) == NAMES == OnnxRanker(onnx_file).feature_names
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 18)]
    onnx.checker.check_model(model)


def test_the_file_names_no_place_of_the_machine_that_wrote_it(onnx_file):
    assert b"site-packages" not in onnx_file.read_bytes()
    assert b".py" not in onnx_file.read_bytes()


def test_the_file_says_whether_lists_may_be_cut(onnx_file, named_log):
    assert OnnxRanker(onnx_file).metadata["scores_depend_on"] == "document"
    for name, options in (("vectorization", {}), ("naive", {"transform": "per_query_minmax"}), ("naive", LISTWISE)):
        assert depends_on(fit(Recipe.of(name, **FAST, **options), named_log).ranker()) == "list"


def test_lists_for_the_check_lie_where_the_transform_works():
    rng = np.random.default_rng(0)
    train = np.exp(rng.standard_normal((1000, 2)) * [3, 0.1]) * [1, 1e-3]
    transform = fit_transform("automatic", train)
    noise = torch.from_numpy(rng.standard_normal((1, 50, 2)))
    raw = undo(transform, noise).float()
    assert_close(transform(raw, torch.ones(1, 50, dtype=torch.bool)), noise.float(), rtol=1e-3, atol=1e-3)
    masks = [mask for _, mask in sample_lists(ModelRanker(transform, None), 2, rng)]
    assert any(not mask.any() for mask in masks)
    assert all((~mask.any(1)).any() for mask in masks if len(mask) > 1)


def test_a_file_that_scores_otherwise_is_not_written(naive, named_log, onnx_file, tmp_path, monkeypatch):
    monkeypatch.setattr(exports, "to_onnx", lambda *_: onnx_file.read_bytes())
    other = fit(Recipe.of("naive", **FAST, seed=1), named_log)
    with pytest.raises(ValueError, match=r"was not written, .* largest difference from torch"):
        export_model(other, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_file_that_gives_nan_for_a_list_of_padding_is_not_written(naive, onnx_file, tmp_path, monkeypatch):
    class Dividing(OnnxRanker):
        def __call__(self, features, mask):
            count = mask.sum(-1, keepdim=True)
            return super().__call__(features, mask) * count / count

    monkeypatch.setattr(exports, "to_onnx", lambda *_: onnx_file.read_bytes())
    monkeypatch.setattr(exports, "OnnxRanker", Dividing)
    with pytest.raises(ValueError, match=r"largest difference from torch nan"):
        export_model(naive, tmp_path / "model.onnx")


def test_a_failed_write_leaves_the_old_file(linear, tmp_path, monkeypatch):
    target = tmp_path / "model.json"
    target.write_text("old")
    with pytest.raises(FileExistsError, match="overwrite"):
        export_model(linear, target)

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        export_model(linear, target, overwrite=True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("model.json", "old")]


def test_without_the_extra_it_says_what_to_install(run, linear, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    save_model(linear, tmp_path / "model")
    out = run("export", tmp_path / "model", "--to", tmp_path / "model.onnx", code=2)
    assert "ONNX needs onnxruntime: pip install 'unskew[onnx]'" in out


def test_another_ending_is_refused(linear, tmp_path):
    with pytest.raises(ValueError, match=r"model\.pt: the extension must be one of \.onnx, \.json"):
        export_model(linear, tmp_path / "model.pt")


def test_a_file_that_is_no_ranker_is_refused(onnx_file, tmp_path):
    with pytest.raises(FileNotFoundError, match="unskew export"):
        OnnxRanker(tmp_path / "none.onnx")
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(onnx_file.read_bytes()[:-200])
    with pytest.raises(ValueError, match="cannot be read as ONNX"):
        OnnxRanker(cut)
    other = onnx.load(onnx_file)
    del other.metadata_props[:]
    with pytest.raises(ValueError, match="was not written by `unskew export`"):
        OnnxRanker(other.SerializeToString())


@pytest.mark.parametrize("place", [40, 0.3, 0.6, 0.9, -70, -10])
def test_a_flipped_bit_of_an_onnx_file_is_refused(onnx_file, place):
    data = bytearray(onnx_file.read_bytes())
    data[int(place * len(data)) if isinstance(place, float) else place] ^= 4
    with pytest.raises(ValueError, match=r"damaged|cannot be read as ONNX|no ranker"):
        OnnxRanker(bytes(data))


def test_the_plugin_gets_one_weight_a_feature_with_the_transform_folded_in(linear, tmp_path):
    export_model(linear, tmp_path / "shop.json")
    body = json.loads((tmp_path / "shop.json").read_text())["model"]
    assert (body["name"], body["model"]["type"]) == ("shop", "model/linear")
    weights = json.loads(body["model"]["definition"])
    assert tuple(weights) == NAMES
    layer, standard = linear.method.relevance.layers[0], linear.transform.inner
    expected = layer.weight[0, 1].item() * standard.inverse_deviation[1].item()
    assert weights["price"] == pytest.approx(expected, rel=1e-6)
    assert weights["shop"] == 0  # constant in training
    features, mask = lists_of(1, 9, 4)
    with torch.inference_mode():
        scores = linear.ranker()(features, torch.ones_like(mask))[0]
    served = features[0].double() @ torch.tensor([weights[name] for name in NAMES], dtype=torch.double)
    assert_close(served - served[0], (scores - scores[0]).double(), rtol=0, atol=1e-5)


def test_vectorization_with_a_fixed_base_is_linear_too(named_log, tmp_path):
    export_model(fit(Recipe.of("vectorization", **FAST, **LINEAR, base="mean"), named_log), tmp_path / "model.json")
    model = fit(Recipe.of("vectorization", **FAST, **LINEAR), named_log)
    with torch.no_grad():
        model.method.base.layers[0].weight.add_(0.1)  # after a few steps the base is still about the same for all
    with pytest.raises(ValueError, match=r"not linear.*base=mean"):
        export_model(model, tmp_path / "other.json")


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        ("automatic", "takes logarithms of heavy-tailed columns"),
        ("minmax", "clips features to the range"),
        ("log+standard", "takes logarithms"),
        ("per_query_minmax", "depends on the other documents"),
        ("reciprocal", "takes reciprocals"),
    ],
)
def test_weights_hold_no_transform_that_is_not_affine(transform, why, named_log, tmp_path):
    model = fit(Recipe.of("naive", **FAST, network="linear", transform=transform), named_log)
    with pytest.raises(ValueError, match=rf"'{re.escape(transform)}', which {why}.* --set transform=standard"):
        export_model(model, tmp_path / "model.json")


def test_weights_hold_no_network(named_log, tmp_path):
    model = fit(Recipe.of("naive", **FAST, transform="identity"), named_log)
    with pytest.raises(ValueError, match=r"not linear.* --set network=linear"):
        export_model(model, tmp_path / "model.json")


def test_float32_weights_that_would_lose_the_order_are_refused(named_log, tmp_path):
    far = named_log.features + np.array([1e7, 0, 0, 0], np.float32)  # float32 steps are as wide as the column's spread
    log = ClickLog.from_arrays(far[named_log.documents.ravel()], named_log.clicks.ravel(), group=[4] * 20, graded=True)
    model = fit(Recipe.of("naive", **FAST, **LINEAR), log)
    with pytest.raises(ValueError, match="was not written"):
        export_model(model, tmp_path / "model.json")


def test_two_features_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two features are named 'a'"):
        to_json(LinearScores(np.ones(3, np.float32), 0.0), "model", ("a", "b", "a"))


def test_every_command_and_code_block_of_the_page_runs_as_written(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = ""
    for language, text in BLOCKS:
        if language == "python":
            exec(compile(text, "serving.md", "exec"), {})
        else:
            for line in filter(None, text.splitlines()):
                said += run(*shlex.split(line)[1:])
    run("rank", "model", "world:tiny", "--out", "torch.parquet")
    tables = [pq.read_table(name) for name in ("ranking.parquet", "torch.parquet")]
    by_id = [table.sort_by([("query", "ascending"), ("document", "ascending")])["score"].to_numpy() for table in tables]
    np.testing.assert_allclose(*by_id, rtol=1e-4, atol=1e-5)
    assert said.count("largest difference from torch") == 4
    assert all(f"`{name}`" in DOCS for name in METADATA)


def test_a_model_without_features_is_not_exported(naive, tmp_path):
    nothing = fit_transform("identity", np.zeros((3, 0), np.float32))
    blind = replace(naive, problem=replace(naive.problem, n_features=0), transform=nothing)
    with pytest.raises(ValueError, match="trained without features"):
        export_model(blind, tmp_path / "model.onnx")
