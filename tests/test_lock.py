"""requirements.lock: every package has a version and its hashes, and torch alone is pinned by version."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
ENTRIES = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()[1:]


@pytest.fixture(scope="module")
def lock():
    spec = importlib.util.spec_from_file_location("lock", ROOT / "tools" / "lock.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_line_is_a_version_with_its_hashes():
    assert ENTRIES
    for entry in ENTRIES:
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


def test_what_a_file_name_says_of_its_version(lock):
    assert lock.version_of("click-8.5.1-py3-none-any.whl") == Version("8.5.1")
    assert lock.version_of("click-8.5.1.tar.gz") == Version("8.5.1")
    assert lock.version_of("click-8.5.1.exe") is None
    links = lock.LINK.findall('<a href="https://host/a/b/click-8.5.1.tar.gz#sha256=' + "0" * 64 + '" x="y">click</a>')
    assert links == [("click-8.5.1.tar.gz", "0" * 64)]
