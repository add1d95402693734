"""CDLA-LD: the formulas by hand, and who learns from what."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sample_lists import Fixed
from unskew.lists import ClickedLists
from unskew.methods import losses
from unskew.methods.bias.cdla_ld import CDLALD
from unskew.networks.listwise import EncoderLayer
from unskew.networks.registry import Network, Problem

PROBLEM = Problem(3, 3, network=Network(hidden=(4,), expand=8, layers=1, heads=2))
MASK = torch.tensor([[True, True, True], [True, True, False]])
TEACHER = torch.tensor([[0.5, 0.3, 0.2], [0.25, 0.75, 1.0]], dtype=torch.float64)  # shares; padding is no share
STUDENT = torch.tensor([[0.2, 0.2, 0.6], [0.5, 0.5, 1.0]], dtype=torch.float64)
SEEN = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def lists():
    generator = torch.Generator().manual_seed(0)
    return ClickedLists(
        features=torch.randn(2, 3, 3, generator=generator, dtype=torch.float64),
        mask=MASK,
        positions=torch.tensor([[0, 1, 2], [0, 1, 0]]),
        clicks=torch.tensor([[1.0, 2.0, 0.0], [0.0, 3.0, 0.0]], dtype=torch.float64),
        sessions=torch.tensor([4.0, 5.0], dtype=torch.float64),
    )


VARIANTS = {"cdla_ld": {}, "cdla": {"serve": "teacher"}, "c_dla_ld": {"debias": "student"}}  # of the paper


def new_method(preset):
    torch.manual_seed(0)
    return CDLALD(PROBLEM, observed_by="weights", **VARIANTS[preset]).double()


def terms_of(method):
    return {name: term.detach() for name, term in method.loss(lists()).items()}


def fixed_method(preset):
    method = new_method(preset)
    method.teacher, method.relevance = Fixed(TEACHER.log()), Fixed(STUDENT.log())
    with torch.no_grad():
        method.observation.logits.copy_(SEEN.log())
    return method


def learners(method, term):
    """Which networks a term of the loss teaches."""
    method.zero_grad()
    method.loss(lists())[term].backward()
    networks = {"teacher": method.teacher, "student": method.relevance, "observation": method.observation}
    return {name for name, network in networks.items() if any(p.grad is not None for p in network.parameters())}


# -- distillation


def test_distillation_is_sessions_times_cross_entropy_from_teacher_to_student():
    by_hand = -4 * (0.5 * math.log(0.2) + 0.3 * math.log(0.2) + 0.2 * math.log(0.6)) - 5 * math.log(0.5)
    value = losses.distillation(STUDENT.log(), TEACHER.log(), lists().sessions, MASK)
    assert float(value) == pytest.approx(by_hand)


def less_entropy(student, teacher):
    sessions = lists().sessions
    return float(
        losses.distillation(student, teacher, sessions, MASK) - losses.distillation(teacher, teacher, sessions, MASK)
    )


def test_less_the_teachers_entropy_it_is_zero_only_where_the_distributions_are_equal():
    assert less_entropy(TEACHER.log() + torch.tensor([[3.0], [-2.0]]), TEACHER.log()) == pytest.approx(0.0, abs=1e-12)
    slightly = TEACHER.log() + torch.tensor([[0.1, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert less_entropy(slightly, TEACHER.log()) > 1e-3
    assert less_entropy(STUDENT.log(), TEACHER.log()) > 1e-3


def test_its_gradient_is_the_students_share_less_the_teachers():
    student = STUDENT.log().requires_grad_()
    teacher = TEACHER.log().requires_grad_()
    losses.distillation(student, teacher, lists().sessions, MASK).backward()
    by_hand = torch.tensor([[4 * (0.2 - 0.5), 4 * (0.2 - 0.3), 4 * (0.6 - 0.2)], [5 * 0.25, 5 * -0.25, 0.0]])
    assert_close(student.grad, by_hand.double())
    assert teacher.grad is None


# -- CDLA-LD


def test_teacher_and_propensities_learn_by_dual_learning_and_the_student_from_the_teacher():
    terms = terms_of(fixed_method("cdla_ld"))
    relevance = -(1 * math.log(0.5) + 2 * (0.5 / 0.3) * math.log(0.3) + 3 * (0.5 / 0.3) * math.log(0.75))
    shares = (0.5 / 0.8, 0.3 / 0.8)  # of the two places of the second list
    seen = -(1 * math.log(0.5) + 2 * (0.5 / 0.3) * math.log(0.3) + 3 * (0.25 / 0.75) * math.log(shares[1]))
    assert float(terms["relevance"]) == pytest.approx(relevance)
    assert float(terms["observation"]) == pytest.approx(seen)
    assert_close(terms["distillation"], losses.distillation(STUDENT.log(), TEACHER.log(), lists().sessions, MASK))


@pytest.mark.parametrize("preset", ["cdla_ld", "cdla"])
def test_every_term_teaches_one_network_only(preset):
    method = new_method(preset)
    assert learners(method, "relevance") == {"teacher"}
    assert learners(method, "observation") == {"observation"}
    assert learners(method, "distillation") == {"student"}


# -- ablations


def test_the_student_is_served_and_in_cdla_the_teacher():
    method, cdla = new_method("cdla_ld"), new_method("cdla")
    assert method.ranker() is method.relevance
    assert cdla.ranker() is cdla.teacher


def test_in_c_dla_ld_the_teachers_distribution_takes_the_place_of_clicks():
    terms = terms_of(fixed_method("c_dla_ld"))
    predicted = [[4 * 0.5, 4 * 0.3, 4 * 0.2], [5 * 0.25, 5 * 0.75]]
    student, seen = [[0.2, 0.2, 0.6], [0.5, 0.5]], [[0.5, 0.3, 0.2], [0.5 / 0.8, 0.3 / 0.8]]
    pairs = [(row, place) for row in range(2) for place in range(len(predicted[row]))]
    relevance = -sum(predicted[r][i] * seen[r][0] / seen[r][i] * math.log(student[r][i]) for r, i in pairs)
    observation = -sum(predicted[r][i] * student[r][0] / student[r][i] * math.log(seen[r][i]) for r, i in pairs)
    clicks = -(1 * math.log(0.5) + 2 * math.log(0.3) + 3 * math.log(0.75))
    assert float(terms["clicks"]) == pytest.approx(clicks)
    assert float(terms["relevance"]) == pytest.approx(relevance)
    assert float(terms["observation"]) == pytest.approx(observation)


def test_in_c_dla_ld_the_teacher_learns_from_clicks_alone():
    method = new_method("c_dla_ld")
    assert learners(method, "clicks") == {"teacher"}
    assert learners(method, "relevance") == {"student"}
    assert learners(method, "observation") == {"observation"}
    assert method.ranker() is method.relevance


def test_a_listwise_student_is_refused():
    with pytest.raises(ValueError, match="choose network 'tabular', 'mlp' or 'linear'"):
        CDLALD(Problem(3, 3, network=Network("listwise")))


def test_attention_within_short_lists_is_that_of_torch():
    torch.manual_seed(0)
    layer = EncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True).double()
    vectors = torch.randn(2, 3, 8, dtype=torch.float64)
    padding = torch.zeros(2, 3, dtype=torch.float64).masked_fill(~MASK, -math.inf)
    parameters = list(layer.self_attn.parameters())
    found = layer._sa_block(vectors, None, padding)
    expected = nn.TransformerEncoderLayer._sa_block(layer.eval(), vectors, None, padding)
    assert_close(found, expected)
    weights = torch.randn_like(found)
    gradients = [torch.autograd.grad((seen * weights).sum(), parameters) for seen in (found, expected)]
    assert_close(*gradients)
