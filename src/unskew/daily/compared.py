"""One comparison of two logs: moments of each part, summed over parts, and the resulting change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unskew.daily.estimates import Estimate, Moments

THRESHOLD = 0.05  # of the corrected p
LEAST_SHARE = 0.001  # of the sessions of either log, for a value of a category to be compared

Sums = tuple[float, float]  # numerator and denominator of a mean
ONE_SIDED = ("order", "traffic")  # squares: only values above 0 mean something


@dataclass(frozen=True)
class Change:
    """One comparison; `difference` is the second log minus the first."""

    kind: str  # feature, missing, category, context, clicks, order, traffic or bias
    name: str
    before: float | None
    after: float | None
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    n_queries: int

    @property
    def changed(self) -> bool:
        return self.p_holm < THRESHOLD


@dataclass(frozen=True, eq=False)
class Compared:
    """One comparison on a part of the logs: moments over queries, and the sums of the means before and after."""

    kind: str
    name: str
    moments: Moments
    before: Sums | None = None
    after: Sums | None = None

    def __add__(self, other: Compared) -> Compared:
        def added(a: Sums | None, b: Sums | None) -> Sums | None:
            return (a[0] + b[0], a[1] + b[1]) if a is not None and b is not None else None

        return replace(
            self,
            moments=self.moments + other.moments,
            before=added(self.before, other.before),
            after=added(self.after, other.after),
        )

    def means(self) -> tuple[float | None, float | None]:
        """Before and after."""
        if len(self.moments.first) == 4:
            a, of_a, b, of_b = self.moments.first
            return float(a / of_a), float(b / of_b)
        before, after = (None if each is None else each[0] / each[1] for each in (self.before, self.after))
        return before, after

    @property
    def tells(self) -> bool:
        """Whether both logs have enough to compare."""
        if not (self.moments.first[1::2] > 0).all():
            return False
        of_share = self.kind == "missing" or (self.kind == "context" and "=" in self.name)
        least = {"missing": 0.0}.get(self.kind, LEAST_SHARE)
        return not of_share or max(value or 0.0 for value in self.means()) > least

    def change(self, p_holm: float) -> Change:
        before, after = self.means()
        each = self.estimate()
        found = (each.value, each.low, each.high, each.p, p_holm, each.n_queries)
        return Change(self.kind, self.name, before, after, *found)

    def estimate(self) -> Estimate:
        """The difference with its interval."""
        if len(self.moments.first) == 4:
            return self.moments.ratio_difference()
        return self.moments.ratio(one_sided=self.kind in ONE_SIDED)
