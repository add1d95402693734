"""Simulate: from judged data, a logging policy and a user model to a click log and its truth.

Clicks that are independent given the list are drawn as counts (binomial), so that a thousand sessions cost as much as
one. With `joint`, and for users whose clicks depend on each other, single sessions are drawn and their distinct click
patterns kept. Every block of a fixed number of queries has its own random streams, one for the shown lists and one for
the clicks: the same seed gives the same log for any number of threads and any chunk size, and the same lists for any
user. (For one version of numpy: its streams may change with a release.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from unskew.data.checks import check_features
from unskew.data.clicks.build import compact_counts
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn, Patterns
from unskew.data.inputs import Judged, Place, as_judged
from unskew.data.judged.judged_set import JudgedSet
from unskew.reporting.terminal import Follow, counting_progress, followed
from unskew.simulation.browsing import GradedUser, Shown, User, count_sessions
from unskew.simulation.display import after_interventions, check_interventions, intervene
from unskew.simulation.independent import RealClick
from unskew.simulation.patterns import Counted, Record, count_patterns
from unskew.simulation.policies import POLICIES, Policy, make_policy
from unskew.simulation.showings import Candidates, Index, Showings
from unskew.simulation.truth import Simulation, Truth, check_target
from unskew.simulation.users import USERS, describe, make, make_user

# These constants decide what is drawn: changing one changes every seeded log.
QUERIES_PER_BLOCK = 256
SHOWING, CLICKING, RECORDING = 0, 1, 2
COUNTS = ("clicks", "sessions", "seen", "seen_sessions")  # columns of a log
CHUNK = 8_192  # queries processed at a time

Progress = Callable[[int, int], None]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Design:
    """The arguments of `simulate` that say what is shown and what is logged."""

    n_shown: int = 10
    interventions: Mapping[str, float] | None = None
    joint: bool = False
    drop_clickless: bool = False
    record: Mapping[str, Any] | Record | None = None
    display_probabilities: bool = False
    seed: int = 0


@dataclass(frozen=True, eq=False)
class World:
    """Everything needed to simulate a block of queries."""

    judged: JudgedSet
    policy: Policy
    user: User
    design: Design
    scores: NDArray[np.float64]  # [documents] or [documents, loggers]
    traits: NDArray[np.float64] | None  # [documents]
    sessions: Index  # [queries]
    joint: bool
    record: Record | None
    key: tuple[int, ...]  # key of its random streams: the seed, and whatever else distinguishes draws

    @property
    def n_shown(self) -> int:
        return self.design.n_shown

    @property
    def interventions(self) -> Mapping[str, float]:
        return self.design.interventions or {}

    def stream(self, purpose: int, block: int) -> Generator:
        return np.random.default_rng((*self.key, purpose, block))

    def about(self) -> dict[str, object]:
        """The settings of the simulation, stored with the truth."""
        return {
            "data": self.judged.name,
            "user": describe(USERS, self.user),
            "policy": describe(POLICIES, self.policy),
            "interventions": dict(self.interventions),
            "n_shown": self.n_shown,
            "drop_clickless": self.design.drop_clickless,
            "record": None if self.record is None else asdict(self.record),
            **({"display_probabilities": True} if self.design.display_probabilities else {}),
            "seed": self.design.seed,
        }


@dataclass(frozen=True, eq=False)
class _Part:
    """Lists of a block of queries."""

    columns: dict[str, NDArray]  # of the log, [lists] or [lists, shown], by name
    truth: dict[str, NDArray]
    counted: Counted


def simulate(
    judged: Judged,
    policy: str | Policy | type[Policy] | Mapping[str, Any] = "svm",
    user: str | User | type[User] | Mapping[str, Any] = "position_based",
    *,
    sessions: int | ArrayLike = 128,
    n_shown: int = 10,
    interventions: Mapping[str, float] | None = None,
    joint: bool = False,
    drop_clickless: bool = False,
    record: Mapping[str, Any] | Record | None = None,
    display_probabilities: bool = False,
    seed: int = 0,
    train: Judged | None = None,
    threads: int = 2,
    chunk: int = CHUNK,
    out: Place | None = None,
    overwrite: bool = False,
    progress: Follow = True,
) -> Simulation:
    """Simulate users who click on judged data, for a click log whose truth is known.

    Use it for a log with known bias; use `ingest` for real events.

    Args:
        judged: judged queries, a data set of the catalogue (its training split), or a LETOR file.
        policy: the logging policy, its name in `POLICIES`, or a table of its name and options;
            fitted to `train` unless it is fitted already.
        user: the user model, its name in `USERS`, or a table of its name and options;
            fitted to `train` unless it is fitted already.
        sessions: sessions per query: one number for all queries, or one per query.
        n_shown: documents shown per list; shorter lists are padded.
        interventions: share of the sessions to randomize, by name of the intervention.
        joint: keep which documents were clicked together.
        drop_clickless: leave out sessions without clicks; implies `joint`.
        record: how examination is recorded (`share`, `misses`, `false_alarms`, `interest`); None: no record.
        display_probabilities: log the probability with which the policy shows each document at its position.
        train: judged data to fit policy and user to; default: `judged` itself.
        chunk: queries processed at a time; neither it nor `threads` changes the log.
        out: folder for the log; the truth is written next to it.
        progress: False for no bar, or a function that receives the number of finished and of all sessions.

    >>> import unskew
    >>> made = unskew.simulate("world:tiny", user="trust", sessions=4, interventions={"shuffle": 0.5}, progress=False)
    >>> made.log.n_positions
    10
    """
    check_at_least(threads=(threads, 1), chunk=(chunk, 1))
    if out is not None:
        check_target(out, overwrite=overwrite)
    design = Design(n_shown, interventions, joint, drop_clickless, record, display_probabilities, seed)
    fitted_to = None if train is None else as_judged(train, "train")
    world = new_world(as_judged(judged, "train"), policy, user, sessions, design, fitted_to)
    with followed(progress, counting_progress, "simulate", "sessions") as report:
        simulation = assemble(world, list(draw_all(world, threads, chunk, report)))
    if out is not None:
        simulation.save(out, overwrite=overwrite)
    return simulation


def new_world(
    judged: JudgedSet,
    policy: str | Policy | type[Policy] | Mapping[str, Any],
    user: str | User | type[User] | Mapping[str, Any],
    sessions: int | ArrayLike,
    design: Design,
    train: JudgedSet | None = None,
) -> World:
    """Everything that a simulation draws from, checked and fitted; arguments as in `simulate`."""
    policy, user, record = make_policy(policy), make_user(user), design.record
    showings = _check(judged, user, sessions, design)
    train = judged if train is None else train
    _warn_of_scale(user, max(judged.max_grade, train.max_grade))
    policy = policy if policy.fitted else policy.fit(train)
    user = user if user.fitted else user.fit(train)
    return World(
        judged=judged,
        policy=policy,
        user=user,
        design=design,
        scores=policy.scores(judged),
        traits=user.document_traits(judged),
        sessions=showings,
        joint=design.joint or design.drop_clickless or not user.independent,
        record=make("record", {"looks": Record}, "looks", record) if isinstance(record, Mapping) else record,
        key=(design.seed,),
    )


def check_at_least(**values: tuple[int, int]) -> None:
    """Refuse numbers below their minimum; each value is given with its minimum."""
    for name, (value, least) in values.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


def _check(judged: JudgedSet, user: User, sessions: int | ArrayLike, design: Design) -> Index:
    """Refuse what cannot be simulated, before any work is done; returns the sessions of each query."""
    n_shown = design.n_shown
    check_at_least(n_shown=(n_shown, 1), seed=(design.seed, 0))
    check_interventions(design.interventions or {})
    if not judged.n_documents:
        raise ValueError("the judged set has no documents: there is nothing to show")
    if n_shown > judged.sizes.max():
        raise ValueError(
            f"n_shown is {n_shown}, but no query has more than {judged.sizes.max()} documents: show at most that many"
        )
    showings = np.asarray(sessions)
    if showings.ndim > 1 or (showings.ndim == 1 and len(showings) != judged.n_queries):
        raise ValueError(f"sessions has shape {showings.shape}: pass one number, or one per query, {judged.n_queries}")
    if showings.dtype.kind not in "iu" or (showings < 0).any() or not showings.any():
        raise ValueError(f"sessions must be whole numbers of 0 or more, and not all 0, got {showings}")
    user.check(judged.grades)
    check_features(judged.features)
    return np.broadcast_to(showings, (judged.n_queries,)).astype(np.int64)


def _warn_of_scale(user: User, highest: float) -> None:
    if isinstance(user, GradedUser) and highest < user.max_grade:
        logger.warning(
            "no grade above %g occurs, but max_grade is %g, so no document is certainly relevant: "
            "pass max_grade=%g if that is the scale",
            highest,
            user.max_grade,
            highest,
        )
    if isinstance(user, RealClick) and highest == 2 and len(user.rows) > 3:
        logger.warning("no grade above 2 occurs: pass rows=(0, 2, 4) if 2 is the highest grade of the scale")


def draw_all(world: World, threads: int = 1, chunk: int = CHUNK, progress: Progress | None = None) -> Iterator[_Part]:
    """Parts of all blocks in order, `chunk` queries at a time."""
    blocks = range(-(-world.judged.n_queries // QUERIES_PER_BLOCK))
    blocks_at_once = max(1, chunk // QUERIES_PER_BLOCK)
    done, total = 0, int(world.sessions.sum())
    with ThreadPoolExecutor(threads) as workers:
        for start in range(0, len(blocks), blocks_at_once):
            some = blocks[start : start + blocks_at_once]
            for block, part in zip(some, workers.map(lambda block: _draw_block(world, block), some), strict=True):
                done += int(world.sessions[_queries(world, block)].sum())
                if progress is not None:
                    progress(done, total)
                yield part


def _queries(world: World, block: int) -> slice:
    return slice(block * QUERIES_PER_BLOCK, min((block + 1) * QUERIES_PER_BLOCK, world.judged.n_queries))


def _draw_block(world: World, block: int) -> _Part:
    """Simulate one block of queries."""
    queries = np.arange(world.judged.n_queries)[_queries(world, block)]
    candidates = Candidates.of(world.judged, queries, world.scores)
    rng = world.stream(SHOWING, block)
    plan = world.policy.show(candidates, world.sessions[queries], world.n_shown, rng)
    lengths = np.minimum(candidates.sizes, world.n_shown)
    plan = intervene(plan, lengths[plan.queries], world.interventions, rng).merged()

    mask = np.arange(world.n_shown) < lengths[plan.queries][:, None]
    documents = np.where(mask, candidates.documents[plan.queries[:, None], plan.places], 0)
    scores = candidates.scores[plan.queries[:, None], plan.places]
    if scores.ndim == 3:
        scores = world.policy.shown_scores(scores, plan.loggers)
    shown = Shown(
        grades=world.judged.grades[documents].astype(np.float64),
        mask=mask,
        traits=None if world.traits is None else world.traits[documents],
    )
    expected = world.user.expect(shown)
    rng = world.stream(CLICKING, block)
    if world.joint:
        counted = count_patterns(world.user, shown, plan.sessions, rng, drop_clickless=world.design.drop_clickless)
    else:
        clicks, seen = count_sessions(expected, plan.sessions, rng)
        counted = Counted(clicks=clicks, seen=seen, sessions=plan.sessions)
    columns: dict[str, NDArray] = {"versions": documents.astype(np.int32), "mask": mask}
    columns |= {"clicks": counted.clicks, "sessions": counted.sessions, "interventions": plan.interventions}
    columns["policy_scores"] = np.where(mask, scores, 0.0).astype(np.float32)
    if world.record is not None:
        recorded = world.record.draw(counted, expected.attraction, mask, world.stream(RECORDING, block))
        columns |= dict(zip(("seen", "seen_sessions"), recorded, strict=True))
    if world.design.display_probabilities:
        columns["display_probabilities"] = _chances(world, candidates, plan, mask)
    chances = {"examination": expected.examination, "attraction": expected.attraction}
    chances |= {"click_probability": expected.clicks}
    chances |= {} if expected.clicks_on_top is None else {"click_probability_on_top": expected.clicks_on_top}
    truth = {name: values.astype(np.float32) for name, values in chances.items()}
    return _Part(columns, {**truth, "seen": counted.seen, "loggers": plan.loggers}, counted)


def _chances(world: World, candidates: Candidates, plan: Showings, mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Probability of each shown document to be shown at its position, under the policy and the interventions."""
    lengths = np.minimum(candidates.sizes, world.n_shown)
    found = after_interventions(world.policy.display(candidates, world.n_shown), lengths, world.interventions)
    chances = found[plan.queries[:, None], plan.places, np.arange(world.n_shown)]
    return np.where(mask, np.clip(chances, np.finfo(np.float32).tiny, 1.0), 0.0).astype(np.float32)


