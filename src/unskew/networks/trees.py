r"""Boosted trees as a ranker: the sum of the leaves that a document falls into, on raw features.

A split sends a document left if $x_f \le t$, or if $x_f$ is one of some categories; each split also defines where a
missing value (NaN) goes. `from_lightgbm` reads LightGBM's text format, which is data: loading and running it needs
neither LightGBM nor code from the file. Trees run as torch operations, so that they can be exported to ONNX.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.networks.documents import Ranker

ZERO_AS_MISSING, NAN_AS_MISSING = 1, 2  # LightGBM's missing types; 0: NaN counts as 0
CATEGORICAL, DEFAULT_LEFT = 1, 2  # bits of LightGBM's decision type; the missing type is in the next two


@dataclass(frozen=True)
class Split:
    """A split on one feature."""

    feature: int
    threshold: float  # left if the value is at most this
    missing_left: bool
    left: Node
    right: Node
    categories: frozenset[int] | None = None  # left if the value is one of these, instead of the threshold


Node = Split | float  # a leaf is its value


@dataclass(frozen=True)
class Forest:
    """Trees whose leaves add up to a score."""

    trees: tuple[Node, ...]
    feature_names: tuple[str, ...]

    @property
    def categorical(self) -> list[str]:
        """Names of features that a tree splits by category."""
        found = {split.feature for tree in self.trees for split in _splits(tree) if split.categories is not None}
        return [self.feature_names[feature] for feature in sorted(found)]


class TreesRanker(Ranker):
    """A score for each document from its own raw features, which may be NaN."""

    feature: Tensor  # [trees, nodes]
    threshold: Tensor  # [trees, nodes]
    missing_left: Tensor  # [trees, nodes]
    next_node: Tensor  # [trees, 2 * nodes], right before left; a leaf leads to itself
    value: Tensor  # [trees, nodes], 0 except in leaves
    category_set: Tensor  # [trees, nodes], the row of `categories` that decides; 0: the threshold decides
    categories: Tensor  # [sets, codes]

    def __init__(self, forest: Forest, text: str | None = None):
        """
        Args:
            text: of LightGBM for the same trees: its library, if it is installed, runs them three times as fast.
        """
        super().__init__()
        installed = text is not None and importlib.util.find_spec("lightgbm") is not None
        self.booster = import_module("lightgbm").Booster(model_str=text) if installed else None
        self.n_features = len(forest.feature_names)
        tables = [_Table(tree) for tree in forest.trees]
        self.depth = max((table.depth for table in tables), default=0)
        n_nodes = max((len(table.rows) for table in tables), default=1)
        sets = [frozenset[int](), *sorted({s for t in tables for s in t.sets()}, key=sorted)]
        numbers = np.stack([table.numbers(n_nodes, sets) for table in tables]) if tables else np.zeros((0, 1, 7))
        n_codes = max((code + 1 for codes in sets for code in codes), default=1)
        known = np.zeros((len(sets), n_codes), dtype=bool)
        for row, codes in enumerate(sets):
            known[row, sorted(codes)] = True
        self.register_buffer("feature", torch.from_numpy(numbers[..., 0].astype(np.int64)))
        self.register_buffer("threshold", torch.from_numpy(at_most(numbers[..., 1])))
        self.register_buffer("missing_left", torch.from_numpy(numbers[..., 2] > 0))
        following = numbers[..., 4:2:-1].astype(np.int64).reshape(len(numbers), -1)  # right, left
        self.register_buffer("next_node", torch.from_numpy(following))
        self.register_buffer("value", torch.from_numpy(numbers[..., 5].astype(np.float32)))
        self.register_buffer("category_set", torch.from_numpy(numbers[..., 6].astype(np.int64)))
        self.register_buffer("categories", torch.from_numpy(known))

    @property
    def pointwise(self) -> bool:
        return True

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        if self.booster is not None and features.numel():
            rows = features.reshape(-1, features.shape[-1]).numpy()
            scores = self.booster.predict(rows, raw_score=True, num_threads=torch.get_num_threads())
            return torch.from_numpy(scores).float().reshape(features.shape[:-1])
        columns = features.reshape(-1, features.shape[-1]).T  # [features, documents]
        node = torch.zeros(len(self.feature), columns.shape[1], dtype=torch.int64, device=features.device)
        for _ in range(self.depth):
            values = columns.gather(0, self.feature.gather(1, node))
            missing = values.isnan()  # comparisons with NaN are False
            left = (values <= self.threshold.gather(1, node)) | (missing & self.missing_left.gather(1, node))
            if len(self.categories) > 1:
                left = self._by_category(node, values, missing, left)
            node = self.next_node.gather(1, 2 * node + left.long())
        return self.value.gather(1, node).sum(0).reshape(features.shape[:-1])

    def near_splits(self, noise: Tensor) -> Tensor:
        """Features `[..., f]` among the thresholds of the splits, from standard normal noise of that shape."""
        features = noise.clone()
        inner = self.next_node[:, ::2] != torch.arange(self.feature.shape[1])  # a leaf leads to itself
        for column in range(noise.shape[-1]):
            known = self.threshold[inner & (self.feature == column)].double().sort().values
            if len(known):
                share = torch.special.ndtr(noise[..., column])
                features[..., column] = torch.quantile(known, share.flatten()).reshape(share.shape)
        return features

    def _by_category(self, node: Tensor, values: Tensor, missing: Tensor, left: Tensor) -> Tensor:
        chosen = self.category_set.gather(1, node)
        n_codes = self.categories.shape[1]
        unknown = missing | (values < 0) | (values >= n_codes)
        codes = torch.where(unknown, 0.0, values).long()
        member = self.categories.flatten()[chosen * n_codes + codes] & ~unknown
        return (member & (chosen > 0)) | (left & (chosen == 0))


def at_most(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest float32 that is at most each threshold, so that float32 values fall on the same side."""
    with np.errstate(over="ignore"):
        near = thresholds.astype(np.float32)
    return np.where(near > thresholds, np.nextafter(near, np.float32(-np.inf)), near)


