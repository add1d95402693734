"""Feature transforms: hand arithmetic, fitted on train only, the same in training, after loading and in ONNX."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from torch import Tensor, nn
from torch.testing import assert_close

from unskew.data import transforms
from unskew.data.fitted_transforms import TRANSFORMS, fit_transform, moments
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.letor import read_letor
from unskew.data.judged.world import make_world
from unskew.data.raw_columns import KINDS, describe_columns, from_spec
from unskew.data.transforms import Reciprocal, Transform

DATA = Path(os.environ.get("UNSKEW_DATA") or "no-such-folder")
E = float(np.e)


def matrix(*rows: list[float]) -> np.ndarray:
    return np.array(rows, dtype=np.float32)


@pytest.fixture(scope="module")
def train() -> JudgedSet:
    return make_world("tiny").train


# Hand arithmetic


def test_identity_changes_nothing():
    features = matrix([1, -2], [3, 4])
    assert_array_equal(fit_transform("identity", features).apply_to(features), features)


def test_log1p_keeps_the_sign():
    features = matrix([0, E - 1, 1 - E, E**3 - 1])
    assert_allclose(fit_transform("log1p", features).apply_to(features), matrix([0, 1, -1, 3]), rtol=1e-6)


def test_minmax_maps_the_training_range_to_minus_one_to_one_and_clips_beyond():
    transform = fit_transform("minmax", matrix([0, 10], [4, 20], [1, 15]))
    assert_allclose(transform.apply_to(matrix([0, 20], [1, 15], [9, -100])), matrix([-1, 1], [-0.5, 0], [1, -1]))


def test_standard_has_mean_0_and_deviation_1():
    transform = fit_transform("standard", matrix([1, 0], [3, 0], [1, 10], [3, 10]))  # means 2, 5; deviations 1, 5
    assert_allclose(transform.apply_to(matrix([1, 0], [2, 20])), matrix([-1, -1], [0, 3]))


@pytest.mark.parametrize("name", ["minmax", "standard", "log+minmax", "log+standard", "automatic"])
def test_constant_columns_become_0_whatever_is_served_later(name: str):
    transform = fit_transform(name, matrix([7, 0.1], [7, 0.2], [7, 0.9]))
    assert_array_equal(transform.apply_to(matrix([7, 0.1], [1e6, 0.1]))[:, 0], [0, 0])


def test_log_and_standard_are_done_one_after_the_other():
    transform = fit_transform("log+standard", matrix([0], [E**2 - 1]))  # logarithms 0 and 2: mean 1, deviation 1
    assert_allclose(transform.apply_to(matrix([E - 1], [E**4 - 1])), matrix([0], [3]), atol=1e-6)


def test_per_query_minmax_looks_at_one_query_at_a_time():
    features = matrix([1, 5], [3, 5], [2, 5], [10, 0], [30, 1])
    scaled = fit_transform("per_query_minmax", features).apply_to(features, np.array([0, 3, 5]))
    assert_allclose(scaled, matrix([0, 1], [1, 1], [0.5, 1], [0, 0], [1, 1]))  # 5, the same for all, is held to 1


def test_per_query_minmax_does_not_see_the_padding():
    features = torch.tensor([[[2.0], [4.0], [3.0], [99.0]]])
    mask = torch.tensor([[True, True, True, False]])
    assert_close(transforms.PerQueryMinMax()(features, mask), torch.tensor([[[0.0], [1.0], [0.5], [0.0]]]))


def test_per_query_minmax_may_be_followed_by_a_fitted_step():
    features = matrix([1], [3], [10], [30])  # scaled: 0, 1, 0, 1; mean .5, deviation .5
    offsets = np.array([0, 2, 4])
    transform = fit_transform("per_query_minmax+standard", features, offsets)
    assert_allclose(transform.apply_to(features, offsets), matrix([-1], [1], [-1], [1]))


def test_reciprocal_puts_what_is_missing_last():
    transform = fit_transform("reciprocal", matrix([1, np.nan]))
    assert_allclose(transform.apply_to(matrix([0, 10], [90, np.nan])), matrix([0.1, 0.05], [0.01, 0]))
    assert_allclose(Reciprocal(1.0).apply_to(matrix([1, 3])), matrix([0.5, 0.25]))
    with pytest.raises(ValueError, match="must be positive, got 0"):
        Reciprocal(0.0)


def test_automatic_bends_heavy_tails_only():
    rng = np.random.default_rng(0)
    normal = rng.normal(50.0, 5.0, 10_000)
    counts = np.floor(np.exp(rng.normal(3.0, 2.0, 10_000)))
    flag = (rng.random(10_000) < 0.001).astype(float)  # as far from its mean, but no logarithm helps
    small = np.exp(rng.normal(-9.0, 2.0, 10_000))  # heavy-tailed on a scale where log(1 + x) = x
    features = np.column_stack([normal, counts, flag, small]).astype(np.float32)
    transform = fit_transform("automatic", features)
    assert_array_equal(transform.inner.steps[0].heavy, [False, True, False, True])
    scaled = transform.apply_to(features)
    assert_allclose(scaled[:, 0], (normal - normal.mean()) / normal.std(), atol=1e-4)
    logs = np.log1p(counts)
    assert_allclose(scaled[:, 1], (logs - logs.mean()) / logs.std(), atol=1e-4)
    assert scaled[:, 2].max() == 10.0  # clipped: (1 - .001) / √.001 is 31
    assert np.abs(scaled[:, 3]).max() < 8


# Fitting


def test_a_transform_is_fitted_on_the_training_split_only(train: JudgedSet):
    transform = fit_transform("standard", train.features)
    other = train.features * 3 + 1
    before = {name: buffer.clone() for name, buffer in transform.named_buffers()}
    scaled = transform.apply_to(other)
    assert_close(dict(transform.named_buffers()), before)
    mean, deviation = train.features.mean(axis=0, dtype=np.float64), train.features.std(axis=0, dtype=np.float64)
    expected = np.divide(other - mean, deviation, out=np.zeros(other.shape), where=deviation > 0)
    assert_allclose(scaled, expected, rtol=1e-3, atol=1e-3)


def test_moments_survive_a_mean_that_is_large_against_the_deviation():
    """In float32 the squares of 10⁷ would drown the deviation of 1."""
    features = np.tile(matrix([1e7 - 1], [1e7 + 1]), (50_000, 1))
    found = moments([features[:77], features[77:]])
    assert found.mean == 1e7
    assert_allclose(found.deviation, 1.0, rtol=1e-9)


@pytest.mark.parametrize("name", ["minmax", "log+standard", "automatic"])
def test_blocks_give_the_same_transform_as_the_whole_matrix(train: JudgedSet, name: str):
    blocks = np.array_split(train.features, [10, 11, 500])
    whole, parts = fit_transform(name, train.features), fit_transform(name, blocks)
    assert_close(parts.state_dict(), whole.state_dict())


COLOURS = {"columns": ["colour"], "categories": {"colour": ("red", "blue")}}


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        (lambda: fit_transform("standard", iter([matrix([1.0])])), "pass a list of blocks"),  # it can be read only once
        (lambda: fit_transform("standard", [matrix([1.0])], np.array([0, 1])), "offsets"),
        (lambda: fit_transform("standard", np.zeros((0, 3), np.float32)), "no documents"),
        (lambda: fit_transform("min_max", matrix([1.0])), "'min_max'.*identity, log1p, minmax"),
        (lambda: fit_transform("identity", matrix([0], [2]), **COLOURS), "vocabulary of 2 values"),
        (lambda: fit_transform("per_query_minmax", matrix([1.0])).apply_to(matrix([1.0])), "pass the offsets"),
    ],
)
def test_what_cannot_be_fitted_is_refused(fit, words):
    with pytest.raises((TypeError, ValueError), match=words):
        fit()


# What is missing


def test_infinity_is_refused_when_a_transform_is_fitted_and_when_it_is_used():
    with pytest.raises(ValueError, match="feature 'bm25' of row 1 is inf: a feature must be finite"):
        fit_transform("standard", matrix([1, 2], [3, np.inf]), columns=["length", "bm25"])
    with pytest.raises(ValueError, match="feature number 0 of block 1, row 2 is inf"):
        fit_transform("standard", [matrix([1], [2]), matrix([3], [4], [np.inf])])
    transform = fit_transform("standard", matrix([1, 2], [3, 4]))
    with pytest.raises(ValueError, match="feature number 0 of row 2 is -inf"):
        transform.apply_to(matrix([1, 2], [3, 4], [-np.inf, 5]))


def test_a_missing_value_becomes_the_mean_and_is_indicated():
    features = matrix([1, 5], [np.nan, 5], [3, 5], [np.nan, 5])  # the mean of what is there is 2; half are missing
    changed = fit_transform("identity", features).apply_to(features)
    assert_allclose(changed, matrix([1, -1, 5], [2, 1, 5], [3, -1, 5], [2, 1, 5]))  # (0 - .5) / .5 and (1 - .5) / .5


def test_missing_values_do_not_change_how_the_others_are_scaled():
    transform = fit_transform("standard", matrix([1], [3], [np.nan]))
    assert_allclose(transform.apply_to(matrix([1], [3]))[:, 0], [-1, 1])


def test_automatic_fills_heavy_tails_with_the_mean_of_their_logarithms():
    counts = np.floor(np.exp(np.random.default_rng(0).normal(3.0, 2.0, 10_000))).astype(np.float32)
    counts[::2] = np.nan
    changed = fit_transform("automatic", counts[:, None]).apply_to(counts[:, None])
    assert_allclose(changed[::2, 0], 0.0, atol=1e-4)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_value_that_was_never_missing_before_is_filled_too(name: str):
    transform = fit_transform(name, matrix([1, 2], [3, 5]), np.array([0, 2]))
    assert np.isfinite(transform.apply_to(matrix([np.nan, 2], [3, np.nan]), np.array([0, 2]))).all()
    assert not transform.seen_missing().any()


def test_a_column_without_any_value_becomes_0():
    features = matrix([np.nan, 1], [np.nan, 3])
    assert_array_equal(fit_transform("standard", features).apply_to(features), matrix([0, -1], [0, 1]))


def test_blocks_with_missing_values_give_the_same_transform_as_the_whole_matrix(train: JudgedSet):
    features = train.features.copy()
    features[::3, 5] = np.nan
    whole, parts = fit_transform("automatic", features), fit_transform("automatic", np.array_split(features, [7, 900]))
    assert_close(parts.state_dict(), whole.state_dict())


# Categories


def test_a_category_becomes_its_place_rare_and_unseen_values_share_one():
    codes = np.repeat([0, 1, 2, np.nan], [6, 1, 5, 2]).astype(np.float32)  # red 6 times, odd once, blue 5 times
    features = np.column_stack([codes, np.arange(14, dtype=np.float32)])
    transform = fit_transform(
        "identity", features, columns=["colour", "price"], categories={"colour": ("red", "odd", "blue")}
    )
    served = matrix([0, 1], [1, 1], [2, 1], [-1, 1], [np.nan, 1], [7, 1])
    assert_array_equal(transform.apply_to(served), matrix([2, 1], [0, 1], [3, 1], [0, 1], [1, 1], [1, 1]))
    assert transform.categories() == ((0, 4),)
    assert transform.seen_missing().tolist() == [True, False]


def test_a_matrix_of_another_width_is_refused():
    transform = fit_transform("log+standard", matrix([1, 2], [3, 4]))
    with pytest.raises(ValueError, match="fitted on 2 columns, but the matrix has 3"):
        transform.apply_to(matrix([1, 2, 3]))


def test_a_table_says_what_each_column_became():
    features = np.column_stack(
        [np.tile([0, 1], 6), np.full(12, 3), np.tile([1, np.nan, 5], 4), np.repeat([0, 1], [11, 1])]
    )
    names = ["flag", "same", "price", "brand"]
    transform = fit_transform("standard", features.astype(np.float32), columns=names, categories={"brand": ("a", "b")})
    assert [(column.name, column.became) for column in describe_columns(transform, names)] == [
        ("flag", "standardized"),
        ("same", "constant in training, so 0"),
        ("price", "standardized; missing in 33%: imputed, with an indicator"),
        ("brand", "category: a vector for each of 1 values, one for 1 rare and all new ones"),
    ]


# The same everywhere


def holey(train: JudgedSet) -> tuple[np.ndarray, np.ndarray]:
    features = train.features.copy()
    features[::3, 2] = np.nan
    return features, train.offsets


@pytest.mark.parametrize("name", TRANSFORMS)
def test_lists_get_the_same_numbers_as_the_matrix_and_zeros_in_the_padding(train: JudgedSet, name: str):
    transform = fit_transform(name, train.features, train.offsets)
    scaled = JudgedSet(transform.apply_to(train.features, train.offsets), train.grades, train.offsets)
    lists = train.lists()
    assert_close(transform(lists.features, lists.mask), scaled.lists().features, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["automatic", "per_query_minmax+standard"])
def test_the_size_of_blocks_does_not_matter(train: JudgedSet, name: str, monkeypatch: pytest.MonkeyPatch):
    transform = fit_transform(name, train.features, train.offsets)
    whole = transform.apply_to(train.features, train.offsets)
    monkeypatch.setattr(transforms, "BLOCK_VALUES", 50 * train.n_features)  # a query or two at a time
    assert_array_equal(transform.apply_to(train.features, train.offsets), whole)
    again = fit_transform(name, train.features, train.offsets)
    assert_close(again.state_dict(), transform.state_dict())


@pytest.mark.parametrize("name", TRANSFORMS)
def test_spec_and_state_bring_a_transform_back(train: JudgedSet, name: str):
    transform = fit_transform(name, *holey(train))
    again = from_spec(json.loads(json.dumps(transform.spec())))
    again.load_state_dict(transform.state_dict())
    assert again.spec() == transform.spec()
    assert again.per_query == transform.per_query
    assert_array_equal(again.apply_to(train.features, train.offsets), transform.apply_to(train.features, train.offsets))


def test_a_spec_can_name_only_known_kinds():
    with pytest.raises(ValueError, match=r"unknown kind of feature transform 'os.system': choose from identity"):
        from_spec({"kind": "os.system", "command": "true"})
    assert set(KINDS) == {transform.kind for transform in KINDS.values()}


def test_a_transform_has_no_parameters_and_leaves_module_apply_alone(train: JudgedSet):
    ranker = nn.Sequential(fit_transform("automatic", train.features), nn.Linear(2, 1))
    seen: list[nn.Module] = []
    ranker.apply(seen.append)  # torch walks through children by their own `apply`
    assert ranker[0] in seen
    assert not list(ranker[0].parameters())


@pytest.mark.parametrize("name", TRANSFORMS)
def test_an_empty_list_gives_zeros(train: JudgedSet, name: str):
    transform = fit_transform(name, train.features, train.offsets)
    features = torch.full((1, 3, train.n_features), torch.nan)
    assert_close(transform(features, torch.zeros(1, 3, dtype=torch.bool)), torch.zeros_like(features))


class EveryTransform(nn.Module):
    """All transforms in one graph: exporting is slow."""

    def __init__(self, steps: list[Transform]):
        super().__init__()
        self.transforms = nn.ModuleList(steps)

    def forward(self, holes: Tensor, mask: Tensor) -> list[Tensor]:
        return [transform(holes, mask) for transform in self.transforms]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_onnx_computes_the_same(train: JudgedSet, tmp_path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    every = EveryTransform([fit_transform(name, *holey(train)) for name in TRANSFORMS]).eval()
    lists = train.lists(np.arange(4))
    holes = lists.features.clone()
    holes[0, 0, ::3] = torch.nan
    docs = torch.export.Dim("docs", min=1, max=1000)
    torch.onnx.export(
        every,
        (holes, lists.mask),
        tmp_path / "every.onnx",
        input_names=["holes", "mask"],
        dynamic_shapes=({1: docs}, {1: docs}),
        dynamo=True,
        verbose=False,
    )
    session = onnxruntime.InferenceSession(tmp_path / "every.onnx", providers=["CPUExecutionProvider"])
    holes, mask = holes[:, :7], lists.mask[:, :7]
    found = session.run(None, {"holes": holes.numpy(), "mask": mask.numpy()})
    for name, values, expected in zip(TRANSFORMS, found, every(holes, mask), strict=True):
        assert_close(torch.from_numpy(values), expected, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: name + text)


raw = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 8), st.integers(1, 4)),
    elements=st.floats(-(2.0**80), 2.0**80, width=32, allow_nan=False),
)


@settings(max_examples=50, deadline=None)
@given(train=raw, scale=st.floats(0.0, 1e6))
@pytest.mark.parametrize("name", ["minmax", "log+standard", "automatic"])
def test_bounded_transforms_are_finite_and_bounded_on_any_numbers(name: str, train: np.ndarray, scale: float):
    served = (train * np.float32(scale)).astype(np.float32)
    scaled = fit_transform(name, train).apply_to(served)
    assert np.isfinite(scaled).all()
    if name != "log+standard":
        assert np.abs(scaled).max() <= {"minmax": 1, "automatic": 10}[name]


def test_automatic_tames_raw_mslr_features():
    if not (DATA / "mslr-sample").is_dir():
        pytest.skip("mslr-sample is not in UNSKEW_DATA")
    features = read_letor(DATA / "mslr-sample" / "train.txt.gz").features
    assert features.max() > 1e7
    scaled = fit_transform("automatic", features).apply_to(features)
    varies = features.std(axis=0) > 0
    assert_allclose(scaled[:, varies].mean(axis=0), 0, atol=0.1)
    assert (scaled[:, varies].std(axis=0) > 0.7).all()
    assert np.abs(scaled).max() <= 10
    assert_array_equal(scaled[:, ~varies], 0)


def test_automatic_leaves_scaled_features_in_shape():
    scaled = np.random.default_rng(0).uniform(-1, 1, (5_000, 3)).astype(np.float32)
    again = fit_transform("automatic", scaled).apply_to(scaled)
    assert_allclose(again, (scaled - scaled.mean(axis=0)) / scaled.std(axis=0), atol=1e-4)
