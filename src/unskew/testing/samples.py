"""Samples for checks: a small joint log, judged queries like it, and the same lists in other forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.build import count_patterns
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.judged.judged_set import JudgedSet
from unskew.lists import ClickedLists, JudgedLists
from unskew.methods.method import Method

N_DOCS, N_FEATURES = 5, 4


def joint_log(features: NDArray, mask: NDArray, sessions_of_lists: Sequence[NDArray], device: Any) -> ClickLog:
    """A log from the clicks of single sessions, `[sessions, docs]` for each list."""
    n_lists, n_docs = mask.shape
    owner = np.repeat(np.arange(n_lists), [len(clicks) for clicks in sessions_of_lists])
    clicks = np.concatenate(sessions_of_lists).astype(np.float32)
    counts = np.zeros((n_lists, n_docs), dtype=np.float32)
    np.add.at(counts, owner, clicks)
    seen = np.zeros_like(counts)
    np.add.at(seen, owner, looks(clicks, mask[owner]))
    sessions = np.bincount(owner, minlength=n_lists).astype(np.float32)
    return ClickLog(
        features=features,
        versions=np.where(mask, np.arange(n_lists * n_docs).reshape(n_lists, n_docs), 0).astype(np.int32),
        mask=mask,
        clicks=counts,
        sessions=sessions,
        seen=seen,
        seen_sessions=sessions,
        patterns=count_patterns(owner, clicks, np.ones(len(owner))),
        bias={"device": BiasColumn(np.asarray(device), ("desk", "phone"))},
    )


def looks(clicks: NDArray, mask: NDArray) -> NDArray[np.float32]:
    """Examined documents of single sessions: the clicked ones, and the top two."""
    return ((clicks > 0) | (mask & (np.arange(mask.shape[1]) < 2))).astype(np.float32)


def small_sessions(seed: int = 0, n_lists: int = 8) -> tuple[NDArray, list[NDArray]]:
    """Mask and clicks of single sessions of lists with 2 to 5 documents."""
    rng = np.random.default_rng(seed)
    mask = np.arange(N_DOCS) < rng.integers(2, N_DOCS + 1, n_lists)[:, None]
    return mask, [(rng.random((rng.integers(3, 9), N_DOCS)) < 0.4) & row for row in mask]


def small_features(seed: int = 0, n_lists: int = 8) -> NDArray[np.float32]:
    return np.random.default_rng([seed, 1]).normal(size=(n_lists * N_DOCS, N_FEATURES)).astype(np.float32)


def small_log(seed: int = 0, n_lists: int = 8) -> ClickLog:
    mask, sessions = small_sessions(seed, n_lists)
    return joint_log(small_features(seed, n_lists), mask, sessions, np.arange(n_lists) % 2)


def small_judged(seed: int = 0, n_queries: int = 8) -> JudgedSet:
    grades = np.random.default_rng([seed, 2]).integers(0, 5, n_queries * N_DOCS)
    return JudgedSet.from_arrays(small_features(seed, n_queries), grades, group=[N_DOCS] * n_queries)


SOURCES: dict[str, Any] = {"clicks": small_log(), "judgements": small_judged()}


def in_several_orders(n_orders: int = 3, seed: int = 0) -> ClickLog:
    """The small log with every list shown in several orders."""
    rng = np.random.default_rng(seed)
    log = small_log()
    again = log.select(np.tile(np.arange(log.n_lists), n_orders))
    order = np.where(again.mask, rng.random(again.mask.shape), 2.0).argsort(1)  # padding stays at the end
    return replace(again, versions=np.take_along_axis(again.versions, order, 1))


def log_of_single_sessions(log: ClickLog, sessions: Sequence[NDArray]) -> ClickLog:
    """Every session as a separate list."""
    owner = np.repeat(np.arange(log.n_lists), [len(clicks) for clicks in sessions])
    clicks = np.concatenate(sessions).astype(np.float32)
    return replace(
        log.marginal(),
        versions=log.versions[owner],
        mask=log.mask[owner],
        positions=log.positions[owner],
        clicks=clicks,
        sessions=np.ones(len(owner), dtype=np.float32),
        seen=looks(clicks, log.mask[owner]),
        seen_sessions=np.ones(len(owner), dtype=np.float32),
        patterns=count_patterns(np.arange(len(owner)), clicks, np.ones(len(owner))),
        bias={name: column.select(owner) for name, column in log.bias.items()},
    )


def all_lists(method: Method, log: ClickLog | None = None) -> Any:
    """Everything that the method's last stage learns from, as one batch."""
    if method.stages()[-1].source == "judgements":
        return SOURCES["judgements"].lists()
    batches = ClickBatches(SOURCES["clicks"] if log is None else log, detail=method.detail)
    return batches.rows(np.arange(batches.order.n_rows))


