"""Record the calls of SLURM commands: a script wraps each command, notes the call and executes the command."""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

PROGRAMS = ("sbatch", "squeue", "sacct", "sacctmgr", "scontrol", "scancel", "sinfo", "srun")
_SCRIPT = """\
#!/bin/sh
printf '%s|%s|%s %s\\n' "$(date +%s.%N)" "${{SLURM_JOB_ID:-}}" {name} "$*" >> "$ABLATE_CALLS"
exec {program} "$@"
"""


class Call(NamedTuple):
    """One call of a command."""

    at: float
    """Seconds since the epoch."""
    job: str
    """The job in which it was called; empty outside of jobs."""
    command: str


def counting(place: Path, log: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """An environment in which calls are noted in `log`, also those of jobs that are queued from there."""
    place.mkdir(exist_ok=True)
    for name in PROGRAMS:
        if program := shutil.which(name):
            script = place / name
            script.write_text(_SCRIPT.format(name=name, program=program))
            script.chmod(0o755)
    return {**environ, "PATH": f"{place}:{environ['PATH']}", "ABLATE_CALLS": str(log)}


def called(log: Path) -> list[Call]:
    """The calls noted so far, in order."""
    lines = log.read_text().splitlines() if log.exists() else []
    found = [line.split("|", 2) for line in lines if line.count("|") >= 2]
    return sorted(Call(float(at), job, command) for at, job, command in found)


def counts(calls: Iterable[Call]) -> dict[str, int]:
    """Calls by command and, of scontrol, what it was to do."""
    words = (call.command.split() for call in calls)
    return dict(Counter(" ".join(each[: 1 + (each[0] == "scontrol")]) for each in words))


def per_minute(calls: Iterable[Call], program: str) -> float:
    """Calls of a program per minute from its first to its last; 0 if there are not two."""
    at = [call.at for call in calls if call.command.split()[0] == program]
    return 60 * (len(at) - 1) / (at[-1] - at[0]) if len(at) > 1 else 0.0
