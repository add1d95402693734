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

MICROSOFT = "https://www.microsoft.com/en-us/research/project/"
LETOR = f"Microsoft Research, LETOR: {MICROSOFT}letor-learning-rank-information-retrieval/"
MSLR = f"Microsoft Research, Microsoft Learning to Rank Datasets: {MICROSOFT}mslr/"
OF_YAHOO: dict[str, Any] = {  # features of both sets together: 519 of them occur in set 1, 596 in set 2
    "folders": ("yahoo", "ltrc_yahoo"),
    "features": 700,
    "grades": "0-4",
    "transform": "minmax",
    "licence": "Yahoo! Webscope agreement, research only",
    "source": "Yahoo! Webscope, data set C14 (Learning to Rank Challenge), on request: https://webscope.sandbox.yahoo.com",
}
OF_LETOR: dict[str, Any] = {"grades": "0-2", "transform": "minmax", "source": LETOR}
OF_LETOR["licence"] = "Microsoft Research agreement"
OF_MSLR = {**OF_LETOR, "features": 136, "grades": "0-4", "transform": "log1p", "source": MSLR}
OF_46, OF_OHSUMED = {**OF_LETOR, "features": 46}, {**OF_LETOR, "features": 45}
OHSUMED = "LETOR 3.0, OHSUMED, QueryLevelNorm"
OHSUMED_FOLDERS = ("ohsumed", "OHSUMED/QueryLevelNorm", "ohsumed/QueryLevelNorm")


def _entry(*splits: Split, **about: Any) -> Entry:
    """An entry of three splits, with the sums of their counts; `of` says which data of the source."""
    counts = {
        "queries": sum(split.queries or 0 for split in splits),
        "documents": sum(s.documents or 0 for s in splits),
    }
    source = f"{about.pop('source')} ({about.pop('of')})" if "of" in about else about.pop("source")
    return Entry(splits=dict(zip(SPLITS, splits, strict=True)), source=source, **{**counts, **about})


def _five_folds(
    name: str, parts: list[Counts], n_documents: int, files: str | dict[str, str], *folders: str, **about: Any
) -> dict[str, Entry]:
    """Entries of five folds.

    Args:
        files: of each part, or of each split, with one file in the folder of the fold.
    """

    def split(fold: int, name: str, first: int, n: int) -> Split:
        chosen = [(fold - 1 + first + number) % 5 for number in range(n)]
        names = [files.format(part=part + 1) for part in chosen] if isinstance(files, str) else [files[name]]
        documents, others = ([parts[at][1] for at in numbers] for numbers in (chosen, set(range(5)) - set(chosen)))
        count, rest = _sum(documents), _sum(others)
        count = n_documents - rest if count is None and rest is not None else count
        return Split(tuple(each.format(fold=fold) for each in names), sum(parts[at][0] for at in chosen), count)

    common = {**about, "folders": folders, "queries": sum(queries for queries, _ in parts), "documents": n_documents}
    return {
        f"{name}/{fold}": _entry(
            split(fold, "train", 0, 3), split(fold, "valid", 3, 1), split(fold, "test", 4, 1), **common
        )
        for fold in FOLDS
    }


def _sum(counts: list[int | None]) -> int | None:
    """The sum; `None` if a count is not known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


CATALOGUE: dict[str, Entry] = {
    "yahoo-set1": _entry(
        Split(("set1.train.txt",), 19_944, 473_134),
        Split(("set1.valid.txt",), 2_994, 71_083),
        Split(("set1.test.txt",), 6_983, 165_660),
        **OF_YAHOO,
    ),
    "yahoo-set2": _entry(
        Split(("set2.train.txt",), 1_266, 34_815),
        Split(("set2.valid.txt",), 1_266, 34_881),
        Split(("set2.test.txt",), 3_798, 103_174),
        **OF_YAHOO,
    ),
    "istella-s": _entry(
        Split(("train.txt",), 19_245, 2_043_304),
        Split(("vali.txt",), 7_211, 684_076),
        Split(("test.txt",), 6_562, 681_250),
        folders=("istella-s", "istella-s/sample", "istella-s-letor", "istella-s-letor/sample"),
        features=220,
        grades="0-4",
        transform="log1p",
        licence="Istella LETOR licence, non-commercial",
        source="Istella, 'Istella-S LETOR', after accepting its licence: https://istella.ai",
        prepare=infinite_as_zero,
    ),
    **_five_folds(
        "mslr-web10k", WEB10K_PARTS, 1_200_192, WEB_FILES, "mslr-web10k", "MSLR-WEB10K", **OF_MSLR, of="MSLR-WEB10K"
    ),
    **_five_folds(
        "mslr-web30k", WEB30K_PARTS, 3_771_125, WEB_FILES, "mslr-web30k", "MSLR-WEB30K", **OF_MSLR, of="MSLR-WEB30K"
    ),
    **_five_folds("mq2007", MQ2007_PARTS, 69_623, PART_FILES, "mq2007", "MQ2007", **OF_46, of="LETOR 4.0, MQ2007"),
    **_five_folds("mq2008", MQ2008_PARTS, 15_211, PART_FILES, "mq2008", "MQ2008", **OF_46, of="LETOR 4.0, MQ2008"),
    **_five_folds("ohsumed", OHSUMED_PARTS, 16_140, OHSUMED_FILES, *OHSUMED_FOLDERS, **OF_OHSUMED, of=OHSUMED),
    "mq2007-agg": _entry(
        Split(("A1.txt", "A2.txt", "A3.txt"), 1_017, 42_158),
        Split(("A4.txt",), 339, 13_813),
        Split(("A5.txt",), 336, 13_652),
        **OF_LETOR,
        folders=("mq2007-agg", "MQ2007-agg"),
        features=21,
        of="LETOR 4.0, MQ2007-agg; name its five parts A1.txt to A5.txt",
        prepare=reciprocal_ranks,
    ),
    "mslr-sample": _entry(  # each file ends in the middle of a query, which is left out
        Split(("train.txt",), 32, 3_356, (0, -11)),
        Split(("train.txt",), 10, 1_599, (-11, -1)),
        Split(("test.txt",), 42, 4_974, (0, -1)),
        **OF_MSLR | {"licence": "CC BY 4.0"},
        folders=("mslr-sample",),
        of="the first 5,000 lines of Fold1/train.txt and Fold1/test.txt",
    ),
}
