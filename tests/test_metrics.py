from itertools import permutations
from math import inf, log2, nan

import hypothesis.strategies as st
import ir_measures
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from ir_measures import AP, RR, P, nDCG
from sklearn.metrics import average_precision_score, dcg_score, ndcg_score
from torch import tensor
from torch.testing import assert_close

from unskew.data.judged.metrics import METRICS, Metric, measure, metric

EVERY_METRIC = [
    "ndcg@3", "ndcg", "ndcg_linear@2", "dcg@3", "dcg_linear", "err@2", "err", "arp", "arp@2",
    "mrr", "mrr@2", "ap", "ap@3", "ap(relevant=2)", "p@1", "p@3",
]  # fmt: skip


def value(name, scores, grades):
    """The metric of one list without padding."""
    scores = torch.as_tensor(scores, dtype=torch.float32)[None]
    grades = torch.as_tensor(grades, dtype=torch.float32)[None]
    return metric(name)(scores, grades, torch.ones_like(grades, dtype=torch.bool)).item()


def in_order(name, grades):
    """The metric of documents that are in this order."""
    return value(name, -np.arange(len(grades)), grades)


# Hand arithmetic


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dcg@2", 1 / 1 + 0 / log2(3)),
        ("dcg", 1 / 1 + 0 / log2(3) + 7 / log2(4)),
        ("dcg_linear", 1 / 1 + 0 / log2(3) + 3 / log2(4)),
        ("ndcg", (1 + 7 / 2) / (7 + 1 / log2(3))),
        ("ndcg@1", 1 / 7),
        ("ndcg_linear@2", 1 / (3 + 1 / log2(3))),
        ("err", 1 / 16 + (15 / 16) * (7 / 16) / 3),
        ("err@2", 1 / 16),
        ("err(max_grade=3)", 1 / 8 + (7 / 8) * (7 / 8) / 3),
        ("arp", (1 * 1 + 3 * 3) / 4),
        ("arp@1", (1 * 1 + 2 * 3) / 4),  # what stands below the first rank counts as the second
        ("mrr", 1.0),
        ("mrr(relevant=2)", 1 / 3),
        ("mrr(relevant=2)@2", 0.0),
        ("ap", (1 / 1 + 2 / 3) / 2),
        ("ap@2", (1 / 1) / 2),
        ("ap(relevant=3)", 1 / 3),
        ("p@2", 1 / 2),
        ("p@3", 2 / 3),
    ],
)
def test_a_list_of_grades_1_0_3_by_hand(name, expected):
    assert in_order(name, [1, 0, 3]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("name", "expected"), [("ndcg@10", 1.0), ("p@10", 1 / 10), ("ap@10", 1.0), ("arp@10", 1.0)])
def test_a_list_shorter_than_the_cutoff_counts(name, expected):
    assert in_order(name, [2, 0]) == pytest.approx(expected)


def test_pushing_a_relevant_document_below_the_cutoff_does_not_improve_arp():
    assert in_order("arp@2", [1, 1, 0]) == 1.5
    assert in_order("arp@2", [1, 0, 1]) == 2.0


def test_only_arp_is_better_when_lower():
    assert [name for name in METRICS if not METRICS[name].higher_is_better] == ["arp"]
    assert metric("arp@5").higher_is_better is False
    assert in_order("arp", [1, 0]) < in_order("arp", [0, 1])


# Against other programs

grades_and_scores = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 4), min_size=n, max_size=n).filter(any), st.permutations(range(n)).map(list)
    )
)


@settings(max_examples=150, deadline=None)
@given(grades_and_scores)
def test_agrees_with_trec_eval_where_definitions_agree(lists):
    grades, scores = lists
    judged = {"q": {f"d{i}": grade for i, grade in enumerate(grades)}}
    ranked = {"q": {f"d{i}": float(score) for i, score in enumerate(scores)}}
    exponential = nDCG(gains={grade: 2**grade - 1 for grade in range(5)})
    pairs = {
        nDCG: "ndcg_linear", nDCG @ 5: "ndcg_linear@5", exponential @ 5: "ndcg@5",
        AP: "ap", AP @ 5: "ap@5", RR: "mrr", P @ 5: "p@5",
    }  # fmt: skip
    theirs = ir_measures.pytrec_eval.calc_aggregate(list(pairs), judged, ranked)
    for measure_of_theirs, name in pairs.items():
        assert value(name, scores, grades) == pytest.approx(theirs[measure_of_theirs], abs=1e-6), name


