"""Progress of public functions: a bar by default, none with `progress=False`, or the caller's own function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Follow = bool | Callable[..., None]


@contextmanager
def followed(
    progress: Follow, bar: Callable[..., AbstractContextManager[Callable[..., None]]], *arguments: Any
) -> Iterator[Callable[..., None]]:
    """The progress callback: the caller's own, or this bar, hidden if `progress` is False."""
    if callable(progress):
        yield progress
    else:
        with bar(*arguments, quiet=not progress) as update:
            yield update
