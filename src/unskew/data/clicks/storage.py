"""Click logs on disk: a folder of parquet shards with a versioned schema.

    LOG/log.json                       format, version, names, and the counts and digests of each shard
    LOG/shard-00000.versions.parquet   one row per version of a document: query, document, features
    LOG/shard-00000.lists.parquet      one row per list: versions, positions, clicks, sessions and optional columns
    LOG/shard-00000.patterns.parquet   one row per click pattern; only in a joint log
    LOG/shard-00000.users.parquet      one row per user and list; only in a log that keeps users, for `forget`

`docs/click_log.md` documents every column. A query is in one shard only, so every shard is a log by itself, and a log
larger than memory can be read shard by shard. If a whole log has large features, they are mapped from a file
(`data.memory`). Folders are written atomically.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from unskew.data.clicks import ABOUT
from unskew.data.clicks.click_log import ClickLog, LogShape
from unskew.data.clicks.kept_users import UserLog
from unskew.data.clicks.lineage import Lineage
from unskew.data.clicks.shards import COUNTS, TABLES, USERS, LogSchema, join_logs, read_shard, shard_file, write_shard
from unskew.data.files import json_digest, new_folder, restore
from unskew.data.memory import new_map
from unskew.data.object_storage import remote
from unskew.data.public_logs.id_pages import is_public_log, read_pages
from unskew.data.untrusted import parse_json, read_json
from unskew.display import OnScreen, Screen

FORMAT = "unskew-click-log"
VERSION = 2
MAPPED_BEYOND = 2**30  # bytes; larger features of a whole log are mapped from a file


def write_log(log: ClickLog, folder: str | Path, *, n_shards: int = 1, overwrite: bool = False) -> Path:
    """Write a log to a new folder, atomically; queries are distributed over the shards in order.

    `read_log` and `open_log` read it.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> unskew.write_log(log, "log").name
    'log'
    """
    if n_shards < 1:
        raise ValueError(f"n_shards must be at least 1, got {n_shards}")
    n_queries = len(log.query_ids)
    n_shards = min(n_shards, max(n_queries, 1))
    shard_of_query = np.arange(n_queries) * n_shards // max(n_queries, 1)
    parts = (log.of_queries(shard_of_query == shard) for shard in range(n_shards))
    notes = None if log.origin is None else {"lineage": log.origin.written("copy")}
    return write_shards([log] if n_shards == 1 else parts, folder, overwrite=overwrite, notes=notes)


def write_shards(
    shards: Iterable[ClickLog | UserLog],
    folder: str | Path,
    *,
    overwrite: bool = False,
    notes: Mapping[str, Any] | None = None,
) -> Path:
    """Write logs that share no query as the shards of one log, one at a time in memory.

    All must have the same features, bias columns and kind of feedback; a later shard may add levels. `notes` is read
    after the last shard and stored in `log.json`.
    """
    target = Path(folder)
    with new_folder(target, ABOUT, overwrite=overwrite) as scratch:
        schema: LogSchema | None = None
        counts = []
        for number, part in enumerate(shards):
            shard = part if isinstance(part, UserLog) else UserLog(part)
            schema = LogSchema(shard.log) if schema is None else schema
            counts.append(write_shard(schema.admit(shard.log, number), scratch / shard_name(number), shard.users))
        if schema is None:
            raise ValueError(f"{target}: there are no shards to write")
        write_about(scratch, schema.about(), counts, notes)
    return target


def write_about(
    folder: Path, schema: Mapping[str, Any], shards: Sequence[Mapping[str, Any]], notes: Mapping[str, Any] | None
) -> None:
    """Write `log.json`, which turns written shards into a log: their common schema and their counts."""
    about = {"format": FORMAT, "version": VERSION, **schema, "shards": shards}
    if notes is not None:
        digest = _content_digest(json.loads(json.dumps(about)))
        steps = [{**step, "to": step.get("to", digest)} for step in notes.get("lineage", ())]
        about |= {"notes": {**notes, **({"lineage": steps} if steps else {})}}
    about = json.loads(json.dumps(about))
    about["digest"] = json_digest(about)
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _content_digest(about: Mapping[str, Any]) -> str:
    return json_digest({name: value for name, value in about.items() if name not in ("notes", "digest")})


def _entry(name: str, kind: Callable[..., Any]) -> Any:
    """An entry of `log.json` as a property; logs of earlier releases may lack it."""
    return property(lambda folder: kind(folder.about.get(name, ())))


def _total(what: str) -> Any:
    """A count of all shards as a property."""
    return property(lambda folder: sum(folder.counts(what)))


@dataclass(frozen=True, repr=False)
class LogFolder(LogShape, OnScreen):
    """A log on disk, read shard by shard."""

    path: Path
    about: dict[str, Any]
    sample: ClickLog | None = None  # what methods estimate in advance comes from it; None: from the whole log
    _verified: set[int] = field(default_factory=set, compare=False, repr=False)

    def screen(self) -> Screen:
        return Screen(f"A click log in {self.path}: {self.n_lists:,} lists in {self.n_shards:,} shards")

    @property
    def n_shards(self) -> int:
        return len(self.about["shards"])

    n_lists, n_sessions, n_clicks = _total("lists"), _total("sessions"), _total("clicks")

    @property
    def n_positions(self) -> int:
        """One more than the lowest place shown."""
        return max(self.counts("positions"))

    @property
    def n_features(self) -> int:
        """Features of a document; `n_inputs` counts those of the context as well."""
        features = self.about["features"]
        return features if isinstance(features, int) else len(features)

    @property
    def feature_names(self) -> tuple[str, ...]:
        features = self.about["features"]
        return () if isinstance(features, int) else tuple(features)

    @property
    def categories(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(levels) for name, levels in self.about["categories"].items()}

    @property
    def levels(self) -> dict[str, tuple[str, ...] | None]:
        """Names of the levels of each bias column; None: it holds numbers."""
        return {name: None if names is None else tuple(names) for name, names in self.about["bias"].items()}

    context_names = _entry("context", tuple)
    events = _entry("events", tuple)  # kinds of feedback other than clicks
    grades = _entry("grades", dict)
    graded = _entry("graded", bool)
    joint = _entry("joint", bool)

    def counts(self, what: str) -> list[int]:
        """Lists, documents, patterns or positions of each shard."""
        return [shard[what] for shard in self.about["shards"]]

    @property
    def digest(self) -> str:
        """SHA-256 of the content of the log."""
        return _content_digest(self.about)

    @property
    def lineage(self) -> Lineage:
        """Its digest, and the steps that made it from other logs."""
        return Lineage(self.digest, tuple(self.about.get("notes", {}).get("lineage", ())))

    def shard(self, number: int) -> ClickLog:
        """The log of a shard; its files are checked against their digests on first reading."""
        verify = number not in self._verified
        counts = self.about["shards"][number]
        with self.files(number) as stem:
            log = read_shard(stem, self.about, counts, verify=verify)
        self._verified.add(number)
        return log

    @contextmanager
    def files(self, number: int) -> Iterator[Path]:
        """The files of a shard; files on object storage are downloaded while they are read."""
        place = remote(self.path)
        if place is None:
            yield self.path / shard_name(number)
            return
        with TemporaryDirectory(prefix="unskew-") as scratch:
            stem = Path(scratch) / shard_name(number)
            tables = self.about["shards"][number]["digests"]
            place.fetch([shard_file(stem, table).name for table in tables], Path(scratch))
            yield stem

    def shards(self, order: Sequence[int] | None = None) -> Iterator[ClickLog]:
        """Logs of the shards; the next is read while one is in use, so at most two are in memory."""
        numbers = list(range(self.n_shards)) if order is None else list(order)
        with ThreadPoolExecutor(1) as reader:
            upcoming: Future[ClickLog] | None = None
            for number, following in zip(numbers, [*numbers[1:], None], strict=False):
                current = self.shard(number) if upcoming is None else upcoming.result()
                upcoming = None if following is None else reader.submit(self.shard, following)
                yield current

    def whole(self, mapped_beyond: int = MAPPED_BEYOND) -> ClickLog:
        """All shards as one log; features of more than `mapped_beyond` bytes are mapped from a file."""
        n_versions = sum(self.counts("versions"))
        if n_versions * self.n_features * 4 <= mapped_beyond:
            return replace(self._joined(self.shards()), origin=self.lineage)
        try:
            features = new_map((n_versions, self.n_features))
        except OverflowError as error:
            raise ValueError(f"{self.path / ABOUT} is damaged: counts are no sizes; write the log again") from error

        def read() -> Iterator[ClickLog]:
            start = 0
            for shard in self.shards():
                features[start : start + len(shard.features)] = shard.features
                start += len(shard.features)
                yield shard.without_features()

        lists = self._joined(read())
        named = replace(lists, features=features, feature_names=self.feature_names, categories=self.categories)
        return replace(named, origin=self.lineage)

    def sampled(self, sample: ClickLog) -> LogFolder:
        """The same log, with a part of it in memory for what methods estimate in advance."""
        return replace(self, sample=sample)

    def without_features(self) -> ClickLog:
        """All lists, or those of the sample, without document features, which is enough for counts and curves."""
        if self.sample is not None:
            return self.sample.without_features()
        return self._joined(shard.without_features() for shard in self.shards())

    def intervened_lists(self) -> ClickLog | None:
        """The lists that an intervention changed, with the documents of their queries; None: there are none."""
        if self.sample is not None:
            return self.sample.intervened_lists()
        if self.about["interventions"] is None:
            return None
        parts = [shard.intervened() for shard in self.shards()]
        chosen = [part.of_queries(np.unique(part.queries)) for part in parts if part.n_lists]
        return join_logs(chosen) if chosen else None

    def view(
        self, numbers: Sequence[int] | None = None, change: Callable[[ClickLog], ClickLog] = lambda log: log
    ) -> FolderView:
        """Some shards of this log, each changed after reading.

        Args:
            numbers: of the shards; default: all.
        """
        chosen = tuple(range(self.n_shards) if numbers is None else numbers)
        about = {**self.about, "shards": [self.about["shards"][number] for number in chosen]}
        return FolderView(self.path, about, self.sample, source=self, numbers=chosen, change=change)

    def _joined(self, shards: Iterable[ClickLog]) -> ClickLog:
        try:
            return join_logs(list(shards))
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error


@dataclass(frozen=True, repr=False)
class FolderView(LogFolder):
    """Some shards of a log on disk, each changed after reading, as a log."""

    source: LogFolder = field(kw_only=True)
    numbers: tuple[int, ...] = field(kw_only=True)  # of the shards
    change: Callable[[ClickLog], ClickLog] = field(kw_only=True)
    made_by: Lineage | None = field(default=None, kw_only=True)  # None: the lineage is that of the source

    def shard(self, number: int) -> ClickLog:
        return self.change(self.source.shard(self.numbers[number]))

    @property
    def lineage(self) -> Lineage:
        return self.source.lineage if self.made_by is None else self.made_by


Log = ClickLog | LogFolder  # one shard in memory, or some on disk, which `shards` reads one at a time


def open_log(folder: str | Path) -> LogFolder:
    """A log folder, checked but not read.

    Use `read_log` for a log that fits into memory.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> unskew.open_log(unskew.write_log(log, "log", n_shards=2)).n_shards
    2
    """
    path = Path(folder)
    about_path = path / ABOUT
    restore(path)
    if is_public_log(str(folder)) and not path.exists():
        raise ValueError(f"{folder} is a public log, which is always read whole: leave out --stream, or use read_log")
    place = remote(path)
    if not (about_path.is_file() if place is None else place.exists(ABOUT)):
        raise FileNotFoundError(
            f"{path} is not a click log: it has no log.json. Make a log with unskew ingest, or unskew simulate"
        )
    try:
        about = read_json(about_path) if place is None else parse_json(place.read(ABOUT))
    except ValueError as error:
        raise ValueError(f"{about_path} is damaged ({error}): write the log again") from error
    form = about.get("format") if isinstance(about, dict) else None
    if form != FORMAT:
        raise ValueError(f"{about_path}: the format is {form!r}, not {FORMAT!r}: pass the folder of a click log")
    if about.get("version") != VERSION:
        raise ValueError(
            f"{path} has version {about.get('version')} of the format, but this release reads version {VERSION}: make "
            "the log again from its source with unskew ingest (or unskew simulate)"
        )
    if about.get("digest") != json_digest({name: value for name, value in about.items() if name != "digest"}):
        raise ValueError(f"{about_path} does not match its digest: it is damaged or was edited; write the log again")
    missing = [name for name in (*LogSchema.NEEDED, "shards") if name not in about]
    if missing or not about["shards"]:
        raise ValueError(f"{about_path} is damaged ('{(missing or ['shards'])[0]}' is missing): write the log again")
    _check_entries(about_path, about)
    _check_shards(about_path, about["shards"])
    return LogFolder(path, about)


def _check_entries(about_path: Path, about: Mapping[str, Any]) -> None:
    """Refuse entries of the wrong type: numbers, lists and tables of names."""
    kinds: dict[str, Any] = {"features": int | list, "context": list, "events": list, "bias": dict, "categories": dict}
    for name, kind in kinds.items():
        if not isinstance(about[name], kind) or isinstance(about[name], bool):
            raise ValueError(f"{about_path} is damaged ('{name}' is {about[name]!r}): write the log again")


def _check_shards(about_path: Path, shards: Any) -> None:
    """Refuse entries of shards other than counts and digests."""
    rows = shards if isinstance(shards, list) else [shards]
    for number, shard in enumerate(rows):
        counts = [shard.get(name) for name in COUNTS] if isinstance(shard, dict) else [None]
        digests = shard.get("digests") if isinstance(shard, dict) else None
        are_counts = all(isinstance(count, int | float) and count >= 0 for count in counts)
        if not (are_counts and isinstance(digests, dict) and {"versions", "lists"} <= set(digests) <= {*TABLES, USERS}):
            raise ValueError(f"{about_path} is damaged (the entry of shard {number}): write the log again")


def read_log(folder: str | Path) -> ClickLog:
    """Read a whole log into memory: from a folder, or a public log by its name (`naver-clara2`, `naver-clara2@train`).

    Use `open_log` for a log that does not fit into memory.

    >>> import unskew
    >>> log = unskew.simulate("world:tiny", sessions=4, seed=1, progress=False).log
    >>> unskew.read_log(unskew.write_log(log, "log")).digest == log.digest
    True
    """
    if is_public_log(str(folder)) and not Path(folder).exists():
        return read_pages(str(folder)).log()
    return open_log(folder).whole()


def is_log(place: str | Path) -> bool:
    """Whether this is the folder of a log, or the name of a public log."""
    there = remote(place)
    if there is not None:
        return there.exists(ABOUT)
    restore(Path(place))
    return (Path(place) / ABOUT).is_file() or is_public_log(str(place))


def shard_name(number: int) -> str:
    return f"shard-{number:05d}"
