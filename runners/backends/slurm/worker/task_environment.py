"""The environment of a worker task, as SLURM describes it: job, node and GPUs; and the time that it has left.

The monotonic clock counts the time left. SLURM gives the end by another machine's wall clock; an end that contradicts
the time limit is ignored.
"""

import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

from ablate.store.files.trial_state import process_started


@final
@dataclass(frozen=True)
class TaskEnvironment:
    """A task of a job, in one of its lives."""

    job: str
    """`123_4` of an array, else `123`."""
    task: int
    """Its index in the array; 0 without one."""
    restarts: int
    node: str
    visible: tuple[str, ...] | None
    """Entries of CUDA_VISIBLE_DEVICES; None if it is not set."""

    @property
    def record(self) -> dict[str, Any]:
        """`place` of `start.json`; each worker process adds its devices."""
        return {
            "scheduler": "slurm",
            "job": self.job,
            "restarts": self.restarts,
            "node": self.node,
            "devices": None if self.visible is None else ",".join(self.visible),
        }

    def devices(self, gpus: int) -> tuple[str, ...]:
        """Return `gpus` GPUs, as CUDA_VISIBLE_DEVICES names them."""
        return tuple(map(str, range(gpus))) if self.visible is None else self.visible[:gpus]


def here(environ: Mapping[str, str] = os.environ) -> TaskEnvironment:
    """Read the environment of this process."""
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    single = array is None or task is None
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    return TaskEnvironment(
        job=environ.get("SLURM_JOB_ID", "0") if single else f"{array}_{task}",
        task=0 if single else _count(environ, "SLURM_ARRAY_TASK_ID"),
        restarts=_count(environ, "SLURM_RESTART_COUNT"),
        node=environ.get("SLURMD_NODENAME") or socket.gethostname(),
        visible=None if visible is None else tuple(each.strip() for each in visible.split(",") if each.strip()),
    )


def _count(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def seconds_left(limit_s: float, environ: Mapping[str, str] = os.environ, now: float | None = None) -> float:
    """Return the seconds until the task ends: by SLURM's end and the wall clock (`now`), else by this process's age."""
    try:
        end = float(environ.get("SLURM_JOB_END_TIME", "nan"))
    except ValueError:
        end = math.nan
    left = end - (time.time() if now is None else now)
    if 0 < left <= limit_s:
        return left
    started = process_started(os.getpid())  # None if the system does not say
    booted_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return limit_s if started is None else limit_s - max(0.0, booted_s - started / os.sysconf("SC_CLK_TCK"))


@final
class TimeBudget:
    """Decides if there is time for one more trial in a task that ends in `seconds`.

    A trial needs as long as 95 of 100 trials took here, at most a quarter of `limit_s`: longer trials take several
    lives of a worker anyway. `signal_s` is for saving.
    """

    def __init__(
        self, seconds: float, limit_s: float, signal_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self._limit_s, self._signal_s = limit_s, signal_s
        self._durations: list[float] = []

    @property
    def left_s(self) -> float:
        """Seconds until the task ends; negative after the end."""
        return self._end - self._clock()

    def add(self, seconds: float) -> None:
        self._durations.append(seconds)

    @property
    def needed_s(self) -> float:
        durations = sorted(self._durations)
        percentile = durations[math.ceil(0.95 * len(durations)) - 1] if durations else 0.0
        return min(percentile, self._limit_s / 4)

    def is_enough(self) -> bool:
        return self.left_s - self._signal_s > self.needed_s