def assemble(world: World, parts: list[_Part]) -> Simulation:
    """Join all parts into one log and one truth."""
    kept = np.concatenate([part.counted.sessions for part in parts]) > 0  # a list may have lost all its sessions
    if not kept.any():
        raise ValueError("no session is left in the log: with drop_clickless, simulate more sessions")

    def gathered(blocks: list[dict[str, NDArray]]) -> dict[str, NDArray]:
        return {name: np.concatenate([block[name] for block in blocks])[kept] for name in blocks[0]}

    judged = world.judged
    columns, truth = gathered([part.columns for part in parts]), gathered([part.truth for part in parts])
    interventions = BiasColumn(columns.pop("interventions"), ("none", *world.interventions))
    counts = {name: compact_counts(columns[name]) for name in COUNTS if name in columns}
    of_lists: dict[str, Any] = columns | counts
    log = ClickLog(
        **of_lists,
        features=judged.features,
        document_queries=np.repeat(np.arange(judged.n_queries), judged.sizes),
        query_ids=judged.query_ids,
        document_ids=judged.document_ids,
        patterns=_patterns(world, parts, kept) if world.joint else None,
        bias=world.policy.columns(truth["loggers"], columns["mask"]),
        interventions=interventions if world.interventions else None,
    )
    curve = world.user.position_curve(world.n_shown)
    return Simulation(log, Truth(**truth, position_curve=curve, about=world.about()))


def _patterns(world: World, parts: list[_Part], kept: NDArray[np.bool_]) -> Patterns:
    """Click patterns of all parts, with lists numbered as in the log."""
    first_list = np.cumsum([0, *(len(part.counted.sessions) for part in parts)])
    new_number = np.cumsum(kept) - 1
    lists = np.concatenate([part.counted.pattern_lists + start for part, start in zip(parts, first_list, strict=False)])
    return Patterns(
        lists=new_number[lists],
        clicks=np.concatenate([part.counted.pattern_clicks(world.n_shown) for part in parts]),
        sessions=compact_counts(np.concatenate([part.counted.pattern_sessions for part in parts])),
    )
