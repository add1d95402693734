"""Write requirements.lock: what the package and its tools need, as installed here, with every hash that the index has.

With `--docs` it writes requirements-docs.txt in the same way, from an environment that has the packages of `DOCS`.

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
DOCS = (
    "mkdocs==1.6.1",
    "mkdocs-material==9.8.1",
    "mkdocstrings==1.0.8",
    "mkdocstrings-python==2.0.11",
    "latex2mathml==3.81.1",
)  # what `make docs` adds to .venv
OF_GPU_BUILDS = ("nvidia-", "cuda-", "triton")  # torch brings them itself, in the versions that it needs
INDEX = os.environ.get("PIP_INDEX_URL")
LINK = re.compile(r'href="[^"]*?/?(?P<file>[^"/]+)#sha256=(?P<hash>[0-9a-f]{64})"')
HEADER = "# Written by `make lock`. Torch is pinned in the Makefile.\n"
DOCS_HEADER = "# What `make docs` adds to .venv. Written by tools/lock.py --docs.\n"


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


def all_asked() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *BUILD]
    return asked + [text for extra in EXTRAS for text in project["optional-dependencies"][extra]]


def lock(index: str, asked: Iterable[str]) -> str:
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
    return "\n".join(entries) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--index", default=INDEX, required=INDEX is None, help="address of a simple index; default: PIP_INDEX_URL"
    )
    parser.add_argument("--docs", action="store_true", help="requirements-docs.txt")
    chosen = parser.parse_args()
    try:
        header, asked = (DOCS_HEADER, DOCS) if chosen.docs else (HEADER, all_asked())
        text = header + lock(chosen.index, asked)
    except (PackageNotFoundError, LookupError, OSError) as error:
        print(f"error: {error}: nothing was written", file=sys.stderr)
        return 2
    (ROOT / ("requirements-docs.txt" if chosen.docs else "requirements.lock")).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
