"""Data sets by name, and the splits of a data set or file that a user names.

`load("mq2008/1")` returns a data set with `.train`, `.valid` and `.test`, each read on first use. Files are searched in
the folder named by `UNSKEW_DATA` (default: the user's data directory), plain or gzipped. A file with other counts than
the publisher's is refused, because results on it would not be comparable; `read_letor` reads any file.

`world:tiny`, `world:small` and `world:large` are built in and need no files. `world:small:7` has seed 7,
`world:small:features=5` has five columns (default: 111), and `world:small:documents=100` has a hundred candidates per
query (default: 10 to 40).

Yahoo!, Istella-S, MSLR-WEB, MQ2007 and OHSUMED cannot be distributed; the tests use generated files in their format.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs
import pyarrow as pa

from unskew.data.judged import world
from unskew.data.judged.catalogue_entries import CATALOGUE, SPLITS, Entry, Split
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.letor import read_letor
from unskew.data.judged.tables import is_table, read_judged_table
from unskew.data.public_logs.forms import is_judged_form, read_judged_form
from unskew.display import Displayed, OnScreen, Screen, cell

WORLD = "world"
WORLD_NAME = re.compile(
    rf"{WORLD}:(?P<size>\w+)(:(?P<seed>\d+))?(:features=(?P<features>[1-9]\d{{0,5}}))?"
    r"(:documents=(?P<documents>[1-9]\d{0,3}))?"
)
WORLD_TRANSFORM = "automatic"
PACKED = ".gz"


class MissingDataError(FileNotFoundError):
    """Files of a known data set are missing; says where they were searched and how to get them."""


class UnknownDataError(ValueError):
    """A name that is not in the catalogue; lists the names that are."""


@dataclass(frozen=True, eq=False)
class Dataset(OnScreen):
    """A data set in three splits, each read on first use."""

    name: str
    transform: str  # suggested name in `unskew.data.fitted_transforms`
    read_split: Callable[[str], JudgedSet]

    train = cached_property(lambda data: data.read_split("train"))
    valid = cached_property(lambda data: data.read_split("valid"))
    test = cached_property(lambda data: data.read_split("test"))

    def screen(self) -> Screen:
        read = [split for split in SPLITS if split in vars(self)]
        rows = [(split, f"{len(getattr(self, split).query_ids):,}") for split in read]
        return Screen(f"Dataset({self.name})", ("split", "queries") if read else (), rows)


OWN_FILES = re.compile(r"train=(?P<train>[^,]+),valid=(?P<valid>[^,]+),test=(?P<test>[^,]+)")


class ListingRow(NamedTuple):
    """One line of the catalogue as a user sees it; `None` if a count is not known."""

    name: str
    queries: int | None
    documents: int | None
    features: int
    grades: str
    present: bool  # its files are available here
    licence: str


@dataclass(frozen=True, repr=False)
class DataSets(Displayed):
    """The catalogue of data sets, and which are available here."""

    rows: tuple[ListingRow, ...]

    def to_json(self) -> list[dict[str, Any]]:
        return [row._asdict() for row in self.rows]

    def to_table(self) -> pa.Table:
        """One row per data set."""
        return pa.Table.from_pylist(self.to_json())

    def screen(self) -> Screen:
        columns = ListingRow._fields
        return Screen("Data sets", columns, [[cell(value) for value in row] for row in self.rows])


def load(name: str | Mapping[str, str | Path]) -> Dataset:
    """Load a data set by name; an error if its files are missing.

    `data_sets` lists the catalogue; `read_letor` reads one file.

    Args:
        name: a name of the catalogue; or your own files, as a dictionary with `train`, `valid` and `test`, as the text
            `train=FILE,valid=FILE,test=FILE`, or as a folder with one file of each name.

    >>> import unskew
    >>> unskew.load("world:tiny").valid
    JudgedSet(world:tiny@valid: 60 queries, 1,645 documents, 111 features)
    """
    text = own_name(name)
    if text in CATALOGUE:
        _find_files(text, SPLITS)
    files = own_files(text)
    for file in files.values():
        if not is_table(file) and not Path(file).is_file():
            raise MissingDataError(f"{file} does not exist: pass your own files as train=FILE,valid=FILE,test=FILE")
    return _dataset(text)


def own_name(name: str | Mapping[str, str | Path]) -> str:
    """A data set as one text; a table of files becomes `train=FILE,valid=FILE,test=FILE`."""
    if isinstance(name, str):
        return name
    if sorted(name) != sorted(SPLITS):
        raise ValueError(f"your own data need the files {', '.join(SPLITS)}, got {', '.join(name) or 'none'}")
    return ",".join(f"{split}={name[split]}" for split in SPLITS)


def own_files(name: str) -> dict[str, str]:
    """The files of a user's own data set, by split; empty for names of the catalogue."""
    if is_known(name):
        return {}
    form = OWN_FILES.fullmatch(name)
    if form is not None:
        return form.groupdict()
    folder = Path(name)
    if not folder.is_dir():
        return {}
    by_split = {
        split: [path for path in sorted(folder.iterdir()) if path.name.split(".")[0] == split] for split in SPLITS
    }
    if not any(by_split.values()):  # a folder of something else, such as a click log
        return {}
    wrong = [split for split, files in by_split.items() if len(files) != 1]
    if wrong:
        names = ", ".join(path.name for path in by_split[wrong[0]]) or "none"
        raise MissingDataError(f"{folder} must hold one file called {wrong[0]}.* (LETOR or a table), found {names}")
    return {split: str(files[0]) for split, files in by_split.items()}


