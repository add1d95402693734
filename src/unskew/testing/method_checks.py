"""Common checks that every method must pass.

A class is exempt from a check if its `exempt` names it, with the reason. A failed check raises an `AssertionError`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close

from unskew.lists import ClickedLists
from unskew.methods.method import Method
from unskew.networks.registry import Network, Problem
from unskew.testing.samples import (
    EXTREMES,
    N_DOCS,
    N_FEATURES,
    SOURCES,
    all_lists,
    in_double,
    in_several_orders,
    log_of_single_sessions,
    small_log,
    small_sessions,
    widened,
)
from unskew.training.plan import plan_stages
from unskew.training.settings import Settings
from unskew.training.train import train

STEPS = 8
SETTINGS = Settings(steps=STEPS, batch_size=3, validate_every=2)
Maker = Callable[..., Method]  # a new method; takes seed and dropout


def maker(method: type[Method], /, **hyper: Any) -> Maker:
    """A function that makes methods of the size of the samples."""

    def make(seed: int = 0, dropout: float = 0.0) -> Method:
        problem = Problem(N_FEATURES, N_DOCS, {"device": ("desk", "phone")}, Network(hidden=(6,), dropout=dropout))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return method(problem, **hyper)

    return make


def check_method(method: type[Method], /, **hyper: Any) -> dict[str, str]:
    """Run all common checks on a class; an `AssertionError` names the check that fails.

    Args:
        hyper: hyper-parameters that the method requires.

    Returns:
        the checks that the method is exempt from, each with its reason.
    """
    make = maker(method, **hyper)
    exempt = dict(make().exempt)
    strangers = [name for name in exempt if name not in CHECKS]
    assert not strangers, (
        f"{method.__name__} is exempt from '{strangers[0]}', which is not a check: {', '.join(CHECKS)}"
    )
    for name, check in CHECKS.items():
        if name in exempt:
            continue
        try:
            check(make)
        except AssertionError as error:
            raise AssertionError(f"{method.__name__}: {name} does not hold: {error}") from error
    return exempt


def state(method: Method) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in method.state_dict().items()}


def assert_equal_states(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def loss_and_gradients(method: Method, lists: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Terms of every stage, each under its name, and the gradient of their sum."""
    method.zero_grad()
    terms = {f"{stage.name}.{name}": term for stage in method.stages() for name, term in stage.loss(lists).items()}
    torch.stack(list(terms.values())).sum().backward()
    gradients = {name: entry.grad for name, entry in method.named_parameters() if entry.grad is not None}
    return {name: term.detach() for name, term in terms.items()}, gradients


