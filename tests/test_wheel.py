"""The wheel holds the package and nothing else, and works where there is no checkout."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TORCH = re.search(r"^TORCH := (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1]
COMMANDS = (
    "--help",
    "demo --data world:tiny --out report.html",
    "simulate world:tiny --sessions 16 --seed 1 --out log",
    "train log --method dla --set steps=20 --out model",
    "export model --to model.onnx",
    "events log --out events.parquet --features features.parquet",
    "rank model.onnx features.parquet --out ranking.parquet",
    "reproduce lbd-table1 --show",
)


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The wheel and the source archive."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(archives):
    names = [name for name in zipfile.ZipFile(archives[0]).namelist() if ".dist-info/" not in name]
    files = (path for path in (ROOT / "src" / "unskew").rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert sorted(names) == sorted(path.relative_to(ROOT / "src").as_posix() for path in files)
    assert {"py.typed", "report.html.j2", "lbd-table1.toml"} <= {Path(name).name for name in names}


def test_the_metadata_of_the_wheel_include_licence_notices_and_command(archives):
    names = {name.partition(".dist-info/")[2] for name in zipfile.ZipFile(archives[0]).namelist()}
    texts = {"licenses/LICENSE", "licenses/THIRD_PARTY_NOTICES.txt"}
    assert names - {""} == texts | {"entry_points.txt", "METADATA", "WHEEL", "RECORD"}


def test_the_source_archive_holds_what_builds_and_tests_the_package_and_no_hidden_file(archives):
    with tarfile.open(archives[1]) as archive:
        names = [Path(name).relative_to(Path(name).parts[0]) for name in archive.getnames()]
    folders = {name.parts[0] for name in names}
    assert {"src", "tests", "docs", "benchmarks", "pyproject.toml", "README.md", "LICENSE", "Makefile"} <= folders
    assert [name for name in names if name.parts[0].startswith(".") and name.name != ".gitignore"] == []


@pytest.mark.slow  # downloads torch and all dependencies
def test_the_wheel_works_in_a_clean_environment_without_the_checkout(archives, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    binaries = tmp_path / "venv" / "bin"
    work = tmp_path / "work"
    work.mkdir()
    locked = re.findall(r"^[a-z0-9-]+==\S+", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    (work / "versions.txt").write_text("\n".join(locked), encoding="utf-8")
    hidden = ("PYTHONPATH", "UNSKEW_DATA")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment["UNSKEW_CACHE"] = str(tmp_path / "cache")

    def run(program, *arguments):
        call = [binaries / program, *arguments]
        result = subprocess.run(call, cwd=work, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{arguments}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    run("python", "-m", "pip", "install", "--quiet", TORCH)
    run("python", "-m", "pip", "install", "--quiet", "--constraint", "versions.txt", f"{archives[0]}[onnx]")
    place = run("python", "-c", "import unskew; print(unskew.__file__)").strip()
    assert Path(place).is_relative_to(tmp_path / "venv")
    for command in COMMANDS:
        run("unskew", *command.split())
    made = ("report.html", "model/model.json", "model.onnx", "ranking.parquet")
    assert [name for name in made if not (work / name).is_file()] == []
