"""The command `ablate`: it chooses and acts; what an experiment is, the spec file says.

The verbs are in `ablate.runners.cli`. Everything heavy is imported inside the command that needs it.
"""

import atexit
import errno
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

from cyclopts import App, Group, Parameter
from cyclopts.exceptions import CycloptsError

from ablate.grid.docstrings import docstring
from ablate.grid.errors import AblateError, EnvironmentProblem, SpecError
from ablate.runners.cli.analysis import curves, pareto
from ablate.runners.cli.catalogue import operators, probes, prove, tasks
from ablate.runners.cli.check import check
from ablate.runners.cli.compare import compare
from ablate.runners.cli.edit import note, rename, rm, tag
from ablate.runners.cli.effects import effects
from ablate.runners.cli.evaluate import evaluate
from ablate.runners.cli.export import export, sql
from ablate.runners.cli.imports import import_
from ablate.runners.cli.monitor import cancel, logs, status
from ablate.runners.cli.options import AnyGrid, Campaign
from ablate.runners.cli.papers import papers
from ablate.runners.cli.published import published
from ablate.runners.cli.repro import repro
from ablate.runners.cli.resolve import find_campaign, find_campaigns, read_warnings
from ablate.runners.cli.results import table
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


def report(
    path: Path | None = None, /, *, campaign: Campaign = None, grid: AnyGrid = None, out: Path | None = None
) -> None:
    """Write the campaign's report: one HTML file that works offline.

    Parameters
    ----------
    path
        The campaign directory, in place of --campaign.
    out
        The file to write; default report.html in the campaign.
    """
    from ablate.dashboards import write_report
    from ablate.store.store import Store

    if path is not None and campaign is not None:
        raise SpecError(f"a report is of one campaign; got {path} and --campaign {campaign}: name it once")
    root = find_campaign(path or campaign)
    written = write_report(root, out, grid)
    with Store.open(root) as store:
        read_warnings(store, grid)
    tell("the report is")
    write(str(written.resolve()))


def dash(
    *campaigns: Path,
    campaign: Annotated[tuple[Path, ...], Parameter(negative="")] = (),
    port: int = 8050,
    host: str = "127.0.0.1",
) -> None:
    """Open the dashboard of campaigns in a browser, live while trials run.

    Ctrl-C ends it.

    Parameters
    ----------
    campaigns
        Campaign directories; default the working directory if it is one, or all below campaigns/.
    campaign
        The same, as other commands take them.
    port
        Where it listens; 0 takes a free port.
    host
        The address it listens at. Any other than this machine itself needs the link with a token that is printed.
    """
    from ablate.dashboards.app.serve import serve

    if not 0 <= port < 2**16:
        raise SpecError(f"a port is a number from 0 to {2**16 - 1}; got --port {port}")

    def write_now(line: str) -> None:
        write(line)
        results().flush()

    serve(find_campaigns((*campaigns, *campaign)), host=host, port=port, ready=write_now, say=tell)


_COMMANDS: dict[str, dict[Callable[..., object] | str, str]] = {
    "Plan and train": {
        "plan": "plan specs/quickstart.py --all",
        "run": "run specs/quickstart.py seeds=0..9 --workers 2",
        "retry": "retry operator=SSA state=failed",
        cancel: "cancel state=queued operator=SSA",
        repro: "repro operator=SSA seed=1",
        evaluate: "evaluate operator=SSA --with evaluations.py",
    },
    "Follow": {
        status: "status --watch",
        logs: "logs operator=SSA seed=1 --follow",
        dash: "dash campaigns/quickstart --port 0",
    },
    "Compare": {
        table: "table --why SSA",
        effects: "effects --interactions",
        curves: "curves loss --by tokens",
        pareto: "pareto --cost train_s --cost memory_bytes",
        compare: "compare label=softmax label=SSA seed=1",
        report: "report campaigns/quickstart --out report.html",
    },
    "Query, export and maintain": {
        sql: 'sql "select label, mean, n from v_cell_stats order by mean" --csv',
        export: "export cells --to table.tex",
        import_: 'import runs --grid main --label "{optimiser}"',
        tag: "tag operator=SSA +good -bad",
        note: 'note operator=SSA "loss spikes"',
        rename: "rename main screening",
        rm: "rm operator=SSA seed=1",
        check: "check --rebuild",
    },
    "Look up": {
        operators: "operators ssa",
        tasks: "tasks associative_recall",
        probes: "probes sink_share",
        prove: "prove specs/quickstart.py",
        papers: "papers ssa:table1",
        published: "published 003 T1",
    },
}
"""Every command with an example, in the groups of `ablate --help`.

The ones named by a string are imported when they are called, as their options are fields of specs.
"""

for _place, (_title, _examples) in enumerate(_COMMANDS.items()):
    _group = Group(_title, sort_key=_place)
    for _command, _example in _examples.items():
        if not isinstance(_command, str):
            _command.__doc__ = docstring(_command)  # also with -OO
        app.command(
            f"ablate.runners.cli.{_command}:{_command}" if isinstance(_command, str) else _command,
            name=_command if isinstance(_command, str) else None,
            group=_group,
            help_epilogue=f"Example: ablate {_example}",
            synonym="judge" if _command is evaluate else None,
        )
app["--help"].group = app["--version"].group = Group("Options", sort_key=len(_COMMANDS))


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
        for name in ("plan", "run", "retry") if not words or words[0].startswith("-") else ():
            _ = app[name].help  # the list of commands has a line about each
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
