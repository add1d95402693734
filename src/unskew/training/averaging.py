r"""Averaging: a method whose parameters are the mean over the last steps.

At a constant learning rate the parameters fluctuate around the optimum, each state in another direction; their average
is closer to it, so it is what validation sees and what is served. The mean is exponential,
$\bar w \leftarrow \bar w + (w - \bar w) / \max(1, s n)$ after $n$ steps, with the share $s$ of them as its horizon: it
forgets the beginning of training, however long that is. Buffers, such as running estimates, are already averages and
are copied.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor

from unskew.methods.method import Method

AVERAGED = 0.2  # share of the steps of a stage to average over


class AveragedMethod:
    """A copy of the trained method with averaged parameters.

    Args:
        method: the method to average; it must keep its parameters, as an optimizer does.
        share: share of the steps so far over which parameters are averaged.
    """

    def __init__(self, method: Method, share: float):
        self.method = deepcopy(method).eval()
        self._share = share
        self._steps = 0
        self._parameters = [list(each.parameters()) for each in (self.method, method)]
        self._trained = method if next(method.buffers(), None) is not None else None  # the source of buffers

    @torch.no_grad()
    def update(self) -> None:
        """Include the parameters after a step in the average."""
        self._steps += 1
        torch._foreach_lerp_(*self._parameters, 1 / max(1.0, self._share * self._steps))  # type: ignore[call-overload]
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
