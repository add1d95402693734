"""TREC runs and qrels: the ranking of any system, measured by the metrics of judged sets.

    run    query Q0 document rank score tag      ordered by score; the rank is not used, as in trec_eval
    qrels  query iteration document grade        grades below 0 count as 0

Documents that the qrels do not have are not relevant, and those that the run does not have are below all others: a
metric never sees them, but ideal lists and recall count them. A query without a ranking gets the value of an empty one.
Equal scores share the mean of all their orders, where trec_eval sorts them by document id. `ndcg_linear` is the nDCG
of trec_eval and ir_measures.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.metrics import Metric, metric
from unskew.evaluation.evaluate import Evaluation, evaluate_scorer

RUN, QRELS = 6, 4  # fields of a line
Values = dict[str, dict[str, float]]  # by query and document
HOME = "IR_DATASETS_HOME"


def is_run(place: Any) -> bool:
    """Whether this is a file with lines of a TREC run."""
    return isinstance(place, str | Path) and Path(place).is_file() and _has_fields(Path(place), RUN, 4)


def find_qrels(place: Any) -> Path | None:
    """A file of qrels, also by the name that `ir_datasets` has for it, if its files are on this machine."""
    if not isinstance(place, str | Path):
        return None
    home = Path(os.environ.get(HOME, "~/.ir_datasets")).expanduser()
    names = [str(place), str(place).removesuffix("/judged")]  # the same qrels with fewer queries
    files = [Path(place), *(home / name / "qrels" for name in names)]
    return next((file for file in files if file.is_file() and _has_fields(file, QRELS, 3)), None)


def evaluate_run(
    run: str | Path, judged: JudgedSet | str | Path, metrics: Iterable[str | Metric], **how: Any
) -> Evaluation:
    """The metrics of a run on the queries of qrels, or of a judged set by its ids."""
    ranked, asked = read_values(run, RUN, 4), [metric(entry) for entry in metrics]
    grades = _grades(judged) if isinstance(judged, JudgedSet) else read_values(judged, QRELS, 3)
    if not ranked.keys() & grades.keys():
        first, other = (next(iter(values)) for values in (ranked, grades))
        raise ValueError(f"{run} ranks no query of the judgements: it has '{first}', they have '{other}'")
    lists = {query: ranked.get(query, {}) for query in grades}
    depth = max(1, *(len(documents) for documents in (*lists.values(), *grades.values())))
    depth = max(depth, *(entry.cutoff or 1 for entry in asked))
    parts = [_padded(lists[query], grades[query], depth) for query in grades]
    offsets = np.cumsum([0, *(len(values) for _, values in parts)]).astype(np.int64)
    scores, labels = (np.concatenate(values) for values in zip(*parts, strict=True))
    padded = JudgedSet(
        features=np.zeros((len(labels), 0), dtype=np.float32),
        grades=labels.astype(np.float32),
        offsets=offsets,
        query_ids=np.array(list(grades)),
        name=judged.name if isinstance(judged, JudgedSet) else str(judged),
    )
    cut = [entry if entry.cutoff or entry.outside else replace(entry, cutoff=depth) for entry in asked]
    result = evaluate_scorer(scores, padded, cut, **how)
    values = {str(entry): result.values(str(name)) for entry, name in zip(asked, result.metrics, strict=True)}
    return replace(result, per_query=values, metrics=tuple(asked))


def read_values(path: str | Path, n_fields: int, place: int) -> Values:
    """The number in this field of each line, by query and document."""
    found: Values = {}
    for row, fields in enumerate(_lines(Path(path)), start=1):
        try:
            if len(fields) != n_fields:
                raise ValueError
            value = float(fields[place])
        except ValueError as error:
            text = " ".join(fields)[:80]
            raise ValueError(f"{path}, line {row}: expected {n_fields} fields with a number, got '{text}'") from error
        documents = found.setdefault(fields[0], {})
        if fields[2] in documents or not np.isfinite(value):
            why = "is there twice" if fields[2] in documents else f"has the value {value}"
            raise ValueError(f"{path}, line {row}: document '{fields[2]}' of query '{fields[0]}' {why}")
        documents[fields[2]] = value
    return found


def _grades(judged: JudgedSet) -> Values:
    found: Values = {}
    for number, query in enumerate(judged.query_ids.tolist()):
        rows = slice(judged.offsets[number], judged.offsets[number + 1])
        ids, grades = judged.document_ids[rows].tolist(), judged.grades[rows].tolist()
        found[str(query)] = dict(zip(map(str, ids), grades, strict=True))
    return found


def _padded(ranked: dict[str, float], grades: dict[str, float], depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and grades of what is ranked, of nothing down to `depth`, and below it of what was not found."""
    missing = [grade for document, grade in grades.items() if document not in ranked]
    labels = [grades.get(document, 0.0) for document in ranked] + [0.0] * (depth - len(ranked)) + missing
    order = np.unique(list(ranked.values()), return_inverse=True)[1]  # from 0 for the lowest score
    scores = np.concatenate([order, -1.0 - np.arange(len(labels) - len(ranked))])
    return scores, np.maximum(labels, 0.0)


def _lines(path: Path) -> Iterator[list[str]]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with gzip.open(path, "rt", encoding="utf-8") if packed else path.open(encoding="utf-8") as lines:
        try:
            yield from (line.split() for line in lines)
        except (UnicodeDecodeError, EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} cannot be read ({error}): save it as UTF-8, plain or gzip") from error


def _has_fields(path: Path, n_fields: int, place: int) -> bool:
    try:
        fields = next(_lines(path))
        float(fields[place])
    except (OSError, StopIteration, ValueError, IndexError):
        return False
    return len(fields) == n_fields and ":" not in fields[1]  # LETOR: grade qid:1 1:0.5 2:0.1
