"""What real clicks say: writes docs/real_people.md, every number of it, from the four public logs of people.

    python benchmarks/real_people.py

Takes about two minutes of one core. No network is trained. A log that is not in UNSKEW_DATA is an error: the page is
written from all four or not at all.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from click_models_mouse import MODELS, examination, fitted, relative
from label_free import agreement_rows
from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.catalogue import data_folder
from unskew.data.public_logs.id_pages import SPLITS, IdPages, read_pages
from unskew.diagnosis.click_kinds import click_matrix_without_grades
from unskew.diagnosis.click_matrix import click_matrix
from unskew.diagnosis.click_rank import click_rank, trust_bias
from unskew.diagnosis.coupling import coupling
from unskew.evaluation.click_prediction import ClickPrediction, paired_difference, predict_clicks
from unskew.propensities.curve import Curve, NotIdentified
from unskew.propensities.estimate import estimate_propensities

DOCS = Path(__file__).parents[1] / "docs"
LOGS = ("naver-clara2", "sogou-mouse", "trec-session-2014")
ESTIMATORS = ("pivot", "adjacent_chain", "all_pairs")
TOP = 5  # positions of the tests that are also made on the top of the list
N_SPLITS = 20  # of documents into halves, by chance
N_PERMUTATIONS = 500
N_POSITIONS = 10
LARGEST = 1_000  # an end of an interval beyond it says nothing
Matrix = NDArray[np.float64]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def number(value: float, digits: int = 2) -> str:
    if value > LARGEST:
        return "∞"
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


def size_row(name: str, pages: IdPages) -> list[str]:
    """What a log holds."""
    pairs = np.stack([np.repeat(pages.query_ids, N_POSITIONS), pages.document_ids.reshape(-1)], axis=1)
    places = np.concatenate([pairs, np.tile(np.arange(N_POSITIONS), pages.n_pages)[:, None]], axis=1)
    documents, n_places = np.unique(np.unique(places, axis=0)[:, :2], axis=0, return_counts=True)
    counts = [pages.n_pages, len(np.unique(pages.query_ids)), len(documents), (n_places > 1).sum(), pages.clicks.sum()]
    return [f"`{name}`", *(f"{int(count):,}" for count in counts), number(float((pages.clicks.sum(1) == 0).mean()))]


def curve_cells(curve: Curve) -> list[str]:
    """Values below the top with their intervals; a dash where the estimator says nothing."""
    found = dict(zip(curve.positions.tolist(), zip(curve.values, curve.low, curve.high, strict=True), strict=True))
    cells = []
    for place in range(1, N_POSITIONS):
        known = found.get(place)
        text = "–" if known is None else f"{number(known[0])} ({number(known[1])}–{number(known[2])})"
        cells.append(text)
    return cells


def longest_curve(log: ClickLog, name: str) -> tuple[Curve | None, int]:
    """The curve of as many top positions as the estimator can tell, and how many."""
    for n_top in range(N_POSITIONS, 1, -1):
        try:
            return estimate_propensities(
                log, name, weighting="shared", counted=log.mask & (log.positions < n_top)
            ), n_top
        except NotIdentified:
            continue
    return None, 0


def curve_rows(pages: IdPages) -> tuple[list[list[str]], dict[str, Matrix], dict[str, ClickPrediction]]:
    """Examination relative to the top by everything that can tell it; the curves and predictions by name."""
    log = pages.log()
    rates = pages.clicks.mean(axis=0, dtype=np.float64)
    rows = [["click rate", *(number(rate / rates[0]) for rate in rates[1:])]]
    curves = {"click rate": rates / rates[0]}
    for name in ESTIMATORS:
        curve, n_top = longest_curve(log, name)
        if curve is not None:
            rows.append([f"`{name}`", *curve_cells(curve)])
            curves |= {name: curve.values} if n_top == N_POSITIONS else {}
    learning, test = (pages.select(pages.split == SPLITS.index(part)) for part in ("train", "test"))
    predictions = {}
    for name in MODELS:
        method, vocabulary = fitted(name, learning)
        curves[name] = relative(examination(method, vocabulary, pages))
        predictions[name] = predict_clicks(method, vocabulary.encode(test.log()))
        rows.append([f"`{name}`", *(number(value) for value in curves[name][1:])])
    if pages.hovered is not None:
        seen = estimate_propensities(log, "seen")
        curves["hovered"] = seen.values
        rows.append(["**hovered**", *curve_cells(seen)])
    return rows, curves, predictions


def prediction_rows(predictions: dict[str, dict[str, ClickPrediction]]) -> list[list[str]]:
    """Log-likelihood per page of every model less that of `pbm` on the same test pages, by log."""
    rows = []
    for name in MODELS:
        pairs = [paired_difference(found[name], found["pbm"]) for found in predictions.values()]
        cells = [f"{pair.value:+.3f} ({pair.low:+.3f} to {pair.high:+.3f})" for pair in pairs]
        rows.append([f"`{name}`", *(cells if name != "pbm" else ["–"] * len(cells))])
    return rows


def hovered_impressions(pages: IdPages) -> ClickLog:
    """Only what the mouse was over: where hovering is all of examination, clicks there know no position."""
    assert pages.hovered is not None
    rows, columns = np.nonzero(pages.hovered == 1)
    entries = {
        "session": rows,
        "query": pages.query_ids[rows],
        "document": pages.document_ids[rows, columns],
        "position": columns,
        "click": pages.clicks[rows, columns],
    }
    return ClickLog.from_table(pa.table(entries), features=())


def hover_depends(pages: IdPages) -> tuple[float, float]:
    """Spread of hover shares over queries at one position beyond chance, and its p-value by permuting pages."""
    assert pages.hovered is not None
    known = np.isfinite(pages.hovered[:, 0])
    hovered = pages.hovered[known].astype(np.float64)
    _, query = np.unique(pages.query_ids[known], return_inverse=True)
    sizes = np.bincount(query)
    excess = hovered - hovered.mean(axis=0)

    def spread(rows: Matrix) -> float:
        sums = np.stack([np.bincount(query, column) for column in rows.T], axis=1)
        return float((sums**2 / sizes[:, None]).sum())

    rng = np.random.default_rng(0)
    own = spread(excess)
    others = np.array([spread(rng.permutation(excess)) for _ in range(N_PERMUTATIONS)])
    return own / float(others.mean()), float((1 + (others >= own).sum()) / (1 + N_PERMUTATIONS))


def kind_rows(log: ClickLog) -> list[list[str]]:
    """Rank test and trust of documents that moved, over several splits into halves."""
    rows = []
    for title, chosen in (("all positions", log.mask), (f"top {TOP}", log.mask & (log.positions < TOP))):
        ranks, slopes, signs, reason = [], [], [], ""
        for seed in range(N_SPLITS):
            try:
                matrix = click_matrix_without_grades(log, seed=seed, counted=chosen)
            except NotIdentified as error:
                reason = str(error).partition(":")[0]
                continue
            ranks.append(click_rank(matrix, n_bootstrap=200, seed=seed).rates.p_values[0])
            trust = trust_bias(matrix, level=0.95)
            slopes.append(trust.slope)
            signs.append(trust.sign)
        if not ranks:
            rows.append([title, f"cannot tell: {reason}", "", ""])
            continue
        rejected = sum(p < 0.05 for p in ranks)
        agreed = ", ".join(f"{sign} {signs.count(sign)}" for sign in dict.fromkeys(sorted(signs)))
        rows.append(
            [
                title,
                f"{rejected} of {len(ranks)} (median p {np.median(ranks):.2f})",
                f"{np.median(slopes):+.2f}",
                agreed,
            ]
        )
    return rows


def grade_rows(pages: IdPages) -> tuple[str, str]:
    """The rank test and coupling with NAVER's grades."""
    log, judged = pages.log(), pages.judged()
    assert judged is not None
    rank = click_rank(click_matrix(log, judged))
    known = np.isfinite(pages.grades).all(axis=1) if pages.grades is not None else np.zeros(0, dtype=bool)
    kept = pages.select(known)
    assert kept.grades is not None
    entries = {
        "session": np.repeat(np.arange(kept.n_pages), N_POSITIONS),
        "query": np.repeat(kept.query_ids, N_POSITIONS),
        "document": kept.document_ids.reshape(-1),
        "position": np.tile(np.arange(N_POSITIONS), kept.n_pages),
        "click": kept.clicks.reshape(-1),
        "grade": kept.grades.reshape(-1),
    }
    pulled = coupling(ClickLog.from_table(pa.table(entries), features=("grade",)))
    told = (
        f"strength {pulled.strength:.2f} ({pulled.low:.2f} to {pulled.high:.2f}), p = {pulled.p_value:.2f}, "
        f"{pulled.n_documents:,} documents of {pulled.n_queries:,} queries"
    )
    return rank.summary(), told