def load_split(spec: str, default: str) -> JudgedSet:
    """Judged data by `NAME` or `NAME@split` of the catalogue, or by the path of a LETOR file or a table.

    A table with its features in another table is `judgements.csv+features.parquet`; judged queries of a public log are
    `FORM:PLACE`, such as `baidu-ultr:annotations.parquet` (see `data.public_logs.forms`).

    Args:
        default: The split to use if none is named.
    """
    name, at, split = spec.partition("@")
    if is_judged_form(spec):
        return read_judged_form(spec)
    if not is_known(name) and is_table(spec):
        return read_judged_table(spec)
    if not is_known(name) and Path(spec).is_file():
        return read_letor(spec, name=Path(spec).name)
    split = split if at else default
    if split not in SPLITS:
        raise ValueError(f"'{spec}': there is no split '{split}'; choose one of {', '.join(SPLITS)}")
    return _dataset(name).read_split(split)


def is_known(name: str) -> bool:
    """Whether the catalogue has this name, with or without its files."""
    return name in CATALOGUE or name.split(":")[0] == WORLD


def data_sets() -> DataSets:
    """List the data sets of the catalogue, the built-in worlds first, and which are available here; `load` reads one.

    >>> import unskew
    >>> "world:tiny" in unskew.data_sets().to_table()["name"].to_pylist()
    True
    """
    worlds = [
        ListingRow(f"{WORLD}:{size}", sum(queries.values()), None, world.N_FEATURES, "0-4", True, "built in")
        for size, queries in world.SIZES.items()
    ]
    entries = [
        ListingRow(name, entry.queries, entry.documents, entry.features, entry.grades, is_present(name), entry.licence)
        for name, entry in CATALOGUE.items()
    ]
    return DataSets((*worlds, *entries))


def is_present(name: str) -> bool:
    """Whether every file of a data set is available."""
    try:
        _find_files(name, SPLITS)
    except MissingDataError:
        return False
    return True


def data_folder() -> Path:
    """The folder of data sets: `UNSKEW_DATA`, otherwise the user's data directory."""
    return Path(os.environ.get("UNSKEW_DATA") or platformdirs.user_data_dir("unskew"))


