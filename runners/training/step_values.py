"""Losses of training steps, copied from the device without stopping it."""

from typing import Final, NamedTuple, Self

import torch
from torch import Tensor

STEPS_BEHIND: Final = {"cpu": 0, "cuda": 1}
"""Steps that are queued on a device before the values of an earlier one are read, so that the device never waits."""


class StepValues(NamedTuple):
    """Logged values of one step, on their way from the device."""

    step: int
    learning_rate: float
    values: Tensor
    """On the host: loss, norm of the gradient, and what `Data.logged` names."""
    arrived: torch.cuda.Event | None

    @classmethod
    def send(cls, step: int, learning_rate: float, values: Tensor) -> Self:
        """Queue the copy of `values` to the host behind the step that computes them."""
        if values.device.type != "cuda":
            return cls(step, learning_rate, values, None)
        host = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()
        return cls(step, learning_rate, host, arrived)

    def wait(self) -> list[float]:
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.values.tolist()