def swap_rows() -> list[list[str]]:
    """Examination of position 3 relative to 2 in the swap, by each document, with the error of a ratio."""
    path = data_folder() / "wikimedia-swap"
    [file] = sorted(path.glob("*.tsv"))
    with file.open(encoding="utf-8") as stream:
        entries = [row for row in csv.DictReader(stream, delimiter="\t") if row["what"] == "clicked_serp_share"]
    clicks = {(row["group"], row["position"]): float(row["rate_percent"]) / 100 for row in entries}
    searches = {row["group"]: float(row["searches"]) for row in entries}
    rows, logs = [], []
    for title, below, above in (
        ("production's 2nd", ("swapped", "3"), ("control", "2")),
        ("production's 3rd", ("control", "3"), ("swapped", "2")),
    ):
        ratio = clicks[below] / clicks[above]
        error = np.sqrt(sum((1 - clicks[key]) / (clicks[key] * searches[key[0]]) for key in (below, above)))
        low, high = (ratio * np.exp(sign * 1.96 * error) for sign in (-1, 1))
        rows.append([title, f"{number(ratio, 3)} ({number(low, 3)} to {number(high, 3)})"])
        logs.append((np.log(ratio), error))
    z = (logs[0][0] - logs[1][0]) / np.hypot(logs[0][1], logs[1][1])
    rows.append(["their ratio", f"{number(float(np.exp(logs[0][0] - logs[1][0])), 3)}, z = {z:.1f}"])
    return rows


