"""Streams that lose what cannot be written: a full disk or a closed terminal under a log stops no work."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, TextIO, final


@final
class _LossyFile(io.FileIO):
    """A file whose `write` always takes everything."""

    def write(self, data: Any) -> int:
        with suppress(OSError):  # nobody can be told
            return super().write(data) or len(data)
        return len(data)


def lossy(stream: TextIO | None) -> TextIO:
    """Return a stream to the file of `stream` that raises no error; other streams, as those of notebooks, as they are.

    None, as for a closed descriptor, becomes a stream to nowhere.
    """
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8", errors="backslashreplace")  # noqa: PTH123  # it lives as long as the process
    if type(stream) is not io.TextIOWrapper:
        return stream
    try:
        raw = _LossyFile(stream.fileno(), "wb", closefd=False)
    except (OSError, ValueError):  # closed, or a text in memory
        return stream
    with suppress(OSError):
        stream.flush()
    at_once = stream.line_buffering or stream.write_through
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, "backslashreplace", line_buffering=at_once)


def make_output_lossy() -> None:
    """Make stdout and stderr of this process lossy."""
    sys.stdout, sys.stderr = lossy(sys.stdout), lossy(sys.stderr)


@contextmanager
def lossy_output() -> Iterator[None]:
    """Make stdout and stderr lossy for a block."""
    fill_closed_descriptors()
    with redirect_stdout(lossy(sys.stdout)) as out, redirect_stderr(lossy(sys.stderr)) as err:
        try:
            yield
        finally:
            for stream in (out, err):
                with suppress(ValueError):  # a trial may have closed it
                    stream.flush()


def fill_closed_descriptors() -> None:
    """Open closed ones of the descriptors 0 to 2 to nowhere; else the next file that is opened becomes an output."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
