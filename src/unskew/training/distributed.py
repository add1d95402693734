"""Training in several processes: how they join, and the sum that they exchange in each step.

Started by `torchrun`, or by anything else that sets its variables (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, …), every
process runs the same program: each reads its share of a global batch, gradients are summed, and all take the same step.
Only the first process validates, writes checkpoints and the model, and prints.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed.nn  # before a group exists: it keeps the group of its import, whose threads may abort the exit
from torch import Tensor, distributed, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from unskew.processes import LostProcess, from_first, is_first, several, total_in_place

LONGEST = timedelta(days=1)  # others wait while the first validates; a process that ends is noticed immediately
MEETING = timedelta(minutes=10)  # until all have come: one that died before cannot be noticed


@contextmanager
def joined() -> Iterator[None]:
    """Join the run of several processes that `torchrun` started; does nothing in a single process."""
    if distributed.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        store, rank, n_processes = next(rendezvous("env://", timeout=MEETING))
        store.set(f"here {rank}", "")
        store.wait([f"here {number}" for number in range(n_processes)], MEETING)
    except distributed.DistError as error:
        seconds = MEETING.total_seconds()
        raise LostProcess(f"not all processes of the run have come within {seconds:.0f} s: start all again") from error
    store = PrefixStore("run", store)
    distributed.init_process_group(backend, store=store, rank=rank, world_size=n_processes, timeout=LONGEST)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def add_up(shares: Tensor, parameters: Iterable[nn.Parameter]) -> Tensor:
    """Sum the terms of a loss and its gradients over all processes, in one message, and return the terms."""
    if not several():
        return shares
    trained = [entry for entry in parameters if entry.requires_grad]
    known = torch.tensor([entry.grad is not None for entry in trained], dtype=shares.dtype, device=shares.device)
    gradients = [torch.zeros_like(entry) if entry.grad is None else entry.grad for entry in trained]
    sizes = [len(shares), len(known), *(gradient.numel() for gradient in gradients)]
    message = torch.cat([shares, known, *(gradient.flatten() for gradient in gradients)])
    terms, has_gradient, *summed = total_in_place(message).split(sizes)
    for entry, gradient, count in zip(trained, summed, has_gradient.tolist(), strict=True):
        entry.grad = gradient.view_as(entry).to(entry.dtype) if count else None
    return terms


@contextmanager
def file_of_first(path: Path) -> Iterator[Path | None]:
    """A file of the first process, copied to the others, which may be on other machines; None if there is none."""
    if not several():
        yield path if path.exists() else None
        return
    found = path.read_bytes() if is_first() and path.exists() else None
    size = int(from_first(torch.tensor(-1 if found is None else len(found))))
    if size < 0:
        yield None
        return
    content = from_first(torch.frombuffer(bytearray(size if found is None else found), dtype=torch.uint8))
    if is_first():
        yield path
        return
    with TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        copy.write_bytes(content.numpy().tobytes())
        yield copy
