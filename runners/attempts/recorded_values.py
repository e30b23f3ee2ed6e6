"""Values that an own `train` records in a worker: checked, then logged by the context of its attempt.

The loop of `Trial` (`training/loop/train.py`) logs by that context itself.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, SupportsFloat, SupportsIndex, final

from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name
from ablate.runners.processes.training_context import Failed, TrainingContext
from ablate.store.files.checked_values import CheckedValues

Measure = Callable[[], str | None]
"""Returns the name of what the grid compares; None: nothing."""


@final
class RecordedValues:
    """The values of one run. Metrics that are on a GPU are logged when a later step reads them."""

    def __init__(self, context: TrainingContext) -> None:
        self.checked = CheckedValues()
        self.loss = math.nan
        """The metric "loss" of the latest step that was logged."""
        self._context = context
        self._unread: list[tuple[int, dict[str, Any]]] = []

    def metrics(self, step: SupportsIndex, metrics: Mapping[str, SupportsFloat]) -> None:
        """Log metrics of a step; raise SpecError as `CheckedValues.metrics`."""
        on_device = {name: each for name, each in metrics.items() if getattr(each, "is_cuda", False)}
        number, values = self.checked.metrics(
            step, {name: math.nan if name in on_device else each for name, each in metrics.items()}
        )
        if metrics and not values:
            return  # a checkpoint holds them
        new: dict[str, Any] = dict(values)
        if on_device := {name: each for name, each in on_device.items() if name in values}:
            new |= _send(on_device)
        self._unread.append((number, new))
        self.report(leave=1 if on_device else 0)

    def report(self, *, leave: int = 0) -> None:
        """Log the metrics of all calls but the last `leave`, which may be on their way from the device."""
        count = max(len(self._unread) - leave, 0)
        steps, self._unread = self._unread[:count], self._unread[count:]
        for step, values in steps:
            arrived = {name: each if isinstance(each, float) else each() for name, each in values.items()}
            self._context.metrics(step, arrived)
            self.loss = arrived.get("loss", self.loss)

    def evaluation(self, step: SupportsIndex, name: str, value: SupportsFloat | None, *rest: Any) -> None:
        """Log an evaluation and its items; raise SpecError as `CheckedValues.evaluation`."""
        checked = self.checked.evaluation(step, name, value, *rest)
        if checked is None:
            return
        at, name, point, number, count, error = checked.row
        self._context.evaluation(at, name, number, point=point, items=count, se_items=error)
        if checked.items:
            items, values = zip(*((row[3], row[4]) for row in checked.items), strict=True)
            self._context.items(at, name, point=point, items=items, values=values)

    def probe(self, step: SupportsIndex, name: str, value: SupportsFloat, *rest: Any) -> None:
        """Log a probe; raise SpecError as `CheckedValues.probe`."""
        row = self.checked.probe(step, name, value, *rest)
        if row is not None:
            at, name, layer, head, point, number = row
            self._context.probe(at, name, number, layer=layer, head=head, point=point)

    def require(self, measure: Measure) -> None:
        """Raise Failed if training recorded nothing, or nothing of what is compared."""
        recorded = sorted(self.checked.names())
        if not recorded:
            raise Failed("train recorded nothing; record values by run.log(...) or run.evaluate(...)")
        compared = measure()
        if compared is not None and compared not in recorded:
            raise Failed(
                f"train recorded no {compared!r}, by which the grid compares, but "
                f"{some(recorded, 12)}{suggest_name(compared, recorded)}; record it, or change the measure"
            )


def _send(values: Mapping[str, Any]) -> dict[str, Callable[[], float]]:
    """Queue the copy of scalars on one CUDA device; return what waits for each of them."""
    import torch

    from ablate.runners.processes.step_values import HostCopy

    copy = HostCopy.send(torch.stack([each.detach().reshape(()).double() for each in values.values()]))
    return {name: partial(lambda at: copy.wait()[at], at) for at, name in enumerate(values)}
