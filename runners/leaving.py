"""The end of the command's process."""

import atexit
import os
import sys
import threading
from typing import NoReturn

from grid.errors import EnvironmentProblem


def leave(code: int) -> NoReturn:
    """End the process with exit status `code`, or with that of an output which could not be written to its end.

    Threads are waited for and exit functions called, but the interpreter is not taken apart object by object: with
    polars, pyarrow and DuckDB loaded that takes 0.15 s, of which nobody has anything.
    """
    if threading.active_count() > 1:
        sys.exit(code)
    atexit._run_exitfuncs()
    try:
        if sys.stdout is not None:  # as where it was closed by whoever started the process
            sys.stdout.flush()
    except BrokenPipeError:
        code = 0  # the reader went away, as `head` does
    except OSError as error:
        code = EnvironmentProblem.exit_code
        sys.stderr.write(f"ablate: the output could not be written to its end: {error.strerror}\n")
    if sys.stderr is not None:
        sys.stderr.flush()
    os._exit(code)
