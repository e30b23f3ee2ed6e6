"""The life of a worker process: load, then train the rows it is handed until told to stop or the pipe closes.

Messages are tuples. To it: ("load", job, number), ("row", row), ("stop",). From it: ("ready",), ("refused", error),
("started", row, attempt, step), ("stepped", row, step, steps, loss), ("ended", outcome), ("unwritable", text).
"""

import os
import select
import signal
import time
from multiprocessing.connection import Connection
from typing import Any, NoReturn, final

from grid.errors import AblateError
from runners.campaign import CampaignUnwritable
from runners.worker import Worker

TELL_EVERY_S = 0.2
"""Progress is told this often at most."""


def work(pipe: "Connection[Any, Any]") -> int:
    """Serve one starter over `pipe`; the exit status of the process."""
    control = _Control(pipe)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the starter's to interpret
    signal.signal(signal.SIGTERM, control.terminated)
    message = control.next()
    if message is None:
        return 0
    _, job, number = message
    try:
        worker = Worker(job, number, control, own_process=True)
    except AblateError as error:
        control.say("refused", error)
        return 1
    control.say("ready")
    while (message := control.next()) is not None:
        try:
            control.say("ended", worker.run(message[1]))
        except CampaignUnwritable as error:
            control.say("unwritable", str(error))
            return 1
    return 0


@final
class _Control:
    """The starter as a worker hears it; it is looked at between steps, so nothing interrupts a step."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe = pipe
        self._stop = False
        self._told = 0.0
        self._poll = select.poll()  # registered once: it is asked at every step
        self._poll.register(pipe.fileno(), select.POLLIN)

    def terminated(self, *_: object) -> None:
        """SIGTERM: finish the step, save, and leave."""
        self._stop = True

    def next(self) -> tuple[Any, ...] | None:
        """The next request; None when it is time to leave."""
        while not self._stop:
            if self._poll.poll(500):  # returns now and then, so that a SIGTERM between trials is noticed
                message: tuple[Any, ...] = self._receive()
                if message[0] != "stop":
                    return message
                self._stop = True
        return None

    def stop_requested(self) -> bool:
        if not self._stop and self._poll.poll(0):
            self._stop = self._receive()[0] == "stop"
        return self._stop

    def say(self, *message: object) -> None:
        """Tell the starter."""
        try:
            self._pipe.send(message)
        except OSError:
            _orphaned()

    def _receive(self) -> tuple[Any, ...]:
        try:
            message: tuple[Any, ...] = self._pipe.recv()
        except (EOFError, OSError):  # the latter if it had not read everything
            _orphaned()
        return message

    def started(self, row: int, attempt: int, step: int) -> None:
        self.say("started", row, attempt, step)

    def stepped(self, row: int, step: int, steps: int, loss: float) -> None:
        now = time.monotonic()
        if now - self._told >= TELL_EVERY_S:
            self._told = now
            self.say("stepped", row, step, steps, loss)


def _orphaned() -> NoReturn:
    """Leave now, since the starter was killed: no error of a trial, and the next run goes on from its checkpoint."""
    os._exit(1)
