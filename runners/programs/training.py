"""Training by a program: from its start, or from where it was stopped, to its end."""

import itertools
import os
import signal
import sys
from collections.abc import Container, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from ablate.grid.errors import SpecError
from ablate.runners.output import format_count, say
from ablate.runners.processes.training_context import Failed, ProgramFailed, UnfitCheckpoint
from ablate.runners.programs.filling import file_of, fill, fill_all
from ablate.runners.programs.process import Program
from ablate.runners.programs.program_code import PYTHON
from ablate.runners.programs.report import Report, patterns_of
from ablate.runners.programs.script_run import METRICS
from ablate.runners.provenance.snapshot_contents import git_state

if TYPE_CHECKING:
    from ablate.runners.attempts.trial_run import TrialRun
    from ablate.runners.programs.command import Command

_METRICS_FILE: Final = "metrics.jsonl"
_SEEDING: Final = Path(__file__).parent / "seeding"
_OF_SNAPSHOTS: Final = ("PYTHONSAFEPATH", "PYTHONDONTWRITEBYTECODE")
"""Variables of workers that run a snapshot; with the first, a script does not find the modules beside it."""
_WAIT_S: Final = 0.1
_MOST_DRAINED: Final = 16
"""Reads after the end; a process that left the group may go on printing."""
_ERROR: Final = 5
"""Last lines of output that may hold the error."""
_MEMORY: Final = ("out of memory", "outofmemory", "memoryerror", "can't allocate memory", "bad_alloc")


def train_program(command: "Command", run: "TrialRun") -> None:
    """Run the program of `command` to its end, or to a requested stop. Raises `Failed` and SpecError."""
    git = git_state(Path(command.cwd))
    run.open({"git": git} if git else None)
    restored = run.restore()
    if restored is None:
        _set_aside(run.directory, (_METRICS_FILE, command.config))
    files = _Checkpoints(command.checkpoint, run.directory)
    if restored is not None and not files.any():
        raise UnfitCheckpoint(f"{run.directory} has no {command.checkpoint or 'checkpoint'} of the program any more")
    argv, environment = _prepare(command, run, resumes=restored is not None)
    file = Path(environment[METRICS])
    file.write_bytes(b"")
    patterns = patterns_of(command.metrics), patterns_of(command.evaluations)
    report = Report(run, command.total, *patterns, file, restored[0] if restored else 0)
    name = command.program
    try:
        program = Program(argv, Path(command.cwd), environment)
    except (OSError, ValueError) as error:
        raise Failed(f"{argv[0]} cannot be started in {command.cwd} ({error})") from error
    with program:
        status = _follow(command, run, program, report, files)
    unfinished = status == 0 and command.total is not None and report.step < command.total
    if program.stopping or (unfinished and run.stop_requested_quietly):  # a scheduler signals the program, too
        return
    if status:
        raise _failure(name, status, program.tail)
    if not report.values and restored is None:
        raise SpecError(
            f"{name} ended well and reported no value; print lines that a pattern in metrics= finds, write lines of "
            f"JSON to the file named by {METRICS}, or call ablate.current_run()"
        )
    for pattern in sorted(report.unused):
        say(f"no line of output fits the pattern {pattern!r}")
    if program.left_behind:
        say(f"{name} left {format_count(program.left_behind, 'process', 'processes')}, killed at its end")
    run.finish(report.step)


def _follow(command: "Command", run: "TrialRun", program: Program, report: Report, files: "_Checkpoints") -> int:
    """Take what the program reports until it has ended; return its exit status."""
    reported = -1
    while True:
        status, wrote = program.poll(), files.changed()
        _take_output(program, report, ended=status is not None)
        while report.take_file(last=status == 0 and not program.stopping) and status is not None:
            pass
        works, reported = reported != report.values, report.values
        if wrote and (program.drained or status is not None):
            run.save(report.step, {"program": command.program})
            files.take(wrote)
        if status is not None:
            return status
        if run.stop_requested if works else run.stop_requested_quietly:
            program.stop(command.grace)


def _take_output(program: Program, report: Report, *, ended: bool) -> None:
    for _ in range(_MOST_DRAINED if ended else 1):
        for line in program.lines(0 if ended else _WAIT_S):
            report.take_output(line)
        if program.drained:
            return


def _prepare(command: "Command", run: "TrialRun", *, resumes: bool) -> tuple[list[str], dict[str, str]]:
    """Return arguments and environment, and write the file of fields."""
    values = {**command.fields, "seed": command.seed, "directory": str(run.directory)}
    values |= {"config": str(run.directory / command.config)} if command.config else {}
    if command.config:
        Path(str(values["config"])).write_text(
            file_of(command.fields, {"config": "", **values}) + "\n", encoding="utf-8"
        )
    argv = fill_all([*command.argv, *(command.resume if resumes else ())], values)
    if argv[0] in PYTHON:
        argv[0] = sys.executable
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(run.threads))
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if command.execution.device == "cpu" else {}
    seeding = [] if command.takes_seed else [str(_SEEDING)]
    path = os.pathsep.join([*seeding, *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {name: fill(text, values) for name, text in command.environment.items()}
    told = {
        METRICS: str(run.directory / _METRICS_FILE),
        "ABLATE_SEED": str(command.seed),
        "ABLATE_DIRECTORY": str(run.directory),
    }
    inherited = {name: text for name, text in os.environ.items() if name not in _OF_SNAPSHOTS}
    known = {**inherited, "PYTHONUNBUFFERED": "1", **threads, **hidden, "PYTHONPATH": path}
    if seeding and "PYTHONPATH" in own:
        own["PYTHONPATH"] = os.pathsep.join([*seeding, own["PYTHONPATH"]])
    return argv, {**known, **own, **told}


def _set_aside(directory: Path, own: Container[str]) -> None:
    """Move what earlier attempts left, since a trial that begins anew could take it for its own."""
    if any(each.name not in own for each in directory.iterdir()):
        free = next(place for at in itertools.count(1) if not (place := Path(f"{directory}-{at}")).exists())
        directory.rename(free)
        directory.mkdir()


def _failure(name: str, status: int, tail: Sequence[str]) -> ProgramFailed:
    if any(word in line.lower() for word in _MEMORY for line in tail[-_ERROR:]):
        reason = "out_of_memory"
    else:
        reason = "error" if status > 0 else "killed"
    how = f"ended with code {status}" if status > 0 else f"was ended by {_signal_name(-status)}"
    return ProgramFailed(name, how, reason, tail)


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"


@final
class _Checkpoints:
    """The checkpoint files of a program, by a pattern such as "ckpt-*.pt"."""

    def __init__(self, pattern: str, directory: Path) -> None:
        self._pattern, self._directory = pattern, directory
        self._seen = self._now()

    def any(self) -> bool:
        return bool(self._now())

    def changed(self) -> frozenset[tuple[str, int, int]]:
        """Return the present files if they differ from those that were taken."""
        now = self._now()
        return frozenset() if now == self._seen else now

    def take(self, files: frozenset[tuple[str, int, int]]) -> None:
        self._seen = files

    def _now(self) -> frozenset[tuple[str, int, int]]:
        if not self._pattern:
            return frozenset()
        stamps = set()
        with suppress(FileNotFoundError):  # a directory goes while it is listed
            for each in self._directory.glob(self._pattern):
                with suppress(FileNotFoundError):  # the program replaces its files at any moment
                    status = each.stat()
                    stamps.add((str(each), status.st_mtime_ns, status.st_size))
        return frozenset(stamps)
