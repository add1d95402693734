"""Object storage: `s3://bucket/folder`, and `gs://`, `abfs://` and `hdfs://` through the same interface of pyarrow.

Files are written locally first and then uploaded. A folder exists if the file that marks its kind does; this file is
uploaded last and removed first, so an interrupted upload is neither a log nor a model; the file `.uploading` says that
it may be repeated. Keys, region and
`AWS_ENDPOINT_URL` are read from the environment, as by other tools.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyarrow import fs

from unskew.texts import redacted

UPLOADING = ".uploading"  # in a folder while it is uploaded
SCHEMES = re.compile(r"^(s3|gs|gcs|abfs|abfss|hdfs):/+")  # a Path has lost the second slash


@dataclass(frozen=True)
class RemotePlace:
    """A file or folder on object storage."""

    uri: str

    def __str__(self) -> str:
        return redacted(self.uri)

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        endpoint = os.environ.get("AWS_ENDPOINT_URL")
        if endpoint and self.uri.startswith("s3://"):
            scheme, address = endpoint.rstrip("/").split("://")
            return fs.S3FileSystem(endpoint_override=address, scheme=scheme), self.uri.removeprefix("s3://")
        return fs.FileSystem.from_uri(self.uri)

    def exists(self, name: str = "") -> bool:
        return self._info(name).type != fs.FileType.NotFound

    def is_folder(self) -> bool:
        return bool(self._info("").type == fs.FileType.Directory)

    def read(self, name: str = "") -> bytes:
        system, path = self._opened
        with system.open_input_stream(_below(path, name)) as stream:
            return bytes(stream.read())

    def names(self) -> list[str]:
        """Files of a folder."""
        system, path = self._opened
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(entry.base_name for entry in found if entry.is_file)

    def fetch(self, names: Sequence[str], folder: Path) -> None:
        """Download files."""
        system, path = self._opened
        for name in names:
            fs.copy_files(_below(path, name), str(folder / name), source_filesystem=system)

    def send(self, file: Path, name: str = "") -> None:
        """Upload a file."""
        system, path = self._opened
        fs.copy_files(str(file), _below(path, name), destination_filesystem=system)

    def send_folder(self, folder: Path, marker: str) -> None:
        """Upload the files of a folder, the one that marks its kind last; existing files are replaced."""
        self.begin()
        self.remove(marker)
        files = [file for file in sorted(folder.iterdir()) if file.name != marker]
        for old in set(self.names()) - {UPLOADING, *(file.name for file in files)}:
            self.remove(old)
        for file in (*files, folder / marker):
            self.send(file, file.name)
        self.remove(UPLOADING)

    def begin(self) -> None:
        """Note that an upload has begun."""
        system, path = self._opened
        system.open_output_stream(_below(path, UPLOADING)).close()

    def rename(self, name: str, new: str) -> None:
        """Rename a file of a folder."""
        system, path = self._opened
        system.move(_below(path, name), _below(path, new))

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        system, path = self._opened
        if self.exists(name):
            system.delete_file(_below(path, name))

    def _info(self, name: str) -> Any:
        system, path = self._opened
        return system.get_file_info(_below(path, name))


def _below(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}" if name else path.rstrip("/")


def remote(place: str | Path) -> RemotePlace | None:
    """The place, if it is on object storage.

    >>> remote("s3://bucket/log"), remote("folder/log")
    (RemotePlace(uri='s3://bucket/log'), None)
    """
    text = str(place)
    found = SCHEMES.match(text)
    return RemotePlace(f"{found[1]}://{text[found.end() :]}") if found else None


def read_there(place: Path) -> bytes | None:
    """The content of a file here or on object storage; None: there is none."""
    there = remote(place)
    if there is None:
        return place.read_bytes() if place.is_file() else None
    return there.read() if there.exists() else None


def check_remote(place: RemotePlace, marker: str | None, *, overwrite: bool) -> None:
    """Refuse a place that exists; a folder without its marker is never replaced."""
    if marker is not None and place.is_folder():
        if not place.exists(marker) and place.names() and not place.exists(UPLOADING):
            raise FileExistsError(f"{place} contains no {marker}, so it is not overwritten: choose another path")
        taken = place.exists(marker)
    else:
        taken = place.exists()
    if taken and not overwrite:
        raise FileExistsError(f"{place} exists: choose another path, or pass overwrite=True (--overwrite)")


@contextmanager
def sent_folder(place: RemotePlace, marker: str, *, overwrite: bool) -> Iterator[Path]:
    """A local folder to write to, which is uploaded when the block ends without an error."""
    check_remote(place, marker, overwrite=overwrite)
    with tempfile.TemporaryDirectory(prefix="unskew-") as scratch:
        folder = Path(scratch) / "folder"
        yield folder
        place.send_folder(folder, marker)


@contextmanager
def filled_folder(place: RemotePlace, marker: str, *, overwrite: bool) -> Iterator[Path]:
    """A local folder for the marker of a remote folder to which others upload files; the marker is uploaded last."""
    check_remote(place, marker, overwrite=overwrite)
    place.begin()
    for old in (marker, *(name for name in place.names() if name != UPLOADING)):
        place.remove(old)
    with tempfile.TemporaryDirectory(prefix="unskew-") as scratch:
        yield Path(scratch)
        place.send(Path(scratch) / marker, marker)
        place.remove(UPLOADING)


@contextmanager
def fetched(place: str | Path) -> Iterator[Path]:
    """A file, or the files of a folder, as a local path; local files stay where they are."""
    found = remote(place)
    if found is None:
        yield Path(place)
        return
    with tempfile.TemporaryDirectory(prefix="unskew-") as scratch:
        local = Path(scratch) / found.uri.rstrip("/").rsplit("/", 1)[-1]
        if found.is_folder():
            local.mkdir()
            found.fetch(found.names(), local)
        elif found.exists():
            RemotePlace(found.uri.rstrip("/").rsplit("/", 1)[0]).fetch([local.name], Path(scratch))
        else:
            raise FileNotFoundError(f"{found} does not exist: check the path")
        yield local
