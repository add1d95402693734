"""Commands that use a ranker: `evaluate`, `export`, `explain` and `rank`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import unskew
from unskew.command_line.signatures import constant
from unskew.commands.app import Given, call, print_result
from unskew.data.clicks.lineage import SHORT, lineage_line
from unskew.data.clicks.storage import is_log
from unskew.data.files import check_place
from unskew.data.judged.catalogue import load_split
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.metrics import AMONG
from unskew.data.public_logs.id_pages import is_public_log, read_pages
from unskew.evaluation.evaluate import Evaluation
from unskew.extensions import load_part
from unskew.serving.candidates import is_table, open_candidates
from unskew.serving.distillation import FEATURES
from unskew.serving.explanation import Decision, decide, save_explanation
from unskew.serving.model_files import ABOUT, load_model, needed_parts
from unskew.serving.ratings import write_rows
from unskew.serving.saved_ranker import SavedRanker, open_ranker
from unskew.training.boosting import Boosting


def evaluate(given: Given) -> Any:
    out, allowed = given["out"], given["allow_code"]
    if out is not None:
        check_place(out, overwrite=True)
    if is_log(given["data"]):
        _predict_clicks(given)
        return None
    code = [":" in name and name.rpartition(":")[2] not in AMONG for name in given["metrics"]]  # unlike ndcg@10:shown
    metrics = [
        load_part(name, allow_code=True) if allowed and is_code else name
        for name, is_code in zip(given["metrics"], code, strict=True)
    ]
    result = call("evaluate", given, ranker=with_code(given["model"], allow_code=allowed), metrics=metrics)
    if out is not None:
        write_rows([result.to_table()], out)
    return result


def export(given: Given) -> None:
    own: dict[str, Any] = {name: given[name] for name in ("flat", "codes")}
    own["names"] = (given["input_name"], given["output_name"])
    if given["form"] in constant("serving.tree_files:FORMS"):
        boosting = Boosting(given["trees"], given["leaves"], features=FEATURES)
        own = {"missing": given["missing"], "least_agreement": given["least_agreement"], "boosting": boosting}
    model = with_code(given["model"], allow_code=given["allow_code"])
    exported = call("export", given, model=model, **own)
    snippet = getattr(exported, "snippet", "")
    print_result(exported, given, f"In Vespa:\n\n{snippet}" if snippet else "")


def explain(given: Given) -> None:
    ranker, out = open_ranker(given["model"]), given["out"]
    judged, labelled = _read(ranker, given["data"])
    names = ranker.feature_names or tuple(f"feature {number}" for number in range(ranker.n_features))
    if given["query"] is not None:
        result: Any = _decided(ranker, judged, names, given)
    else:
        chosen = np.random.default_rng(given["seed"]).permutation(judged.n_queries)[: given["queries"]]
        metric = None if given["by_order"] or not labelled else given["metric"]
        some = judged.select(np.sort(chosen))
        result = call("explain", given, ranker=ranker.score, data=some, names=names, metric=metric)
    if out is not None:
        save_explanation(result, out)
    print_result(result, given, "" if out is None else f"Figure and numbers in {out}")


def rank(given: Given) -> Any:
    return call("rank", given, ranker=with_code(given["model"], allow_code=given["allow_code"]))


def with_code(model: Path, *, allow_code: bool) -> Any:
    """The model with its own code if that is allowed, otherwise the path."""
    if not allow_code or not (model / ABOUT).is_file():
        return model
    return load_model(model, [load_part(name, allow_code=True) for name in needed_parts(model)])


def _predict_clicks(given: Given) -> None:
    """How well the model predicts the clicks of a log, and its metrics if the log has grades."""
    model, log = unskew.load_model(given["model"]), unskew.read_log(given["data"])
    graded = _grades(model, given["data"], [name for name in given["metrics"] if not name.startswith("err")])
    lines = {"lineage": model.lineage, "log": log.lineage.to_json()}
    note = f"{lineage_line(model.lineage)}; clicks of log {log.lineage.digest[:SHORT]}."
    prediction = model.predict_clicks(log)
    screen = prediction.screen()
    more = [*screen.more, *([] if graded is None else [replace(graded.screen(), title=f"Grades of {given['data']}")])]
    print_result(
        replace(screen, title=f"{given['model']}: {screen.title} of {given['data']}", notes=[note], more=more),
        given,
        content={**prediction.to_json(), **({} if graded is None else graded.to_json()), **lines},
    )


def _grades(model: Any, data: str, metrics: list[str]) -> Evaluation | None:
    """Metrics on grades, if the public log has grades and the model can rank."""
    judged = read_pages(data).judged() if is_public_log(data) else None
    return None if judged is None or not model.method.has_ranker else unskew.evaluate(model, judged, metrics)


def _read(ranker: SavedRanker, data: str) -> tuple[JudgedSet, bool]:
    """The data, and whether they have relevance labels."""
    if not is_table(data):
        judged = load_split(data, "test")
        ranker.for_judged(judged)
        return judged, True
    part = next(open_candidates(data, ranker).parts())
    return JudgedSet(
        features=part.features,
        grades=np.zeros(len(part.features), dtype=np.float32),
        offsets=part.offsets,
        query_ids=np.array(part.queries.take(part.offsets[:-1]).to_pylist()),
        document_ids=np.array(part.documents.to_pylist()),
    ), False


def _decided(ranker: SavedRanker, judged: JudgedSet, names: tuple[str, ...], given: Given) -> Decision:
    """Why one of two documents of a query is scored above the other."""
    query, documents = given["query"], given["documents"] or []
    if len(documents) != 2:
        raise ValueError("name two documents to compare: --documents FIRST,SECOND")
    places = np.flatnonzero(judged.query_ids.astype(str) == query)
    if not len(places):
        raise ValueError(f"there is no query '{query}' in the data; the first is '{judged.query_ids[0]}'")
    rows = slice(judged.offsets[places[0]], judged.offsets[places[0] + 1])
    ids = judged.document_ids[rows].astype(str).tolist()
    for name in documents:
        if name not in ids:
            raise ValueError(f"query '{query}' has no document '{name}'; its documents: {', '.join(ids[:10])}")
    first, second = (ids.index(name) for name in documents)
    labels = (documents[0], documents[1])
    return decide(ranker.score, judged.features[rows], first, second, names, labels=labels, seed=given["seed"])
