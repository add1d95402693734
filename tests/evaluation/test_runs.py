"""TREC runs and qrels, against ir_measures and by hand."""

import os
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from ir_measures import AP, RR, P, nDCG

import unskew

DATA = Path(os.environ.get("UNSKEW_DATA") or "no-such-folder")
NAMES = {"ndcg_linear@10": nDCG @ 10, "ndcg_linear": nDCG, "ap": AP, "mrr": RR, "p@5": P @ 5}


def compared(run, qrels):
    """Means of both, of all queries."""
    ours = unskew.evaluate(run, qrels, NAMES, undefined="zero")
    files = ir_measures.read_trec_qrels(str(qrels)), ir_measures.read_trec_run(str(run))
    theirs = ir_measures.pytrec_eval.calc_aggregate(list(NAMES.values()), *map(list, files))
    return [ours.mean(name) for name in NAMES], [theirs[measure] for measure in NAMES.values()]


@pytest.mark.skipif(not (DATA / "mq2008").is_dir(), reason="mq2008 is not in UNSKEW_DATA")
def test_a_run_of_mq2008_has_the_values_of_ir_measures(tmp_path):
    judged = unskew.load("mq2008/1").test
    rng = np.random.default_rng(0)
    run, qrels = tmp_path / "other.trec", tmp_path / "judged.qrels"
    queries = np.repeat(judged.query_ids, judged.sizes)
    rows = list(zip(queries, judged.document_ids, judged.grades, rng.permutation(len(queries)), strict=True))
    qrels.write_text("".join(f"{q} 0 {d} {int(grade)}\n" for q, d, grade, _ in rows))
    run.write_text("".join(f"{q} Q0 {d} 1 {score / 7} other\n" for q, d, _, score in rows if score % 3))
    ours, theirs = compared(run, qrels)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert unskew.evaluate(run, judged, ["ap"]).mean("ap") == unskew.evaluate(run, qrels, ["ap"]).mean("ap")


def test_what_a_run_lacks_is_not_found_and_what_qrels_lack_is_not_relevant(tmp_path, monkeypatch):
    run, home = tmp_path / "run", tmp_path / "home"
    run.write_text("a Q0 d1 1 3.0 x\na Q0 new 2 2.0 x\na Q0 d2 3 1.0 x\nc Q0 d1 1 1 x\n")
    qrels = home / "touche" / "2020" / "qrels"
    qrels.parent.mkdir(parents=True)
    qrels.write_text("a 0 d1 0\na 0 d2 2\na 0 d3 1\nb 0 d1 1\na 0 spam -2\n")
    monkeypatch.setenv("IR_DATASETS_HOME", str(home))
    found = unskew.evaluate(run, "touche/2020", ["mrr", "ap", "p@2"])
    assert found.query_ids.tolist() == ["a", "b"]
    assert found.values("mrr").tolist() == pytest.approx([1 / 3, 0])  # d2 is third; b was not ranked
    assert found.values("ap").tolist() == pytest.approx([1 / 3 / 2, 0])  # d3 was not found
    assert found.values("p@2").tolist() == [0, 0]
    ours, theirs = compared(run, qrels)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize(
    ("run", "qrels", "text"),
    [
        ("a Q0 d 1 1 x\na Q0 d 2 1 x\n", "a 0 d 1\n", "run, line 2: document 'd' of query 'a' is there twice"),
        ("a Q0 d 1 1 x\na Q0 d 2 1\n", "a 0 d 1\n", "run, line 2: expected 6 fields with a number, got 'a Q0 d 2 1'"),
        ("a Q0 d 1 1 x\n", "a 0 d 1\na 0 e high\n", "qrels, line 2: expected 4 fields with a number"),
        ("a Q0 d 1 1 x\n", "b 0 d 1\n", "ranks no query of the judgements: it has 'a', they have 'b'"),
        ("a Q0 d 1 nan x\n", "a 0 d 1\n", "run, line 1: document 'd' of query 'a' has the value nan"),
    ],
)
def test_lines_that_cannot_be_read_are_named(tmp_path, run, qrels, text):
    (tmp_path / "run").write_text(run)
    (tmp_path / "qrels").write_text(qrels)
    with pytest.raises(ValueError, match=text.replace("(", r"\(")):
        unskew.evaluate(tmp_path / "run", tmp_path / "qrels")


def test_judgements_are_qrels_for_any_tool(tmp_path):
    world = unskew.load("world:tiny")
    log = unskew.simulate(world.train, "svm", "position_based", sessions=32, seed=1, progress=False).log
    path = tmp_path / "clicks.qrels"
    ratings = unskew.judgements(log, path, curve=1 / np.arange(1.0, 11)).to_table()
    entries = list(ir_measures.read_trec_qrels(str(path)))
    assert [(row.query_id, row.doc_id) for row in entries] == [
        (str(q), str(d)) for q, d in zip(*(ratings[name].to_pylist() for name in ("query", "document")), strict=True)
    ]
    grades, values = np.array([row.relevance for row in entries]), ratings["rating"].to_numpy()
    assert set(grades) == set(range(5))
    assert all(values[grades == low].max() <= values[grades > low].min() for low in range(4))
    with pytest.raises(ValueError, match="holds qrels, without features"):
        unskew.evaluate(np.zeros(3), path)
