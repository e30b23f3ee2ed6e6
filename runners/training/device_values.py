"""Values on their way from a device, which does not wait for them."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import torch


class DeviceValues(NamedTuple):
    """Numbers of one call, copied to the host behind the work that computes them."""

    names: tuple[str, ...]
    values: torch.Tensor
    arrived: torch.cuda.Event

    @classmethod
    def send(cls, values: Mapping[str, Any]) -> Self:
        """Queue the copy of scalars on one CUDA device."""
        stacked = torch.stack([each.detach().reshape(()).double() for each in values.values()])
        host = torch.empty_like(stacked, device="cpu", pin_memory=True).copy_(stacked, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()
        return cls(tuple(values), host, arrived)

    def wait(self, name: str) -> float:
        """Return a number once it is there."""
        self.arrived.synchronize()
        return float(self.values[self.names.index(name)])
