"""The facts behind the catalogue: files, splits, counts, licences and publishers of the known data sets.

A number after a slash is a fold: fold `i` of five trains on parts `i`, `i + 1` and `i + 2`, validates on the next part
and tests on the last, cyclically. Counts that publishers do not give and that could not be derived are `None`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unskew.data.judged.judged_set import JudgedSet

SPLITS = ("train", "valid", "test")
FOLDS = range(1, 6)
ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Split:
    """The files of one split, and the number of queries and documents it must have; `None`: not known."""

    files: tuple[str, ...]
    queries: int | None
    documents: int | None
    chosen: tuple[int, int] | None = None  # range of the queries in the files that belong to it; default: all


@dataclass(frozen=True)
class Entry:
    """The catalogue entry of a data set."""

    folders: tuple[str, ...]  # names under which it is unpacked, the preferred one first
    splits: dict[str, Split]
    queries: int  # in all splits
    documents: int
    features: int
    grades: str
    transform: str  # suggested name in `unskew.data.fitted_transforms`
    licence: str
    source: str
    prepare: Callable[[JudgedSet], JudgedSet] | None = None  # makes the set finite on load


def reciprocal_ranks(judged: JudgedSet) -> JudgedSet:
    """Ranks as 1 / (10 + rank), and 0 if a run did not retrieve the document: higher is better, nothing is missing."""
    return replace(judged, features=np.nan_to_num(1.0 / (10.0 + judged.features), nan=0.0))


def infinite_as_zero(judged: JudgedSet) -> JudgedSet:
    """Zero, in place, for values beyond float32: Istella writes the largest double if a feature has no value."""
    for start in range(0, judged.n_documents, ROWS_AT_ONCE):
        rows = judged.features[start : start + ROWS_AT_ONCE]
        infinite = np.isinf(rows)
        if infinite.any():  # not writing if nothing changes keeps mapped pages shared
            rows[infinite] = 0.0
    return judged


# Queries and documents of the five parts from which folds are made.
Counts = tuple[int, int | None]
MQ2007_PARTS: list[Counts] = [(339, 14_013), (339, 14_290), (339, 13_855), (339, 13_813), (336, 13_652)]
MQ2008_PARTS: list[Counts] = [(157, 2_933), (157, 3_635), (157, 3_062), (157, 2_707), (156, 2_874)]
OHSUMED_PARTS: list[Counts] = [(21, None), (21, None), (21, None), (21, None), (22, None)]
WEB10K_PARTS: list[Counts] = [(2_000, None), (2_000, None), (2_000, None), (2_000, 235_259), (2_000, 241_521)]
WEB30K_PARTS: list[Counts] = [(6_307, None), (6_306, None), (6_306, None), (6_306, 747_218), (6_306, 753_611)]

PART_FILES = "S{part}.txt"
WEB_FILES = {"train": "Fold{fold}/train.txt", "valid": "Fold{fold}/vali.txt", "test": "Fold{fold}/test.txt"}
OHSUMED_FILES = {
    "train": "Fold{fold}/trainingset.txt",
    "valid": "Fold{fold}/validationset.txt",
    "test": "Fold{fold}/testset.txt",
}

MICROSOFT_LETOR = (
    "Microsoft Research, LETOR: "
    "https://www.microsoft.com/en-us/research/project/letor-learning-rank-information-retrieval/"
)
MICROSOFT_MSLR = (
    "Microsoft Research, Microsoft Learning to Rank Datasets: https://www.microsoft.com/en-us/research/project/mslr/"
)
YAHOO = "Yahoo! Webscope, data set C14 (Learning to Rank Challenge), on request: https://webscope.sandbox.yahoo.com"
ISTELLA = "Istella, 'Istella-S LETOR', after accepting its licence: https://istella.ai"
MICROSOFT_LICENCE = "Microsoft Research agreement"
YAHOO_LICENCE = "Yahoo! Webscope agreement, research only"


def _fold_splits(fold: int, parts: list[Counts], n_documents: int, files: str | dict[str, str]) -> dict[str, Split]:
    """The splits of a fold counted from 1, with the sums of the counts of their parts.

    Args:
        files: of each part, or of each split, with one file in the folder of the fold.
    """
    around = [(fold - 1 + number) % 5 for number in range(5)]
    splits = {}
    for split, chosen in zip(SPLITS, (around[:3], around[3:4], around[4:]), strict=True):
        if isinstance(files, dict):
            names: tuple[str, ...] = (files[split].format(fold=fold),)
        else:
            names = tuple(files.format(part=number + 1) for number in chosen)
        documents, others = ([parts[n][1] for n in numbers] for numbers in (chosen, set(around) - set(chosen)))
        count, rest = _sum(documents), _sum(others)
        count = n_documents - rest if count is None and rest is not None else count
        splits[split] = Split(names, sum(parts[n][0] for n in chosen), count)
    return splits


def _sum(counts: list[int | None]) -> int | None:
    """The sum; `None` if a count is not known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _five_folds(
    name: str, parts: list[Counts], n_documents: int, files: str | dict[str, str], **about: Any
) -> dict[str, Entry]:
    """Entries of five folds; the licence is that of Microsoft."""
    common: dict[str, Any] = {
        "queries": sum(queries for queries, _ in parts),
        "documents": n_documents,
        "licence": MICROSOFT_LICENCE,
    }
    return {
        f"{name}/{fold}": Entry(splits=_fold_splits(fold, parts, n_documents, files), **common, **about)
        for fold in FOLDS
    }


