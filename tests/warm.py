"""Python programs that begin at once, because they are forks of a process that has imported what they need.

`Warm(command, ...)` is `subprocess.Popen(command, ...)` for a command whose first word is `sys.executable`; its
programs start workers by forking, too. A test of the start of an interpreter needs a real interpreter.
"""

import array
import atexit
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from ablate.runners.attempts.run_request import OF_TRIALS
from ablate.runners.child_lifetime import shield_from_signals
from ablate.runners.execution.fork_client import _START, _environment

TESTS = Path(__file__).resolve().parent
TOYS = (
    "torch",
    "pyarrow.parquet",
    "slurm_node",
    "toy_campaign",
    "toy_faults",
    "ablate.runners.backends.slurm.worker.supervisor",
)
"""Imports of programs that train toys."""
REAL = (
    *OF_TRIALS,
    "ablate.runners.cli.app",
    "ablate.runners.processes.rank_launcher",
    "ablate.runners.execution.run",
    "ablate.store.ingest.ingest",
    "ablate.variants",
)
"""Imports of programs that train real models."""

_PR_SET_CHILD_SUBREAPER = 36
_TURN = threading.Lock()


@cache
def _launcher(_process: int) -> socket.socket:
    """The way to this process's launcher, which ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
    places = os.pathsep.join((str(TESTS.parent / "src"), str(TESTS)))
    with theirs:
        started = subprocess.Popen(
            [sys.executable, "-u", str(TESTS / "launcher.py"), str(theirs.fileno())],
            env={**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )

    def end() -> None:
        ours.close()
        started.wait()

    atexit.register(end)
    return ours


def warmed_up() -> None:
    """Begin the process that programs are forks of, if it has not."""
    _launcher(os.getpid())


class Warm(subprocess.Popen[Any]):
    """A Python program; `preload` is imported by the process that it is a fork of, once for all of them."""

    def __init__(self, args: Sequence[str], *, preload: Sequence[str] = TOYS, **options: Any) -> None:
        assert args[0] == sys.executable
        self._preload = preload
        super().__init__(args, **options)

    def _execute_child(self, args: Sequence[str], *options: Any) -> None:
        _, _, _, passed, directory, environment, _, _, _, *pipes = options[:15]
        read, _, _, written, _, erred = pipes
        descriptors = {each: each for each in passed}
        for wanted, found in ((0, read), (1, written), (2, erred)):
            descriptors[wanted] = wanted if found == -1 else found
        request = {
            "command": list(args[1:]),
            "preload": self._preload,
            "environment": dict(os.environ if environment is None else environment),
            "directory": str(directory or Path.cwd()),
            "blocked": [int(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
            "session": bool(options[-2]),
            "parent": os.getpid(),
            "descriptors": list(descriptors),
        }
        self.pid = _asked(json.dumps(request).encode(), list(descriptors.values()))
        self._child_created = True
        self._close_pipe_fds(*pipes)


def _asked(request: bytes, descriptors: Sequence[int]) -> int:
    """The process id of a new child of this process."""
    with _TURN:
        launcher = _launcher(os.getpid())
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1)  # this process adopts a process whose parent ends
        try:
            attached = array.array("i", descriptors)
            launcher.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, attached)])
            answer = launcher.recv(64)
        finally:
            prctl(_PR_SET_CHILD_SUBREAPER, 0)
    assert answer, "the launcher died"
    return int(answer)


def warm_server(control: socket.socket, preload: Sequence[str], imports: Sequence[str] = TOYS) -> Warm:
    """A fork server for `Local(start=...)`; `imports` are the `preload` of the program."""
    arguments = [json.dumps(sys.path), str(control.fileno()), str(os.getpid()), json.dumps(list(preload))]
    with shield_from_signals():
        return Warm(
            [sys.executable, "-P", "-c", _START, *arguments],
            preload=imports,
            env=_environment(),
            pass_fds=[control.fileno()],
            stdin=subprocess.DEVNULL,
        )


real_server = partial(warm_server, imports=REAL)
"""A fork server for workers that train real models."""
