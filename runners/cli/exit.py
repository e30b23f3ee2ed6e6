"""The end of the command's process."""

import atexit
import os
import sys
import threading
from typing import NoReturn

from grid.errors import EnvironmentProblem


def leave(code: int) -> NoReturn:
    """End the process with exit status `code`, or with 5 where its output could not be written to the end.

    Threads are waited for, exit functions called, stdout and stderr written out. But the interpreter is not taken apart
    object by object, which takes 0.15 s with polars, pyarrow and DuckDB: any other file is closed by whoever opened it.
    """
    if threading.active_count() > 1 or _is_observed():
        sys.exit(code)
    atexit._run_exitfuncs()
    try:
        if sys.stdout is not None:  # as where it was closed by whoever started the process
            sys.stdout.flush()
    except BrokenPipeError:
        pass  # the reader went away, as `head` does
    except OSError as error:
        code = EnvironmentProblem.exit_code
        sys.stderr.write(f"ablate: the output could not be written to its end: {error.strerror}\n")
    if sys.stderr is not None and not sys.stderr.closed:
        sys.stderr.flush()
    os._exit(code)


def _is_observed() -> bool:
    """Whether a profiler, a debugger or a prompt goes on after the command."""
    monitoring = getattr(sys, "monitoring", None)  # new in Python 3.12
    tools = monitoring is not None and any(monitoring.get_tool(number) for number in range(6))
    return bool(tools or sys.getprofile() or sys.gettrace() or sys.flags.interactive)
