"""A task that fails on one rank alone, which other processes can import."""

import os
from typing import Literal

import torch

from runners.tasks import Batch, LinearFunctions
from runners.tasks.draws import CPU
from runners.tasks.linear_functions import LinearFunctionsData


class FailsOnRankOne(LinearFunctions):
    """Its batch of step 3 does not fit the memory of rank 1."""

    kind: Literal["fails_on_rank_one"] = "fails_on_rank_one"

    def open(self) -> "_Data":
        return _Data()


class _Data(LinearFunctionsData):
    def __init__(self) -> None:
        super().__init__(LinearFunctions(points=5, batch=8))

    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        if os.environ.get("RANK") == "1" and step == 3:
            raise MemoryError
        return super().batch(seed, step, device)
