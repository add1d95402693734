"""Write THIRD_PARTY_NOTICES.txt: the licences of all packages that unskew needs at run time, as installed here.

`make lock` runs it after the lock. `--texts FILE` writes the full licence texts too, those of bundled code included:
ship that file with an image or an archive that contains these packages. A wheel of unskew contains none of them.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from lock import EXTRAS, OF_GPU_BUILDS, needed

ROOT = Path(__file__).parents[1]
NOTICES = ROOT / "THIRD_PARTY_NOTICES.txt"
FILES = re.compile(r"(licen[cs]e|copying|notice|thirdpartynotices)[^/]*$", re.IGNORECASE)
COPYRIGHT = re.compile(r"\bcopyright\s+(?:(?:\(c\)|©)\s*\w|\d{4})[^\n\"]*", re.IGNORECASE)
OPEN = "License :: OSI Approved :: "
HEADER = """Third-party notices

Written by "make lock". unskew installs these packages and contains none of their code. Each is named with its licence
and every copyright line of its licence files, those of code that it bundles included.
Full texts: python tools/licences.py --texts FILE.
"""


@dataclass
class Licence:
    """The licence of an installed package, and its texts by file."""

    package: str
    version: str
    name: str
    texts: dict[str, str]

    @property
    def section(self) -> str:
        lines = [line for text in self.texts.values() for line in COPYRIGHT.findall(text)]
        notices = [" ".join(line.split()) for line in lines]
        return "\n".join(["", f"{self.package} {self.version}", "", self.name, "", *dict.fromkeys(notices)])


def runtime_requirements() -> list[str]:
    """What pyproject.toml asks for at run time: the dependencies, and the extras that the lock holds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [text for extra in EXTRAS if extra != "dev" for text in project["optional-dependencies"][extra]]
    return [*project["dependencies"], *extras]


def licences() -> list[Licence]:
    versions = needed(runtime_requirements())
    return [licence(name) for name in sorted(versions) if not name.startswith(OF_GPU_BUILDS)]


def licence(package: str) -> Licence:
    installed = distribution(package)
    version = installed.version.partition("+")[0]  # without the build, such as +cpu
    return Licence(package, version, licence_name(installed), licence_texts(installed))


def licence_name(installed: Distribution) -> str:
    """The name in the metadata: the expression, the short field, or the classifier."""
    metadata = installed.metadata
    field = metadata.get("License") or ""
    classifiers = [text.removeprefix(OPEN) for text in metadata.get_all("Classifier") or [] if text.startswith(OPEN)]
    name = metadata.get("License-Expression") or (field if 0 < len(field) < 40 else " and ".join(classifiers))
    if not name:
        raise LookupError(f"the metadata of {metadata['Name']} names no licence: read its files and report it upstream")
    return name


def licence_texts(installed: Distribution) -> dict[str, str]:
    """File -> text, of files with the metadata or at the top of the package; the package's own before bundled code."""
    files = [
        file
        for file in installed.files or []
        if FILES.search(file.name) and (".dist-info" in file.parts[0] or len(file.parts) == 2)
    ]
    files.sort(key=lambda file: (len(file.parts), str(file)))
    return {str(file): file.locate().read_text(encoding="utf-8", errors="replace") for file in files}


def full_texts(all_licences: list[Licence]) -> str:
    """Every text once, below the files that have it."""
    owners: dict[str, list[str]] = {}
    for each in all_licences:
        for file, text in each.texts.items():
            owners.setdefault(text.strip(), []).append(file)
    rule = "=" * 80
    return "\n\n".join("\n".join([rule, *files, rule, text]) for text, files in owners.items()) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=Path, metavar="FILE", help="write the full licence texts to this file too")
    texts = parser.parse_args().texts
    try:
        all_licences = licences()
    except (PackageNotFoundError, LookupError) as error:
        print(f"error: {error}: nothing was written", file=sys.stderr)
        return 2
    NOTICES.write_text(HEADER + "\n".join(each.section.rstrip() for each in all_licences) + "\n", encoding="utf-8")
    if texts:
        texts.write_text(full_texts(all_licences), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
