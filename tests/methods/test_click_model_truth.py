"""Click models find the truth: identified parameters within sampling error, on every order of five documents."""

from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call

from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.simulation.browsing import Shown
from unskew.simulation.sequential import Cascade, DependentClick, DownwardUser, DynamicBayesian, UserBrowsing
from unskew.training.fitting import fit_recipe
from unskew.training.recipe import Recipe

ORDERS = np.array(list(permutations(range(5))))
GRADES = np.array([3.5, 0.5, 2.0, 1.0, 3.0])
EQUAL = np.full(5, 2.0)
MOST_ERRORS = 4.5  # standard errors; about 70 numbers are checked


@dataclass(kw_only=True, eq=False)
class ClickChain(DownwardUser):
    """Users of `ccm`: they continue after a skip, and after a click as far as attraction has satisfied them."""

    alphas: tuple[float, float, float] = (0.8, 0.9, 0.3)

    def continuation(self, shown):
        skip, worse, better = self.alphas
        attraction = self.attraction(shown)
        return worse * (1 - attraction) + better * attraction, np.full(shown.mask.shape, skip)


def counted_log(user, grades, n_sessions, seed=0):
    """A log of these many sessions on all orders, each distinct click pattern once, with its count as its weight."""
    rng = np.random.default_rng(seed)
    shown = Shown(grades[ORDERS], np.ones(ORDERS.shape, dtype=bool))
    lists = rng.integers(0, len(ORDERS), n_sessions)
    patterns = user.browse(shown, lists, rng).clicks @ (1 << np.arange(5))
    found, counts = np.unique(lists * 32 + patterns, return_counts=True)
    table = {
        "session": np.repeat(np.arange(len(found)), 5),
        "query": np.zeros(5 * len(found), dtype=np.int64),
        "document": ORDERS[found // 32].reshape(-1),
        "position": np.tile(np.arange(5), len(found)),
        "click": (found[:, None] >> np.arange(5) & 1).reshape(-1),
        "times": np.repeat(counts, 5),
    }
    return ClickLog.from_table(pa.table(table), features=(), weight="times")


def part(model, which, codes):
    """Probabilities of the five documents."""
    lists = codes.shape[:2]
    logits = getattr(model, which)(torch.zeros(*lists, 0), torch.ones(lists, dtype=torch.bool), codes)
    return logits[0].sigmoid()


def relative(values):
    """Logarithms relative to the first: where examination and attraction share a free scale."""
    logs = values.log()
    return logs[1:] - logs[0]


def browsing(model):
    """Examination of `ubm` by position and last click above it."""
    logits = model.observation.logits[:, None] + model.table_spread * model.table[0]
    return logits[REACHED].sigmoid()  # positions, and the last click above each


REACHED = tuple(np.array([(place, last) for place in range(5) for last in range(place + 1)]).T)


def attraction(user):
    return user.attraction(Shown(GRADES[None], np.ones((1, 5), dtype=bool)))[0]


def satisfaction(user):
    return user.satisfaction * user.usefulness(GRADES)


# Users, grades, what is identified in a model, and the truth about it.
TRUTHS = {
    "gctr": (
        UserBrowsing(power=0.0),
        EQUAL,
        lambda model, codes: model.rate.sigmoid()[None],
        lambda user: np.array([0.1 + 0.9 * 3 / 15]),
    ),
    "rctr": (
        UserBrowsing(dependence=0.0),
        EQUAL,
        lambda model, codes: model.rate.logits.sigmoid(),
        lambda user: user.position_curve(5) * (0.1 + 0.9 * 3 / 15),
    ),
    "dctr": (
        UserBrowsing(power=0.0),
        GRADES,
        lambda model, codes: part(model, "attraction", codes),
        attraction,
    ),
    "pbm": (
        UserBrowsing(dependence=0.0),
        GRADES,
        lambda model, codes: torch.cat(
            [relative(part(model, "attraction", codes)), relative(model.observation.logits.sigmoid())]
        ),
        lambda user: np.concatenate(
            [relative(torch.tensor(values)).numpy() for values in (attraction(user), user.position_curve(5))]
        ),
    ),
    "cascade": (Cascade(), GRADES, lambda model, codes: part(model, "attraction", codes), attraction),
    "ubm": (
        UserBrowsing(dependence=0.7),
        GRADES,
        lambda model, codes: torch.cat([relative(part(model, "attraction", codes)), relative(browsing(model))]),
        lambda user: np.concatenate(
            [
                relative(values).numpy()
                for values in (torch.tensor(attraction(user)), torch.tensor(user.table(5))[REACHED])
            ]
        ),
    ),
    "dcm": (
        DependentClick(),
        GRADES,
        lambda model, codes: torch.cat(
            [part(model, "attraction", codes), model.continuation.logits[:4].sigmoid()]  # nothing is below the fifth
        ),
        lambda user: np.concatenate([attraction(user), 1 / np.arange(2, 6)]),
    ),
    "ccm": (
        ClickChain(),
        GRADES,
        lambda model, codes: torch.cat(
            [
                part(model, "attraction", codes),
                *(table.logits.sigmoid() for table in (model.after_skip, model.unsatisfied, model.satisfied)),
            ]
        ),
        lambda user: np.concatenate([attraction(user), user.alphas]),
    ),
    "dbn": (
        DynamicBayesian(persistence=0.8),
        GRADES,
        lambda model, codes: torch.cat(
            [
                part(model, "attraction", codes),
                part(model, "satisfaction", codes),
                model.continuation.logits.sigmoid(),
            ]
        ),
        lambda user: np.concatenate([attraction(user), satisfaction(user), [user.persistence]]),
    ),
    "sdbn": (
        DynamicBayesian(persistence=1.0),
        GRADES,
        lambda model, codes: torch.cat([part(model, "attraction", codes), part(model, "satisfaction", codes)]),
        lambda user: np.concatenate([attraction(user), satisfaction(user)]),
    ),
}
WIDE = {"spread": 3.0, "url_spread": 0.0, "query_spread": 0.0}  # a prior that a log of this size overrules
OPTIONS = {name: {} if name in ("gctr", "rctr") else WIDE for name in TRUTHS}
OPTIONS |= {"pbm": {**WIDE, "depth_spread": 0.0}, "ubm": {**WIDE, "depth_spread": 0.0, "table_spread": 3.0}}


class Of(torch.nn.Module):
    """A function of a model as a module, so that it can be differentiated in the model's parameters."""

    def __init__(self, model, function):
        super().__init__()
        self.model, self.function = model, function

    def forward(self):
        return self.function(self.model)


def found_with_errors(method, lists, identified):
    """What is identified, and its standard errors by the delta method from the curvature of the likelihood.

    Directions in which the likelihood is flat tell nothing, and what is identified does not move along them.
    """
    method = method.double().eval()
    names = {name: entry for name, entry in method.named_parameters() if entry.numel()}
    sizes = [entry.numel() for entry in names.values()]
    here = torch.cat([entry.detach().reshape(-1) for entry in names.values()])

    def at(vector, function):
        pieces = zip(names.items(), vector.split(sizes), strict=True)
        return functional_call(
            Of(method, function), {f"model.{name}": piece.view_as(entry) for (name, entry), piece in pieces}
        )

    curvature = hessian(lambda vector: at(vector, lambda model: model.loss(lists)["clicks"]), here)
    slopes = jacobian(lambda vector: at(vector, identified), here)
    covariance = slopes @ torch.linalg.pinv(curvature, rtol=1e-9, hermitian=True) @ slopes.T
    with torch.no_grad():
        return identified(method).numpy(), covariance.diagonal().sqrt().numpy()


def check_recovery(name, n_sessions):
    """Every identified number within so many standard errors; returns the errors."""
    user, grades, identified, truth = TRUTHS[name]
    log = counted_log(user, grades, n_sessions)
    assert log.n_sessions == n_sessions
    model = fit_recipe(Recipe.of(name, **OPTIONS[name]), log)
    codes = torch.zeros(1, 5, 3, dtype=torch.int64)
    if model.vocabulary is not None:
        codes = torch.tensor(model.vocabulary.numbers(["0"] * 5, [str(number) for number in range(5)]))[None]
        log = model.vocabulary.encode(log)
    (lists,) = ClickBatches(log, detail="patterns").all(1 << 16)
    found, errors = found_with_errors(model.method, lists, lambda method: identified(method, codes))
    far = np.abs(found - truth(user)) / errors
    assert far.max() < MOST_ERRORS, (found, truth(user), errors)
    return errors


@pytest.mark.parametrize("name", ["pbm", "ccm", "dbn"])
def test_identified_parameters_are_recovered_within_sampling_error(name):
    check_recovery(name, 100_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRUTHS)
def test_identified_parameters_are_recovered_from_a_million_sessions(name):
    assert check_recovery(name, 1_000_000).max() < 0.03  # so close that a wrong number would stand out