def _dataset(name: str) -> Dataset:
    if name in CATALOGUE:
        return Dataset(name, CATALOGUE[name].transform, lambda split: _read_split(name, split))
    if is_known(name):
        wanted = _parse_world(name)
        build = cache(lambda: world.make_world(*wanted))  # one call makes all three splits
        return Dataset(
            name,
            WORLD_TRANSFORM,
            lambda split: {"train": build().train, "valid": build().valid, "test": build().test}[split],
        )
    files = own_files(name)
    if files:
        return Dataset(name, "automatic", lambda split: load_split(files[split], split))
    raise UnknownDataError(_unknown(name))


def _parse_world(name: str) -> tuple[str, int, int, int | None]:
    """Size, seed, features and documents per query in `world:SIZE[:SEED][:features=N][:documents=N]`."""
    match = WORLD_NAME.fullmatch(name)
    if match is None or match["size"] not in world.SIZES:
        sizes = ", ".join(f"{WORLD}:{size}" for size in world.SIZES)
        raise UnknownDataError(
            f"unknown world '{name}': choose {sizes}, with a seed as in {WORLD}:small:7, a number of features as in "
            f"{WORLD}:small:features=5, or of documents per query as in {WORLD}:small:documents=100"
        )
    documents = None if match["documents"] is None else int(match["documents"])
    return match["size"], int(match["seed"] or 0), int(match["features"] or world.N_FEATURES), documents


def _read_split(name: str, split: str) -> JudgedSet:
    entry = CATALOGUE[name]
    wanted = entry.splits[split]
    files = _find_files(name, (split,))
    judged = read_letor(files, n_features=entry.features, first_feature=1, name=f"{name}@{split}")
    if wanted.chosen is not None:
        judged = judged.select(range(judged.n_queries)[slice(*wanted.chosen)])
    _check_counts(judged, wanted, files)
    return judged if entry.prepare is None else entry.prepare(judged)


def _check_counts(judged: JudgedSet, wanted: Split, files: list[Path]) -> None:
    for what, count, expected in (
        ("queries", judged.n_queries, wanted.queries),
        ("documents", judged.n_documents, wanted.documents),
    ):
        if expected is not None and count != expected:
            raise ValueError(
                f"{judged.name} must have {expected:,} {what}, but {', '.join(map(str, files))} has {count:,}: "
                "download the complete files again, or read your own files with read_letor"
            )


def _find_files(name: str, splits: tuple[str, ...]) -> list[Path]:
    """Paths of the files of these splits; an error that names all missing files."""
    entry = CATALOGUE[name]
    names = list(dict.fromkeys(file for split in splits for file in entry.splits[split].files))
    places = {file: find_file(file, entry.folders) for file in names}
    missing = [file for file, path in places.items() if path is None]
    if missing:
        raise MissingDataError(_missing(name, entry, missing))
    return [path for path in places.values() if path is not None]


def find_file(file: str, folders: Sequence[str]) -> Path | None:
    """A file in one of these folders of the data folder, plain or packed."""
    places = (data_folder() / folder / name for folder in folders for name in (file, f"{file}{PACKED}"))
    return next((path for path in places if path.is_file()), None)


def _missing(name: str, entry: Entry, files: list[str]) -> str:
    places = " or ".join(str(data_folder() / folder) for folder in entry.folders)
    return (
        f"data set '{name}' lacks {', '.join(files)} (plain or {PACKED}), looked for in {places}. "
        f"Get it from {entry.source}. Licence: {entry.licence}. Put the files into the first of these folders, or set "
        f"UNSKEW_DATA to the folder that holds '{entry.folders[0]}'. 'world:small' needs no files."
    )


def _unknown(name: str) -> str:
    known = [*(f"{WORLD}:{size}" for size in world.SIZES), *CATALOGUE]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" did you mean '{close[0]}'?" if close else ""
    return f"'{name}' is neither a data set nor a file:{hint} known data sets are {', '.join(known)}"
