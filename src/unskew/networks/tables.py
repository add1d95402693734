"""Tables: parameters that are looked up, one row per position, level or the like."""

from __future__ import annotations

from torch import nn


class Table(nn.Parameter):
    """A parameter without weight decay, which would flatten what was learned about positions or levels."""


def decays(module: nn.Module, parameter: nn.Parameter) -> bool:
    """Whether weight decay applies to a module's own parameter: to matrices, but not to offsets, norms and tables."""
    return parameter.ndim >= 2 and not isinstance(parameter, Table) and not isinstance(module, nn.Embedding)
