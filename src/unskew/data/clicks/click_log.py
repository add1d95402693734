"""ClickLog: what was shown and what was clicked; the one representation of clicks, simulated or real.

A document is a (query, document) pair. Its features belong to the showing: each distinct feature row is a version of
the document and is stored once. A list is a row of version numbers in shown order. Sessions that showed the same list,
with the same bias columns and context, form one row with counts of clicks and sessions: losses that are linear in
clicks have the same gradient on it as on the single sessions. A log that also keeps which documents were clicked
*together* is `joint`: it holds the distinct click patterns of each list and their multiplicity. Positions count from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from unskew.data.clicks.build import compact_counts
from unskew.data.clicks.lineage import Lineage
from unskew.data.clicks.log_checks import check_log
from unskew.data.clicks.log_from_arrays import fields_from_arrays
from unskew.data.clicks.row_fields import FIELDS, Field, Patterns, RowFields, changed_fields, columns_of
from unskew.data.clicks.tables import TableColumns, fields_from_table, log_to_table
from unskew.data.files import array_digest
from unskew.data.grouping import unique_rows
from unskew.data.judged.judged_set import chosen_numbers, ragged_rows
from unskew.display import Displayed, Screen, new_axes

# Arrays whose place in the digest differs from that in the declaration.
DIGESTED_FIRST = (
    *("features", "version_documents", "document_queries", "versions", "mask", "clicks", "sessions"),
    *("positions", "context"),
)
NOT_DIGESTED = ("query_ids", "document_ids", "codes")  # ids are part of its text; codes belong to a model


class LogShape:
    """What a log in memory and one on disk have in common."""

    n_features: Any
    feature_names: Any
    context_names: Any

    @property
    def n_inputs(self) -> int:
        """Number of ranker inputs per document: its features and those of the context."""
        return self.n_features + len(self.context_names)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the features and of the context; none if features have no names and there is no context."""
        return (*self.named_features, *self.context_names) if self.context_names else self.feature_names

    @property
    def named_features(self) -> tuple[str, ...]:
        """Names of the features; their numbers if they have no names."""
        return self.feature_names or tuple(f"feature_{number}" for number in range(self.n_features))


