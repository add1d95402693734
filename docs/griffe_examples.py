"""Examples in docstrings as code: mkdocstrings knows them below `Examples:`, our docstrings just begin with `>>>`."""

from __future__ import annotations

import re
from typing import Any

import griffe

PROMPT = re.compile(r"(?<=\n\n)(>>> .*)\Z", re.DOTALL)


class Examples(griffe.Extension):
    """Put `Examples:` above the doctest that ends a docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            found = PROMPT.search(obj.docstring.value)
            if found is not None:
                code = found[1].replace("\n", "\n    ")
                obj.docstring.value = f"{obj.docstring.value[: found.start()]}Examples:\n    {code}"
