"""Where a task runs and for how long: what SLURM says in the environment, looked at once.

Time left is counted by a clock that nobody sets. SLURM says when the job ends by the wall clock of another machine;
where that contradicts the time limit it is not believed.
"""

import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

from store.files.trial_status import process_started


@final
@dataclass(frozen=True)
class TaskEnvironment:
    """A task of a job, in one of its lives."""

    job: str
    """`123_4` of an array, else `123`."""
    task: int
    """Its index in the array; 0 without one."""
    restarts: int
    """How often it was queued again."""
    node: str
    cpus: int
    memory_bytes: int | None
    """What the job was given; None where that is the node's."""
    visible: tuple[str, ...] | None
    """Entries of CUDA_VISIBLE_DEVICES; None where it is not set."""

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
        """The GPUs of a task that asked for `gpus`, as CUDA_VISIBLE_DEVICES names them."""
        if self.visible is None:
            return tuple(map(str, range(gpus)))
        return self.visible[:gpus]


def here(environ: Mapping[str, str] = os.environ) -> TaskEnvironment:
    """The place of this process."""
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    alone = array is None or task is None
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    cpus = _count(environ, "SLURM_CPUS_PER_TASK") or _count(environ, "SLURM_CPUS_ON_NODE") or 1
    return TaskEnvironment(
        job=environ.get("SLURM_JOB_ID", "0") if alone else f"{array}_{task}",
        task=0 if alone else _count(environ, "SLURM_ARRAY_TASK_ID"),
        restarts=_count(environ, "SLURM_RESTART_COUNT"),
        node=environ.get("SLURMD_NODENAME") or socket.gethostname(),
        cpus=cpus,
        memory_bytes=_memory_bytes(environ, cpus),
        visible=None if visible is None else tuple(each.strip() for each in visible.split(",") if each.strip()),
    )


def _count(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def _memory_bytes(environ: Mapping[str, str], cpus: int) -> int | None:
    megabytes = _count(environ, "SLURM_MEM_PER_NODE") or _count(environ, "SLURM_MEM_PER_CPU") * cpus
    return megabytes << 20 or None


@final
class Deadline:
    """Seconds until the task is ended."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds

    def left(self) -> float:
        """Seconds from now; below 0 once it is over."""
        return self._end - self._clock()


def seconds_left(limit_s: float, environ: Mapping[str, str] = os.environ, now: float | None = None) -> float:
    """Seconds that a task has, of a time limit of `limit_s` and by what SLURM says; else from its process's start.

    `now` is the wall clock's time.
    """
    try:
        end = float(environ.get("SLURM_JOB_END_TIME", "nan"))
    except ValueError:
        end = math.nan
    left = end - (time.time() if now is None else now)
    return left if 0 < left <= limit_s else limit_s - _age_s()


def _age_s() -> float:
    """Seconds since this process began; 0 where the system does not say."""
    started = process_started(os.getpid())
    if started is None:
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK"))
