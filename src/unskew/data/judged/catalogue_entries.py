"""The facts behind the catalogue: files, splits, counts, licences and publishers of the known data sets.

A number after a slash is a fold: fold `i` of five trains on parts `i`, `i + 1` and `i + 2`, validates on the next part
and tests on the last, cyclically. Counts that publishers do not give and that could not be derived are `None`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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


def _split_files(fold: int, files: str | dict[str, str]) -> dict[str, tuple[str, ...]]:
    """Files of each split: those of its parts, or one file per split in the folder of the fold."""
    if isinstance(files, dict):
        return {split: (files[split].format(fold=fold),) for split in SPLITS}
    return {split: tuple(files.format(part=part + 1) for part in parts) for split, parts in _fold_parts(fold).items()}


def _fold_parts(fold: int) -> dict[str, list[int]]:
    """Indices of the parts in each split of a fold counted from 1."""
    around = [(fold - 1 + i) % 5 for i in range(5)]
    return {"train": around[:3], "valid": around[3:4], "test": around[4:]}


def _fold_splits(fold: int, parts: list[Counts], n_documents: int, files: str | dict[str, str]) -> dict[str, Split]:
    """The splits of a fold, with the sums of the counts of their parts."""
    names = _split_files(fold, files)
    splits = {}
    for split, chosen in _fold_parts(fold).items():
        documents = [parts[part][1] for part in chosen]
        others = [parts[part][1] for part in range(5) if part not in chosen]
        splits[split] = Split(
            files=names[split],
            queries=sum(parts[part][0] for part in chosen),
            documents=_sum_or_rest(documents, others, n_documents),
        )
    return splits


def _sum_or_rest(chosen: list[int | None], others: list[int | None], total: int) -> int | None:
    """The sum of the chosen counts, or the total minus the others; `None` if neither is known."""
    known, known_others = ([n for n in counts if n is not None] for counts in (chosen, others))
    if len(known) == len(chosen):
        return sum(known)
    return total - sum(known_others) if len(known_others) == len(others) else None


def _mq2007(fold: int) -> Entry:
    return Entry(
        folders=("mq2007", "MQ2007"),
        splits=_fold_splits(fold, MQ2007_PARTS, 69_623, PART_FILES),
        queries=1_692,
        documents=69_623,
        features=46,
        grades="0-2",
        transform="minmax",
        licence=MICROSOFT_LICENCE,
        source=f"{MICROSOFT_LETOR} (LETOR 4.0, MQ2007)",
    )


def _mq2008(fold: int) -> Entry:
    return Entry(
        folders=("mq2008", "MQ2008"),
        splits=_fold_splits(fold, MQ2008_PARTS, 15_211, PART_FILES),
        queries=784,
        documents=15_211,
        features=46,
        grades="0-2",
        transform="minmax",
        licence=MICROSOFT_LICENCE,
        source=f"{MICROSOFT_LETOR} (LETOR 4.0, MQ2008)",
    )


def _ohsumed(fold: int) -> Entry:
    return Entry(
        folders=("ohsumed", "OHSUMED/QueryLevelNorm", "ohsumed/QueryLevelNorm"),
        splits=_fold_splits(fold, OHSUMED_PARTS, 16_140, OHSUMED_FILES),
        queries=106,
        documents=16_140,
        features=45,
        grades="0-2",
        transform="minmax",
        licence=MICROSOFT_LICENCE,
        source=f"{MICROSOFT_LETOR} (LETOR 3.0, OHSUMED, QueryLevelNorm)",
    )


def _web10k(fold: int) -> Entry:
    return Entry(
        folders=("mslr-web10k", "MSLR-WEB10K"),
        splits=_fold_splits(fold, WEB10K_PARTS, 1_200_192, WEB_FILES),
        queries=10_000,
        documents=1_200_192,
        features=136,
        grades="0-4",
        transform="log1p",
        licence=MICROSOFT_LICENCE,
        source=f"{MICROSOFT_MSLR} (MSLR-WEB10K)",
    )


def _web30k(fold: int) -> Entry:
    return Entry(
        folders=("mslr-web30k", "MSLR-WEB30K"),
        splits=_fold_splits(fold, WEB30K_PARTS, 3_771_125, WEB_FILES),
        queries=31_531,
        documents=3_771_125,
        features=136,
        grades="0-4",
        transform="log1p",
        licence=MICROSOFT_LICENCE,
        source=f"{MICROSOFT_MSLR} (MSLR-WEB30K)",
    )


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
    **{f"mslr-web10k/{fold}": _web10k(fold) for fold in FOLDS},
    **{f"mslr-web30k/{fold}": _web30k(fold) for fold in FOLDS},
    **{f"mq2007/{fold}": _mq2007(fold) for fold in FOLDS},
    **{f"mq2008/{fold}": _mq2008(fold) for fold in FOLDS},
    **{f"ohsumed/{fold}": _ohsumed(fold) for fold in FOLDS},
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
