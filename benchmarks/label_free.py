"""Do criteria on held-out clicks order rankers of ids as NAVER's grades do?

Every click model learns from the training sessions of `naver-clara2` and ranks by attraction; criteria judge it by the
clicks of validation and test sessions, nDCG@10 by the grades of the documents that these showed.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import kendalltau

from click_models_mouse import fitted
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.public_logs.id_pages import SPLITS, IdPages
from unskew.evaluation.criteria import CRITERIA, Contender, Evidence, measure_all
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.evaluation.held_out import HeldOut
from unskew.evaluation.production import production_of_log
from unskew.lists import ClickedLists
from unskew.propensities.estimate import estimate_propensities

RANKERS = ("dctr", "pbm", "cascade", "ubm", "dcm", "ccm", "dbn", "sdbn")
N_RESAMPLES = 200
Matrix = NDArray[np.float64]


def attraction(name: str, learning: IdPages, held_out: HeldOut) -> Matrix:
    """Scores of the documents of the held-out log by a click model of the other sessions."""
    method, vocabulary = fitted(name, learning)
    other = held_out.log
    ids = vocabulary.numbers(other.query_ids[other.version_queries], other.document_ids)
    n = len(ids)
    one_list = ClickedLists(
        features=torch.zeros(1, n, 0),
        clicks=torch.zeros(1, n),
        positions=torch.zeros(1, n, dtype=torch.long),
        mask=torch.ones(1, n, dtype=torch.bool),
        sessions=torch.ones(1),
        codes=torch.from_numpy(ids)[None],
    )
    with torch.inference_mode():
        return method.attraction.of(one_list)[0].double().numpy()


def graded(pages: IdPages, held_out: HeldOut) -> tuple[JudgedSet, NDArray[np.int64]]:
    """Graded documents that the held-out sessions showed, query by query, and their numbers in the log."""
    assert pages.grades is not None
    pairs = zip(np.repeat(pages.query_ids, 10).tolist(), pages.document_ids.reshape(-1).tolist(), strict=True)
    known = dict(zip(pairs, pages.grades.reshape(-1).tolist(), strict=True))
    documents, queries = held_out.candidates()
    names = zip(held_out.query_ids[queries].tolist(), held_out.log.document_ids[documents].tolist(), strict=True)
    grades = np.array([known.get((int(query), int(document)), np.nan) for query, document in names])
    kept = np.isfinite(grades)
    _, sizes = np.unique(queries[kept], return_counts=True)
    judged = JudgedSet(
        features=np.zeros((int(kept.sum()), 0), dtype=np.float32),
        grades=grades[kept].astype(np.float32),
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    )
    return judged, documents[kept]


def agreement_rows(pages: IdPages) -> tuple[list[list[str]], list[list[str]]]:
    """Every ranker by all criteria and by grades; every criterion with its rank correlation with the grades."""
    learning = pages.select(pages.split == SPLITS.index("train"))
    held_out = HeldOut(pages.select(pages.split != SPLITS.index("train")).log())
    curve = estimate_propensities(learning.log(), "all_pairs", weighting="shared", n_bootstrap=0)
    evidence = Evidence(held_out, curve.propensities(held_out.log.n_positions))
    rankers = {f"`{name}`": attraction(name, learning, held_out) for name in RANKERS}
    rankers["production"] = production_of_log(held_out.log).scores
    judged, documents = graded(pages, held_out)
    truth = {
        name: evaluate_scorer(scores[documents], judged, ["ndcg@10"]).values("ndcg@10")
        for name, scores in rankers.items()
    }
    found = {name: measure_all(Contender(scores), evidence)[0] for name, scores in rankers.items()}
    criteria = [name for name in CRITERIA if all(name in found[ranker] for ranker in rankers)]
    rows = [
        [ranker, f"{np.nanmean(truth[ranker]):.4f}", *(f"{np.nanmean(found[ranker][name]):.4f}" for name in criteria)]
        for ranker in rankers
    ]
    told = [[CRITERIA[name].title, *_agreement(found, truth, name)] for name in criteria]
    return [["ranker", "nDCG@10 by grades", *(CRITERIA[name].title for name in criteria)], *rows], told


def _agreement(found: dict[str, dict[str, Matrix]], truth: dict[str, Matrix], name: str) -> list[str]:
    """Kendall's tau of the order of rankers with production and without, the latter with an interval over queries."""
    sign = 1 if CRITERIA[name].higher_is_better else -1
    taus = []
    for rankers in (list(found), [ranker for ranker in found if ranker != "production"]):
        by_clicks = np.array([sign * np.nanmean(found[ranker][name]) for ranker in rankers])
        by_grades = np.array([np.nanmean(truth[ranker]) for ranker in rankers])
        taus.append(float(kendalltau(by_clicks, by_grades).statistic))
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(N_RESAMPLES):
        values = []
        for source in (
            {ranker: found[ranker][name] for ranker in rankers},
            {ranker: truth[ranker] for ranker in rankers},
        ):
            rows = rng.integers(0, len(next(iter(source.values()))), len(next(iter(source.values()))))
            values.append([np.nanmean(source[ranker][rows]) for ranker in rankers])
        drawn.append(kendalltau(sign * np.array(values[0]), values[1]).statistic)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return [f"{taus[0]:+.2f}", f"{taus[1]:+.2f} ({low:+.2f} to {high:+.2f})"]