CATALOGUE: dict[str, Entry] = {
    "yahoo-set1": Entry(
        folders=("yahoo", "ltrc_yahoo"),
        splits={
            "train": Split(("set1.train.txt",), 19_944, 473_134),
            "valid": Split(("set1.valid.txt",), 2_994, 71_083),
            "test": Split(("set1.test.txt",), 6_983, 165_660),
        },
        queries=29_921,
        documents=709_877,
        features=700,  # of both sets together: 519 of them occur in set 1, 596 in set 2
        grades="0-4",
        transform="minmax",
        licence=YAHOO_LICENCE,
        source=YAHOO,
    ),
    "yahoo-set2": Entry(
        folders=("yahoo", "ltrc_yahoo"),
        splits={
            "train": Split(("set2.train.txt",), 1_266, 34_815),
            "valid": Split(("set2.valid.txt",), 1_266, 34_881),
            "test": Split(("set2.test.txt",), 3_798, 103_174),
        },
        queries=6_330,
        documents=172_870,
        features=700,
        grades="0-4",
        transform="minmax",
        licence=YAHOO_LICENCE,
        source=YAHOO,
    ),
    "istella-s": Entry(
        folders=("istella-s", "istella-s/sample", "istella-s-letor", "istella-s-letor/sample"),
        splits={
            "train": Split(("train.txt",), 19_245, 2_043_304),
            "valid": Split(("vali.txt",), 7_211, 684_076),
            "test": Split(("test.txt",), 6_562, 681_250),
        },
        queries=33_018,
        documents=3_408_630,
        features=220,
        grades="0-4",
        transform="log1p",
        licence="Istella LETOR licence, non-commercial",
        source=ISTELLA,
        prepare=infinite_as_zero,
    ),
    **_five_folds(
        "mslr-web10k",
        WEB10K_PARTS,
        1_200_192,
        WEB_FILES,
        folders=("mslr-web10k", "MSLR-WEB10K"),
        features=136,
        grades="0-4",
        transform="log1p",
        source=f"{MICROSOFT_MSLR} (MSLR-WEB10K)",
    ),
    **_five_folds(
        "mslr-web30k",
        WEB30K_PARTS,
        3_771_125,
        WEB_FILES,
        folders=("mslr-web30k", "MSLR-WEB30K"),
        features=136,
        grades="0-4",
        transform="log1p",
        source=f"{MICROSOFT_MSLR} (MSLR-WEB30K)",
    ),
    **_five_folds(
        "mq2007",
        MQ2007_PARTS,
        69_623,
        PART_FILES,
        folders=("mq2007", "MQ2007"),
        features=46,
        grades="0-2",
        transform="minmax",
        source=f"{MICROSOFT_LETOR} (LETOR 4.0, MQ2007)",
    ),
    **_five_folds(
        "mq2008",
        MQ2008_PARTS,
        15_211,
        PART_FILES,
        folders=("mq2008", "MQ2008"),
        features=46,
        grades="0-2",
        transform="minmax",
        source=f"{MICROSOFT_LETOR} (LETOR 4.0, MQ2008)",
    ),
    **_five_folds(
        "ohsumed",
        OHSUMED_PARTS,
        16_140,
        OHSUMED_FILES,
        folders=("ohsumed", "OHSUMED/QueryLevelNorm", "ohsumed/QueryLevelNorm"),
        features=45,
        grades="0-2",
        transform="minmax",
        source=f"{MICROSOFT_LETOR} (LETOR 3.0, OHSUMED, QueryLevelNorm)",
    ),
    "mq2007-agg": Entry(
        folders=("mq2007-agg", "MQ2007-agg"),
        splits={
            "train": Split(("A1.txt", "A2.txt", "A3.txt"), 1_017, 42_158),
            "valid": Split(("A4.txt",), 339, 13_813),
            "test": Split(("A5.txt",), 336, 13_652),
        },
        queries=1_692,
        documents=69_623,
        features=21,
        grades="0-2",
        transform="minmax",
        licence=MICROSOFT_LICENCE,
        source=f"{MICROSOFT_LETOR} (LETOR 4.0, MQ2007-agg; name its five parts A1.txt to A5.txt)",
        prepare=reciprocal_ranks,
    ),
    "mslr-sample": Entry(
        folders=("mslr-sample",),
        splits={  # each file ends in the middle of a query, which is left out
            "train": Split(("train.txt",), 32, 3_356, (0, -11)),
            "valid": Split(("train.txt",), 10, 1_599, (-11, -1)),
            "test": Split(("test.txt",), 42, 4_974, (0, -1)),
        },
        queries=84,
        documents=9_929,
        features=136,
        grades="0-4",
        transform="log1p",
        licence="CC BY 4.0",
        source=f"{MICROSOFT_MSLR} (the first 5,000 lines of Fold1/train.txt and Fold1/test.txt)",
    ),
}
