r"""Averaging: a method whose parameters are the mean over the last steps.

At a constant learning rate the parameters fluctuate around the optimum, each state in another direction; their average
is closer to it. Without judgements there is nothing to choose a good state by, so the average is served. The mean is
exponential, $\bar w \leftarrow \bar w + (w - \bar w) / \min(n, h)$ after $n$ steps, with a horizon of $h$ steps: first
a plain mean, then one that forgets the beginning of training. Buffers, such as running estimates, are already averages
and are copied.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor

from unskew.methods.method import Method

UNVALIDATED = 0.2  # share of the steps of a stage to average over, if there is no validation


class AveragedMethod:
    """A copy of the trained method with averaged parameters.

    Args:
        method: the method to average; it must keep its parameters, as an optimizer does.
        horizon: number of steps over which parameters are averaged.
    """

    def __init__(self, method: Method, horizon: int):
        self.method = deepcopy(method).eval()
        self._horizon = horizon
        self._steps = 0
        self._parameters = [list(each.parameters()) for each in (self.method, method)]
        self._trained = method if next(method.buffers(), None) is not None else None  # the source of buffers

    @torch.no_grad()
    def update(self) -> None:
        """Include the parameters after a step in the average."""
        self._steps += 1
        torch._foreach_lerp_(*self._parameters, 1 / min(self._steps, self._horizon))  # type: ignore[call-overload]
        if self._trained is not None:
            for mine, current in zip(self.method.buffers(), self._trained.buffers(), strict=True):
                mine.copy_(current)

    def state(self) -> dict[str, Tensor]:
        """The state needed to resume."""
        return {"n_averaged": torch.tensor(self._steps), **self.method.state_dict(prefix="module.")}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._steps = int(state["n_averaged"])
        kept = {name.removeprefix("module."): value for name, value in state.items() if name.startswith("module.")}
        self.method.load_state_dict(kept)
