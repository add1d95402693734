r"""Averaging: a method whose parameters are the mean over the last steps.

At a constant learning rate the parameters fluctuate around the optimum, each state in another direction; their average
is closer to it. Without judgements there is nothing to choose a good state by, so the average is served. The mean is
exponential, $\bar w \leftarrow \bar w + (w - \bar w) / \min(n, h)$ after $n$ steps, with a horizon of $h$ steps: first
a plain mean, then one that forgets the beginning of training. Buffers, such as running estimates, are already averages
and are copied.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from unskew.methods.method import Method

Tensors = tuple[Tensor, ...] | list[Tensor]
UNVALIDATED = 0.2  # share of the steps of a stage to average over, if there is no validation


class AveragedMethod:
    """A copy of the trained method with averaged parameters.

    Args:
        horizon: number of steps over which parameters are averaged.
    """

    def __init__(self, method: Method, horizon: int):
        def move(averages: Tensors, parameters: Tensors, steps_before: Tensor | int) -> None:
            torch._foreach_lerp_(averages, parameters, 1 / min(int(steps_before) + 1, horizon))

        self._model = AveragedModel(method, multi_avg_fn=move)
        self._model.eval()

    @property
    def method(self) -> Method:
        return cast(Method, self._model.module)

    def update(self, method: Method) -> None:
        """Include the parameters after a step in the average."""
        self._model.update_parameters(method)

    def state(self) -> dict[str, Tensor]:
        """The state needed to resume."""
        return self._model.state_dict()

    def restore(self, state: dict[str, Tensor]) -> None:
        self._model.load_state_dict(state)
