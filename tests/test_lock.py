"""requirements.lock: every package has a version and its hashes, and torch alone is pinned by version.

THIRD_PARTY_NOTICES.txt names what is needed at run time, in the locked versions.
"""

import importlib
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
ENTRIES, DOCS = (
    (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ").splitlines()[1:]
    for name in ("requirements.lock", "requirements-docs.txt")
)


@pytest.fixture
def lock(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("lock")


@pytest.fixture
def licences(lock):
    return importlib.import_module("licences")


def test_every_line_is_a_version_with_its_hashes():
    assert ENTRIES
    assert DOCS
    for entry in (*ENTRIES, *DOCS):
        assert re.fullmatch(r"[a-z0-9-]+==[^ ]+( +--hash=sha256:[0-9a-f]{64})+", entry), entry


def test_all_that_is_needed_is_locked_but_torch(lock):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *lock.BUILD]
    wanted += [text for extra in lock.EXTRAS for text in project["optional-dependencies"][extra]]
    locked = {entry.partition("==")[0] for entry in ENTRIES}
    assert {canonicalize_name(Requirement(text).name) for text in wanted} - locked == {"torch"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^TORCH := torch==2\.13\.0$", makefile, flags=re.MULTILINE)
    assert "--require-hashes -r requirements.lock" in makefile


def test_documentation_needs_nothing_else_and_changes_no_version_of_the_lock(lock):
    locked = dict(entry.split()[0].split("==") for entry in ENTRIES)
    docs = dict(entry.split()[0].split("==") for entry in DOCS)
    assert set(lock.DOCS) <= {f"{name}=={version}" for name, version in docs.items()}
    assert {name: locked[name] for name in docs if name in locked} == {n: v for n, v in docs.items() if n in locked}


def test_what_a_file_name_says_of_its_version(lock):
    assert lock.version_of("click-8.5.1-py3-none-any.whl") == Version("8.5.1")
    assert lock.version_of("click-8.5.1.tar.gz") == Version("8.5.1")
    assert lock.version_of("click-8.5.1.exe") is None
    links = lock.LINK.findall('<a href="https://host/a/b/click-8.5.1.tar.gz#sha256=' + "0" * 64 + '" x="y">click</a>')
    assert links == [("click-8.5.1.tar.gz", "0" * 64)]


def test_the_notices_name_every_runtime_package_in_its_locked_version(licences):
    text = licences.NOTICES.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^([a-z0-9-]+) (\d\S*)$", text, re.MULTILINE))
    wanted = {canonicalize_name(Requirement(text).name) for text in licences.runtime_requirements()}
    assert wanted <= set(sections), "a dependency is new: run `make lock`"
    locked = dict(entry.split(" ")[0].split("==") for entry in ENTRIES)
    assert sections == {name: locked.get(name, "2.13.0") for name in sections}  # torch alone is not in the lock


def test_a_notice_is_every_copyright_line_once(licences):
    texts = {"LICENSE": "Copyright (c) 2020 A\ncopyright holders\nCopyright 2021 B", "NOTICE": "Copyright (c) 2020 A"}
    section = licences.Licence("some", "1.0", "MIT", texts).section
    assert section == "\nsome 1.0\n\nMIT\n\nCopyright (c) 2020 A\nCopyright 2021 B"


def test_a_text_that_two_packages_share_is_written_once(licences):
    shared = [licences.Licence(name, "1.0", "MIT", {f"{name}/LICENSE": "the text"}) for name in ("one", "two")]
    rule = "=" * 80
    assert licences.full_texts(shared) == f"{rule}\none/LICENSE\ntwo/LICENSE\n{rule}\nthe text\n"
