"""Checkpoints: everything that a run needs to resume exactly, in one safetensors file.

Tensors (networks, running estimates, optimizer, best state so far, random state) are stored as such, everything else
as JSON in the file's header. Files are replaced atomically: a run killed while writing finds the previous one. A run
that receives a signal finishes its step, writes its checkpoint, and stops.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from unskew.data.files import array_digest, json_digest, new_file
from unskew.data.untrusted import parse_json
from unskew.processes import is_first
from unskew.training.history import History, MeanTerms
from unskew.training.run_state import RunState

VERSION = 3
KEPT = ("best", "average")  # states of a run that are dictionaries of tensors


def save_checkpoint(
    path: Path, run: RunState, method: nn.Module, optimizer: torch.optim.Optimizer, fingerprint: dict[str, Any]
) -> None:
    """Write the state of the run, atomically; of several processes, only the first writes."""
    if not is_first():
        return
    tensors = {f"method.{name}": value for name, value in method.state_dict().items()}
    for kept in KEPT:
        tensors |= {f"{kept}.{name}": value for name, value in (getattr(run, kept) or {}).items()}
    numbers: dict[str, float] = {}
    for parameter, entries in optimizer.state_dict()["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{parameter}.{name}"] = value
            elif value is not None:
                numbers[f"{parameter}.{name}"] = value
    tensors["random"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    plain = {key: value for key, value in asdict(run).items() if key not in {"history", *KEPT}}
    contiguous = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    about: dict[str, Any] = {
        "run": plain,
        "history": run.history.to_json(),
        "optimizer": numbers,
        "fingerprint": fingerprint,
    }
    about = json.loads(json.dumps(about | {"version": VERSION, "digest": _digest(contiguous)}))
    about["about_digest"] = json_digest(about)
    with new_file(path) as scratch:
        save_file(contiguous, scratch, metadata={"unskew": json.dumps(about)})


def load_checkpoint(
    path: Path, method: nn.Module, fingerprint: dict[str, Any]
) -> tuple[RunState, dict[str, dict[str, Any]]]:
    """Restore the method, and return the run and the optimizer's state by parameter."""
    try:
        with safe_open(path, framework="pt") as file:
            about = dict(parse_json(file.metadata()["unskew"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"checkpoint {path} cannot be read ({error}): delete it to start over") from error
    if about.get("version") != VERSION:
        raise ValueError(
            f"checkpoint {path} has version {about.get('version', 1)}, but this release reads version {VERSION}: "
            "delete it to start over"
        )
    whole = about.pop("about_digest", None) == json_digest(about)
    if not whole or about.get("digest") != _digest(tensors):
        raise ValueError(f"checkpoint {path} is damaged (its digests do not match): delete it to start over")
    saved = about.get("fingerprint")
    saved = saved if isinstance(saved, dict) else {}
    differing = [key for key in fingerprint if key != "lineage" and saved.get(key) != fingerprint[key]]
    if "data" in differing:
        raise ValueError(
            f"checkpoint {path} belongs to other data: the log, or the judged data, has changed since. Delete the "
            "checkpoint to start over with the data as they are, or restore the old data"
        )
    if differing:
        key = differing[0]
        raise ValueError(
            f"checkpoint {path} belongs to another run: {key} was {saved.get(key)}, now it is {fingerprint[key]}; "
            "delete it to start over, or choose another path"
        )
    try:
        return _restored(about, tensors, method)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(f"checkpoint {path} is damaged ({error}): delete it to start over") from error


def _restored(
    about: Mapping[str, Any], tensors: Mapping[str, Tensor], method: nn.Module
) -> tuple[RunState, dict[str, dict[str, Any]]]:
    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

    method.load_state_dict(part("method."))
    torch.set_rng_state(tensors["random"])
    if torch.cuda.is_available() and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"])
    plain = {**about["run"], "means": MeanTerms(**about["run"].get("means", {}))}
    run = RunState(**plain, history=History.from_json(about["history"]))
    for kept in KEPT:
        setattr(run, kept, part(f"{kept}.") or None)
    entries: dict[str, dict[str, Any]] = {}
    for name, value in {**part("optimizer."), **about["optimizer"]}.items():
        parameter, key = name.split(".", 1)
        entries.setdefault(parameter, {})[key] = value
    return run, entries


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names and values."""
    return array_digest([tensors[name].numpy() for name in sorted(tensors)], sorted(tensors))


def restore_optimizer(optimizer: torch.optim.Optimizer, entries: dict[str, dict[str, Any]]) -> None:
    """Load the saved state into a new optimizer."""
    state = optimizer.state_dict()
    state["state"] = {int(parameter): values for parameter, values in entries.items()}
    optimizer.load_state_dict(state)


SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """A run ended on request; the same call with the same checkpoint resumes it."""

    def __init__(self, number: int, step: int):
        super().__init__(f"stopped at step {step}; the checkpoint is saved: repeat the command to resume")
        self.exit_code = 128 + number  # as in a shell: 143 for SIGTERM, 130 for Ctrl-C


@contextmanager
def stop_requests() -> Iterator[Callable[[], int | None]]:
    """Record SIGTERM and Ctrl-C instead of ending the process; a second signal ends it immediately.

    Outside the main thread signals cannot be caught, and none is recorded.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    noted: list[int] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def note(number: int, _: FrameType | None) -> None:
        noted.append(number)
        for other, handler in before.items():
            signal.signal(other, handler)

    for number in SIGNALS:
        signal.signal(number, note)
    try:
        yield lambda: noted[0] if noted else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
