"""The tables of quality: changes since the last accepted table, what counts as a fall, and the distance to the grid."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quality_runs import METRIC, OPPONENT, PLACES, key_of
from row_file import Row

LEAST_FALL = 0.01  # of nDCG@10
ERRORS = 2.0  # standard errors that a fall exceeds, too
CLOSE = 0.005  # of nDCG@10: a point of the grid this near the best is as good

Cell = Mapping[int, Row]  # rows of a method on a log by seed
Cells = Mapping[tuple[str, str], Cell]


@dataclass(frozen=True)
class Change:
    """The paired difference to the accepted table, with its standard error over seeds."""

    mean: float
    error: float

    @property
    def fell(self) -> bool:
        return self.mean < -LEAST_FALL and -self.mean > ERRORS * self.error

    def __str__(self) -> str:
        size = "failed" if math.isinf(self.mean) else f"{self.mean:+.4f} ± {self.error:.4f}"
        return f"{size}{' FELL' if self.fell else ''}"


def cells_of(rows: Iterable[Row]) -> dict[tuple[str, str], dict[int, Row]]:
    """Rows by log and method."""
    cells: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        cells.setdefault((row["log"], row["method"]), {})[row["seed"]] = row
    return cells


def changes(now: Cells, accepted: Cells) -> dict[tuple[str, str], Change]:
    """The change of every cell that both tables have.

    One seed has no standard error of its own: it gets the standard deviation over seeds of the other cells.
    """
    pairs = {cell: _paired(now[cell], accepted[cell]) for cell in now if cell in accepted}
    several = [statistics.variance(each) for each in pairs.values() if len(each) > 1 and all(map(math.isfinite, each))]
    usual = math.sqrt(statistics.mean(several)) if several else 0.0
    return {cell: _change(differences, usual) for cell, differences in pairs.items() if differences}


def _paired(now: Cell, accepted: Cell) -> list[float]:
    """Differences of the seeds that both have; minus infinity where a training now fails."""
    before = {seed: row[METRIC] for seed, row in accepted.items() if seed in now and row[METRIC] is not None}
    return [-math.inf if now[seed][METRIC] is None else now[seed][METRIC] - value for seed, value in before.items()]


def _change(differences: Sequence[float], usual: float) -> Change:
    if not all(map(math.isfinite, differences)):
        return Change(-math.inf, 0.0)
    spread = statistics.stdev(differences) if len(differences) > 1 else usual
    return Change(statistics.mean(differences), spread / math.sqrt(len(differences)))


def fallen(now: Cells, accepted: Cells) -> list[tuple[str, str]]:
    """Cells that fell; LightGBM is shown beside our methods, and not judged."""
    return [cell for cell, change in changes(now, accepted).items() if change.fell and cell[1] != OPPONENT]


def table_text(now: Cells, accepted: Cells) -> str:
    """The table, aligned, log by log."""
    found = changes(now, accepted)
    curve = "examination at " + ", ".join(map(str, PLACES))
    lines = [f"{'':20}{METRIC:>8}  {'less accepted':<23}{curve:<26}{'steps':>6}{'seconds':>9}  warnings"]
    for log in dict.fromkeys(log for log, _ in now):
        lines.append(log)
        lines += [
            f"  {method:<18}{_mean(cell.values(), METRIC, '.4f'):>8}  {found.get((where, method), '')!s:<23}"
            f"{_curve(cell):<26}{_mean(cell.values(), 'steps', ',.0f'):>6}"
            f"{_mean(cell.values(), 'cpu_seconds', '.1f'):>9}  {_warned(cell)}"
            for (where, method), cell in now.items()
            if where == log
        ]
    return "\n".join(lines)


def markdown(now: Cells) -> str:
    """nDCG@10 of each log and method for the docs, bold where it is .01 below raw clicks, * where training warned."""
    methods = list(dict.fromkeys(method for _, method in now))
    lines = [f"| log | {' | '.join(f'`{name}`' for name in methods)} |", "|---" * (1 + len(methods)) + "|"]
    for log in dict.fromkeys(log for log, _ in now):
        plain = _mean(now.get((log, "naive"), {}).values(), METRIC, "f")
        cells = [_spelled(now.get((log, name), {}), float(plain or "-inf")) for name in methods]
        lines.append(f"| {log} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _spelled(cell: Cell, plain: float) -> str:
    text = _mean(cell.values(), METRIC, ".3f").removeprefix("0") or ("failed" if cell else "–")
    fell = text[0] == "." and float(text) < plain - LEAST_FALL
    return f"{f'**{text}**' if fell else text}{' *' if any(row['warnings'] for row in cell.values()) else ''}"


def _mean(rows: Iterable[Row], name: str, form: str) -> str:
    values = [row[name] for row in rows if row.get(name) is not None]
    return format(statistics.mean(values), form) if values else ""


def _curve(cell: Cell) -> str:
    """The median over seeds, since a curve that ran away has no useful mean."""
    curves = [row["examination"] for row in cell.values() if row["examination"] is not None]
    return "  ".join(f"{statistics.median(values):.3g}" for values in zip(*curves, strict=True))


def _warned(cell: Cell) -> str:
    failed, warned = (sum(bool(row.get(name)) for row in cell.values()) for name in ("error", "warnings"))
    return ", ".join(f"{number} {word}" for number, word in ((failed, "failed"), (warned, "warned")) if number)


def read_accepted(path: Path) -> list[Row]:
    """Rows of the last accepted table; none if there is none yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def write_accepted(path: Path, rows: Iterable[Row]) -> None:
    """One row per line, in order, so that a change reads as such."""
    texts = [json.dumps(row, sort_keys=True) for row in sorted(rows, key=lambda row: key_of(row)[:3])]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(texts) + "\n]\n", encoding="utf-8")