def in_double(lists: Any) -> Any:
    """The same lists with numbers in float64."""
    doubled: dict[str, Any] = {
        name: value.double()
        for name, value in vars(lists).items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }
    if lists.distinct is not None:
        doubled |= {"features": None, "distinct": replace(lists.distinct, rows=lists.distinct.rows.double())}
    return replace(lists, **doubled)


def with_clicks(lists: Any, clicks: Tensor) -> Any:
    """The same lists with these clicks, or grades, in every session."""
    if isinstance(lists, JudgedLists):
        return replace(lists, grades=clicks)
    squares = lists.mask.unsqueeze(2) & lists.mask.unsqueeze(1)
    pairs = None if lists.pairs is None else (clicks.unsqueeze(2) * (1 - clicks.unsqueeze(1))) * squares
    sessions = lists.sessions.unsqueeze(-1)
    return replace(lists, clicks=clicks * sessions, pairs=None if pairs is None else pairs * sessions.unsqueeze(-1))


def widened(lists: Any, n_more: int = 3) -> Any:
    """The same lists in a wider batch, with garbage in the padding."""

    def wider(tensor: Tensor, dims: Sequence[int], fill: float) -> Tensor:
        shape = list(tensor.shape)
        for dim in dims:
            shape[dim] += n_more
        result = torch.full(shape, fill, dtype=tensor.dtype)
        result[tuple(slice(0, size) for size in tensor.shape)] = tensor
        return result

    garbage = 100 * torch.randn(*lists.mask.shape, lists.features.shape[-1], generator=torch.Generator().manual_seed(0))
    features = torch.where(lists.mask.unsqueeze(-1), lists.features, garbage.to(lists.features.dtype))
    common: dict[str, Any] = {"features": wider(features, [1], 77.0), "mask": wider(lists.mask, [1], False)}
    if isinstance(lists, JudgedLists):
        return JudgedLists(**common, grades=wider(lists.grades, [1], 0.0))
    return ClickedLists(
        **common,
        positions=wider(lists.positions, [1], 0),
        clicks=wider(lists.clicks, [1], 0.0),
        sessions=lists.sessions,
        bias={name: wider(column, [1], 1) for name, column in lists.bias.items()},
        seen=None if lists.seen is None else wider(lists.seen, [1], 0.0),
        seen_sessions=lists.seen_sessions,
        pairs=None if lists.pairs is None else wider(lists.pairs, [1, 2], 0.0),
    )


def one_document(lists: Any) -> Any:
    only = torch.zeros_like(lists.mask)
    only[:, 0] = True
    return with_clicks(replace(lists, mask=only), only.float())


def one_list_masked(lists: Any) -> Any:
    mask = lists.mask.clone()
    mask[1] = False
    return with_clicks(replace(lists, mask=mask), mask.float() * (torch.arange(lists.n_docs) % 2))


EXTREMES: tuple[Callable[[Any], Any], ...] = (
    lambda lists: with_clicks(lists, torch.zeros(lists.mask.shape)),
    lambda lists: with_clicks(lists, lists.mask.float()),
    lambda lists: with_clicks(replace(lists, mask=torch.zeros_like(lists.mask)), torch.zeros(lists.mask.shape)),
    one_document,
    one_list_masked,
)
