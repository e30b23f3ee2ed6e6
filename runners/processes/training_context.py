"""Callbacks for logging, saving and stopping, and the ways in which training ends."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ablate.grid.errors import EnvironmentProblem

if TYPE_CHECKING:
    import numpy as np


class TrainingContext:
    """Callbacks for logging, saving and stopping; by default they do nothing.

    A worker's is `Attempt` (`ablate.runners.attempts.attempt`), which writes rows of values to shards.
    """

    def begins(self, device: str, path: str | None, data: Mapping[str, Any] | None) -> None:
        """Record the chosen device, execution path and data files before the first step."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Log training metrics of one step."""

    def evaluation(
        self, step: int, name: str, value: float, *, point: Mapping[str, float], items: int, se_items: float | None
    ) -> None:
        """Log one value of an evaluation; `se_items` is the standard error over its items, in the value's unit."""

    def items(
        self, step: int, name: str, *, point: Mapping[str, float], items: Sequence[str], values: Sequence[float]
    ) -> None:
        """Log the per-item values behind an evaluation of this name and point."""

    def probe(
        self, step: int, name: str, value: float, *, layer: int | None, head: int | None, point: Mapping[str, float]
    ) -> None:
        """Log one value of a probe."""

    def artefact(self, step: int, name: str, arrays: Mapping[str, "np.ndarray"]) -> None:
        """Save arrays for a viewer in one compressed file."""

    def progress(self, step: int, steps: int | None, loss: float) -> None:
        """Report progress; cheap, called every step. `steps` is None if nobody knows how many there are."""

    def compiles(self) -> None:
        """Report that the next step may compile the model first."""

    def stop_requested(self) -> bool:
        """Return True to checkpoint and return at this step boundary; called every step and every evaluated batch."""
        return False

    def stop_pending(self) -> bool:
        """Return `stop_requested()`, without a sign that training works."""
        return self.stop_requested()

    def checkpoint_due(self) -> bool:
        """Return True if the checkpoint interval has passed."""
        return False

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Write the checkpoint (tensors and plain data; never pickled code), with the rows logged so far."""

    def keep(self, step: int, state: Mapping[str, Any], name: str = "") -> None:
        """Keep the trained weights beyond the end of the trial, or a state under a name, which replaces that one."""

    def load_kept(self, name: str) -> dict[str, Any] | None:  # noqa: ARG002  (nothing is kept)
        """Load the state that any attempt of the trial kept under `name`."""
        return None

    def took(self, cost: Mapping[str, float]) -> None:
        """Record the cost so far before training raises; names as in `TrainingResult.cost`."""

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Load the newest intact checkpoint of any attempt, as (step, state)."""
        return None


class NullContext(TrainingContext):
    """Records nothing but may request a stop; used by ranks other than 0."""

    def __init__(self, stop_requested: Callable[[], bool] = lambda: False) -> None:
        self._stop_requested = stop_requested

    def stop_requested(self) -> bool:
        return self._stop_requested()


@dataclass(frozen=True)
class TrainingResult:
    """Result of training that did not raise."""

    step: int
    stopped: bool
    """True if training stopped early on request; it resumes from the checkpoint at `step`."""
    parameters: int | None
    operator_parameters: int | None
    train_s: float
    evaluate_s: float
    probe_s: float = 0.0
    cost: Mapping[str, float] = field(default_factory=dict)
    """Cost of the attempt's own steps, by name with unit; sums add up over attempts."""


class Diverged(Exception):
    """The loss was not finite, or exceeded the bound of the task, at `step`."""

    def __init__(self, step: int, loss: float) -> None:
        super().__init__(f"the loss was {loss} at step {step}")
        self.step = step
        self.loss = loss


class Failed(Exception):
    """A run has failed, as its training code says or by how that used the run."""

    def __init__(self, error: BaseException | str, reason: str | None = None) -> None:
        super().__init__(str(error))
        self.error, self.reason = error, reason


class ProgramFailed(Failed):
    """The program of a trial ended with a fault: `how` names it, and `tail` is the end of its output."""

    def __init__(self, name: str, how: str, reason: str, tail: Sequence[str]) -> None:
        super().__init__(f"{name} {how}" + (f": {tail[-1]}" if tail else ""), reason)
        self.how, self.tail = how, tail


class TrainingStopped(BaseException):
    """A stop was requested, and the state is saved. No `except Exception` of training code takes it for an error."""


class UnfitCheckpoint(Exception):
    """The state in a checkpoint is not one of this trial, although its file is whole; the one before it is used."""


class Killed(Exception):
    """A signal ended another process of the trial."""


class NodeLost(EnvironmentProblem):
    """Ranks on another node ended without a word. The attempt gets no end, and a later worker resumes the trial."""
