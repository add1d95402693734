from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn

import unskew
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import evaluate_scorer, shown_documents


def judged_set():
    """Three queries of 3, 1 and 2 documents; the second has nothing relevant."""
    return JudgedSet(
        features=np.array([[1], [3], [2], [5], [1], [2]], dtype=np.float32),
        grades=np.array([2, 0, 1, 0, 0, 1], dtype=np.float32),
        offsets=np.array([0, 3, 4, 6]),
        query_ids=np.array(["a", "b", "c"]),
        name="toy",
    )


def by_feature(features, mask):
    return features.squeeze(-1)


def by_sum(features, mask):
    return features.sum(-1)


def test_each_query_has_its_value_in_the_order_of_the_set():
    result = evaluate_scorer(by_feature, judged_set(), ["mrr", "p@1"])
    assert result.per_query["mrr"].tolist() == pytest.approx([1 / 2, np.nan, 1.0], nan_ok=True)
    assert result.per_query["p@1"].tolist() == pytest.approx([0.0, np.nan, 1.0], nan_ok=True)


def test_queries_without_a_relevant_document_are_left_out_and_counted():
    result = evaluate_scorer(by_feature, judged_set(), ["mrr"])
    assert result.mean("mrr") == pytest.approx((1 / 2 + 1) / 2)
    assert result.n_left_out("mrr") == 1


@pytest.mark.parametrize(
    ("undefined", "means"),
    [
        ("zero", {"mrr": (0.5 + 0 + 1) / 3, "p@1": (0 + 0 + 1) / 3, "arp": 5 / 3}),
        ("one", {"mrr": (0.5 + 1 + 1) / 3, "p@1": (0 + 0 + 1) / 3, "arp": 5 / 3}),
    ],
)
def test_the_policy_for_undefined_queries_is_an_argument_and_arp_always_leaves_them_out(undefined, means):
    result = evaluate_scorer(by_feature, judged_set(), means, undefined=undefined)
    # Ranks by feature: grades 0, 1, 2 and 1, 0, so ARP is (2 * 1 + 3 * 2) / 3 and 1.
    means["arp"] = (8 / 3 + 1) / 2
    assert {name: result.mean(name) for name in means} == pytest.approx(means)
    assert [result.n_left_out(name) for name in ("mrr", "p@1", "arp")] == [0, 0, 1]


def test_scores_of_another_program_stand_in_for_a_ranker():
    judged = judged_set()
    as_function = evaluate_scorer(by_feature, judged)
    as_scores = evaluate_scorer(judged.features[:, 0], judged)
    for name, values in as_function.per_query.items():
        np.testing.assert_array_equal(as_scores.per_query[name], values)


def test_values_do_not_depend_on_how_queries_are_batched():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 30, size=200)
    judged = JudgedSet.from_arrays(rng.normal(size=(sizes.sum(), 1)), rng.integers(0, 5, sizes.sum()), sizes)
    whole = evaluate_scorer(by_feature, judged, ["ndcg@10"]).values("ndcg@10")
    each = (judged.select([query]) for query in range(200))
    alone = [evaluate_scorer(by_feature, one, ["ndcg@10"]).values("ndcg@10")[0] for one in each]
    np.testing.assert_allclose(whole, alone, rtol=1e-12)


