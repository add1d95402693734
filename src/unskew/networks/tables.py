"""Tables: numbers that are looked up, one row for each position, level or the like."""

from __future__ import annotations

from torch import nn


class Table(nn.Parameter):
    """A parameter that training never decays: that would flatten what was learned of each position or level."""


def decays(module: nn.Module, parameter: nn.Parameter) -> bool:
    """Whether a module's own parameter shrinks by weight decay: matrices do, offsets, norms and tables do not."""
    return parameter.ndim >= 2 and not isinstance(parameter, Table) and not isinstance(module, nn.Embedding)
