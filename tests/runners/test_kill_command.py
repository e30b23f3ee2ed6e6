"""The command itself, with real training: however often it is killed, the results are those of a calm run."""

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from real_spec import real_spec
from toy_campaign import tables
from warm import REAL, Warm

from runners.execution import Inline
from runners.execution.run import RunOptions, run_campaign
from runners.provenance.specfile import load_spec_file
from store.files.layout import Layout
from store.files.trial_status import process_started, trial_state

KILLS = 5
KILLS_OF_A_RUN = 5
"""The last of them hits the whole run, those before hit a worker each."""
STEPS = 100


def spec(path: Path, checkpoint_s: float) -> Path:
    training = f"steps={STEPS}, evaluate_every=50"
    path.write_text(real_spec("killed", training=training, execution=f"checkpoint_s={checkpoint_s}", seeds=2))
    return path


def results(root: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All that the store says, but how the trials were executed."""
    found = tables(root)
    found["trial"] = [(key, *rest) for key, _, *rest in found["trial"]]
    return found


def resumed(root: Path) -> int:
    """Attempts that went on from another's checkpoint."""
    layout = Layout(root)
    attempts = [found for key in layout.trial_keys() for found in trial_state(layout, key).attempts]
    return sum(found.start["resumed_from"] is not None for found in attempts)


class Run:
    """`python -m runners run`, in a process group of its own; `fresh`: in a new interpreter."""

    def __init__(self, path: Path, root: Path, *, fresh: bool) -> None:
        self._layout = Layout(root)
        command = [sys.executable, "-P", "-m", "runners", "run", str(path), "--workers", "2", "--campaign", str(root)]
        self.said = root.with_suffix(".log")
        with self.said.open("ab") as said:
            begin = subprocess.Popen if fresh else partial(Warm, preload=REAL)
            self.process = begin(command, stderr=said, stdout=said, start_new_session=True)

    def over(self) -> bool:
        return self.process.poll() is not None

    def worker(self) -> int | None:
        """A worker that has saved a step of its own; None if the run is over first.

        Deaths without a step gained in between fail a trial, as they should, so none is caused here.
        """
        while not self.over():
            for key in self._layout.trial_keys():
                live = trial_state(self._layout, key).live
                if live is not None and any(self._layout.checkpoint(key, live.attempt).glob("step-*.pt")):
                    return int(live.start["pid"])
            time.sleep(0.01)
        return None

    def kill(self, chance: random.Random) -> int:
        """Kill workers at random moments, at last the run: the group or the parent alone; how many kills hit."""
        hits = 0
        for _ in range(KILLS_OF_A_RUN - 1):
            worker = self.worker()
            if worker is None:
                return hits
            hits += self._kill(os.kill, worker, chance.uniform(0, 0.15))
        if self.worker() is not None:
            kill_run = os.killpg if chance.random() < 0.5 else os.kill
            hits += self._kill(kill_run, self.process.pid, chance.uniform(0, 0.3))
        return hits

    def _kill(self, kill: Any, pid: int, after_s: float) -> bool:
        time.sleep(after_s)
        if process_started(pid) is None:
            return False
        kill(pid, signal.SIGKILL)
        while process_started(pid) is not None:  # so that nobody is killed twice
            time.sleep(0.002)
        return True


@pytest.mark.slow
def test_the_command_killed_five_times_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    path = spec(tmp_path / "calm.py", checkpoint_s=600)
    options = RunOptions(land_every_s=None, progress=False, files=(path,))
    assert run_campaign(tmp_path / "calm", load_spec_file(path).values(), Inline(), options).ok == 4
    expected = results(tmp_path / "calm")
    assert [counts for _, _, *counts in expected["progress"]] == [[2, 2, 0]] * 2
    assert len({row[4] for row in expected["final"]}) == 4

    path = spec(tmp_path / "killed.py", checkpoint_s=0)  # a step is saved as soon as it is done
    chance = random.Random("kill the command")
    killed = campaigns = begun = 0
    while killed < KILLS:
        root = tmp_path / f"killed{campaigns}"
        code = -signal.SIGKILL
        while code == -signal.SIGKILL:
            run = Run(path, root, fresh=begun == 0)
            begun += 1
            killed += run.kill(chance) if killed < KILLS else 0
            code = run.process.wait()
        assert code == 0, run.said.read_text()
        assert results(root) == expected
        assert resumed(root) > 0
        campaigns += 1
