"""Processes of one run: sums over all of them, and decisions that one process makes for all.

Each process has its share of a global batch. Sums over sessions are summed over processes (`total`) before they are
divided or transformed, so that many processes give the result of one. In a single process, and in code that one
process runs alone (`alone`), `total` changes nothing. All processes must ask for the same sums in the same order.

A row of a global batch draws the same random numbers in whichever process it is: its key is hashed (SplitMix64)
together with a salt that is drawn once from torch's own stream. So the draws of a row do not change with the number of
processes, the other rows of the batch, or its padding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn

logger = logging.getLogger(__name__)
_ALONE: ContextVar[bool] = ContextVar("alone", default=False)


class LostProcess(OSError):
    """Another process of the run has ended."""


class Share(NamedTuple):
    """The part of a global batch that a process has: `number` of `of`, counted from 0."""

    number: int
    of: int

    def rows(self, n_rows: int) -> range:
        """The rows of this share; shares differ by at most one row."""
        if n_rows < self.of:
            raise ValueError(
                f"a batch of {n_rows} lists cannot be shared by {self.of} processes: use a larger batch_size, or "
                "fewer processes"
            )
        return range(n_rows * self.number // self.of, n_rows * (self.number + 1) // self.of)


WHOLE = Share(0, 1)


def share() -> Share:
    """The share of this process."""
    if _ALONE.get() or not (distributed.is_available() and distributed.is_initialized()):
        return WHOLE
    return Share(distributed.get_rank(), distributed.get_world_size())


def several() -> bool:
    return share().of > 1


def is_first() -> bool:
    """Whether this process writes files and speaks to the user."""
    return share().number == 0


@contextmanager
def alone() -> Iterator[None]:
    """Mark code that one process runs alone: sums are not taken over processes."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


def total(values: Tensor) -> Tensor:
    """The sum over all processes; gradients flow through it as through an ordinary sum.

    >>> total(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return _Total.apply(values) if several() else values


def total_later(values: Tensor) -> Callable[[], Tensor]:
    """Start to sum over all processes; the returned function waits for the sum."""
    if not several():
        return lambda: values
    summed = values.detach().clone(memory_format=torch.contiguous_format)
    works: list[Any] = []
    talk(lambda: works.append(distributed.all_reduce(summed, async_op=True)))

    def wait() -> Tensor:
        talk(works[0].wait)
        return summed

    return wait


def total_in_place(values: Tensor) -> Tensor:
    """The sum over all processes, written into the contiguous tensor itself; without gradients."""
    if several():
        talk(lambda: distributed.all_reduce(values))
    return values


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:  # noqa: ARG004
        return total_in_place(values.detach().clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return total(gradient)  # every process's loss depends on the sum


def largest(value: int) -> int:
    """The maximum over all processes."""
    if not several():
        return value
    most = torch.tensor(value)
    talk(lambda: distributed.all_reduce(most, distributed.ReduceOp.MAX))
    return int(most)


def from_first(values: Tensor) -> Tensor:
    """The tensor of the first process; the others pass one of the same shape and type."""
    if several():
        values = values.contiguous()
        talk(lambda: distributed.broadcast(values, 0))
    return values


@torch.no_grad()
def state_from_first(module: nn.Module) -> None:
    """Give every process the parameters and buffers of the first."""
    if several():
        for tensor in module.state_dict().values():
            tensor.copy_(from_first(tensor.detach().clone()))


def once(function: Callable[[], float], module: nn.Module) -> float:
    """Let the first process compute a number, and copy it and the changed state of the module to the others."""
    if not several():
        return function()
    value = torch.zeros((), dtype=torch.float64)
    if is_first():
        with alone():
            value.fill_(function())
    state_from_first(module)
    return float(from_first(value))


def talk(function: Callable[[], Any]) -> None:
    """Run communication between processes; if another process has ended, say so in the error."""
    try:
        function()
    except RuntimeError as error:
        message = (
            "another process of this run has stopped (its own message says why), so this one stops too. Repeat the "
            "command, with any number of processes, to resume from the last checkpoint. "
            f"({str(error).splitlines()[0]})"
        )
        logger.error(message)  # immediately: torchrun may end this process before the exception is printed
        raise LostProcess(message) from error


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
