"""A warm process that starts campaign runs by forking, each in a process group of its own, so that killing is cheap.

Every run is a whole run: a parent, a fork server, and workers. One JSON request per line on stdin:
{"root": path, "grid": arguments of toy_grid, "workers": n or 0 for inline, "land": seconds or null, "said": file for
stderr or null}; its pid comes back on stdout.
"""

import importlib
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toy_campaign import QUIET, toy_grid

from runners.attempts.checkpoint import save_checkpoint
from runners.machines import Inline, Local, Machine
from runners.machines.server import serve
from runners.runs.run import RunOptions, run_campaign


class Forked:
    """A fork server that is a fork of this process, not a fresh interpreter."""

    def __init__(self, control: socket.socket, preload: Sequence[str]) -> None:
        starter = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                serve(control.dup(), starter, preload)
            finally:
                os._exit(0)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def run(request: dict[str, Any]) -> int:
    """One run; its exit code as the command's."""
    if request["said"]:
        os.dup2(os.open(request["said"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), sys.stderr.fileno())
    options = {**vars(QUIET), "land_every_s": request["land"]}
    workers = request["workers"]
    machine: Machine = Local(workers, start=Forked) if workers else Inline()
    result = run_campaign(request["root"], [toy_grid(**request["grid"])], machine, RunOptions(**options))
    return 130 if result.interrupted else 4 if result.failed else 0


def main() -> None:
    """Serve until stdin closes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended runs are nobody's zombies
    for module in ("pyarrow.parquet", "toy_training", "store.ingest"):
        importlib.import_module(module)
    with tempfile.TemporaryDirectory() as place:
        save_checkpoint(Path(place), "ab" * 16, 1, {})  # loads torch
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = 1
            try:
                code = run(json.loads(line))
            finally:
                sys.stderr.flush()
                os._exit(code)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
