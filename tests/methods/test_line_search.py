"""Line search: the best is found, small differences are not believed, one list decides nothing."""

import math

import pytest
import torch
from torch.testing import assert_close

from unskew.lists import ClickedLists, JudgedLists
from unskew.methods.line_search import Axis, ScoredLists, best_with_caution, of_clicks, of_metric, search, spread_axes


def test_without_caution_the_best_is_taken():
    values = torch.tensor([[0.5, 0.5], [0.5, 0.7], [0.4, 0.6]])
    assert best_with_caution(values, caution=0.0)[0] == 1


def test_the_first_that_is_within_the_standard_error_is_taken():
    # Against the last, the first loses 1, 0, 0, 1 (mean .5, standard error √(1/3)/2 = .289): 1.73 errors.
    # The second loses .2, 0, 0, 0 (mean .05, standard error .1/2 = .05): one error.
    values = torch.tensor([[0.0, 1.0, 1.0, 0.0], [0.8, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    assert best_with_caution(values, caution=0.99)[0] == 2
    assert best_with_caution(values, caution=1.01)[0] == 1
    taken, plausible = best_with_caution(values, caution=1.74)
    assert taken == 0
    assert plausible.tolist() == [True, True, True]


def test_a_sure_loss_is_not_plausible():
    values = torch.tensor([[0.1, 0.2, 0.3], [0.2, 0.3, 0.4]])
    taken, plausible = best_with_caution(values, caution=3.0)
    assert taken == 1
    assert plausible.tolist() == [False, True]


def test_one_list_decides_nothing_unless_it_is_believed():
    values = torch.tensor([[0.1], [0.9]])
    assert best_with_caution(values, caution=1.0)[0] == 0
    assert best_with_caution(values, caution=0.0)[0] == 1


def judged(grades):
    grades = torch.tensor(grades)
    return JudgedLists(torch.zeros(*grades.shape, 1), torch.ones(grades.shape, dtype=torch.bool), grades)


def test_lists_without_a_relevant_document_do_not_count_and_lower_ranks_are_better():
    lists = judged([[0.0, 1.0], [0.0, 0.0]])
    scores = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    assert_close(of_metric(lists, "ndcg@10")(scores), torch.tensor([1 / math.log2(3)], dtype=torch.float64))
    assert_close(of_metric(lists, "arp")(scores), torch.tensor([-2.0], dtype=torch.float64))


def test_the_value_of_clicks_is_their_log_likelihood():
    lists = ClickedLists(
        features=torch.zeros(2, 2, 1),
        mask=torch.ones(2, 2, dtype=torch.bool),
        positions=torch.tensor([[0, 1], [0, 1]]),
        clicks=torch.tensor([[3.0, 1.0], [0.0, 0.0]]),
        sessions=torch.tensor([4.0, 4.0]),
    )
    values = of_clicks(lists)(torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]]))
    assert_close(values, torch.tensor([3 * math.log(0.75) + math.log(0.25)], dtype=torch.float64))


def test_a_length_of_one_moves_scores_as_much_as_relevance_does():
    mask = torch.tensor([[True, True, False]])
    part = ScoredLists(
        relevance=torch.tensor([[1.0, 5.0, 99.0]]),  # 2 from its mean
        traits=torch.tensor([[[7.0], [7.5], [99.0]]]),  # .25 from its mean
        mask=mask,
        value=lambda scores: scores[:, 0],
    )
    (axis,) = spread_axes([part])
    assert_close(axis.direction, torch.tensor([8.0]))


def test_traits_that_are_the_same_for_all_documents_are_left_alone():
    mask = torch.tensor([[True, True]])
    part = ScoredLists(torch.tensor([[1.0, 5.0]]), torch.full((1, 2, 2), 3.0), mask, lambda scores: scores[:, 0])
    axes = spread_axes([part])
    assert all(float(axis.direction.abs().sum()) == 0.0 for axis in axes)


@pytest.mark.parametrize("target", [(2.0, -1.0), (0.0, 0.0)])
def test_several_numbers_are_found_axis_by_axis(target):
    goal = torch.tensor(target)
    traits = torch.eye(2).unsqueeze(0)

    def value(scores):  # a paraboloid around the goal, the same for both lists
        return -(scores - goal).square().sum(-1).repeat(2)

    part = ScoredLists(torch.zeros(1, 2), traits, torch.ones(1, 2, dtype=torch.bool), value)
    lengths = torch.tensor([0.0, 1.0, -1.0, 2.0, -2.0])
    axes = [Axis(torch.tensor([1.0, 0.0]), lengths), Axis(torch.tensor([0.0, 1.0]), lengths)]
    found = search([part], lambda relevance, traits, numbers: relevance + traits @ numbers, axes, caution=1.0)
    assert_close(found.numbers, goal)
    assert_close(found.lengths, goal.repeat(3, 1))  # nothing else is plausible
