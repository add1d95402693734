"""Answers: a result or the reason why there is none, and what either says to a question.

Whatever a log may not support is computed by `attempt`, which gives a `Refusal` in place of an error. Below it, code
raises a `ValueError` whose message says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")

GOOD, PLAIN, BAD, UNKNOWN = "good", "plain", "bad", "unknown"
LONGEST_REASON = 160  # characters of a refusal; a report has the rest
MARKS = (". ", ": ")


@dataclass(frozen=True)
class Refusal:
    """Why there is no result."""

    reason: str

    @property
    def short(self) -> str:
        """The reason, shortened to its first sentences if it is too long."""
        reason = self.reason
        while len(reason) > LONGEST_REASON and any(mark in reason for mark in MARKS):
            reason = reason[: max(reason.rfind(mark) for mark in MARKS)]
        return reason.rstrip(".")


@dataclass(frozen=True)
class Finding:
    """One question and its answer."""

    question: str
    answer: str
    tone: str = PLAIN  # good, plain, bad or unknown


def attempt(compute: Callable[[], Result], error: type[ValueError] = ValueError) -> Result | Refusal:
    """The result; an error of this kind is a refusal."""
    try:
        return compute()
    except error as reason:
        return Refusal(str(reason))


def known(result: Result | Refusal) -> Result | None:
    """The result; None if it was refused."""
    return None if isinstance(result, Refusal) else result


def needed(result: Result | Refusal, error: type[ValueError] = ValueError) -> Result:
    """The result; an error with the reason if it was refused."""
    if isinstance(result, Refusal):
        raise error(result.reason)
    return result


def all_known(results: Mapping[str, Result | Refusal]) -> dict[str, Result]:
    """The results that were not refused."""
    return {name: result for name, result in results.items() if not isinstance(result, Refusal)}


def reasons(results: Mapping[str, Result | Refusal]) -> dict[str, str]:
    """The reasons of those that were refused."""
    return {name: result.reason for name, result in results.items() if isinstance(result, Refusal)}
