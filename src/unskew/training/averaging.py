r"""Averaging: a method whose parameters are the mean over the last steps.

At a constant learning rate the parameters wander around the best ones, and every single state is off in another
direction; their average is not. A click log without judgements has nothing to choose a good state by, so there the
average is what is served. The mean is exponential, $\bar w \leftarrow \bar w + (w - \bar w) / \min(n, h)$ after $n$
steps, with a horizon of $h$ steps: plain at first, then forgetting how training began. Buffers, such as running
estimates, are averages already and are taken as they are.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from unskew.methods.method import Method

Tensors = tuple[Tensor, ...] | list[Tensor]
UNVALIDATED = 0.2  # share of the steps of a stage, where nothing chooses a state


class AveragedMethod:
    """A method alongside the one that is trained.

    Args:
        horizon: steps over which parameters are averaged.
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
        """Take in the parameters after a step."""
        self._model.update_parameters(method)

    def state(self) -> dict[str, Tensor]:
        """The state needed to resume."""
        return self._model.state_dict()

    def restore(self, state: dict[str, Tensor]) -> None:
        self._model.load_state_dict(state)