class Dropping(nn.Module):
    """A ranker that scores at random while it trains."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.frozen = nn.BatchNorm1d(1).eval()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, features, mask):
        assert not torch.is_grad_enabled()
        return self.drop(features * self.weight).squeeze(-1)


def test_a_module_is_evaluated_in_evaluation_mode_and_given_back_as_it_was():
    ranker = Dropping()
    result = evaluate_scorer(ranker, judged_set(), ["mrr"])
    assert result.mean("mrr") == pytest.approx(0.75)
    assert (ranker.training, ranker.drop.training, ranker.frozen.training) == (True, True, False)


def test_a_module_that_fails_is_given_back_as_it_was():
    class Failing(nn.Module):
        def forward(self, features, mask):
            raise RuntimeError("no")

    ranker = Failing()
    with pytest.raises(RuntimeError, match="no"):
        evaluate_scorer(ranker, judged_set())
    assert ranker.training


def test_err_takes_the_highest_grade_as_an_argument_or_from_its_name():
    result = evaluate_scorer(by_feature, judged_set(), ["err@10", "err(max_grade=3)@10"], max_grade=2)
    # Grades 1, 0: it stops at the top with 1/4 or 1/8.
    assert result.values("err@10")[2] == pytest.approx(1 / 4)
    assert result.values("err(max_grade=3)@10")[2] == pytest.approx(1 / 8)
    assert list(result.per_query) == ["err(max_grade=2)@10", "err(max_grade=3)@10"]


def test_the_table_has_a_row_a_query_and_null_where_one_was_left_out():
    table = evaluate_scorer(by_feature, judged_set(), ["mrr"]).to_table()
    assert table.equals(pa.table({"query": ["a", "b", "c"], "mrr": [0.5, None, 1.0]}))


def test_the_summary_says_mean_interval_and_how_many_queries():
    row = evaluate_scorer(by_feature, judged_set(), ["arp"]).summary()[0]
    assert (row.metric, row.n_queries, row.n_left_out, row.higher_is_better) == ("arp", 2, 1, False)
    assert row.mean == pytest.approx((8 / 3 + 1) / 2)
    assert row.low < row.mean < row.high


def test_a_set_without_any_relevant_document_has_no_mean_and_says_why():
    result = evaluate_scorer(by_feature, judged_set().select([1]), ["ndcg@10"])
    with pytest.raises(ValueError, match=r"none of 1 has a relevant document; .*undefined='zero'"):
        result.mean("ndcg@10")
    assert result.summary()[0].mean is None
    assert "–" in repr(result)


def test_an_empty_set_gives_an_empty_evaluation():
    result = evaluate_scorer(by_feature, judged_set().select([False, False, False]), ["ndcg@10"])
    assert result.to_table().num_rows == 0


def test_one_query_has_a_mean_without_an_interval():
    row = evaluate_scorer(by_feature, judged_set().select([0]), ["mrr"]).rows()[0]
    assert row == ("mrr ↑", "0.5000", "–", "1", "0")


def test_an_unknown_policy_and_a_metric_that_was_not_asked_for_are_refused():
    with pytest.raises(ValueError, match="choose one of skip, zero, one"):
        evaluate_scorer(by_feature, judged_set(), ["mrr"], undefined="drop")
    with pytest.raises(KeyError, match=r"'ap' was not evaluated \(only mrr\)"):
        evaluate_scorer(by_feature, judged_set(), ["mrr"]).mean("ap")


def test_scores_of_a_wrong_shape_say_what_is_expected():
    with pytest.raises(ValueError, match=r"needs squeeze\(-1\)"):
        evaluate_scorer(lambda features, mask: features, judged_set())
    with pytest.raises(ValueError, match=r"scores have shape \(5,\), but there are 6 documents"):
        evaluate_scorer(np.zeros(5), judged_set())


def test_shown_and_never_shown_documents_are_measured_apart():
    judged = JudgedSet.from_arrays([[4.0], [3.0], [2.0], [1.0]], grades=[0, 1, 0, 1], group=[4])
    found = evaluate_scorer(
        by_feature, judged, ["mrr", "mrr:shown", "mrr:never_shown"], shown=np.array([False, True, True, False])
    )
    values = {name: float(value[0]) for name, value in found.per_query.items()}
    assert values == {"mrr": 1 / 2, "mrr:shown": 1.0, "mrr:never_shown": 1 / 2}  # of 3, 2 and of 4, 1


def test_metrics_of_shown_documents_must_be_told_which_these_are():
    with pytest.raises(ValueError, match="mrr:shown needs to know which documents were shown"):
        evaluate_scorer(by_feature, judged_set(), ["mrr:shown"])
    with pytest.raises(ValueError, match="after the colon, write one of shown, never_shown"):
        evaluate_scorer(by_feature, judged_set(), ["mrr:liked"])


def test_a_log_tells_which_documents_were_shown():
    judged = unskew.load("world:tiny").train
    log = unskew.simulate(judged, "svm", "position_based", sessions=4, n_shown=3, progress=False).log
    found = unskew.evaluate(by_sum, judged, ["p@20:shown", "p@20"], shown=log, undefined="zero")
    shown = shown_documents(judged, log)
    assert shown.sum() == log.mask.sum()
    grades = [judged.grades[a:b][shown[a:b]] for a, b in pairwise(judged.offsets)]
    assert found.per_query["p@20:shown"] == pytest.approx([(kept >= 1).sum() / 20 for kept in grades])
