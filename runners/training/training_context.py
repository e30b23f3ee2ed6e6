"""Callbacks of a running trial for logging, saving and stopping.

The training loop knows nothing of campaigns, files or processes: it gets a `TrainingContext`. Tests pass one that keeps
everything in memory; a worker passes one that writes shards, checkpoints and heartbeats.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np


class TrainingContext(Protocol):
    """Callbacks for logging, saving and stopping."""

    def begins(self, device: str, path: str, data: Mapping[str, Any] | None) -> None:
        """Record, before the first step, what the trial runs on: the device and execution path that were chosen, and
        what was read where the task reads files."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Log training metrics of one step."""

    def evaluation(
        self, step: int, name: str, value: float, *, point: Mapping[str, float], items: int, se_items: float | None
    ) -> None:
        """Log one value of an evaluation; `se_items` is the standard error over its items, in the value's unit."""

    def items(
        self, step: int, name: str, *, point: Mapping[str, float], items: Sequence[str], values: Sequence[float]
    ) -> None:
        """Log the values of single items that an evaluation of this name and point is the mean of."""

    def probe(
        self, step: int, name: str, value: float, *, layer: int | None, head: int | None, point: Mapping[str, float]
    ) -> None:
        """Log one value of a probe."""

    def artefact(self, step: int, name: str, arrays: Mapping[str, "np.ndarray"]) -> None:
        """Keep arrays that a viewer shows, as one compressed file."""

    def progress(self, step: int, steps: int, loss: float) -> None:
        """Tell whoever watches how far training is; cheap, called every step."""

    def stop_requested(self) -> bool:
        """Whether to checkpoint and return at this step boundary."""

    def checkpoint_due(self) -> bool:
        """Whether enough time has passed since the last checkpoint."""

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Make everything logged so far durable, then the checkpoint (tensors and plain data; never pickled code)."""

    def keep(self, step: int, state: Mapping[str, Any]) -> None:
        """Keep the trained weights beyond the end of the trial."""

    def took(self, cost: Mapping[str, float]) -> None:
        """Note, before training raises, what it took until then; by name as `Finished.cost`."""

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """The newest sound checkpoint of this trial, of any attempt, as (step, state)."""


class NullContext(TrainingContext):
    """Nothing is recorded; it may still be asked for a stop. Ranks other than 0 train in it."""

    def __init__(self, stop_requested: Callable[[], bool] = lambda: False) -> None:
        self._stop_requested = stop_requested

    def begins(self, device: str, path: str, data: Mapping[str, Any] | None) -> None: ...

    def metrics(self, step: int, values: Mapping[str, float]) -> None: ...

    def evaluation(
        self, step: int, name: str, value: float, *, point: Mapping[str, float], items: int, se_items: float | None
    ) -> None: ...

    def items(
        self, step: int, name: str, *, point: Mapping[str, float], items: Sequence[str], values: Sequence[float]
    ) -> None: ...

    def probe(
        self, step: int, name: str, value: float, *, layer: int | None, head: int | None, point: Mapping[str, float]
    ) -> None: ...

    def artefact(self, step: int, name: str, arrays: Mapping[str, "np.ndarray"]) -> None: ...

    def progress(self, step: int, steps: int, loss: float) -> None: ...

    def stop_requested(self) -> bool:
        return self._stop_requested()

    def checkpoint_due(self) -> bool:
        return False

    def save(self, step: int, state: Mapping[str, Any]) -> None: ...

    def keep(self, step: int, state: Mapping[str, Any]) -> None: ...

    def took(self, cost: Mapping[str, float]) -> None: ...

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        return None


@dataclass(frozen=True)
class TrainingResult:
    """How training ended when it did not raise."""

    step: int
    stopped: bool
    """True when it stopped early because it was asked to; the checkpoint at `step` goes on from there."""
    parameters: int
    operator_parameters: int
    train_s: float
    evaluate_s: float
    probe_s: float = 0.0
    cost: Mapping[str, float] = field(default_factory=dict)
    """Cost of the steps of the attempt by name; sums, which add up over attempts."""


class Diverged(Exception):
    """The loss left the finite numbers, or the task's bound, at `step`."""

    def __init__(self, step: int, loss: float) -> None:
        super().__init__(f"the loss was {loss} at step {step}")
        self.step = step
        self.loss = loss


class Killed(Exception):
    """A process of the trial beside the one that tells it was ended by a signal."""