@dataclass(frozen=True)
class Gap:
    """How far the default of a method is from the best point of the grid on a log, over the seeds that both have."""

    log: str
    method: str
    best: float
    steps: int
    rate: float
    default: float
    time: float  # of the default, relative to the fastest point close to the best

    @property
    def size(self) -> float:
        return self.best - self.default


def gaps(grid: Iterable[Row], defaults: Cells) -> list[Gap]:
    """Cells for which grid and default have seeds in common; a point that failed in a seed is no candidate."""
    points: dict[tuple[str, str], dict[tuple[int, float], dict[int, tuple[float, float]]]] = {}
    for row in grid:
        for steps, value, seconds in zip(row["steps"], row[METRIC], row["cpu_seconds"], strict=True):
            point = points.setdefault((row["log"], row["method"]), {}).setdefault((steps, row["rate"]), {})
            point |= {} if value is None else {row["seed"]: (value, seconds)}
    return [
        gap for cell, own in points.items() if cell in defaults and (gap := _gap(cell, own, defaults[cell])) is not None
    ]


def _gap(
    cell: tuple[str, str], points: Mapping[tuple[int, float], Mapping[int, tuple[float, float]]], default: Cell
) -> Gap | None:
    """None without a seed that the default and a point of the grid have."""
    known = {seed: row for seed, row in default.items() if row[METRIC] is not None}
    seeds = sorted(set(known) & {seed for values in points.values() for seed in values})
    whole = {point: [values[seed] for seed in seeds] for point, values in points.items() if set(seeds) <= set(values)}
    if not seeds or not whole:
        return None
    means = {point: tuple(map(statistics.mean, zip(*values, strict=True))) for point, values in whole.items()}
    (steps, rate), (best, _) = max(means.items(), key=lambda entry: entry[1][0])
    fastest = min(seconds for value, seconds in means.values() if value >= best - CLOSE)
    own = [statistics.mean(known[seed][name] for seed in seeds) for name in (METRIC, "cpu_seconds")]
    return Gap(*cell, best, steps, rate, own[0], own[1] / fastest)


def gaps_text(found: Sequence[Gap]) -> str:
    """Each gap, and the mean, the largest and the median time of each method."""
    lines = [f"{'':20}{'best':>8}{'steps':>8}{'rate':>6}{'default':>9}{'gap':>9}{'time':>7}"]
    for method in dict.fromkeys(gap.method for gap in found):
        own = [gap for gap in found if gap.method == method]
        lines.append(
            f"{method}: mean gap {statistics.mean(gap.size for gap in own):+.4f}, largest "
            f"{max(gap.size for gap in own):+.4f}, median time {statistics.median(gap.time for gap in own):.2f} x"
        )
        lines += [
            f"  {gap.log:<20.18}{gap.best:>6.4f}{gap.steps:>8,}{gap.rate:>6.2g}{gap.default:>9.4f}{gap.size:>+9.4f}"
            f"{gap.time:>6.2f}x"
            for gap in own
        ]
    return "\n".join(lines)
