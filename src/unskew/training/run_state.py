"""The state of a run: where it is, what was best, and whether it goes wrong."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from unskew.methods.method import Method, Stage
from unskew.processes import is_first
from unskew.training.history import History, MeanTerms

MOST_SKIPPED = 20
LOWER_RATE = "lower the learning rate, or check the features for extreme values"


@dataclass
class RunState:
    """The state of a run; a checkpoint holds it."""

    stage: int = 0
    stage_step: int = 0
    step: int = 0  # over all stages
    unimproved: int = 0  # validations since the best one
    skipped: int = 0  # consecutive steps without an update
    first_loss: float | None = None
    means: MeanTerms = field(default_factory=MeanTerms)  # loss terms since the last record
    history: History = field(default_factory=History)
    best: dict[str, Tensor] | None = None  # state of the method at the best validation of this stage
    best_value: float | None = None
    best_stage_step: int = 0  # the steps of this stage until then
    diverged: bool = False  # whether the last loss of this stage was far above the first one
    average: dict[str, Tensor] | None = None  # of `AveragedMethod`, if parameters are averaged

    def next_stage(self) -> RunState:
        """The state at the start of the next stage, which has another loss, on another scale."""
        return RunState(self.stage + 1, step=self.step, skipped=self.skipped, means=self.means, history=self.history)

    def warn(self, message: str) -> None:
        self.history.warnings.append(message)
        if is_first():
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def note_skipped(self, stage: Stage, terms: Mapping[str, float]) -> None:
        """Note a batch whose loss is not finite; too many in a row are an error."""
        infinite = [name for name, value in terms.items() if not math.isfinite(value)]
        bad = (infinite or [max(terms, key=terms.__getitem__)])[0]
        where = f"step {self.step} of stage '{stage.name}'"
        self.warn(f"{where}: loss term '{bad}' is {terms[bad]}; this batch was skipped")
        self.skipped += 1
        if self.skipped >= MOST_SKIPPED:
            raise FloatingPointError(
                f"{self.skipped} batches in a row, up to step {self.step}, gave no finite loss ('{bad}' in stage "
                f"'{stage.name}'): {LOWER_RATE}"
            )

    def note_loss(self, loss: float) -> None:
        """Note a loss far above the first one; without a validated state to return to, training ends as an error."""
        self.skipped = 0
        if self.first_loss is None:
            self.first_loss = loss
        elif loss > 100 * abs(self.first_loss) + 100:
            self.diverged = True
            if self.best is None:
                raise FloatingPointError(
                    f"training diverges: the loss is {loss:.3g} at step {self.step}, up from {self.first_loss:.3g}; "
                    f"{LOWER_RATE}"
                )

    def note_validation(self, method: Method, value: float) -> None:
        """Keep the state of the method if it is the best of this stage."""
        if value != value:
            self.warn(f"validation is not a number at step {self.step}; this state was not considered")
        elif self.best_value is None or value > self.best_value:
            self.best_value, self.unimproved, self.best_stage_step = value, 0, self.stage_step
            self.best = {name: tensor.detach().clone() for name, tensor in method.state_dict().items()}
            self.history.best_step, self.history.best_value = self.step, value
            return
        self.unimproved += 1
