"""Fork server: a process that has imported torch and forks a worker in milliseconds.

It is a fresh interpreter, so workers inherit neither the user's threads nor their main module. It dies with the process
that started it; its workers die with it. The fork server of `multiprocessing` imports the user's main module in each
worker, so a worker starts in 90 to 115 ms instead of 40 ms (measured, torch imported). It also ignores modules that
cannot be imported, dies of signals to its group, and lets workers outlive it.

Messages over its socket, of type SOCK_SEQPACKET, are JSON objects:

    to it      {}                           to fork a worker, with its end of a pipe attached
               {"reap": pid}                of a worker whose pipe has closed
    from it    {"ready": true}              after all imports; or {"failed": text}
               {"pid": pid}                 of the forked worker
               {"status": wait status}      of the reaped worker
"""

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from runners.child_lifetime import GROUP_SIGNALS, die_with

MOST_BYTES = 65_536


def main() -> None:
    """Run the server; arguments: socket descriptor, pid of the parent, modules to import."""
    descriptor, starter, preload = sys.argv[-3:]
    serve(socket.socket(fileno=int(descriptor)), int(starter), json.loads(preload))


def serve(control: socket.socket, starter: int, preload: Sequence[str]) -> None:
    """Import `preload`, then fork workers for `starter` until it closes `control`."""
    die_with(starter)
    for name in GROUP_SIGNALS:  # they reach the whole group; the parent handles them
        signal.signal(name, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it was ignored, nobody could wait for a worker
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    try:
        for module in preload:
            import_module(module)
    except Exception as error:  # noqa: BLE001  # the parent raises it
        _say(control, {"failed": f"{type(error).__name__}: {error}"[:1000]})
        return
    gc.collect()
    gc.freeze()  # keeps imported objects out of garbage collection, so workers do not copy their pages
    _say(control, {"ready": True})
    while _answer(control):
        pass


def _answer(control: socket.socket) -> bool:
    """Answer the next request; return False once the parent has closed `control`."""
    data, descriptors, _, _ = socket.recv_fds(control, MOST_BYTES, 1)
    if not data:
        return False
    request = json.loads(data)
    if "reap" in request:
        _say(control, {"status": os.waitpid(request["reap"], 0)[1]})
        return True
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_worker(control, descriptors[0], server)
    os.close(descriptors[0])
    _say(control, {"pid": pid})
    return True


def _become_worker(control: socket.socket, descriptor: int, server: int) -> NoReturn:
    code = 1
    try:
        die_with(server)
        control.close()
        from runners.execution.worker_loop import work

        code = work(Connection(descriptor))
    except BaseException:  # noqa: BLE001  # printed here, since the process ends now
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the worker must not return into the server's stack


def _say(control: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the parent is gone; this process ends soon
        control.sendall(json.dumps(message).encode())
