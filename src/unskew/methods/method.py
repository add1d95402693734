"""The contract of a method: its networks, its loss, and the ranker it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from torch import Tensor, nn

from unskew.data.clicks.batches import ClickDetail
from unskew.data.judged.judged_set import JudgedSet
from unskew.lists import ClickedLists
from unskew.networks.documents import Ranker
from unskew.networks.observation import at_level
from unskew.options import Option, check, options_of

Terms = dict[str, Tensor]  # each a sum over the sessions of the batch


@dataclass(frozen=True)
class Stage:
    """One stage of training, as data."""

    name: str
    loss: Callable[[Any], Terms]
    trains: Mapping[nn.Module, float]  # module -> learning-rate factor; everything else is frozen
    source: str = "clicks"  # or "interventions", "judgements"
    steps: int | None = None  # None: all remaining steps
    selects: bool = True  # validation chooses the best state of this stage


class Method(nn.Module, ABC):
    """Turns clicked lists into a ranker. Hyper-parameters are the keyword-only arguments of the constructor."""

    paper: ClassVar[str]  # where it comes from
    assumes: ClassVar[str]  # its assumption about clicks, in one line
    detail: ClassVar[ClickDetail] = "counts"  # the detail of clicks that it needs
    click_model: ClassVar[Literal["softmax", "bernoulli"] | None] = None  # the meaning of `click_logits`
    counts_only: ClassVar[bool] = False  # clicks must be 0 or 1; graded feedback, such as dwell time, is refused
    takes_ids: ClassVar[bool] = False  # documents may be known by their ids; other methods rank only by features
    has_ranker: ClassVar[bool] = True  # False: it predicts clicks but does not distinguish documents
    learns_from: ClassVar[Literal["clicks", "judgements"]] = "clicks"
    estimated: ClassVar[tuple[str, ...]] = ()  # arguments that are estimated from the log if they are None
    judged_choice: ClassVar[Mapping[str, Any]] = {}  # hyper-parameters with which `tune` chooses on judged queries

    relevance: Ranker

    def __new__(cls, *_: Any, **hyper: Any) -> Self:
        """Refuse hyper-parameters that the annotations of the constructor do not allow."""
        known = hyper_parameters(cls)
        for name in known.keys() & hyper.keys():
            check(hyper[name], known[name].kind, name)
        return super().__new__(cls)

    @property
    def uses_ids(self) -> bool:
        """Whether documents are known by their ids, so that a vocabulary belongs to the model."""
        return False

    @abstractmethod
    def loss(self, lists: Any) -> Terms:
        """Terms to minimize, each a sum over sessions; the loop adds, divides and logs them."""

    def stages(self) -> Sequence[Stage]:
        """Stages of training; default: one, which trains everything by `loss`."""
        return [Stage("train", self.loss, {self: 1.0})]

    def ranker(self) -> Ranker:
        """The ranker to serve."""
        return self.relevance

    def examination(self) -> Tensor | None:
        """Learned examination relative to the top position, `[positions]`; None: the method has no such curve."""
        return None

    def at_level(self, column: str, level: int) -> Self | None:
        """A copy in which every level of a bias column is this one, so that `examination` is that of the level.

        None: the curve does not depend on the column.
        """
        return at_level(self, column, level)

    def click_logits(self, lists: ClickedLists) -> Tensor | None:  # noqa: ARG002
        """Predicted clicks of each document, as defined by `click_model`; None: the method predicts none."""
        return None

    def prepare(self, logs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Work before training that is not a gradient step; returns the training data, by default the logs unchanged.

        Judged queries for validation, if there are any, are `logs["validation"]`; no stage learns from them.
        """
        return logs

    def tune(self, judged: JudgedSet, metric: str) -> None:
        """Choose numbers on judged queries that training does not learn; default: none.

        It is called before every validation on them, so that the numbers belong to the state that validation keeps.
        """

    def finish(self, logs: Mapping[str, Any]) -> None:
        """Work after training that is not a gradient step; default: none."""

    @property
    def exempt(self) -> Mapping[str, str]:
        """Common checks (`unskew.testing.CHECKS`) that do not apply to it, each with the reason; default: none."""
        return {}

    def findings(self) -> Mapping[str, Any]:
        """Further findings to save and report, besides the ranker and its curve; default: none."""
        return {}


def hyper_parameters(method: type[Method]) -> dict[str, Option]:
    """Hyper-parameters of a method, read from the signature of its constructor."""
    return options_of(method, keyword_only=True)
