"""Write requirements.lock: what the package and its tools need, as installed here, with every hash that the index has.

Run `make lock` after a change of dependencies: install what is new into .venv, then lock. Only what pyproject.toml asks
for is locked, so that other packages in .venv do no harm. All files of a version are listed, so that the lock holds on
other platforms and Pythons too. Torch is left out: its builds for CPU and for GPU have other hashes on every index, so
the Makefile pins its version; what torch needs besides is locked here.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tomllib
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
EXTRAS = (
    "onnx",
    "notebook",
    "trees",
    "serve",
    "dev",
)  # of pyproject.toml; Spark, MLflow and the docs have places of their own
BUILD = ("hatchling", "editables")  # for the editable install
BY_VERSION = "torch"
OF_GPU_BUILDS = ("nvidia-", "cuda-", "triton")  # torch brings them itself, in the versions that it needs
INDEX = os.environ.get("PIP_INDEX_URL")
LINK = re.compile(r'href="[^"]*?/?(?P<file>[^"/]+)#sha256=(?P<hash>[0-9a-f]{64})"')
HEADER = "# Written by `make lock`. Torch is pinned in the Makefile.\n"


def needed(asked: Iterable[str]) -> dict[str, str]:
    """Name -> installed version of all that these requirements need, themselves included."""
    found: dict[str, str] = {}
    done: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in asked]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in done:
                continue
            done.add((name, extra))
            installed = distribution(name)
            found[name] = installed.version
            for text in installed.requires or []:
                other = Requirement(text)
                if other.marker is None or other.marker.evaluate({"extra": extra}):
                    waiting.append(other)
    return found


def hashes(name: str, version: str, index: str) -> list[str]:
    """SHA-256 of every file of this version."""
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/", timeout=60) as page:
        links = LINK.finditer(page.read().decode())
    found = {link["hash"] for link in links if version_of(link["file"]) == Version(version)}
    if not found:
        raise LookupError(f"{index} has no file of {name} {version} with a SHA-256 hash")
    return sorted(found)


def version_of(file: str) -> Version | None:
    """The version of a wheel or source archive; None of other files."""
    try:
        return parse_wheel_filename(file)[1] if file.endswith(".whl") else parse_sdist_filename(file)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


def lock(index: str) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *BUILD]
    asked += [text for extra in EXTRAS for text in project["optional-dependencies"][extra]]
    versions = {
        name: version
        for name, version in sorted(needed(asked).items())
        if name != BY_VERSION and not name.startswith(OF_GPU_BUILDS)
    }
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda pair: hashes(*pair, index), versions.items())
    entries = [
        " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{value}" for value in each)])
        for (name, version), each in zip(versions.items(), found, strict=True)
    ]
    return HEADER + "\n".join(entries) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--index", default=INDEX, required=INDEX is None, help="address of a simple index; default: PIP_INDEX_URL"
    )
    try:
        text = lock(parser.parse_args().index)
    except (PackageNotFoundError, LookupError, OSError) as error:
        print(f"error: {error}: nothing was written", file=sys.stderr)
        return 2
    (ROOT / "requirements.lock").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
