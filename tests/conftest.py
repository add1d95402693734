"""Shared by all tests: a cache of their own, one thread each, and the smallest world with its log."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import unskew

torch.set_num_threads(1)  # tests run side by side, and sums of one thread are the same everywhere


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSKEW_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def world():
    return unskew.load("world:tiny")


@pytest.fixture(scope="session")
def log(world):
    """Joint clicks of position-based users on the smallest world, one tenth of the sessions shuffled."""
    return unskew.simulate(
        world.train, "svm", "position_based", sessions=64, interventions={"shuffle": 0.1}, joint=True, seed=1
    ).log


@pytest.fixture(scope="session")
def looked_at(log):
    """The same log with a record of looks: of what was clicked, at least that."""
    return replace(log, seen=log.clicks, seen_sessions=log.sessions)


@pytest.fixture(scope="session")
def spark():
    """A Spark of two executors, each a process of its own, as on a cluster."""
    pytest.importorskip("pyspark", reason="Spark has an environment of its own: run `make test-spark`")
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        settings = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "3",
            "spark.sql.session.timeZone": "UTC",
            "spark.executor.memory": "512m",
        }
        session = SparkSession.builder.master("local-cluster[2,1,900]").config(map=settings).getOrCreate()
        yield session
        session.stop()


@pytest.fixture(scope="session")
def browser_tab() -> Callable[[Path], AbstractContextManager[Any]]:
    """Opens a page in Chromium; at the end the page must have complained of nothing and fetched nothing else."""
    sync_api = pytest.importorskip("playwright.sync_api")
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser_path is None:
        pytest.skip("there is no chromium here: apt-get install chromium")

    @contextmanager
    def opened(page: Path) -> Iterator[Any]:
        said, asked = [], []
        with sync_api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
            try:
                tab = browser.new_page()
                tab.on("console", lambda message: said.append(message.text))
                tab.on("pageerror", lambda error: said.append(str(error)))
                tab.on("request", lambda request: asked.append(request.url))
                tab.goto(page.as_uri())
                yield tab
            finally:
                browser.close()
        assert (said, asked) == ([], [page.as_uri()])

    return opened


@pytest.fixture(scope="session")
def run() -> Callable[..., str]:
    """The command line, as a person types it: gives what it prints, and fails at another exit code than `code`."""
    from unskew.cli import app  # most tests do without it

    def run(*arguments: Any, code: int = 0) -> str:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.output

    return run


LONGEST = ("test_guide.py", "test_readme.py")  # one long test each: begun last, they would leave the other core idle


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)
