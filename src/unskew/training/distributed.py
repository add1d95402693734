"""Training in several processes: who takes part, and the one sum of a step.

Started by `torchrun`, or by anything else that sets its variables (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, …), every
process runs the same program: each reads its share of a global batch, gradients are summed, and all take the same step.
The first one validates, writes checkpoints and the model, and speaks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, distributed, nn

from unskew.processes import from_first, is_first, several, total

LONGEST = timedelta(days=1)  # others wait while the first validates; of one that ends they learn at once


@contextmanager
def joined() -> Iterator[None]:
    """Take part in the run of several processes that `torchrun` started; one process by itself just goes on."""
    if distributed.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    distributed.init_process_group(backend, timeout=LONGEST)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def add_up(shares: Tensor, parameters: Sequence[nn.Parameter]) -> Tensor:
    """Sum the terms of a loss and its gradients over all processes, in one message; gives the terms."""
    if not several():
        return shares
    trained = [entry for entry in parameters if entry.requires_grad]
    known = torch.tensor([entry.grad is not None for entry in trained], dtype=shares.dtype, device=shares.device)
    gradients = [torch.zeros_like(entry) if entry.grad is None else entry.grad for entry in trained]
    sizes = [len(shares), len(known), *(gradient.numel() for gradient in gradients)]
    message = torch.cat([shares, known, *(gradient.flatten() for gradient in gradients)])
    terms, has_gradient, *summed = total(message).split(sizes)
    for entry, gradient, count in zip(trained, summed, has_gradient.tolist(), strict=True):
        entry.grad = gradient.view_as(entry).to(entry.dtype) if count else None
    return terms


@contextmanager
def file_of_first(path: Path) -> Iterator[Path | None]:
    """A file of the first process, for all: the others, maybe on other machines, get a copy; None if there is none."""
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
