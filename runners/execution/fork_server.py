"""Fork server: a process that has imported torch and forks a worker in milliseconds.

It is a fresh interpreter, so workers inherit neither the user's threads nor their main module. It has one thread and
dies with the process that started it; its workers die with it. The fork server of `multiprocessing` imports the user's
main module in each worker, so a worker starts in 90 to 115 ms instead of 40 ms (measured, torch imported). It also
ignores modules that cannot be imported, dies of signals to its group, and lets workers outlive it.

Messages over its socket, of type SOCK_SEQPACKET, are JSON objects:

    to it      {"fork": number}             with the worker's end of a pipe attached
    from it    {"ready": true}              after all imports; or {"failed": text}
               {"forked": number, "pid": pid}
               {"exited": pid, "status": wait status}
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, NoReturn, final

from ablate.runners.child_lifetime import GROUP_SIGNALS, die_with
from ablate.runners.lossy_output import make_output_lossy

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
    _Server(control).loop()


@final
class _Server:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._wake, self._waker = socket.socketpair()
        self._wake.settimeout(0)
        self._waker.settimeout(0)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler must exist for the wake-up to be written

    def loop(self) -> None:
        while True:
            ready, _, _ = select.select([self._control, self._wake], [], [])
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
                self._reap()
            if self._control in ready and not self._answer():
                return

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            _say(self._control, {"exited": pid, "status": status})

    def _answer(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, MOST_BYTES, 1)
        if not data:
            return False
        number = json.loads(data)["fork"]
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(descriptors[0], server)
        os.close(descriptors[0])
        _say(self._control, {"forked": number, "pid": pid})
        return True

    def _become_worker(self, descriptor: int, server: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            die_with(server)
            for end in (self._control, self._wake, self._waker):
                end.close()
            make_output_lossy()
            from ablate.runners.execution.worker_loop import work

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