def from_lightgbm(text: str) -> Forest:
    """The trees of LightGBM's text format."""
    head, *blocks = text.split("\nTree=")
    about = _fields(head)
    if "feature_names" not in about:
        raise ValueError("the text is not a LightGBM model: it has no feature names")
    names = tuple(about["feature_names"].split())
    return Forest(tuple(_lightgbm_tree(_fields(block.split("\nend of trees")[0])) for block in blocks), names)


def _lightgbm_tree(fields: dict[str, str]) -> Node:
    leaves = _floats(fields["leaf_value"])
    if int(fields["num_leaves"]) == 1:
        return leaves[0]
    features, kinds = _ints(fields["split_feature"]), _ints(fields["decision_type"])
    thresholds, children = _floats(fields["threshold"]), (_ints(fields["left_child"]), _ints(fields["right_child"]))
    bounds, words = _ints(fields.get("cat_boundaries", "")), _ints(fields.get("cat_threshold", ""))
    if sorted([*children[0], *children[1]]) != [*range(-len(leaves), 0), *range(1, len(features))]:
        raise ValueError("a tree has a node or a leaf twice, or never")
    if any(0 < child <= node for each in children for node, child in enumerate(each)):
        raise ValueError("a tree has a node below itself")

    def build(number: int) -> Node:
        if number < 0:
            return leaves[~number]
        left, right = build(children[0][number]), build(children[1][number])
        kind, threshold = kinds[number], thresholds[number]
        if kind & CATEGORICAL:
            first, last = bounds[int(threshold)], bounds[int(threshold) + 1]
            codes = _members(words[first:last])
            return Split(features[number], 0.0, False, left, right, codes)
        missing = kind >> 2
        if missing == ZERO_AS_MISSING:
            raise ValueError("the trees treat 0 as missing: train them with zero_as_missing=false")
        goes_left = bool(kind & DEFAULT_LEFT) if missing == NAN_AS_MISSING else threshold >= 0  # NaN counts as 0
        return Split(features[number], threshold, goes_left, left, right)

    return build(0)


def _members(words: Sequence[int]) -> frozenset[int]:
    """Numbers of the bits that are set."""
    return frozenset(32 * place + bit for place, word in enumerate(words) for bit in range(32) if word >> bit & 1)


def _fields(block: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _ints(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def _floats(text: str) -> list[float]:
    return [float(word) for word in text.split()]


def _splits(node: Node) -> list[Split]:
    return [] if not isinstance(node, Split) else [node, *_splits(node.left), *_splits(node.right)]


class _Table:
    """The nodes of one tree as rows: feature, threshold, missing left, left, right, value, categories."""

    def __init__(self, tree: Node):
        self.rows: list[list[float]] = []
        self.categories: dict[int, frozenset[int]] = {}
        self.depth = self._add(tree)

    def _add(self, node: Node) -> int:
        """Append a subtree, and return its depth."""
        place = len(self.rows)
        if not isinstance(node, Split):
            self.rows.append([0, 0, 0, place, place, node, 0])
            return 0
        row: list[float] = [node.feature, node.threshold, node.missing_left, 0, 0, 0, 0]
        self.rows.append(row)
        if node.categories is not None:
            self.categories[place] = node.categories
        row[3] = len(self.rows)
        left = self._add(node.left)
        row[4] = len(self.rows)
        return 1 + max(left, self._add(node.right))

    def sets(self) -> list[frozenset[int]]:
        return list(self.categories.values())

    def numbers(self, n_nodes: int, sets: Sequence[frozenset[int]]) -> NDArray[np.float64]:
        """The rows, padded to a number of nodes."""
        table = np.zeros((n_nodes, 7))
        table[:, 3] = table[:, 4] = np.arange(n_nodes)
        table[: len(self.rows)] = self.rows
        for place, codes in self.categories.items():
            table[place, 6] = 1 + sets[1:].index(codes)
        return table
