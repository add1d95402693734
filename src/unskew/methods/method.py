"""The contract of a method: its networks, its loss, and the ranker it yields."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from unskew.data.batches import ClickDetail
from unskew.lists import ClickedLists
from unskew.networks.documents import Ranker

Terms = dict[str, Tensor]  # each a sum over the sessions of the batch


@dataclass(frozen=True)
class Stage:
    """One leg of training, as data."""

    name: str
    loss: Callable[[Any], Terms]
    trains: Mapping[nn.Module, float]  # module -> learning-rate factor; everything else is frozen
    source: str = "clicks"  # or "interventions", "judgements"
    steps: int | None = None  # None: all that the budget has left
    selects: bool = True  # validation chooses the best state of this stage


class Method(nn.Module, ABC):
    """Turns clicked lists into a ranker. Hyper-parameters are the keyword-only arguments of the constructor."""

    paper: ClassVar[str]  # where it comes from
    assumes: ClassVar[str]  # what must hold of the clicks, in one line
    detail: ClassVar[ClickDetail] = "counts"  # what it needs of a log
    click_model: ClassVar[Literal["softmax", "bernoulli"] | None] = None  # what `click_logits` means
    estimated: ClassVar[tuple[str, ...]] = ()  # arguments that are estimated from the log where they are None

    relevance: Ranker

    @abstractmethod
    def loss(self, lists: Any) -> Terms:
        """Terms to be minimized, each a sum over sessions; the loop adds, divides and logs them."""

    def stages(self) -> Sequence[Stage]:
        """Legs of training; default: one, `loss`, with everything trained."""
        return [Stage("train", self.loss, {self: 1.0})]

    def ranker(self) -> Ranker:
        """What is served."""
        return self.relevance

    def examination(self) -> Tensor | None:
        """Learnt examination relative to the top position, `[positions]`; None: the method has no such curve."""
        return None

    def click_logits(self, lists: ClickedLists) -> Tensor | None:  # noqa: ARG002
        """Predicted clicks of each document, as `click_model` says; None: the method predicts none."""
        return None

    def prepare(self, logs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Steps before training that are no gradient; gives what is trained on, by default the logs as they are."""
        return logs

    def finish(self, logs: Mapping[str, Any]) -> None:
        """Steps after training that are no gradient; default: none."""


@dataclass(frozen=True)
class HyperParameter:
    """A keyword-only argument of a method's constructor."""

    name: str
    default: Any
    kind: str


def hyper_parameters(method: type[Method]) -> dict[str, HyperParameter]:
    """Hyper-parameters of a method, read from the signature of its constructor."""
    signature = inspect.signature(method.__init__)
    return {
        name: HyperParameter(name, entry.default, str(entry.annotation))
        for name, entry in signature.parameters.items()
        if entry.kind is inspect.Parameter.KEYWORD_ONLY
    }
