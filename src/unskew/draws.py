"""Random numbers by key: a row of a global batch draws the same numbers in whichever process it is.

A key is hashed (SplitMix64) together with a salt that is drawn once from torch's own stream. So the draws of a row do
not change with the number of processes, the other rows of the batch, or its padding.
"""

from __future__ import annotations

import torch
from torch import Tensor

STEP = -7046029254386353131  # 2^64 divided by the golden ratio, as a signed number
FACTORS = (-4658895280553007687, -7723592293110705685)


def new_salt() -> Tensor:
    """A number from torch's stream, the same in all processes of a run."""
    return torch.randint(2**62, ())


def uniform(salt: Tensor, *keys: Tensor) -> Tensor:
    """One float64 in [0, 1) per key, or per tuple of keys that are broadcast together.

    >>> uniform(torch.tensor(1), torch.tensor([5, 6, 5])).unique().numel()
    2
    """
    state = salt.to(keys[0].device)
    for key in keys:
        state = _mixed(state + key * STEP)
    return _shifted(state, 11).double() * 2.0**-53


def _mixed(state: Tensor) -> Tensor:
    for shift, factor in zip((30, 27), FACTORS, strict=True):
        state = (state ^ _shifted(state, shift)) * factor
    return state ^ _shifted(state, 31)


def _shifted(state: Tensor, shift: int) -> Tensor:
    """A logical right shift: the sign bit is not extended."""
    return (state >> shift) & ((1 << (64 - shift)) - 1)
