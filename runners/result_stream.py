"""The stream of a command's results: stdout as the command was given it.

While a command runs, `sys.stdout` and descriptor 1 lead to stderr, so that nothing that a spec file, a library or a
child process prints is among the results.
"""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO, TypeVar, cast, final

from ablate.grid.errors import EnvironmentProblem

T = TypeVar("T")


@final
class ResultStream:
    """Writes results. Raises EnvironmentProblem if it cannot, and BrokenPipeError if the reader went away."""

    def __init__(self, stream: TextIO | None, width: int | None = None) -> None:
        self.width = width
        """Columns of the terminal that shows it later; None if it is shown at once, or by none."""
        self._stream = stream
        """None if stdout was closed when the process began, or cannot be written any more."""

    def write(self, text: str) -> int:
        return self._try(lambda stream: stream.write(text))

    def write_bytes(self, data: bytes) -> None:
        self._try(lambda stream: stream.buffer.write(data))

    def flush(self) -> None:
        if self._stream is not None:
            self._try(lambda stream: stream.flush())

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        return self._try(lambda stream: stream.fileno())

    @property
    def text(self) -> TextIO:
        """Itself, for libraries that write text to a file."""
        return cast(TextIO, self)

    def __getattr__(self, name: str) -> Any:  # `encoding` and the like
        return getattr(self._stream, name)

    def _try(self, act: Callable[[TextIO], T]) -> T:
        if self._stream is None:
            raise EnvironmentProblem("stdout is closed, so the result cannot be written; send it to a file or a pipe")
        try:
            return act(self._stream)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._stream = None
            raise EnvironmentProblem(
                f"stdout cannot be written ({error.strerror}), so the result is not whole; send it to another place"
            ) from error


_streams: list[ResultStream] = []
"""The streams of the commands that run in this process, the innermost last."""


def results() -> ResultStream:
    """Return the stream of the command that runs; stdout without one."""
    return _streams[-1] if _streams else ResultStream(sys.stdout)


@contextmanager
def results_to(stream: TextIO | None, width: int | None = None) -> Iterator[None]:
    """Send the results of a block to `stream`, for a terminal of `width`, and all else that it prints to stderr."""
    _streams.append(ResultStream(stream, width))
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _streams.pop()


def move_stdout() -> None:
    """Give `sys.stdout` another descriptor, and descriptor 1 to stderr: libraries and child processes write there."""
    old = sys.stdout
    if isinstance(old, io.TextIOWrapper):
        old.flush()
        file = os.fdopen(os.dup(1), "wb", buffering=0 if old.write_through else -1)
        errors = "backslashreplace" if old.errors == "strict" else old.errors  # a label may have any letter
        sys.stdout = io.TextIOWrapper(
            file, old.encoding, errors, line_buffering=old.line_buffering, write_through=old.write_through
        )
    os.dup2(2, 1)
