"""Tasks that fail on one rank alone, which other processes can import."""

import atexit
import os
import signal
import time
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ablate.training.tasks import Batch, LinearFunctions
from ablate.training.tasks.counter_rng import CPU
from ablate.training.tasks.synthetic.linear_functions import LinearFunctionsData


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


class TooBigForRankOne(LinearFunctions):
    """Rank 1 has no room for a part of more than two sequences."""

    kind: Literal["too_big_for_rank_one"] = "too_big_for_rank_one"
    end: Literal["device", "last", "killed"] = "device"
    """How it ends: its device says so; that, and its process outlives all other ranks; the system kills it."""
    kills: str = ""
    """A file with a character for each process that the system has killed."""

    def open(self) -> "_Room":
        return _Room(self)


class _Room(LinearFunctionsData):
    def __init__(self, task: TooBigForRankOne) -> None:
        super().__init__(LinearFunctions(points=5, batch=8, evaluation=task.evaluation))
        self._task = task

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if os.environ.get("RANK") == "1" and len(targets) > 2:
            if self._task.end == "killed":
                with Path(self._task.kills).open("a") as kills:
                    kills.write("x")
                os.kill(os.getpid(), signal.SIGKILL)
            if self._task.end == "last":
                atexit.register(_outlive, os.getppid())
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().loss(outputs, targets)


def _outlive(parent: int) -> None:
    """Wait until no other child of `parent` is at work."""
    while any(pid != os.getpid() and _at_work(pid) for pid in _children(parent)):
        time.sleep(0.01)


def _children(parent: int) -> list[int]:
    tasks = Path(f"/proc/{parent}/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def _at_work(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
