"""Main loop of a worker process: trains the rows it receives until told to stop.

Messages are tuples. To it: ("load", job, number, device), ("row", row, share), ("stop",). From it: ("ready",),
("refused", error), ("started", row, attempt, step), ("stepped", row, step, steps, loss), ("works", next_s),
("ended", outcome), ("note", text), and ("leaves",) before its last outcome. `device` is its CUDA_VISIBLE_DEVICES or
None; `share` is the part of the device's memory that it may use.
"""

import faulthandler
import os
import select
import signal
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, NoReturn, final

from ablate.grid.errors import AblateError, SpecError
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.worker import NodeUnsuitable, Worker
from ablate.store.files.atomic import set_retry_timeout
from ablate.store.state import State

TELL_EVERY_S = 0.2
"""Shortest time between two progress messages."""

TENSORS_OF_DEVICE = 0.9
"""Part of a shared device for tensors; the CUDA context of each worker takes the rest."""

PATIENCE_S = 600.0
"""Longest wait for a file system that does not respond, since unsaved training would be lost."""

_EDITED = "code or spec file was edited after the run began: a trial is not what the manifest says; run it again"


def work(pipe: "Connection[Any, Any]") -> int:
    """Serve one parent over `pipe`; return the exit status."""
    control = _Control(pipe)
    for name in (signal.SIGINT, signal.SIGUSR2):  # the parent handles Ctrl-C and the time limit
        signal.signal(name, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, control.terminate)
    faulthandler.register(signal.SIGUSR1)  # the parent asks where a trial stands still, also inside a library
    message = control.next()
    if message is None:
        return 0
    _, job, number, device = message
    set_retry_timeout(PATIENCE_S, lambda text: control.say("note", text))
    try:
        worker = _load_worker(job, number, device, control)
        control.say("ready")
        while (message := control.next()) is not None:
            _, row, share = message
            _limit_memory(share)
            outcome = worker.run(row)
            if outcome.state == State.STOPPED and not outcome.spent and not control.must_stop:
                raise SpecError(_EDITED)
            if outcome.spent:
                control.say("leaves")
            control.say("ended", outcome)
            if outcome.spent:
                break
    except AblateError as error:
        control.say("refused", error)
        return 1
    return 0


def _load_worker(job: RunRequest, number: int, device: str | None, control: "_Control") -> Worker:
    """Create the worker; set its device before CUDA starts."""
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
        if job.place is not None:
            job = replace(job, place={**job.place, "devices": device})
        _require_devices(device, (job.place or {}).get("node") or "this machine")
    return Worker(job, number, control, own_process=True)


def _require_devices(devices: str, node: str) -> None:
    """Raise if torch sees fewer GPUs than were requested; a torch without CUDA is reported elsewhere."""
    torch = sys.modules.get("torch")
    if torch is None or torch.version.cuda is None:
        return
    asked = len(devices.split(","))
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if seen < asked:
        gpus = "1 GPU was" if asked == 1 else f"{asked} GPUs were"
        raise NodeUnsuitable(f"{gpus} asked for and torch sees {seen or 'none'} on {node}")


def _limit_memory(share: float) -> None:
    torch = sys.modules.get("torch")
    if share < 1 and torch is not None and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(TENSORS_OF_DEVICE * share)


@final
class _Control:
    """Connection to the parent, polled between steps."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe = pipe
        self.must_stop = False
        self._said_at = 0.0
        self._poll = select.poll()  # registered once, since every step polls
        self._poll.register(pipe.fileno(), select.POLLIN)

    def terminate(self, *_: object) -> None:
        """Handle SIGTERM: finish the step, save and exit."""
        self.must_stop = True

    def next(self) -> tuple[Any, ...] | None:
        """Wait for the next request; None to exit."""
        while not self.must_stop:
            if self._poll.poll(500):  # the timeout lets it notice SIGTERM between trials
                message: tuple[Any, ...] = self._receive()
                if message[0] != "stop":
                    return message
                self.must_stop = True
        return None

    def stop_requested(self) -> bool:
        if not self.must_stop and self._poll.poll(0):
            self.must_stop = self._receive()[0] == "stop"
        return self.must_stop

    def say(self, *message: object) -> None:
        try:
            self._pipe.send(message)
        except OSError:
            _leave_orphaned()

    def _receive(self) -> tuple[Any, ...]:
        try:
            message: tuple[Any, ...] = self._pipe.recv()
        except (EOFError, OSError):  # OSError if messages were unread
            _leave_orphaned()
        return message

    def row_started(self, row: int, attempt: int, step: int) -> None:
        self.say("started", row, attempt, step)

    def row_stepped(self, row: int, step: int, steps: int | None, loss: float) -> None:
        now = time.monotonic()
        if now - self._said_at >= TELL_EVERY_S:
            self._said_at = now
            self.say("stepped", row, step, steps, loss)

    def row_works(self, row: int, next_s: float) -> None:
        del row
        now = time.monotonic()
        if next_s or now - self._said_at >= TELL_EVERY_S:
            self._said_at = now
            self.say("works", next_s)


def _leave_orphaned() -> NoReturn:
    """Exit at once, since the parent was killed; the next run resumes from the checkpoint."""
    os._exit(1)
