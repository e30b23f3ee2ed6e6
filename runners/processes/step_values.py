"""Losses of training steps, copied from the device without stopping it."""

from typing import Final, NamedTuple, Self

import torch
from torch import Tensor

STEPS_BEHIND: Final = {"cpu": 0, "cuda": 1}
"""Steps that are queued on a device before the values of an earlier one are read, so that the device never waits."""


class HostCopy(NamedTuple):
    """Numbers on their way from the device."""

    values: Tensor
    """On the host."""
    arrived: torch.cuda.Event | None

    @classmethod
    def send(cls, values: Tensor) -> Self:
        """Queue the copy of `values` to the host behind the work that computes them."""
        if values.device.type != "cuda":
            return cls(values, None)
        host = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()
        return cls(host, arrived)

    def wait(self) -> list[float]:
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.values.tolist()


class StepValues(NamedTuple):
    """Logged values of one step: loss, norm of the gradient, and what `Data.logged` names."""

    step: int
    learning_rate: float
    values: HostCopy

    @classmethod
    def send(cls, step: int, learning_rate: float, values: Tensor) -> Self:
        """Queue the copy of `values` to the host."""
        return cls(step, learning_rate, HostCopy.send(values))

    def wait(self) -> list[float]:
        return self.values.wait()
