"""The picture in the README: clicks before and after correction for examination, on simulated clicks.

Run it from the top of the repository. It writes `docs/figures/before_after.svg` and a narrow form for phones, and logs
the numbers of the caption. Every grade of the data is drawn: none is picked. Rare grades are noisy, mostly where they
were seldom shown.
"""

from __future__ import annotations

import logging
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import unskew
from unskew.data.files import new_file
from unskew.reporting.drawing import STYLE, TRUTH, line_style

PLACE = Path(__file__).parent / "figures" / "before_after.svg"
NAMES = {4: " (most relevant)", 0: " (irrelevant)"}
DATA, SESSIONS, SEED = "world:small", 64, 1


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    world = unskew.load(DATA)
    log = unskew.simulate(world.train, policy="svm", user="position_based", sessions=SESSIONS, seed=SEED).log
    models = {name: unskew.fit(name, log, seed=SEED) for name in ("naive", "dla")}
    for name, model in models.items():
        logging.info("%s: %s\n%s", name, model.history.ended, unskew.evaluate(model, world.test, ["ndcg@10"]))
    curve = models["dla"].examination()
    assert curve is not None
    grades = np.unique(world.train.grades)[::-1]
    by_grade = {int(grade): rates(log, world.train.grades, grade) for grade in grades}
    write(draw(by_grade, curve), PLACE)
    write(draw(by_grade, curve, narrow=True), PLACE.with_stem(f"{PLACE.stem}_narrow"))


def rates(log: unskew.ClickLog, grades: np.ndarray, grade: float) -> tuple[np.ndarray, np.ndarray]:
    """Clicks per impression of the documents with this grade, by position, and half of the 95% interval."""
    chosen = log.mask & (grades[log.documents] == grade)  # documents are numbered as in the judged set
    clicks = np.bincount(log.positions[chosen], log.clicks[chosen])
    shown = np.bincount(log.positions[chosen], np.broadcast_to(log.sessions[:, None], chosen.shape)[chosen])
    logging.info("grade %g: %d impressions at the last position", grade, shown[-1])
    rate = clicks / shown
    return rate, 1.96 * np.sqrt(rate * (1 - rate) / shown)


def draw(by_grade: dict[int, tuple[np.ndarray, np.ndarray]], curve: np.ndarray, *, narrow: bool = False) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.2, 6.2) if narrow else (9, 3.4), layout="constrained")
        before, after = figure.subplots(2, 1) if narrow else figure.subplots(1, 2, sharey=True)
        places = np.arange(1, len(curve) + 1)
        for number, (grade, (values, half)) in enumerate(by_grade.items()):
            label, style = f"grade {grade}" + NAMES.get(grade, ""), line_style(number)
            for axes, divisor in ((before, np.ones_like(curve)), (after, curve)):
                axes.plot(places, values / divisor, label=label, **style)
                ends = (values - half) / divisor, (values + half) / divisor
                axes.fill_between(places, *ends, color=style["color"], alpha=0.15, linewidth=0)
        best, _ = next(iter(by_grade.values()))
        before.plot(places, best[0] * curve, color=TRUTH, linewidth=2.5, alpha=0.5, label="learned examination")
        before.set_title("Before: position decides", fontsize=11)
        after.set_title("After: relevance decides", fontsize=11)
        before.set_ylabel("clicks per impression")
        before.set_ylim(bottom=0)
        for axes in (before, after):
            axes.set_xlabel("position")
            axes.set_xticks(places)
        before.legend(fontsize=8)
    return figure


def write(figure: Figure, place: Path) -> None:
    with matplotlib.rc_context(STYLE), new_file(place) as scratch:
        figure.savefig(scratch, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
