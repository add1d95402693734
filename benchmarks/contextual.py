"""What contextual methods cost: the student that CDLA-LD serves against a pointwise ranker and against its teacher.

Lists of 25 documents with 136 features are scored, and lists of 10 are trained on. All sides are repeated in turn, and
ratios are of medians.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch

from lbd_step import random_lists
from timing import Row, in_turn
from unskew.methods import METHODS, Method
from unskew.networks.registry import Network, Problem

N_LISTS, N_SCORED, N_TRAINED, N_FEATURES = 256, 25, 10, 136
REPEATS, WARM_UP = 13, 2
PROBLEM = Problem(N_FEATURES, N_TRAINED, network=Network(hidden=(32, 16, 8), expand=64, layers=2, heads=4))
CONTEXTUAL = ("cdla_ld", "xpa", "upe", "iobm")


def scoring(method: Method) -> Callable[[], object]:
    ranker = method.ranker().eval()
    features = torch.randn(N_LISTS, N_SCORED, N_FEATURES)
    mask = torch.ones(N_LISTS, N_SCORED, dtype=torch.bool)

    def score() -> object:
        with torch.inference_mode():
            return ranker(features, mask)

    return score


def training(method: Method) -> Callable[[], object]:
    """A step of every stage, without the optimizer."""
    lists = random_lists(N_LISTS, N_TRAINED, N_FEATURES)
    # The costliest stage: others are shorter, or the same with less in it.
    loss = max(method.stages(), key=lambda stage: len(stage.trains)).loss

    def step() -> object:
        method.zero_grad()
        return torch.stack(list(loss(lists).values())).sum().backward()

    return step


def run() -> list[Row]:
    torch.manual_seed(0)
    student = METHODS["cdla_ld"](PROBLEM)
    teacher = METHODS["cdla_ld"](PROBLEM, serve="teacher")
    sides = {"pointwise": scoring(METHODS["dla"](PROBLEM)), "student": scoring(student), "teacher": scoring(teacher)}
    sides |= {f"step of {name}": training(METHODS[name](PROBLEM)) for name in ("dla", *CONTEXTUAL)}
    took = {name: median(times) for name, times in in_turn(sides, REPEATS, WARM_UP).items()}
    what = f"scoring {N_LISTS} x {N_SCORED}"
    return [
        (f"{what}: served student / pointwise ranker", f"{took['student'] / took['pointwise']:.2f} x", "about 1 x"),
        (f"{what}: teacher / served student", f"{took['teacher'] / took['student']:.1f} x", ""),
        *(
            (f"training step: {name} / dla", f"{took[f'step of {name}'] / took['step of dla']:.1f} x", "")
            for name in CONTEXTUAL
        ),
    ]