def assert_finite(tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        assert bool(tensor.isfinite().all()), f"{name} is {tensor}"


def trained(make: Maker, seed: int = 0, **options: Any) -> Method:
    method = make(dropout=0.2)
    train(method, SOURCES, replace(SETTINGS, seed=seed), **options)
    return method


def loss_reaches_every_network(make: Maker) -> None:
    """Loss and gradients are finite, and every trained network of a stage gets a gradient, away from zero weights."""
    method = make().train()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for entry in method.parameters():
            entry.add_(torch.randn(entry.shape, generator=draw).to(entry), alpha=0.1)
    lists = all_lists(method)
    for stage in method.stages():
        method.zero_grad()
        terms = stage.loss(lists)
        assert_finite(terms)
        assert all(term.shape == () for term in terms.values()), "a term is not a single number"
        torch.stack(list(terms.values())).sum().backward()
        for module in stage.trains:
            if not list(module.parameters()):
                continue  # learns by averaging
            gradients = {name: entry.grad for name, entry in module.named_parameters() if entry.grad is not None}
            assert_finite(gradients)
            assert any(bool((gradient != 0).any()) for gradient in gradients.values()), f"{stage.name} has no gradient"


def loss_outside_training_changes_nothing(make: Maker) -> None:
    method = make().eval()
    before = state(method)
    loss_and_gradients(method, all_lists(method))
    assert_equal_states(before, state(method))


def distinct_documents_agree(make: Maker) -> None:
    """Networks that run once per document give the loss and gradient of every place."""
    results = []
    for change in (lambda lists: lists, lambda lists: replace(lists, features=lists.features.clone())):
        method = make().double().train()
        lists = change(in_double(all_lists(method, in_several_orders())))
        torch.manual_seed(0)
        terms, gradients = loss_and_gradients(method, lists)
        logits = method.eval().click_logits(lists) if isinstance(lists, ClickedLists) else None
        results.append({"terms": terms, "gradients": gradients, "logits": logits, "state": state(method)})
    if isinstance(lists, ClickedLists):
        shared = all_lists(method, in_several_orders())
        assert len(shared.distinct.rows) - 1 == small_log().mask.sum() < shared.mask.sum()
    assert_close(results[0], results[1], rtol=1e-9, atol=1e-11)


def padding_changes_nothing(make: Maker) -> None:
    """Padding changes neither the loss nor scores nor what is learned."""
    results = []
    for change in (lambda lists: lists, widened):
        method = make().double().train()
        lists = change(in_double(all_lists(method)))
        terms, gradients = loss_and_gradients(method, lists)
        scores = method.ranker()(lists.features, lists.mask)[lists.mask]
        results.append({"terms": terms, "gradients": gradients, "scores": scores, "state": state(method)})
    assert_close(results[1], results[0], rtol=1e-10, atol=1e-12)


def nothing_is_nan(make: Maker) -> None:
    """Loss, gradients, scores and state are finite without clicks, with all clicked, and with lists of one or none."""
    for change in EXTREMES:
        method = make().train()
        lists = change(all_lists(method))
        for _ in range(3):  # later steps must cope with the running estimates of the first
            terms, gradients = loss_and_gradients(method, lists)
            assert_finite(terms)
            assert_finite(gradients)
        assert_finite(state(method))
        assert_finite({"scores": method.ranker()(lists.features, lists.mask)})
        usual = loss_and_gradients(method, all_lists(method))
        assert_finite({**usual[0], **usual[1]})


def counts_teach_like_sessions(make: Maker) -> None:
    """Counted clicks give the loss and gradient of single sessions."""
    _, sessions = small_sessions()
    counted = SOURCES["clicks"]
    results = []
    for log in (counted, log_of_single_sessions(counted, sessions)):
        method = make().double().train()
        terms, gradients = loss_and_gradients(method, in_double(all_lists(method, log)))
        results.append({"terms": terms, "gradients": gradients, "state": state(method)})
    assert_close(results[1], results[0], rtol=1e-10, atol=1e-12)


def stages_move_what_they_train(make: Maker) -> None:
    """Stages change everything that they train, and nothing else."""
    method = make()
    ends: dict[str, dict[str, Tensor]] = {}
    start = state(method)
    train(method, SOURCES, SETTINGS, progress=lambda report: ends.update({report.stage: state(method)}))
    for stage, _ in plan_stages(method.stages(), STEPS):
        moved = {name for name, value in ends[stage.name].items() if not torch.equal(value, start[name])}
        names = {module: name for name, module in method.named_modules()}
        inside = [f"{names[module]}." if names[module] else "" for module in stage.trains]
        assert all(any(name.startswith(prefix) for prefix in inside) for name in moved), f"{stage.name} moves others"
        assert all(any(name.startswith(prefix) for name in moved) for prefix in inside), f"{stage.name} moves too few"
        start = ends[stage.name]


def loaded_scores_are_the_same(make: Maker) -> None:
    method, other = trained(make), make(seed=1, dropout=0.2)
    other.load_state_dict(state(method))
    lists = all_lists(method)
    other.eval()
    with torch.inference_mode():
        scores = method.ranker()(lists.features, lists.mask)
        assert torch.equal(other.ranker()(lists.features, lists.mask), scores)
    curve, again = method.examination(), other.examination()
    assert (curve is None) == (again is None)
    assert curve is None or again is None or torch.equal(curve, again)


def seeds_decide(make: Maker) -> None:
    """The same seed gives the same weights bit for bit; another seed gives other scores."""
    first = trained(make)
    assert_equal_states(state(first), state(trained(make)))
    lists = all_lists(first)
    other = trained(make, seed=1)
    assert not torch.equal(*(method.ranker()(lists.features, lists.mask) for method in (first, other)))


def interrupted_runs_resume(make: Maker) -> None:
    """An interrupted and resumed run ends with the same weights."""

    class Stopped(Exception):
        pass

    def stop(report: Any) -> None:
        if report.step > STEPS / 2:
            raise Stopped

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "run"
        with suppress(Stopped):
            trained(make, checkpoint=checkpoint, progress=stop)
        assert checkpoint.exists(), "no checkpoint was written"
        assert_equal_states(state(trained(make)), state(trained(make, checkpoint=checkpoint)))


CHECKS: dict[str, Callable[[Maker], None]] = {
    check.__name__: check
    for check in (
        loss_reaches_every_network,
        loss_outside_training_changes_nothing,
        distinct_documents_agree,
        padding_changes_nothing,
        nothing_is_nan,
        counts_teach_like_sessions,
        stages_move_what_they_train,
        loaded_scores_are_the_same,
        seeds_decide,
        interrupted_runs_resume,
    )
}
