"""Public logs with features, by form: clicks for `unskew ingest PLACE --form FORM`, judged queries as `FORM:PLACE`.

    form          place                        clicks                              judged queries
    baidu-ultr    a parquet or feather file    one row per page                    one row per query
    ultre-2       a folder                     lists, clicks, features*, scores    judged_lists, grades, features*
                                               (scores are optional)
    tiangong-st   a folder                     sogousessiontrack2020, features     sogou_st_human_labels, features
    metarank      a file or folder             JSON lines of events                –

Files of a folder may have any extension, and may be gzipped. `baidu_ultr`, `ultre2`, `tiangong_st` and `metarank`
document their format. Logs without features (`trec-session-2014`, …) are used by name, see `id_pages`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from unskew.data.judged.judged_set import JudgedSet
from unskew.data.public_logs.baidu_ultr import read_baidu_clicks, read_baidu_judged
from unskew.data.public_logs.metarank import read_metarank
from unskew.data.public_logs.result_pages import LARGEST_GRADE, PAGE_COLUMNS, LogTables, click_table, judged_pages
from unskew.data.public_logs.tiangong_st import read_tiangong_clicks, read_tiangong_features, read_tiangong_judged
from unskew.data.public_logs.ultre2 import read_features, read_pages, read_ultre2_clicks

KINDS = ("media_type", "vtype")  # result types: columns that may change examination


def _ultre2(place: Path) -> pa.Table:
    scores = _files(place, "scores", needed=False)
    production = scores[0] if scores else None
    return read_ultre2_clicks(_file(place, "lists"), _file(place, "clicks"), _files(place, "features"), production)


def _ultre2_judged(place: Path) -> JudgedSet:
    features = read_features(_files(place, "features"))
    pages = read_pages(_file(place, "judged_lists"), _file(place, "grades"), features, "grade", largest=LARGEST_GRADE)
    return judged_pages(pages, features, "ultre-2")


def _tiangong(place: Path) -> pa.Table:
    features = read_tiangong_features(_file(place, "features"))
    return click_table(read_tiangong_clicks(_file(place, "sogousessiontrack2020"), features), features)


def _tiangong_judged(place: Path) -> JudgedSet:
    features = read_tiangong_features(_file(place, "features"))
    return judged_pages(read_tiangong_judged(_file(place, "sogou_st_human_labels"), features), features, "tiangong-st")


def _pages(read: Callable[[Path], pa.Table]) -> Callable[[Path], LogTables]:
    """A reader of pages, with the roles of their columns."""

    def tables(place: Path) -> LogTables:
        pages = read(place)
        roles = {name: name for name in PAGE_COLUMNS} | {"form": "impressions", "first_position": 0}
        return LogTables(pages, columns=roles | {"bias": [name for name in KINDS if name in pages.column_names]})

    return tables


CLICKS: dict[str, Callable[[Path], LogTables]] = {
    "baidu-ultr": _pages(read_baidu_clicks),
    "ultre-2": _pages(_ultre2),
    "tiangong-st": _pages(_tiangong),
    "metarank": read_metarank,
}
JUDGED: dict[str, Callable[[Path], JudgedSet]] = {
    "baidu-ultr": read_baidu_judged,
    "ultre-2": _ultre2_judged,
    "tiangong-st": _tiangong_judged,
}


def is_judged_form(spec: str) -> bool:
    """Whether this text is `FORM:PLACE`."""
    return spec.partition(":")[0] in JUDGED


def read_judged_form(spec: str) -> JudgedSet:
    """Judged queries of `FORM:PLACE`."""
    form, _, place = spec.partition(":")
    if not place:
        raise ValueError(f"'{spec}' has no path: write {form}:PATH with the path of its files")
    return JUDGED[form](Path(place))


def _files(folder: Path, stem: str, *, needed: bool = True) -> list[Path]:
    """Files whose name begins with this stem, in order."""
    found = sorted(path for path in folder.glob(f"{stem}*") if path.is_file())
    if needed and not found:
        raise FileNotFoundError(f"{folder} has no file '{stem}' (any extension, plain or gzip): put it there")
    return found


def _file(folder: Path, stem: str) -> Path:
    return _files(folder, stem)[0]
