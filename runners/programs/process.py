"""A program as a child process: its output as it comes, its end, and the end of all that it leaves behind."""

import codecs
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self, final
from uuid import uuid4

from ablate.runners.child_lifetime import running_processes
from ablate.store.files.trial_state import process_started

MOST_OUTPUT: Final = 8 * 2**20
"""Characters of output in a log; the last lines follow, too."""
MOST_LINE: Final = 2**16
"""Bytes of a line of output; the rest of a longer one is left out."""
_AT_ONCE: Final = 2**20
_LEAVE_S: Final = 1.0
_TAIL: Final = 40
_TAIL_WIDTH: Final = 2000
_MARK: Final = "ABLATE_PROGRAM"
"""Variable that all processes of a program have, also those that left its group."""
_GUARD: Final = f"""
read group; read mark; read _
kill -9 "-$group"
for each in /proc/[0-9]*; do
    tr '\\0' '\\n' < $each/environ | grep -qx "{_MARK}=$mark" && kill -9 ${{each#/proc/}}
done 2> /dev/null
"""
"""Ends the processes of a program when the pipe from its worker closes, which it does however the worker ends."""


@final
class Program:
    """A program at work. As a context manager, it ends the program and all its processes on exit."""

    def __init__(self, argv: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> None:
        """Raises OSError if the program cannot be started."""
        guard = ["/bin/sh", "-c", _GUARD]
        nowhere = subprocess.DEVNULL
        self._guard = subprocess.Popen(
            guard, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True
        )
        self._mark, self._began = uuid4().hex, process_started(self._guard.pid)
        before = signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a blocked signal would be blocked in the program, too
        try:
            self._child = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**environment, _MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except BaseException:
            self._release_guard()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert self._guard.stdin is not None
        assert self._child.stdout is not None
        with suppress(BrokenPipeError):
            self._guard.stdin.write(f"{self._child.pid}\n{self._mark}\n".encode())
            self._guard.stdin.flush()
        self._output = self._child.stdout
        os.set_blocking(self._output.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._output, selectors.EVENT_READ)
        self._pending = bytearray()
        self._log = _Log()
        self.stopping = self._told_group = False
        self._until: float | None = None
        """When what is left of its group is killed."""
        self._left, self._over = 0, False
        self.drained = False
        """True if the latest call of `lines` took all output that there was."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._over:
            self._signal(signal.SIGKILL)
        self._child.wait()
        self._release_guard()
        self._log.close()
        self._selector.close()
        self._output.close()

    @property
    def tail(self) -> list[str]:
        """The last lines of output."""
        return [*self._log.tail]

    @property
    def left_behind(self) -> int:
        """Processes that were ended after it."""
        return self._left

    def poll(self) -> int | None:
        """Return the exit status once it and its processes have ended, as `subprocess` has it.

        A stop that was requested is carried out. Processes that are left without one have a second to end.
        """
        status = self._child.poll()
        if status is None and self._until is None:
            return None
        if self._until is None:
            self._until = time.monotonic() + _LEAVE_S
        left = [] if status is None else self._members()
        if status is not None and not left:
            self._over = True
            return status
        if time.monotonic() >= self._until:
            self._left = len(left)
            self._signal(signal.SIGKILL)
            return self._child.wait()
        if left and self.stopping and not self._told_group:  # such as of a shell, which ends before what it runs
            self._told_group = True
            self._signal(signal.SIGTERM)
        return None

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM, unless it has ended; what is left after `grace_s` seconds is killed."""
        if not self.stopping and self._child.poll() is None:
            self.stopping, self._until = True, time.monotonic() + grace_s
            self._child.terminate()

    def lines(self, wait_s: float) -> Iterator[str]:
        """Yield lines of output, waiting for the first at most `wait_s` seconds; at most about 1 MiB of them."""
        taken, self.drained = 0, False
        while taken < _AT_ONCE:
            if not self._selector.get_map():
                self._sleep(wait_s)
                self.drained = True
                return
            if not self._selector.select(0 if taken else wait_s):
                self.drained = True
                return
            with suppress(BlockingIOError):
                data = os.read(self._output.fileno(), 2**16)
                taken += len(data)
                self._log.write(data)
                if not data:
                    self._selector.unregister(self._output)
                    yield from self._split(b"\n")
                yield from self._split(data)

    def _sleep(self, wait_s: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(wait_s)

    def _split(self, data: bytes) -> Iterator[str]:
        *lines, rest = data.replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            whole, self._pending = self._pending + line, bytearray()
            yield self._log.note(whole[:MOST_LINE].decode("utf-8", "replace"))
        self._pending = (self._pending + rest)[:MOST_LINE]

    def _members(self) -> list[int]:
        """List its processes that are no zombies; without /proc, its leader if any is."""
        members: list[int] = []
        if self._began is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, 0)
                members.append(self._child.pid)
            return members
        mark = f"{_MARK}={self._mark}\0".encode()
        for pid, fields in running_processes():
            with suppress(OSError):
                young = int(fields[19]) >= self._began
                if int(fields[2]) == self._child.pid or (young and mark in Path(f"/proc/{pid}/environ").read_bytes()):
                    members.append(pid)
        return members

    def _signal(self, which: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, which)
        for pid in self._members():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, which)

    def _release_guard(self) -> None:
        self._guard.kill()
        self._guard.wait()
        if self._guard.stdin is not None:
            with suppress(BrokenPipeError):
                self._guard.stdin.close()


@final
class _Log:
    """Prints output, bounded: the first part as it comes, and the last lines at the end."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._printed = self._left_out = 0
        self.tail: deque[str] = deque(maxlen=_TAIL)

    def write(self, data: bytes) -> None:
        text = self._decoder.decode(data)
        shown = text[: max(MOST_OUTPUT - self._printed, 0)]
        self._printed += len(shown)
        self._left_out += len(text) - len(shown)
        if shown:
            sys.stdout.write(shown)
            sys.stdout.flush()

    def note(self, line: str) -> str:
        """Keep a line as one of the last; return it."""
        if line.strip():
            self.tail.append(line[:_TAIL_WIDTH])
        return line

    def close(self) -> None:
        if self._left_out:
            sys.stdout.write(f"\n{self._left_out:,} characters of output are left out; it ended with\n")
            sys.stdout.write("\n".join(self.tail) + "\n")
            sys.stdout.flush()