@settings(max_examples=100, deadline=None)
@given(
    st.integers(2, 12).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, 4), min_size=n, max_size=n).filter(any),
            st.lists(st.integers(0, 4), min_size=n, max_size=n),
        )
    )
)
def test_agrees_with_scikit_learn_which_also_averages_over_ties(lists):
    grades, scores = lists
    gains = [[2**grade - 1 for grade in grades]]
    assert value("ndcg@4", scores, grades) == pytest.approx(ndcg_score(gains, [scores], k=4))
    assert value("ndcg_linear", scores, grades) == pytest.approx(ndcg_score([grades], [scores]))
    assert value("dcg@4", scores, grades) == pytest.approx(dcg_score(gains, [scores], k=4))
    if len(set(scores)) == len(scores):  # its average precision does something else with ties
        relevant = [grade >= 1 for grade in grades]
        assert value("ap", scores, grades) == pytest.approx(average_precision_score(relevant, scores))


# Ties


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, 3), min_size=n, max_size=n), st.lists(st.integers(0, 2), min_size=n, max_size=n)
        )
    )
)
def test_a_tie_gives_the_mean_over_all_orders_of_the_tied_documents(lists):
    grades, scores = lists
    orders = tensor(list(permutations(range(len(scores)))))
    orders = orders[(tensor(scores)[orders].diff(dim=-1) <= 0).all(-1)]
    ordered = tensor(grades)[orders]
    falling = -torch.arange(len(scores)).expand(ordered.shape)
    each = measure(EVERY_METRIC, falling, ordered, torch.ones_like(ordered, dtype=torch.bool))
    for name in EVERY_METRIC:
        assert value(name, scores, grades) == pytest.approx(each[name].values.mean().item(), abs=1e-12), name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("p@1", 1 / 4),
        ("mrr", (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4),
        ("ap", (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4),
        ("arp", 2.5),
        ("ndcg@1", 1 / 4),
        ("err(max_grade=1)", (1 / 2) * (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4),
    ],
)
def test_a_constant_scorer_gets_chance_though_the_file_is_sorted_by_grade(name, expected):
    assert value(name, [0, 0, 0, 0], [1, 0, 0, 0]) == pytest.approx(expected)


def test_a_long_tie_is_exact():
    n = 1_000
    assert value("mrr", [0] * n, [0] * (n - 1) + [1]) == pytest.approx(sum(1 / i for i in range(1, n + 1)) / n)
    stop = 1 / 16  # all documents alike: a tie changes nothing
    expected = sum(stop * (1 - stop) ** (i - 1) / i for i in range(1, 11))
    assert value("err@10", [0] * n, [1] * n) == pytest.approx(expected)


# Padding, empty lists, undefined queries


@pytest.mark.parametrize("name", EVERY_METRIC)
def test_padding_never_counts_whatever_stands_in_it(name):
    scores = tensor([[9.0, 0.3, nan, 0.3, 0.1, inf], [9.0, 0.4, 0.3, 0.2, 0.1, -inf]])
    grades = tensor([[4.0, 0.0, nan, 2.0, 1.0, -1.0], [4.0, 0.0, 0.0, 2.0, 1.0, inf]])
    mask = tensor([[False, True, False, True, True, False], [False, True, True, True, True, False]])
    values = metric(name)(scores, grades, mask)
    assert values[0].item() == pytest.approx(value(name, [0.3, 0.3, 0.1], [0, 2, 1]))
    assert values[1].item() == pytest.approx(value(name, [0.4, 0.3, 0.2, 0.1], [0, 0, 2, 1]))


@pytest.mark.parametrize("name", EVERY_METRIC)
def test_lists_that_are_empty_or_without_a_relevant_document_are_zero_and_not_defined(name):
    scores = tensor([[1.0, 2.0], [1.0, 1.0], [nan, nan], [1.0, 2.0]])
    grades = tensor([[0.0, 0.0], [0.0, 0.0], [3.0, nan], [0.0, 3.0]])
    mask = tensor([[True, True], [True, True], [False, False], [True, True]])
    values, defined = measure([name], scores, grades, mask)[str(metric(name))]
    assert values[:3].tolist() == [0.0, 0.0, 0.0]
    assert values[3] > 0
    assert defined.tolist() == [False, False, False, True]
    assert metric(name).defined(grades, mask).tolist() == [False, False, False, True]


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_batches_without_lists_or_documents_work(shape):
    for name, (values, defined) in measure(EVERY_METRIC, *torch.zeros(2, *shape), torch.ones(shape) > 0).items():
        assert values.tolist() == [0.0] * shape[0], name
        assert not defined.any()


def test_a_query_may_be_defined_for_one_threshold_only():
    grades, mask = tensor([[1.0, 0.0]]), tensor([[True, True]])
    assert metric("ap").defined(grades, mask).item()
    assert not metric("ap(relevant=2)").defined(grades, mask).item()


def test_several_metrics_at_once_equal_one_at_a_time():
    rng = torch.Generator().manual_seed(3)
    scores = torch.randint(0, 20, (50, 12), generator=rng).float()
    grades = torch.randint(0, 5, (50, 12), generator=rng).float()
    mask = torch.rand(50, 12, generator=rng) < 0.7
    together = measure(EVERY_METRIC, scores, grades, mask)
    assert list(together) == EVERY_METRIC
    for name in EVERY_METRIC:
        assert_close(together[name].values, metric(name)(scores, grades, mask), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8])
