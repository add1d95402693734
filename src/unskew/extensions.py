"""Outside parts: methods, users, policies, metrics and networks that you or other packages define.

In Python a class works wherever a name works. A package registers parts by entry points (`unskew.methods`,
`unskew.users`, `unskew.policies`, `unskew.metrics`, `unskew.networks`); they are imported when used by name. The text
`module:Class` runs code, so files and command lines may use it only with `--allow-code`.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import pickle
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from unskew.options import near

T = TypeVar("T")

GROUPS = {
    "method": "unskew.methods",
    "user": "unskew.users",
    "policy": "unskew.policies",
    "metric": "unskew.metrics",
    "network": "unskew.networks",
}
# Packages whose classes do not count as a part's own code when it inherits from them.
OURS = ("unskew", "torch", "abc", "typing", "builtins", "numpy", "collections")


def find(what: str, choices: Mapping[str, T], part: str | T) -> T:
    """The part itself, or the part of this name: built in, or registered by an installed package."""
    if not isinstance(part, str):
        return part
    if part in choices:
        return choices[part]
    registered = {entry.name: entry for entry in entry_points(group=GROUPS[what])}
    if part in registered:
        return registered[part].load()
    hint = "; pass your own code as a class in Python, or with --allow-code in files and on the command line"
    known = [*choices, *registered]
    advice = f"choose one of {', '.join(known)}{hint if ':' in part else ''}"
    raise ValueError(f"unknown {what} '{part}'{near(part, known)}: {advice}")


def name_of(choices: Mapping[str, Any], part: Any) -> str:
    """The name of a part: its name among the choices, otherwise `module:Class`."""
    if isinstance(part, str):
        return part
    return next((name for name, known in choices.items() if known is part), outside_name(part))


def outside_name(part: Any) -> str:
    return f"{part.__module__}:{part.__qualname__}"


def is_outside(part: Any) -> bool:
    """Whether this is code from outside the package."""
    return callable(part) and hasattr(part, "__qualname__") and part.__module__.partition(".")[0] != "unskew"


def load_part(text: Any, *, allow_code: bool) -> Any:
    """Resolve `module:Class` if code is allowed; return anything else unchanged."""
    if not isinstance(text, str) or ":" not in text:
        return text
    if not allow_code:
        raise ValueError(f"'{text}' names code outside unskew: pass --allow-code (in Python allow_code=True) to run it")
    module, _, name = text.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"'{text}' cannot be loaded ({error}): write module:Class, and make it importable") from error


def described(part: Any) -> dict[str, str]:
    """An outside part as plain data: its name, and the version that it declares or a digest of its source."""
    version = getattr(part, "version", None)
    if isinstance(version, str | int):
        return {"class": outside_name(part), "version": str(version)}
    return {"class": outside_name(part), "code": source_digest(part)}


def source_digest(part: Any) -> str:
    """A digest of the files, or notebook cells, that define a part and what it inherits from."""
    kinds = inspect.getmro(part) if inspect.isclass(part) else (part,)
    outside = [kind for kind in kinds if kind.__module__.partition(".")[0] not in OURS]
    files = dict.fromkeys(_file_of(kind) for kind in outside)
    digest = hashlib.sha256()
    for file in files:
        lines = linecache.getlines(file)
        text = Path(file).read_bytes() if Path(file).is_file() else "".join(lines).encode()
        if not text:
            raise ValueError(
                f"the source of {outside_name(part)} cannot be read, so changes would go unnoticed: define it in a "
                'file or a notebook cell, or give it a version (version = "1")'
            )
        digest.update(text)
    return digest.hexdigest()[:16]


def _file_of(kind: Any) -> str:
    """The file of a class or function according to its code object; notebook cells have such a name, but no file."""
    functions = [kind, *vars(kind).values()] if inspect.isclass(kind) else [kind]
    code = next((entry.__code__ for entry in functions if inspect.isfunction(entry)), None)
    if code is not None:
        return code.co_filename
    try:
        return inspect.getfile(kind)
    except (TypeError, OSError):
        return ""


def needs_cloudpickle(part: Any) -> bool:
    """Whether other processes cannot import this part: it was defined in a notebook."""
    main = sys.modules.get("__main__")
    return getattr(part, "__module__", "") == "__main__" and not Path(getattr(main, "__file__", None) or "").is_file()


def outside_parts(data: Any) -> list[Any]:
    """All outside parts within nested tables and lists."""
    if isinstance(data, Mapping):
        return [part for entry in data.values() for part in outside_parts(entry)]
    if isinstance(data, list | tuple):
        return [part for entry in data for part in outside_parts(entry)]
    return [data] if not isinstance(data, str) and is_outside(data) else []


def pickler_for(data: Any) -> Callable[[Any], bytes]:
    """The pickler for data with these parts."""
    strangers = [part for part in outside_parts(data) if needs_cloudpickle(part)]
    if not strangers:
        return pickle.dumps
    try:
        import cloudpickle
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{outside_name(strangers[0])} was defined in a notebook, and other processes cannot import it: "
            "pip install 'unskew[notebook]', put it into a file, or pass jobs=1"
        ) from error
    return cloudpickle.dumps
