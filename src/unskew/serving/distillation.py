r"""Distillation: any ranker as boosted trees, for engines that accept nothing else.

Trees learn the scores that the ranker (the teacher) gives to the documents of a log, shown or not; the documents of a
query are scored as one list. If a score depends on the document alone, synthetic documents are added: features are
exchanged between documents of the log until there are enough rows, and the teacher scores them. The two orders are
compared on held-out queries: Kendall's $\tau_b$ within queries, nDCG@10 of the trees' order with the teacher's scores
as grades (0 to 4 within a query), and nDCG@10 of both by labels if there are any. The measured trees are the ones that
are written.

Trees learn from the value that the engine sends for a missing feature: with `missing=0` they see 0 where the teacher
saw a missing value, with NaN they treat it as missing. Categories are codes and are split like numbers, because the
parsers of the engines cannot read other splits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.data.clicks.click_log import ClickLog
from unskew.data.files import check_place, write_file
from unskew.data.judged.judged_set import JudgedSet
from unskew.display import OnScreen, Screen
from unskew.evaluation.agreement import grades_of, kendall
from unskew.evaluation.evaluate import evaluate_scorer, score_documents
from unskew.evaluation.held_out import HeldOut
from unskew.networks.trees import TreesRanker, from_lightgbm
from unskew.serving.saved_ranker import check_features_alone
from unskew.serving.tree_files import FORMS, parse_trees, write_categories, write_trees
from unskew.training.boosting import Boosting, boost_lightgbm, boost_xgboost, check_names, need_trees
from unskew.training.model import Model

LEAST_AGREEMENT = 0.9
HELD_OUT = 0.2
FEATURES = 33  # maximum number of features per tree: diverse trees agree better with a ranker of many features
ENOUGH_ROWS = 50_000  # with fewer documents, synthetic ones are added
EXCHANGED = 0.3  # share of the features of a synthetic document that come from another one
ROUNDING = 1e-4  # of the largest score: a file's float32 sums differ from the library's by less


@dataclass(frozen=True)
class TreeAgreement:
    """The agreement of trees with their teacher, on held-out queries."""

    tau: float
    ndcg: float
    n_queries: int
    by_labels: tuple[float, float] | None = None  # nDCG@10 of the teacher and of the trees

    def __str__(self) -> str:
        if not self.n_queries:
            return "the same trees"
        text = (
            f"on {self.n_queries:,} held-out queries Kendall's τ {self.tau:.3f} with the teacher, "
            f"nDCG@10 by its scores {self.ndcg:.4f}"
        )
        if self.by_labels is not None:
            text += f"; by labels nDCG@10 {self.by_labels[1]:.4f}, the teacher {self.by_labels[0]:.4f}"
        return text


@dataclass(frozen=True, repr=False)
class Exported(OnScreen):
    """The exported file, and its agreement with torch or with the teacher."""

    path: Path
    agreement: Any
    note: str
    snippet: str = ""  # for the engine's configuration

    def screen(self) -> Screen:
        return Screen(f"{self.path}: {self.note}; {self.agreement}")


@dataclass(frozen=True, eq=False)
class Student:
    """Trees that learned from a teacher, and the value that the engine sends for a missing feature."""

    booster: Any
    kind: str
    names: tuple[str, ...]
    missing: float

    def sent(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Features as the engine sends them."""
        return features if math.isnan(self.missing) else np.where(np.isnan(features), self.missing, features)

    def scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Scores of raw features `[documents, f]`, by the library of the trees."""
        rows = self.sent(features).astype(np.float32)
        if self.kind == "lightgbm":
            return np.asarray(self.booster.predict(rows, num_iteration=-1))
        import xgboost

        found = self.booster.predict(xgboost.DMatrix(rows, feature_names=list(self.names)))
        return np.asarray(found, dtype=np.float64)


def export_trees(
    model: Model,
    path: str | Path,
    log: ClickLog | None = None,
    *,
    kind: str = "lightgbm",
    missing: float | None = None,
    boosting: Boosting | None = None,
    least_agreement: float = LEAST_AGREEMENT,
    judged: JudgedSet | None = None,
    overwrite: bool = False,
    seed: int = 0,
) -> Exported:
    """Write a model as boosted trees.

    Args:
        log: the log with the documents that trees learn from; not needed if the ranker already is LightGBM trees.
        kind: `lightgbm` (`.txt`, `.json`) or `xgboost` (`.json`, `.ubj`).
        missing: the value that the engine sends for a missing feature; default: 0 for XGBoost's dump, as plugins send,
            otherwise NaN.
        least_agreement: Kendall's τ below which nothing is written.
        judged: labelled queries to evaluate both on.
    """
    target = Path(path)
    if kind not in FORMS:
        raise ValueError(f"unknown format '{kind}': choose one of {', '.join(FORMS)}")
    if target.suffix not in FORMS[kind]:
        raise ValueError(f"{target.name}: the extension of a {kind} file must be {' or '.join(FORMS[kind])}")
    check_place(target, overwrite=overwrite)
    need_trees(kind)
    if kind == "lightgbm" and model.trees is not None and (missing is None or math.isnan(missing)):
        return _as_they_are(model, model.trees, target)
    check_features_alone(model)
    if log is None:
        raise ValueError(f"distilling the model into {kind} needs the documents of a click log: pass --log LOG")
    _check_log(log, model)
    if missing is None:
        missing = 0.0 if (kind, target.suffix) == ("xgboost", ".json") else math.nan
    settings = boosting or Boosting(features=FEATURES)
    learning, held_out = _parts(documents_by_query(log), seed)
    student = _teach(model, learning, kind, missing, settings, seed)
    content = write_trees(student.booster, kind, target.suffix, missing)
    _check_file(student, content, target.suffix, held_out.features)
    agreement = _agreement(model, student, held_out, judged)
    if not agreement.tau >= least_agreement:
        raise ValueError(
            f"{target} was not written, because the trees would not rank as the model does: {agreement}. Try more "
            "trees or leaves (--trees, --leaves) or a log with more documents, or accept it with --least-agreement"
        )
    sent = "NaN" if math.isnan(missing) else f"{missing:g}"
    made = f"{settings.trees} trees of {kind}, distilled from {model.name}"
    return _written(model, target, content, agreement, f"{made}; a missing value is sent as {sent}")


def _written(model: Model, target: Path, content: bytes, agreement: TreeAgreement, note: str) -> Exported:
    coded = write_categories(target, model.categories)
    write_file(target, content)
    return Exported(target, agreement, note + coded)


def _as_they_are(model: Model, text: str, target: Path) -> Exported:
    """Write the trees of a model whose ranker already is trees, without distillation."""
    import lightgbm

    forest = from_lightgbm(text)
    if forest.categorical and target.suffix == ".json":
        raise ValueError(
            f"the trees split {', '.join(forest.categorical)} by category, which engines cannot read: distil them into "
            "splits of numbers with --missing 0 (or what your engine sends) and --log LOG"
        )
    content = write_trees(lightgbm.Booster(model_str=text), "lightgbm", target.suffix)
    made = f"{len(forest.trees)} trees of lightgbm, as {model.recipe.method} trained them"
    return _written(model, target, content, TreeAgreement(1.0, 1.0, 0), f"{made}; NaN is a missing value")


def _check_log(log: ClickLog, model: Model) -> None:
    if log.n_inputs != model.n_features or (model.feature_names or log.input_names) != log.input_names:
        raise ValueError(
            f"the log has {log.n_inputs} features ({', '.join(log.input_names[:5])}…), but the model was trained on "
            f"{model.n_features} ({', '.join(model.feature_names[:5])}…): pass the training log"
        )


def documents_by_query(log: ClickLog) -> JudgedSet:
    """The documents of a log, shown or not, query by query; their grades mean nothing."""
    held_out = HeldOut(log)
    documents, queries = held_out.candidates("all")
    sizes = np.bincount(queries, minlength=held_out.n_queries)
    return JudgedSet.from_arrays(held_out.log.features[documents], np.zeros(len(documents)), sizes)


def _parts(documents: JudgedSet, seed: int) -> tuple[JudgedSet, JudgedSet]:
    """Training data of the trees, and held-out queries."""
    if documents.n_queries < 2:
        raise ValueError("the log has only one query, but agreement is measured on held-out queries: pass a larger log")
    order = np.random.default_rng(seed).permutation(documents.n_queries)
    n_held_out = max(1, round(HELD_OUT * documents.n_queries))
    return documents.select(np.sort(order[n_held_out:])), documents.select(np.sort(order[:n_held_out]))


def _teach(model: Model, documents: JudgedSet, kind: str, missing: float, settings: Boosting, seed: int) -> Student:
    names = model.feature_names or tuple(f"f{number}" for number in range(model.n_features))
    check_names(names)
    teacher = model.ranker()
    if teacher.pointwise:
        documents = with_recombined(documents, np.random.default_rng(seed))
    targets = score_documents(teacher, documents)
    if not teacher.pointwise:  # a constant shared by a whole list does not change its order
        means = np.add.reduceat(targets, documents.offsets[:-1]) / documents.sizes
        targets = targets - np.repeat(means, documents.sizes)
    student = Student(None, kind, names, missing)
    boost = {"lightgbm": boost_lightgbm, "xgboost": boost_xgboost}[kind]
    booster = boost(student.sent(documents.features), targets - targets.mean(), names, settings, seed=seed)
    return replace(student, booster=booster)


def with_recombined(documents: JudgedSet, rng: np.random.Generator) -> JudgedSet:
    """The documents, and synthetic ones to fill up to `ENOUGH_ROWS`, as one more list."""
    n_more = ENOUGH_ROWS - documents.n_documents
    if n_more <= 0:
        return documents
    first, second = documents.features[rng.integers(documents.n_documents, size=(2, n_more))]
    made_up = np.where(rng.random(first.shape) < EXCHANGED, second, first)
    features, sizes = np.concatenate([documents.features, made_up]), [*documents.sizes, n_more]
    return JudgedSet.from_arrays(features, np.zeros(len(features)), sizes)


def _check_file(student: Student, content: bytes, ending: str, features: NDArray[np.float32]) -> None:
    """Check that the file scores like the booster."""
    if ending == ".ubj":  # XGBoost's own format
        return
    ranker = TreesRanker(parse_trees(content, ending, student.names))
    mask = torch.ones(1, len(features), dtype=torch.bool)
    with torch.inference_mode():
        found = ranker(torch.from_numpy(student.sent(features)).float().unsqueeze(0), mask)[0].numpy()
    scores = student.scores(features)
    largest = float(np.abs(found - scores).max())
    if not largest <= ROUNDING * max(float(np.abs(scores).max()), 1e-6):
        raise ValueError(f"nothing was written: the file's scores differ from {student.kind}'s by {largest:.2g}")


def _agreement(model: Model, student: Student, held_out: JudgedSet, judged: JudgedSet | None) -> TreeAgreement:
    scores, learnt = score_documents(model.ranker(), held_out), student.scores(held_out.features)
    taus = kendall(scores, learnt, held_out.offsets)
    tau = float(np.nanmean(taus)) if np.isfinite(taus).any() else math.nan
    graded = replace(held_out, grades=grades_of(scores, held_out))
    ndcg = evaluate_scorer(learnt, graded, ["ndcg@10"], undefined="one").mean("ndcg@10")
    by_labels = None
    if judged is not None:
        teacher = evaluate_scorer(model.ranker(), judged, ["ndcg@10"]).mean("ndcg@10")
        by_labels = teacher, evaluate_scorer(student.scores(judged.features), judged, ["ndcg@10"]).mean("ndcg@10")
    return TreeAgreement(tau, ndcg, held_out.n_queries, by_labels)