def test_scores_of_any_type_are_ranked(dtype):
    scores = tensor([[1, 3, 2]]).to(dtype)
    assert metric("arp")(scores, tensor([[0, 1, 0]]), scores > 0).tolist() == [1.0]


def test_scores_with_a_gradient_are_accepted_and_pass_none_on():
    scores = torch.randn(2, 3, requires_grad=True)
    assert not metric("ndcg")(scores, torch.ones(2, 3), torch.ones(2, 3) > 0).requires_grad


# Names


@pytest.mark.parametrize("text", [*EVERY_METRIC, "err(max_grade=2)@10", "p(relevant=0.5)@5", "ndcg_linear@10"])
def test_a_metric_prints_as_it_was_written(text):
    assert str(metric(text)) == text
    assert metric(str(metric(text))) == metric(text)


def test_case_does_not_matter_and_a_metric_is_its_own_name():
    assert metric("nDCG@10") == Metric("ndcg", 10) == metric(Metric("ndcg", 10))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "ncdg@10",
            r"unknown metric 'ncdg' \(did you mean 'ndcg'\?\): use one of ndcg, ndcg_linear, dcg, dcg_linear",
        ),
        ("ndcg@", "'ndcg@' is not a metric: write name@cutoff"),
        ("ndcg@ten", "is not a metric"),
        ("ap(rel=2)", "write name@cutoff, such as .*'ap\\(relevant=2\\)'"),
        ("ndcg@0", "the cut-off must be 1 or more"),
        ("p", "write 'p@10'"),
        ("ndcg(relevant=2)@5", "'ndcg' has no option relevant; only mrr, ap, p do"),
        ("err(max_grade=0)", "must be above 0"),
    ],
)
def test_a_wrong_name_says_what_to_write(text, message):
    with pytest.raises(ValueError, match=message):
        metric(text)


# Errors


@pytest.mark.parametrize("wrong", [nan, inf, -inf])
def test_a_score_that_is_not_finite_is_named(wrong):
    scores = tensor([[1.0, 2.0], [3.0, wrong]])
    with pytest.raises(ValueError, match=r"the score of document 1 of list 1 is -?(nan|inf)"):
        metric("ndcg")(scores, torch.ones(2, 2), torch.ones(2, 2) > 0)


@pytest.mark.parametrize("wrong", [nan, inf, -1.0])
def test_a_grade_that_is_none_is_named(wrong):
    with pytest.raises(ValueError, match="the grade of document 0 of list 0 is"):
        metric("ndcg")(torch.ones(1, 2), tensor([[wrong, 1.0]]), torch.ones(1, 2) > 0)


def test_a_grade_above_the_highest_of_err_asks_for_it():
    with pytest.raises(ValueError, match=r"'err@3' takes grades up to 4, but the data have a grade 5: .*max_grade=5"):
        in_order("err@3", [5, 0])


def test_a_gain_that_overflows_points_to_the_linear_one():
    with pytest.raises(ValueError, match="ndcg_linear"):
        in_order("ndcg", [2000, 1])
    assert in_order("ndcg_linear@1", [2000, 1]) == 1.0


def test_shapes_that_differ_and_masks_of_numbers_are_refused():
    with pytest.raises(ValueError, match=r"share one shape .* got \(2, 3\), \(2, 2\), \(2, 3\)"):
        metric("ndcg")(torch.ones(2, 3), torch.ones(2, 2), torch.ones(2, 3) > 0)
    with pytest.raises(ValueError, match="must be boolean"):
        metric("ndcg")(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3))
