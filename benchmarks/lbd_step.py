"""What the Lipschitz penalty of LBD adds to a training step.

The step is forward, backward and update of the two networks; both sides are repeated in turn, and the ratio is of
medians. Networks and batch are those of the field's experiments: 256 lists of 10 documents with 136 features.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch

from timing import Row, in_turn
from unskew.lists import ClickedLists
from unskew.methods.bias.lbd import LBD
from unskew.networks.registry import Network, Problem
from unskew.training.settings import Settings

N_LISTS, N_DOCS, N_FEATURES = 256, 10, 136
RELEVANCE, OBSERVATION = (512, 256, 128), (128, 64)
REPEATS, WARM_UP = 15, 2
SIDES: dict[str, dict[str, object]] = {
    "without": {"penalty": 0.0},
    "default": {},
    "every document": {"share": 1.0},
    "exact": {"exact": True},
    "certified": {"lipschitz": "certified", "beta": 0.1},
}


def random_lists(n_lists: int, n_docs: int, n_features: int) -> ClickedLists:
    """Lists of noise, with a click on a tenth of the documents."""
    generator = torch.Generator().manual_seed(0)
    shape = (n_lists, n_docs)
    return ClickedLists(
        features=torch.randn(*shape, n_features, generator=generator),
        mask=torch.ones(shape, dtype=torch.bool),
        positions=torch.arange(n_docs).expand(shape).contiguous(),
        clicks=(torch.rand(shape, generator=generator) < 0.1).float(),
        sessions=torch.ones(n_lists),
    )


def training(method: LBD, lists: ClickedLists) -> Callable[[], None]:
    optimizer = Settings(weight_decay=1.0).new_optimizer([{"params": method.parameters()}])

    def step() -> None:
        optimizer.zero_grad()
        (torch.stack(list(method.loss(lists).values())).sum() / N_LISTS).backward()
        optimizer.step()

    return step


def run() -> list[Row]:
    lists = random_lists(N_LISTS, N_DOCS, N_FEATURES)
    problem = Problem(N_FEATURES, N_DOCS, network=Network(hidden=RELEVANCE))
    methods = {name: LBD(problem, observation_hidden=OBSERVATION, **hyper) for name, hyper in SIDES.items()}  # type: ignore[arg-type]
    steps = {name: training(method, lists) for name, method in methods.items()}
    took = {name: median(times) for name, times in in_turn(steps, REPEATS, WARM_UP).items()}
    share = methods["default"].share

    def ratio(name: str) -> str:
        return f"{took[name] / took['without']:.2f} x"

    return [
        (f"LBD step, penalty on {share:.0%} of the documents / none", ratio("default"), "at most 1.6 x, at least 10%"),
        ("LBD step, one position of every document / none", ratio("every document"), ""),
        ("LBD step, exact penalty / none", ratio("exact"), ""),
        ("LBD step, certified / no limit", ratio("certified"), ""),
        ("LBD step without penalty", f"{1000 * took['without']:.0f} ms", ""),
    ]