@dataclass(frozen=True, eq=False)
class ClickLog(RowFields, LogShape, Displayed):
    """Shown lists with counted clicks. Build one with `from_arrays`, `from_table`, `from_parquet` or `read_log`.

    >>> ClickLog.from_arrays([[0.3], [0.1], [0.7]], clicks=[1, 0, 0], group=[2, 1])
    ClickLog(2 sessions in 2 joint lists, 1 clicks, 3 documents, 1 features, 2 positions)
    """

    feature_names: tuple[str, ...] = ()
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by name of the feature
    context_names: tuple[str, ...] = ()
    patterns: Patterns | None = None
    shuffled: Mapping[str, int] = field(default_factory=dict)  # number of positions that each intervention shuffles
    grades: Mapping[str, float] = field(default_factory=dict)  # default weight of each kind of feedback in training
    graded: bool = False  # feedback such as dwell time instead of 0/1 clicks
    origin: Lineage | None = None  # of the log on disk that it is, or is a part of; None: it was never on disk

    def __post_init__(self) -> None:
        def default(name: str, value: Callable[[], NDArray]) -> None:
            if getattr(self, name) is None:
                object.__setattr__(self, name, value())

        places = np.arange(self.versions.shape[-1], dtype=np.int16)
        default("positions", lambda: np.where(self.mask, places, np.int16(0)))
        default("version_documents", lambda: np.arange(len(self.features)))
        n_documents = int(self.version_documents.max(initial=-1)) + 1
        default("document_ids", lambda: np.arange(n_documents))
        default("document_queries", lambda: _queries_by_lists(self.documents, self.mask, n_documents))
        default("query_ids", lambda: np.arange(int(self.document_queries.max(initial=-1)) + 1))
        if self.context is None or not self.context.size:
            object.__setattr__(self, "context", np.zeros((len(self.versions), len(self.context_names)), np.float32))
        check_log(self)

    @property
    def n_lists(self) -> int:
        return self.versions.shape[0]

    @property
    def n_docs(self) -> int:
        """Width of the padded lists."""
        return self.versions.shape[1]

    @property
    def n_features(self) -> int:
        """Features of a document; `n_inputs` counts those of the context as well."""
        return self.features.shape[1]

    @property
    def documents(self) -> NDArray:
        """Document at each place, `[lists, docs]`; 0 in padding."""
        if not self.features_change:
            return self.versions
        return np.where(self.mask, self.version_documents[self.versions], 0)

    @property
    def n_documents(self) -> int:
        return len(self.document_ids)

    @property
    def features_change(self) -> bool:
        """Whether a document has more than one version."""
        return len(self.features) != len(self.document_ids)

    @property
    def version_queries(self) -> NDArray[np.int64]:
        """Number of each version's query, `[versions]`."""
        return self.document_queries[self.version_documents] if self.features_change else self.document_queries

    @property
    def n_positions(self) -> int:
        """Number of positions: one more than the largest position shown."""
        return int(self.positions[self.mask].max(initial=-1)) + 1

    @property
    def n_sessions(self) -> float:
        return float(self.sessions.sum(dtype=np.float64))

    @property
    def n_clicks(self) -> float:
        return float(self.clicks.sum(dtype=np.float64))

    @property
    def joint(self) -> bool:
        """Whether it is known which documents were clicked together."""
        return self.patterns is not None

    @property
    def compaction(self) -> float:
        """Sessions per row. It may be small in real logs; nothing relies on it being large."""
        return self.n_sessions / max(self.n_lists, 1)

    @property
    def queries(self) -> NDArray[np.int64]:
        """Number of each list's query, `[lists]`."""
        if not self.n_docs:
            return np.zeros(self.n_lists, dtype=np.int64)
        return self.document_queries[self.version_documents[self.versions[:, 0]]]

    @property
    def n_shards(self) -> int:
        """A log in memory is one shard."""
        return 1

    def shards(self, order: Sequence[int] | None = None) -> Iterator[ClickLog]:
        """The log itself, as the only shard of a log."""
        yield from [self] if order is None else [self for _ in order]

    def whole(self) -> ClickLog:
        """The log itself; `LogFolder.whole` reads all shards."""
        return self

    def without_features(self) -> ClickLog:
        """The lists without features of documents, which is enough for counts and curves."""
        kept = {name: self.categories[name] for name in self.context_names if name in self.categories}
        nothing = np.zeros((len(self.features), 0), np.float32)
        return replace(self, features=nothing, feature_names=(), categories=kept)

    @property
    def levels(self) -> dict[str, tuple[str, ...] | None]:
        """Names of the levels of each bias column; None: it holds numbers."""
        return {name: column.levels for name, column in self.bias.items()}

    def select(self, lists: ArrayLike) -> ClickLog:
        """The log of these lists only, by index or boolean mask; features are shared, not copied."""
        return self._kept({"list": chosen_numbers(lists, self.n_lists, "lists")})

    def of_queries(self, queries: ArrayLike) -> ClickLog:
        """The log of these queries only, by number or boolean mask, with all their documents, shown or not."""
        kept = np.zeros(len(self.query_ids), dtype=bool)
        kept[chosen_numbers(queries, len(self.query_ids), "queries")] = True
        documents = kept[self.document_queries]
        return self._kept(
            {
                "list": np.flatnonzero(kept[self.queries]),
                "query": kept,
                "document": documents,
                "version": documents[self.version_documents],
            }
        )

    def without_versions(self, versions: NDArray[np.bool_]) -> ClickLog:
        """The log without these feature rows, which no list may show, and without documents that had no others."""
        documents = np.zeros(self.n_documents, dtype=bool)
        documents[self.version_documents[~versions]] = True
        return self._kept({"version": ~versions, "document": documents})

    def _kept(self, kept: Mapping[str, NDArray]) -> ClickLog:
        """A part of the log.

        Args:
            kept: lists by number; queries, documents and versions by boolean mask.
        """
        lists = kept.get("list")
        mask = self.mask if lists is None else self.mask[lists]

        def part(entry: Field, values: NDArray) -> NDArray:
            chosen = lists if entry.in_lists else kept.get(entry.per)
            values = values if chosen is None else values[chosen]
            if entry.of is None or entry.of not in kept:
                return values
            numbers = (np.cumsum(kept[entry.of]) - 1)[values].astype(values.dtype)
            return np.where(mask, numbers, values.dtype.type(0)) if entry.per == "place" else numbers

        patterns = self.patterns
        if patterns is not None and lists is not None:
            patterns = _select_patterns(patterns, lists, self.n_lists)
        return replace(self, **changed_fields(vars(self), part), patterns=patterns)

    def between(self, since: int | None = None, until: int | None = None) -> ClickLog:
        """The log of the lists shown from one time to before another, in microseconds since 1970.

        A log that counts per period is cut by the start of the period, any other log by the earliest showing of a list.
        """
        kept = np.ones(self.n_lists, dtype=bool)
        kept &= True if since is None else self.times >= since
        kept &= True if until is None else self.times < until
        return self.select(kept)

    @property
    def times(self) -> NDArray[np.int64]:
        """The start of the period of each list, or the time of its first showing, in microseconds since 1970."""
        times = self.periods if self.periods is not None else self.first_shown
        if times is None:
            raise ValueError("the log has no times: ingest it with --time and --period day, or time= and period=")
        return times

    def weighted(self, weights: NDArray) -> ClickLog:
        """The log with counts of each list multiplied by a weight, e.g. to give less weight to older lists."""
        weights = np.asarray(weights, dtype=np.float64)
        if weights.shape != (self.n_lists,) or not (np.isfinite(weights) & (weights > 0)).all():
            raise ValueError(f"weights have shape {weights.shape}: pass one number above 0 per list")

        def times(entry: Field, counts: NDArray) -> NDArray:
            if entry.merge != "sum":
                return counts
            return compact_counts(counts * weights.reshape(-1, *[1] * (counts.ndim - 1)))

        patterns = self.patterns
        if patterns is not None:
            patterns = replace(patterns, sessions=compact_counts(patterns.sessions * weights[patterns.lists]))
        return replace(self, **changed_fields(vars(self), times), patterns=patterns)

    def with_context_as_features(self) -> ClickLog:
        """The same log with the context joined to the features: one version per shown (version, context) pair.

        This is for code that looks at a log document by document; training joins the context per batch instead.
        Versions that were never shown have a missing (NaN) context.
        """
        if not self.context_names:
            return self
        contexts, context = unique_rows(self.context)
        number = self.versions.astype(np.int64) * (len(contexts) + 1) + context[:, None]
        unshown = np.ones(len(self.features), dtype=bool)
        unshown[self.versions[self.mask]] = False
        none = np.flatnonzero(unshown) * (len(contexts) + 1) + len(contexts)
        pairs, place = np.unique(np.concatenate([number[self.mask], none]), return_inverse=True)
        version, context_row = np.divmod(pairs, len(contexts) + 1)
        values = np.concatenate([self.context[contexts], np.full((1, self.context.shape[1]), np.nan, np.float32)])
        versions = np.zeros_like(self.versions)
        versions[self.mask] = place[: len(place) - len(none)]
        return replace(
            self,
            features=np.concatenate([self.features[version], values[context_row]], axis=1),
            versions=versions,
            version_documents=self.version_documents[version],
            feature_names=self.input_names,
            context=np.zeros((self.n_lists, 0), dtype=np.float32),
            context_names=(),
        )

    def split(self, share: float, seed: int = 0) -> tuple[ClickLog, ClickLog]:
        """Two logs without a query in common; the second has about this share of the queries.

        With timestamps the second log has the most recent queries, by their first showing; without, a random sample.
        The sessions of a list are never split.
        """
        if not 0 < share < 1:
            raise ValueError(f"share must be between 0 and 1, got {share}")
        distinct, member = np.unique(self.queries, return_inverse=True)
        if len(distinct) < 2:
            raise ValueError("a log of one query cannot be split by query: validate on judged data instead")
        if self.first_shown is None:
            order = np.random.default_rng(seed).permutation(len(distinct))
        else:
            first = np.full(len(distinct), np.iinfo(np.int64).max)
            np.minimum.at(first, member, self.first_shown)
            order = np.argsort(first, kind="stable")
        n_held_out = min(max(1, round(share * len(distinct))), len(distinct) - 1)
        held_out = np.zeros(len(distinct), dtype=bool)
        held_out[order[len(distinct) - n_held_out :]] = True
        return self.select(~held_out[member]), self.select(held_out[member])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content of the log."""

        def place(name: str) -> tuple[int, bool]:
            return (*DIGESTED_FIRST, name).index(name), name == "interventions"

        names = sorted((entry.name for entry in FIELDS if entry.name not in NOT_DIGESTED), key=place)
        by_name = {name: [each for each in columns_of(self) if each.field.name == name] for name in names}
        parts = [each.values for name in names for each in by_name[name]]
        parts += [] if self.patterns is None else [self.patterns.lists, self.patterns.clicks, self.patterns.sessions]
        columns = [*by_name["bias"], *by_name["interventions"]]
        said = (self.input_names, dict(self.categories), [column.levels for column in columns], list(self.events))
        ids = (self.query_ids.tolist(), self.document_ids.tolist())
        about = repr((*said, list(self.bias), *ids, self.graded, dict(self.grades), dict(self.shuffled)))
        return array_digest(parts, [about])

    @property
    def lineage(self) -> Lineage:
        """The log that it came from; by the digest of its content if it was never on disk."""
        return Lineage(self.digest) if self.origin is None else self.origin

    def with_grades(self, weights: Mapping[str, float], combine: str = "strongest") -> ClickLog:
        """The log with graded feedback in place of clicks: each type of event counts with its weight.

        This is for training; diagnosis, and methods for clicks of 0 and 1, use the log as it is.

        Args:
            weights: by event type; clicks are `click`. Types that are not named do not count.
            combine: strongest (of the events on an impression, the one with the largest weight counts) or sum. A log
                stores counts, not single showings: "strongest" is exact for lists that were shown once, and if stronger
                events imply all weaker ones, as a purchase implies a click; otherwise it is a lower bound.

        >>> log = ClickLog.from_arrays([[1.0], [2.0]], clicks=[1, 1], group=[2])
        >>> log = replace(log, events={"purchase": np.array([[1.0, 0.0]])})
        >>> log.with_grades({"click": 1, "purchase": 5}).clicks.tolist()
        [[5.0, 1.0]]
        """
        if self.graded:
            raise ValueError("the log already holds graded feedback: weights apply only to logs with counts of events")
        kinds = {"click": self.clicks, **self.events}
        unknown = sorted(set(weights) - set(kinds))
        if unknown:
            raise ValueError(f"the log has no events of type '{unknown[0]}': choose from {', '.join(kinds)}")
        if combine not in ("strongest", "sum"):
            raise ValueError(f"unknown combine '{combine}': choose strongest or sum")
        if not weights or not all(np.isfinite(weight) and weight >= 0 for weight in weights.values()):
            raise ValueError("pass at least one event weight; weights must be finite and 0 or more")
        feedback = np.zeros(self.clicks.shape)
        as_strong = np.zeros(self.clicks.shape)  # showings with an event of this weight or more
        rising = sorted(weights.items(), key=lambda entry: entry[1])
        for (kind, weight), (_, below) in zip(reversed(rising), [*reversed(rising[:-1]), ("", 0.0)], strict=True):
            as_strong = np.maximum(as_strong, kinds[kind])
            feedback += as_strong * (weight - below) if combine == "strongest" else kinds[kind] * weight
        return replace(self.marginal(), clicks=compact_counts(feedback), graded=True, grades={})

    def intervened(self) -> ClickLog:
        """The lists that an intervention changed."""
        if self.interventions is None:
            raise ValueError("the log has no interventions: simulate some, or ingest the column with --intervention")
        return self.select(self.interventions.values > 0)

    def intervened_lists(self) -> ClickLog | None:
        """The same; None: there are none."""
        changed = None if self.interventions is None else self.intervened()
        return changed if changed is not None and changed.n_lists else None

    def marginal(self) -> ClickLog:
        """The same counts without the click patterns."""
        return replace(self, patterns=None)

    def __repr__(self) -> str:
        kind = "joint" if self.joint else "counted"
        versions = f" in {len(self.features):,} versions" if self.features_change else ""
        parts = [f"{len(self.context_names)} context features"] * bool(self.context_names)
        parts += [f"{counts.sum(dtype=np.float64):,.0f} {kind}" for kind, counts in self.events.items()]
        parts += ["recorded examination"] * (self.seen is not None)
        parts += [] if self.dwell is None else [f"{self.dwell.sum(dtype=np.float64):,.0f} seconds of dwell"]
        more = "".join(f", {part}" for part in parts)
        return (
            f"ClickLog({self.n_sessions:,.0f} sessions in {self.n_lists:,} {kind} lists, {self.n_clicks:,.0f} clicks, "
            f"{self.n_documents:,} documents{versions}, {self.n_features} features{more}, {self.n_positions} positions)"
        )

    def by_position(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Impressions and clicks at each position, `[positions]` each."""
        return self._at_positions(self.sessions[:, None]), self._at_positions(self.clicks)

    def _at_positions(self, values: NDArray) -> NDArray[np.float64]:
        """Values of places, `[lists, docs]`, summed by position."""
        places = np.where(self.mask, self.positions, 0).ravel()
        weights = np.where(self.mask, values, 0.0).ravel()
        return np.bincount(places, weights=weights, minlength=self.n_positions).astype(np.float64)

    def click_rates(self) -> NDArray[np.float64]:
        """Clicks per impression at each position, `[positions]`."""
        impressions, clicks = self.by_position()
        return clicks / np.maximum(impressions, 1e-9)

    def screen(self) -> Screen:
        impressions, clicks = self.by_position()
        shown = np.maximum(impressions, 1e-9)
        columns = {"impressions": (impressions, ",.0f"), "clicks": (clicks, ",.0f")}
        columns["clicks per impression"] = (clicks / shown, ".4f")
        if self.dwell is not None:
            columns["seconds per impression"] = (self._at_positions(self.dwell) / shown, ".1f")
        rows = [
            (str(place + 1), *(f"{values[place]:{form}}" for values, form in columns.values()))
            for place in range(len(impressions))
        ]
        notes = ["Positions count from 1 here, and from 0 in the log"]
        return Screen(repr(self), ("position", *columns), rows, notes, left=0)

    def plot(self, ax: Any = None) -> Any:
        """Plot clicks per impression at each position; positions count from 1."""
        axes = new_axes(ax)
        axes.plot(np.arange(1, self.n_positions + 1), self.click_rates(), "o-", color="black")
        axes.set(xlabel="position", ylabel="clicks per impression", ylim=(0, None))
        return axes

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        clicks: ArrayLike,
        group: ArrayLike | None = None,
        position: ArrayLike | None = None,
        sessions: ArrayLike | None = None,
        *,
        query: Any = None,
        weight: ArrayLike | None = None,
        graded: bool = False,
    ) -> ClickLog:
        """A log from arrays with one row per shown document, as in LightGBM; every list is its own query.

        Args:
            X: a matrix or table of features; the columns of a table name the features, and text is a category.
            clicks: 0 or 1 per row, counts with `sessions`, feedback such as dwell time if `graded`.
            group: number of rows per list, list after list.
            position: position of each row, from 0; default: the rows of a list are in shown order.
            sessions: number of times each list was shown, if clicks are counts.
            query: instead of `group`, the list id of each row, in any order.
            weight: weight of each list's single session, if sessions have different weights.
        """
        return cls(**fields_from_arrays(X, clicks, group, position, sessions, query, weight, graded=graded))

    @classmethod
    def from_table(cls, table: Any, **columns: Any) -> ClickLog:
        """A log from a pyarrow, pandas or polars table with one row per impression.

        Args:
            session: column that distinguishes one showing of a page from the next; a session may hold several queries.
            features: feature columns; default: every numeric column that no other argument names. Text becomes
                categories, an empty cell is a missing value, and a document has one version per distinct feature row.
            bias: columns besides position that may change examination; text and integers are levels.
            policy_score: column with the score by which the document was ranked.
            display_probability: column with the probability that a stochastic ranker showed the document at this
                position, above 0; empty: not recorded. The log stores the harmonic mean over the sessions of a list.
            intervention: column that names the intervention that changed the order; `none` for no intervention.
            sessions: column with the number of times the list was shown, if clicks are counts; such a log is not joint.
            weight: column with the weight of the session, if sessions have different weights.
            time: column with the time of the showing, a timestamp or microseconds since 1970.
            context: feature columns that are the same for all documents of a result page, such as device or hour.
            events: columns that count other feedback, such as add-to-carts and purchases.
            seen: column with recorded examination of the document (0 or 1, or seconds); empty: not recorded.
            dwell: column with the seconds that the user spent on the document; empty: 0. They are summed over sessions.
            period: hour, day, week or month: count lists separately per period, so that you can cut windows later.
            first_position: index of the first position, 0 or 1.
            graded: `click` holds feedback such as dwell time instead of 0 and 1.
            joint: keep which documents were clicked together.
        """
        return cls(**fields_from_table(table, TableColumns(**columns)))

    @classmethod
    def from_parquet(cls, path: str | Path, **columns: Any) -> ClickLog:
        """A log from a parquet file, or a folder of them, with one row per impression; arguments as in `from_table`."""
        try:
            table = pq.read_table(path)
            table.validate(full=True)  # a damaged file may have codes of categories that are not there
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{path} does not exist: pass a parquet file, or a folder of them") from error
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ValueError(f"{path} cannot be read as parquet: {error}") from error
        try:
            return cls.from_table(table, **columns)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def to_table(self, *, features: bool = False) -> pa.Table:
        """A pyarrow table with one row per shown document.

        Columns: list (its number), query, document, position, clicks, and sessions of the list; if the log has them,
        policy_score, display_probability, intervention, first_shown, period, seen and seen_sessions; one column per
        event type, per bias column and, with `features`, per feature and context feature. The table does not say which
        documents were clicked together. `from_table(..., session="list", click="clicks", sessions="sessions")` reads it
        back.
        """
        return log_to_table(self, features=features)

    def to_pandas(self, *, features: bool = False) -> Any:
        """The table of `to_table` as a pandas data frame."""
        return self.to_table(features=features).to_pandas()


def _queries_by_lists(documents: NDArray, mask: NDArray[np.bool_], n_documents: int) -> NDArray[np.int64]:
    """The query of each document if none is given: lists that share a document answer the same query."""
    n_lists = len(documents)
    lists = np.repeat(np.arange(n_lists), mask.sum(1))
    links = coo_array(
        (np.ones(len(lists), dtype=bool), (lists, documents[mask] + n_lists)), shape=(n_lists + n_documents,) * 2
    )
    _, part = connected_components(links, directed=False)
    queries = part[n_lists:].astype(np.int64)
    shown = np.zeros(n_documents, dtype=bool)
    shown[documents[mask]] = True
    return np.where(shown, queries, 0)  # a document that was never shown goes to query 0


def _select_patterns(patterns: Patterns, rows: NDArray, n_lists: int) -> Patterns:
    offsets = np.searchsorted(patterns.lists, np.arange(n_lists + 1))
    chosen, new_offsets = ragged_rows(offsets, rows)
    owner = np.repeat(np.arange(len(rows)), np.diff(new_offsets))
    return Patterns(lists=owner, clicks=patterns.clicks[chosen], sessions=patterns.sessions[chosen])
