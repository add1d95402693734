"""The built-in world: judged queries from a generator, so that everything runs without a download.

A query has an intent, a document has factors: how well it matches in several fields, how popular, fresh, deep or spammy
it is. Relevance depends on the intent, is not linear in the factors, and contains noise that no feature explains.
Rankers see neither intent nor factors, only raw features measured on them, of the kinds that real search logs have:
dense scores, heavy-tailed counts, sparse flags, copies and mixtures of other columns, noise, columns that are the same
for all documents of a query, and a constant.

The law of a world (weights, grade thresholds) depends on the seed alone: worlds of one seed and different sizes pose
the same problem. The seed also draws queries and documents, separately for each split, and documents of a query are in
random order. The same version of numpy gives the same world.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from unskew.data.judged.judged_set import JudgedSet

Matrix = NDArray[np.float64]

# Queries of each split.
SIZES: dict[str, dict[str, int]] = {
    "tiny": {"train": 200, "valid": 60, "test": 60},
    "small": {"train": 3_000, "valid": 500, "test": 1_000},
    "large": {"train": 20_000, "valid": 2_000, "test": 4_000},
}

# Columns of each kind, in the order of the matrix; worlds with other numbers of features have them in proportion.
COLUMNS: dict[str, int] = {
    "dense": 40,  # noisy measurements of the factors on different scales, some saturating
    "heavy": 26,  # counts whose logarithm is such a measurement
    "sparse": 10,  # zero for most documents
    "query": 10,  # the same for all documents of a query
    "mixture": 14,  # near copies and mixtures of dense columns
    "noise": 10,  # carry no information
    "constant": 1,
}
N_FEATURES = sum(COLUMNS.values())

FACTORS = ("title", "body", "anchor", "address", "popularity", "freshness", "depth", "spam")
N_MATCH_FACTORS = 4  # the first four say how well the document matches
INTENTS = ("navigate", "learn", "news")

# The weight of each factor for each intent. Spam has no positive weight; it enters below.
TASTES = np.array(
    [  # title, body, anchor, address, popularity, freshness, depth, spam
        [0.9, 0.0, 0.9, 0.8, 0.9, 0.0, -0.7, 0.0],
        [0.6, 1.2, 0.2, -0.2, -0.1, -0.1, 0.8, 0.0],
        [0.8, 0.4, 0.1, 0.0, 0.2, 1.3, -0.1, 0.0],
    ]
)
GRADE_SHARES = (0.52, 0.32, 0.11, 0.035, 0.015)  # of grades 0 to 4
DOCUMENTS_PER_QUERY = (10, 40)

# Tuned so that nDCG@10 on `small` is about .36 for a random order, .80 for a linear ranker trained on labels, .82 to
# .83 for a small MLP, and .73 for a linear SVM trained on 1% of the labelled queries. Slow tests check this.
MATCH_CORRELATION = 0.6  # of the match factors with each other
INTENT_SHARPNESS = 3.0  # 0: every query wants a bit of everything; large: exactly one intent
READING_NOISE = 1.1  # standard deviation of the measurement noise of a column
UNEXPLAINED = 1.28  # standard deviation of the relevance that no column explains
QUERY_SHIFT = 1.2  # standard deviation between queries: some have many relevant documents, some few
CALIBRATION_QUERIES = 4_000


@dataclass(frozen=True)
class World:
    """A synthetic data set in three splits."""

    train: JudgedSet
    valid: JudgedSet
    test: JudgedSet
    name: str


@dataclass(frozen=True)
class _Law:
    """The parameters shared by all splits and sizes of a world."""

    columns: dict[str, int]  # of each kind
    readings: Matrix  # [factors, dense + heavy + sparse]
    intent_readings: Matrix  # [intents, query]
    mixing: Matrix  # [dense, mixture]
    units: Matrix  # [dense]: each score has its own scale
    spreads: Matrix  # [heavy]: of the logarithm of the counts
    thresholds: Matrix  # [sparse]: below them a column is zero
    cuts: Matrix  # [grades - 1]: thresholds of relevance between grades


@dataclass(frozen=True)
class _Latent:
    """The latent factors of the documents of some queries."""

    sizes: NDArray[np.int64]  # [queries]
    intents: Matrix  # [queries, intents], before the softmax
    factors: Matrix  # [documents, factors]
    relevance: Matrix  # [documents]


def make_world(size: str = "small", seed: int = 0, features: int = N_FEATURES, documents: int | None = None) -> World:
    """The built-in world of this size: the same arguments give the same world.

    Args:
        features: number of columns, with the usual proportions of kinds; a single one is a dense score.
        documents: number of candidates per query; None: 10 to 40.
    """
    if size not in SIZES:
        raise ValueError(f"unknown size '{size}' of the built-in world: choose one of {', '.join(SIZES)}")
    if features < 1:
        raise ValueError(f"a world needs at least one feature, got {features}")
    if documents is not None and documents < 1:
        raise ValueError(f"a query needs at least one document, got {documents}")
    name = f"world:{size}" + (f":{seed}" if seed else "") + (f":features={features}" if features != N_FEATURES else "")
    name += f":documents={documents}" if documents else ""
    n_documents = (documents, documents) if documents else DOCUMENTS_PER_QUERY
    law_seed, *split_seeds = np.random.SeedSequence(seed).spawn(1 + len(SIZES[size]))
    law = _draw_law(_columns_of(features), np.random.default_rng(law_seed))
    splits = {
        split: _draw_set(law, n_queries, n_documents, np.random.default_rng(split_seed), f"{name}@{split}")
        for (split, n_queries), split_seed in zip(SIZES[size].items(), split_seeds, strict=True)
    }
    return World(**splits, name=name)


def _columns_of(features: int) -> dict[str, int]:
    """This many columns, distributed over the kinds by largest remainders."""
    shares = {kind: features * count / N_FEATURES for kind, count in COLUMNS.items()}
    counts = {kind: int(share) for kind, share in shares.items()}
    for kind in sorted(shares, key=lambda kind: counts[kind] - shares[kind])[: features - sum(counts.values())]:
        counts[kind] += 1
    return counts


def _draw_law(columns: dict[str, int], rng: Generator) -> _Law:
    """Draw which column measures which factors, and the grade thresholds."""
    n_readings = columns["dense"] + columns["heavy"] + columns["sparse"]
    relevance = _draw_latent(CALIBRATION_QUERIES, DOCUMENTS_PER_QUERY, rng).relevance
    return _Law(
        columns=columns,
        readings=_sparse_mixing(len(FACTORS), n_readings, rng),
        intent_readings=_sparse_mixing(len(INTENTS), columns["query"], rng),
        mixing=_sparse_mixing(columns["dense"], columns["mixture"], rng),
        units=10.0 ** rng.uniform(-2.0, 3.0, columns["dense"]),
        spreads=rng.uniform(0.7, 2.5, columns["heavy"]),
        thresholds=rng.uniform(0.8, 2.0, columns["sparse"]),
        cuts=np.quantile(relevance, np.cumsum(GRADE_SHARES)[:-1]),
    )


def _sparse_mixing(n_sources: int, n_columns: int, rng: Generator) -> Matrix:
    """Weights of unit norm: every column measures mainly one source and, a little, one or two others."""
    weights = rng.normal(0.0, 0.3, (n_sources, n_columns)) * (rng.random((n_sources, n_columns)) < 0.25)
    main = rng.permutation(np.arange(n_columns) % n_sources)
    weights[main, np.arange(n_columns)] = rng.choice([-1.0, 1.0], n_columns, p=[0.2, 0.8])
    return weights / np.linalg.norm(weights, axis=0)


def _draw_latent(n_queries: int, per_query: tuple[int, int], rng: Generator) -> _Latent:
    """Queries with their intents, and documents with their factors and relevance."""
    low, high = per_query
    sizes = rng.integers(low, high, n_queries, endpoint=True)
    intents = rng.normal(size=(n_queries, len(INTENTS)))
    n_documents = int(sizes.sum())
    factors = rng.normal(size=(n_documents, len(FACTORS)))
    match = rng.normal(size=n_documents)
    factors[:, :N_MATCH_FACTORS] *= np.sqrt(1 - MATCH_CORRELATION)
    factors[:, :N_MATCH_FACTORS] += np.sqrt(MATCH_CORRELATION) * match[:, None]
    shift = np.repeat(rng.normal(size=n_queries), sizes)
    explained = _explained_relevance(factors, np.repeat(intents, sizes, axis=0))
    unexplained = UNEXPLAINED * rng.normal(size=n_documents)
    return _Latent(sizes, intents, factors, explained + QUERY_SHIFT * shift + unexplained)


def _explained_relevance(factors: Matrix, intents: Matrix) -> Matrix:
    """Relevance as a function of all factors and intents, without noise."""
    shares = np.exp(INTENT_SHARPNESS * intents)
    shares /= shares.sum(axis=1, keepdims=True)
    title, body, _, _, popularity, freshness, depth, spam = factors.T
    wanted = ((factors @ TASTES.T) * shares).sum(axis=1)
    agreement = 0.9 * np.tanh(title) * np.tanh(body) + 0.9 * np.tanh(popularity) * np.tanh(freshness)
    too_deep = -0.3 * np.maximum(np.abs(depth) - 0.7, 0.0)
    spoilt = -1.2 * np.maximum(spam - 0.5, 0.0)
    return wanted + agreement + too_deep + spoilt


def _draw_set(law: _Law, n_queries: int, n_documents: tuple[int, int], rng: Generator, name: str) -> JudgedSet:
    """Judged queries under a law."""
    latent = _draw_latent(n_queries, n_documents, rng)
    return JudgedSet(
        features=_measure(law, latent, rng),
        grades=np.searchsorted(law.cuts, latent.relevance).astype(np.float32),
        offsets=np.concatenate([[0], np.cumsum(latent.sizes)]).astype(np.int64),
        name=name,
    )


def _measure(law: _Law, latent: _Latent, rng: Generator) -> NDArray[np.float32]:
    """The raw columns that rankers see, kind by kind."""
    features = np.empty((len(latent.factors), sum(law.columns.values())), np.float32)
    ends = np.cumsum(list(law.columns.values()))
    for end, block in zip(ends, _columns(law, latent, rng), strict=True):
        features[:, end - block.shape[1] : end] = block
    return features


def _columns(law: _Law, latent: _Latent, rng: Generator) -> Iterator[Matrix]:
    """The columns of each kind, in the order of `COLUMNS`."""
    n_documents, columns = len(latent.factors), law.columns
    dense, heavy, sparse = np.split(law.readings, np.cumsum([columns["dense"], columns["heavy"]]), axis=1)
    scores = _read(latent.factors, dense, rng)
    scores[:, ::4] = np.tanh(scores[:, ::4])
    yield scores * law.units
    yield np.floor(np.exp(2.0 + law.spreads * _read(latent.factors, heavy, rng)))
    yield np.maximum(_read(latent.factors, sparse, rng) - law.thresholds, 0.0)
    yield np.repeat(_read(latent.intents, law.intent_readings, rng), latent.sizes, axis=0)
    yield scores @ law.mixing + 0.1 * rng.normal(size=(n_documents, columns["mixture"]))
    noise = rng.normal(size=(n_documents, columns["noise"]))
    noise[:, ::3] = np.floor(np.exp(2.0 + 2.0 * noise[:, ::3]))  # heavy-tailed columns may be noise as well
    yield noise
    yield np.ones((n_documents, columns["constant"]))


def _read(sources: Matrix, weights: Matrix, rng: Generator) -> Matrix:
    """Columns that measure the sources, each with its own noise."""
    return sources @ weights + READING_NOISE * rng.normal(size=(len(sources), weights.shape[1]))
