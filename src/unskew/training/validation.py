"""Validation: one number that says how good a method currently is; higher is better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from unskew.data.clicks.batches import ClickBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.data.judged.judged_set import JudgedSet
from unskew.data.judged.metrics import metric as parse_metric
from unskew.evaluation.evaluate import evaluate_scorer
from unskew.methods import losses
from unskew.methods.method import Method

CLICK_LIKELIHOOD, ORDER_LIKELIHOOD = "click likelihood", "likelihood of clicks given the order"
CLICK_VALIDATIONS = (CLICK_LIKELIHOOD, ORDER_LIKELIHOOD)  # their names


@dataclass(frozen=True)
class Validation:
    """A named criterion."""

    name: str
    value: Callable[[Method], float]
    sign: float = 1.0  # -1 if lower is better

    def __call__(self, method: Method) -> float:
        """The criterion, with its sign changed if necessary so that higher is better."""
        return self.sign * self.value(method)


def on_judgements(judged: JudgedSet, metric: str = "ndcg@10") -> Validation:
    """A metric on judged lists; a method that tunes itself on judged data (`Method.tune`) does so first."""

    def value(method: Method) -> float:
        method.tune(judged, metric)
        return evaluate_scorer(method.ranker(), judged, (metric,)).mean(metric)

    return Validation(metric, value, 1.0 if parse_metric(metric).higher_is_better else -1.0)


def on_clicks(log: ClickLog, batch_size: int = 1024) -> Validation:
    """Log-likelihood of held-out clicks: of a click's place in its list, or of clicks and non-clicks."""
    batches = ClickBatches(log, batch_size)
    return Validation(CLICK_LIKELIHOOD, lambda method: click_likelihood(method, batches))


def on_order(log: ClickLog, batch_size: int = 1024) -> Validation:
    """Log-likelihood of a held-out click's place in its list, given the ranker's scores and any effect of positions."""
    batches = ClickBatches(log, batch_size)
    return Validation(ORDER_LIKELIHOOD, lambda method: order_likelihood(method, batches))


def order_likelihood(method: Method, batches: ClickBatches) -> float:
    r"""The largest mean of $\log \frac{e^{a s_i + o_i}}{\sum_j e^{a s_j + o_j}}$ per click, over $a > 0$ and $o$.

    $o$ is a logit per position. It judges a ranker whose method predicts no clicks: how well do its scores $s$ explain
    where clicks fell, besides what the position explains?
    """
    was_training = method.training
    ranker, device = method.eval().ranker(), next(method.parameters()).device
    with torch.no_grad():
        held_out = [batch.to(device) for _, batch in batches.by_query()]
        parts = [(lists, lists.apply(ranker).double()) for lists in held_out]
    table = torch.zeros(batches.log.n_positions, dtype=torch.float64, device=device, requires_grad=True)
    scale = torch.zeros((), dtype=torch.float64, device=device, requires_grad=True)  # log a
    n_clicks = sum(float(lists.clicks.sum()) for lists, _ in parts)

    def cost() -> torch.Tensor:
        optimizer.zero_grad()
        terms = [losses.softmax(scale.exp() * s + table[x.positions], x.clicks.double(), x.mask) for x, s in parts]
        value = torch.stack(terms).sum() / max(n_clicks, 1.0)
        value.backward()
        return value.detach()

    optimizer = torch.optim.LBFGS([table, scale], max_iter=25, line_search_fn="strong_wolfe")
    with torch.enable_grad():
        optimizer.step(cost)
        value = -float(cost())
    method.train(was_training)
    return value


@torch.inference_mode()
def click_likelihood(method: Method, batches: ClickBatches) -> float:
    """Mean log-likelihood of clicks under the method's predictions.

    A list-softmax method is evaluated by where in its list each click fell, a Bernoulli method by every click and
    non-click; the two numbers cannot be compared.
    """
    if method.click_model is None:
        raise ValueError(f"{type(method).__name__} predicts no clicks: compare its order with them (on_order)")
    was_training = method.training
    method.eval()
    total = weight = 0.0
    device = next(method.parameters()).device
    for _, batch in batches.by_query():
        lists = batch.to(device)
        logits = method.click_logits(lists)
        assert logits is not None
        if method.click_model == "softmax":
            total += float((lists.clicks * losses.log_shares(logits, lists.mask)).sum())
            weight += float(lists.clicks.sum())
        else:
            unclicked = lists.sessions.unsqueeze(-1) - lists.clicks
            likelihood = -(lists.clicks * F.softplus(-logits) + unclicked * F.softplus(logits))
            total += float(likelihood.masked_fill(~lists.mask, 0.0).sum())
            weight += float((lists.sessions.unsqueeze(-1) * lists.mask).sum())
    method.train(was_training)
    return total / weight if weight else 0.0