def ratio_rows(curves: dict[str, dict[str, Matrix]]) -> list[list[str]]:
    """Examination of position 3 relative to 2 by every estimator on every log."""
    names = [name for name in dict.fromkeys(key for found in curves.values() for key in found) if name != "click rate"]
    rows = []
    for name in names:
        cells = [number(float(found[name][2] / found[name][1])) if name in found else "–" for found in curves.values()]
        rows.append([name if name == "hovered" else f"`{name}`", *cells])
    return rows


def draw(curves: dict[str, dict[str, Matrix]], path: Path) -> None:
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    for place, (name, found) in enumerate(curves.items()):
        axes = figure.add_subplot(1, len(curves), place + 1)
        for label, values in found.items():
            strong = label in ("hovered", "all_pairs")
            axes.plot(range(1, len(values) + 1), values, label=label, linewidth=2.5 if strong else 1)
        axes.set_title(name)
        axes.set_xlabel("position")
        axes.set_ylim(0, 1.05)
        axes.legend(fontsize=6)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    torch.set_num_threads(1)
    pages = {name: read_pages(name) for name in LOGS}
    parts: dict[str, str] = {"sizes": table(SIZES, [size_row(name, found) for name, found in pages.items()])}
    curves: dict[str, dict[str, Matrix]] = {}
    predictions: dict[str, dict[str, ClickPrediction]] = {}
    for name, found in pages.items():
        rows, curves[name], predictions[name] = curve_rows(found)
        parts[f"curves {name}"] = table(["", *map(str, range(2, N_POSITIONS + 1))], rows)
    draw(curves, DOCS / "figures" / "real-people.svg")
    sogou = pages["sogou-mouse"]
    flat, _ = longest_curve(hovered_impressions(sogou), "all_pairs")
    assert flat is not None
    parts["hovered only"] = table(["", *map(str, range(2, N_POSITIONS + 1))], [["`all_pairs`", *curve_cells(flat)]])
    ratio, p = hover_depends(sogou)
    parts["hover spread"] = f"{ratio:.2f} times what chance gives, p = {p:.3f}, {N_PERMUTATIONS} permutations of pages"
    parts["predictions"] = table(["model", *(f"`{name}`" for name in LOGS)], prediction_rows(predictions))
    parts["swap"] = table(["document", "θ₃/θ₂"], swap_rows())
    parts["ratios"] = table(["estimator", *(f"`{name}`" for name in LOGS)], ratio_rows(curves))
    kinds = [[f"`{name}`", *row] for name, found in pages.items() for row in kind_rows(found.log())]
    parts["kinds"] = table(["log", "positions", "rank 1 is rejected", "trust slope, median", "verdicts"], kinds)
    parts["rank by grade"], parts["coupling by grade"] = grade_rows(pages["naver-clara2"])
    (columns, *rankers), agreement = agreement_rows(pages["naver-clara2"])
    parts["criteria"] = table(columns, rankers)
    parts["agreement"] = table(["criterion", "tau", "tau without production"], agreement)
    template = (Path(__file__).with_name("real_people.md.in")).read_text(encoding="utf-8")
    for key, text in parts.items():
        assert f"{{{{{key}}}}}" in template, key
        template = template.replace(f"{{{{{key}}}}}", text.rstrip("\n"))
    (DOCS / "real_people.md").write_text(template, encoding="utf-8")


SIZES = ("log", "pages", "queries", "documents", "at two or more positions", "clicks", "pages without a click")

if __name__ == "__main__":
    main()
