"""The skyline: plain softmax on grades, in the unit of clicks."""

import numpy as np
import torch
from torch.testing import assert_close

from unskew.data.judged.judged_set import JudgedSet
from unskew.methods import losses
from unskew.methods.bias.labelled import Labelled
from unskew.networks.registry import Network, Problem


def judged(grades, group):
    features = np.random.default_rng(0).normal(size=(len(grades), 3)).astype(np.float32)
    return JudgedSet.from_arrays(features, np.array(grades), group=group).lists()


def new_method(**options):
    torch.manual_seed(0)
    return Labelled(Problem(3, 4, {}, Network(kind="linear")), **options)


def test_grades_count_as_clicks_of_which_a_list_has_one_on_average():
    lists = judged([2, 0, 1, 0, 3], [3, 2])  # 6 in all, 3 a list
    method = new_method()
    scores = method.relevance(lists.features, lists.mask)
    assert_close(method.loss(lists)["grades"], losses.softmax(scores, lists.grades / 3, lists.mask))


def test_the_scale_of_grades_does_not_matter():
    method = new_method()
    small, large = judged([2, 0, 1, 0, 3], [3, 2]), judged([200, 0, 100, 0, 300], [3, 2])
    assert_close(method.loss(small)["grades"], method.loss(large)["grades"])


def test_exponential_gains_are_those_of_ndcg():
    lists = judged([2, 0, 1], [3])  # gains 3, 0, 1
    method = new_method(gain="exponential")
    scores = method.relevance(lists.features, lists.mask)
    assert_close(method.loss(lists)["grades"], losses.softmax(scores, torch.tensor([[0.75, 0.0, 0.25]]), lists.mask))
