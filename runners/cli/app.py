"""The command `ablate`: it chooses and acts; what an experiment is, the spec file says.

Commands are in `cli/` of `runners`, `training` and `papers`. Each imports inside of it what is heavy.
"""

import atexit
import errno
import json
import os
import sys
import tempfile
import threading
from contextlib import suppress
from importlib.metadata import version
from typing import NoReturn

from cyclopts import App, Group, Parameter
from cyclopts.exceptions import CycloptsError

from ablate.grid.errors import AblateError, EnvironmentProblem
from ablate.runners.cli.commands import COMMANDS, register_commands
from ablate.runners.lossy_output import fill_closed_descriptors, lossy
from ablate.runners.output import tell, write
from ablate.runners.result_stream import move_stdout, results, results_to

HELP = """Ablation grids for Transformer attention: from a Python spec to a verdict.

Exit codes: 0 done; 1 internal error; 2 usage or an invalid spec; 3 not found; 4 some trials failed, or `prove` found a
broken law; 5 the environment lacks something; 6 stored data cannot be read, or `check` found damage; 130 interrupted,
the same command goes on.
Results go to stdout, progress to stderr. --debug shows the traceback of an error.
Earlier names: `watch` and `failures` are `status --watch` and `status --failures`; `rebuild` and `doctor` are `check
--rebuild` and `check --machine`.
"""

_EARLIER_NAMES = {
    "watch": ["status", "--watch"],
    "failures": ["status", "--failures"],
    "rebuild": ["check", "--rebuild"],
    "doctor": ["check", "--machine"],
}
"""Commands of releases before, which go with the next one."""

_NO_PLACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

app = App(
    name="ablate",
    help=HELP,
    default_parameter=Parameter(
        show_default=lambda value: None if value is None or value is False or value == () else str(value)
    ),
    version=lambda: version("ablate"),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)


app["--help"].group = app["--version"].group = Group("Options", sort_key=len(COMMANDS) + 1)


def main() -> None:
    """Run the command line and leave with the documented exit code."""
    fill_closed_descriptors()
    sys.stderr = lossy(sys.stderr)
    move_stdout()
    leave(execute(sys.argv[1:]))


def execute(arguments: list[str]) -> int:
    """Run one command and return its exit code; errors are one sentence on stderr (JSON on stdout with --json)."""
    with results_to(sys.stdout):
        return _execute(arguments)


def _execute(arguments: list[str]) -> int:
    from rich.console import Console

    debug, words = "--debug" in arguments, [each for each in arguments if each != "--debug"]
    words[:1] = _EARLIER_NAMES.get(words[0], words[:1]) if words else []
    try:
        register_commands(app, words[0] if words else "")
        console = Console(file=results().text)
        result = app(words, exit_on_error=False, print_error=False, console=console)
        with suppress(BrokenPipeError):  # the reader has what it wanted, and the exit code stays
            results().flush()
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        return _refuse(arguments, 2, _usage_text(error))
    except KeyboardInterrupt:
        return _refuse(arguments, 130, "interrupted; the same command goes on")
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away, as `head` does; Python would complain at exit
        return 0
    except Exception as error:
        if isinstance(error, RuntimeError) and str(error) == "Query interrupted":  # DuckDB's answer to Ctrl-C
            return _refuse(arguments, 130, "interrupted; the same command goes on")
        if debug:
            raise
        if lack := _find_lack(error):
            return _refuse(arguments, EnvironmentProblem.exit_code, lack)
        if isinstance(error, AblateError):
            return _refuse(arguments, error.exit_code, str(error))
        text = f"internal error, a bug in ablate: {type(error).__name__}: {error}; --debug shows where"
        return _refuse(arguments, 1, text)


def _usage_text(error: CycloptsError) -> str:
    """Say what is wrong with a command line, and where the help for it is."""
    command = " ".join(["ablate", *(error.command_chain or ())])
    text = str(error).partition(" Available commands:")[0].rstrip(".")
    return f"{text}; `{command} --help` says what it takes"


def _find_lack(error: BaseException | None) -> str | None:
    """Say what the machine lacks, if that is why `error` was raised; else return None."""
    if isinstance(error, OSError) and error.errno in _NO_PLACE:
        return f"{error.filename or 'a file'} cannot be written: {error.strerror}"
    while error is not None:  # a spec file that imports torch needs such a directory, too
        if isinstance(error, FileNotFoundError):
            try:
                tempfile.gettempdir()
            except FileNotFoundError:
                return "there is no directory for temporary files; set TMPDIR to one that can be written"
        error = error.__cause__
    return None


def _refuse(arguments: list[str], code: int, text: str) -> int:
    if "--json" in arguments:
        with suppress(EnvironmentProblem, BrokenPipeError):  # stderr has it, too
            write(json.dumps({"error": {"code": code, "message": text}}, ensure_ascii=False))
            results().flush()
    tell(text)
    return code


def leave(code: int) -> NoReturn:
    """End the process with exit status `code`, or with 5 where its output could not be written to the end.

    Threads are waited for, exit functions called, stdout and stderr written out. The interpreter is not taken apart,
    which takes 0.15 s with polars, pyarrow and DuckDB, and aborts or hangs with a daemon thread in one of them.
    """
    if any(not each.daemon for each in threading.enumerate() if each is not threading.main_thread()):
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
