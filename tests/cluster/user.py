"""Somebody at a terminal who queues toys on the test cluster, and what they see."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster.cluster import Cluster, ClusterBroken, wait_for
from toy_campaign import run_quietly, tables

from ablate.runners.attempts.claims import LONG_BEATS
from ablate.runners.attempts.submission_record import Submission, read_submission_record
from ablate.runners.attempts.worker_logs import worker_log
from ablate.runners.attempts.worker_records import WorkerRecord, read_workers
from ablate.runners.cli.app import execute
from ablate.runners.provenance.specfile import load_spec_file
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import TrialState, trial_state

TESTS = Path(__file__).parent.parent
SPEC = """\
from ablate import Slurm
from toy_campaign import toy_grid
grid = toy_grid({grid})
slurm = Slurm(**{{**dict(gpus=0, time="30m", workers=2, mem="500M", signal_s=20, heartbeat_s=1.0), **dict({slurm})}})
"""
ABLATE = """\
from ablate.runners.cli.app import main
main()
"""
"""The command."""
PATIENCE_S = 150.0


class Said:
    """The result of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def sentence(self) -> str:
        """The error message: the last line, after any progress lines."""
        *awaited, line = self.err.splitlines()
        assert not any(each.startswith("ablate: ") for each in awaited)
        assert line.startswith("ablate: ")
        return line.removeprefix("ablate: ")


class User:
    """Somebody at a terminal, with a spec file and a campaign in `place`."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.place = place
        self._capsys = capsys
        self.spec = place / "toys.py"
        self.lives(place / "campaign")

    def lives(self, root: Path) -> None:
        """The campaign is there."""
        self.root = root
        self.layout = Layout(root)

    def writes(self, grid: str = "", slurm: str = "") -> "User":
        self.spec.write_text(SPEC.format(grid=grid, slurm=slurm))
        return self

    @property
    def run(self) -> tuple[str, ...]:
        return ("run", str(self.spec), "--on", "slurm", "--campaign", str(self.root))

    def does(self, *words: str) -> Said:
        """The command, in this process."""
        self._capsys.readouterr()
        code = execute(list(words))
        return Said(code, *self._capsys.readouterr())

    def shell(self, *words: str, code: str = ABLATE, **environ: str) -> "subprocess.Popen[str]":
        """The command as a process of its own."""
        paths = os.pathsep.join(map(str, (TESTS.parent / "src", TESTS)))
        return subprocess.Popen(
            [sys.executable, "-P", "-c", code, *words],
            env={**os.environ, "PYTHONPATH": paths, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def queues(self, *options: str) -> Submission:
        """Submit, which works; the record."""
        said = self.does(*self.run, *options)
        assert said.code == 0, said.err
        return read_submission_record(self.layout, self.layout.submission_ids()[-1])

    def status(self) -> dict[str, Any]:
        said = self.does("status", "--json", "--campaign", str(self.root))
        assert said.code == 0, said.err
        found: dict[str, Any] = json.loads(said.out)["data"]
        return found

    def states(self) -> dict[str, TrialState]:
        return {key: trial_state(self.layout, key) for key in self.layout.trial_keys()}

    def ok(self) -> int:
        return sum(state.state == "done" for state in self.states().values())

    def training(self) -> bool:
        return any(path.stat().st_size > 0 for path in self.layout.trials.glob("*/*/*/heartbeat"))

    def workers(self) -> list[WorkerRecord]:
        found = self.layout.submission_ids()
        return [each for submission in found for each in read_workers(self.layout, submission)]

    def log(self, submission: str, job: str) -> str:
        return worker_log(self.layout, submission, job).read_text()

    def same_as_local(self) -> bool:
        """Whether the campaign says what an undisturbed one on this machine says, and each trial is complete once."""
        (grid,) = load_spec_file(self.spec).values()
        local = self.place / "local"
        execution = grid.base.execution.changed(step_s=0.0)  # no part of a result
        run_quietly(local, replace(grid, base=grid.base.changed(execution=execution)))
        mine, theirs = tables(self.root), tables(local)
        mine.pop("trial"), theirs.pop("trial")  # specs say where they ran
        ends = [[found.end for found in state.attempts if found.end] for state in self.states().values()]
        return mine == theirs and all(sum(end["status"] == "ok" for end in each) == 1 for each in ends)


def wait_until_over(cluster: Cluster) -> None:
    """Wait for an empty queue."""
    wait_for(over(cluster), "the workers to leave", 2 * PATIENCE_S)


def over(cluster: Cluster) -> Callable[[], bool]:
    return lambda: not cluster.run("squeue", "-h")


def end_long_lives(cluster: Cluster, layout: Layout, job: int, ended: set[Path]) -> None:
    """Let the time of the job be over once each unfinished trial has a long attempt that is not in `ended`."""
    beats = [[layout.heartbeat(key, number) for number in layout.attempts(key)] for key in layout.trial_keys()]
    trials = [[path for path in paths if path.exists()][-1:] for paths in beats]
    latest = [path for found in trials for path in found if not (path.parent / "end.json").exists()]
    if latest and ended.isdisjoint(latest) and all(map(_is_long, latest)):
        try:
            cluster.run("timeout", "10", "scancel", "--signal=USR2", str(job))
        except ClusterBroken:  # the controller waits for a node that failed
            return
        ended.update(latest)


def _is_long(heartbeat: Path) -> bool:
    start = json.loads((heartbeat.parent / "start.json").read_bytes())
    return heartbeat.stat().st_mtime - float(start["started"]) > 2 * LONG_BEATS * float(start["heartbeat_s"])


def nothing_happened(cluster: Cluster, user: User) -> bool:
    return not user.root.exists() and over(cluster)()
