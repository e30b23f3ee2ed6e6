"""A process in which everything is imported; a program that it starts is a fork of it, and begins at once.

    python launcher.py DESCRIPTOR

A request is one JSON object with descriptors attached, over the socket at DESCRIPTOR; the answer is a process id. The
program is no child of this process, but of the one that asked.
"""

import array
import atexit
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from ablate.runners.child_lifetime import GROUP_SIGNALS, shield_from_signals
from ablate.runners.execution import Local, fork_client
from ablate.runners.execution.background_ingest import BackgroundIngest
from ablate.runners.execution.fork_server import serve
from ablate.runners.provenance.environment import record

_MOST_BYTES = 1 << 18
_MOST_DESCRIPTORS = 16
_ABOVE = 200
"""Descriptors from here on are nobody's."""

_INGEST = threading.Lock()
"""Held by an ingest, and by a fork: a copy of a process in which DuckDB works would wait for its locks for ever."""
_once = BackgroundIngest.once


def ingest_once(landing: BackgroundIngest, *, wait: bool) -> None:
    with _INGEST:
        _once(landing, wait=wait)


class Forked:
    """A fork server that is a fork of the program, not a fresh interpreter."""

    def __init__(self, control: socket.socket, preload: Sequence[str]) -> None:
        starter = os.getpid()
        self._ended: int | None = None
        with shield_from_signals(), _INGEST:
            self._pid = os.fork()
        if self._pid == 0:
            try:
                os.environ.update(fork_client._environment())
                serve(control.dup(), starter, preload)
            finally:
                os._exit(0)

    def kill(self) -> None:
        if self._ended is None:
            os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        if self._ended is None:
            self._ended = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._ended


def main() -> None:
    """Serve until the other end hangs up."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)  # they are for the programs
    Local.__init__.__kwdefaults__["start"] = Forked
    BackgroundIngest.once = ingest_once  # type: ignore[method-assign]
    places = list(sys.path[1:])  # without that of this file
    record(("toy_training",))  # reads what is installed
    while True:
        request, descriptors = _received(control)
        if request is None:
            return
        for module in request["preload"]:
            import_module(module)
        gc.freeze()
        between = os.fork()
        if between == 0:
            if os.fork() == 0:
                _become(request, descriptors, control, places)
            os._exit(0)
        os.waitpid(between, 0)
        for each in descriptors:
            os.close(each)


def _received(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    descriptors = array.array("i")
    room = socket.CMSG_LEN(_MOST_DESCRIPTORS * descriptors.itemsize)
    data, ancillary, _, _ = control.recvmsg(_MOST_BYTES, room)
    for _, _, content in ancillary:
        descriptors.frombytes(content)
    return (json.loads(data) if data else None), list(descriptors)


def _become(request: dict[str, Any], descriptors: list[int], control: socket.socket, places: list[str]) -> NoReturn:
    """Be the program that was asked for, as a child of whoever asked."""
    code = 1
    try:
        while os.getppid() != request["parent"]:
            time.sleep(0.0002)
        if request["session"]:
            os.setsid()
        moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for each in descriptors]
        control.send(str(os.getpid()).encode())
        control.close()
        for each in descriptors:
            os.close(each)
        for each, wanted in zip(moved, request["descriptors"], strict=True):
            os.dup2(each, wanted)
            os.close(each)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
        code = _run(request["command"], places)
    except BaseException:  # noqa: BLE001  # as an interpreter ends
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(command: list[str], places: list[str]) -> int:
    """Handle arguments like the interpreter; returns the exit status."""
    safe = command[0] == "-P" or "PYTHONSAFEPATH" in os.environ
    words = [word for word in command if word not in ("-P", "-u")] if command[0] in ("-P", "-u") else list(command)
    given = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    how = words.pop(0)
    first = "" if how == "-c" else str(Path.cwd()) if how == "-m" else str(Path(how).parent.resolve())
    sys.path[:] = [*([] if safe else [first]), *given, *places]
    program = words.pop(0) if how in ("-c", "-m") else how
    sys.argv[:] = [how if how == "-c" else program, *words]
    try:
        if how == "-c":
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        elif how == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")
    except SystemExit as error:
        if isinstance(error.code, str):
            sys.stderr.write(f"{error.code}\n")
        return error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    return 0


if __name__ == "__main__":
    main()
    os._exit(0)  # it has nothing to put away
