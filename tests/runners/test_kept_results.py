"""A run takes finished trials out of a grid only if somebody agrees; real processes, one of them at a terminal."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pretend_slurm import PretendSlurm
from real_spec import real_spec
from toy_campaign import run_quietly, toy_grid

from ablate.grid.errors import SpecError
from ablate.runners.planning.kept_results import ReplacesResults
from ablate.store.files.layout import Layout
from ablate.store.store import Store


def write_spec(path: Path, seeds: int, operators: str = "softmax(), ssa()") -> Path:
    path.write_text(real_spec("tried", training="steps=1", operators=operators, seeds=seeds))
    return path


def shown(root: Path) -> int:
    """Count the finished trials that tables show."""
    with Store.open(root) as store:
        return int(store.progress("tried")["done"].sum())


def answer(words: str, *command: str) -> tuple[int, str]:
    """Run a command at a terminal of its own and answer its question; its exit code and what it said."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "ablate", *command], stdin=theirs, stdout=theirs, stderr=theirs
    ) as run:
        os.close(theirs)
        os.write(ours, f"{words}\n".encode())
        said = b""
        while True:
            try:
                said += os.read(ours, 4096)
            except OSError:  # the terminal is closed at the other end
                break
    os.close(ours)
    return run.returncode, said.decode()


def test_a_run_asks_before_finished_trials_leave_a_grid(tmp_path: Path, ablate: Callable) -> None:
    root, spec = tmp_path / "c", write_spec(tmp_path / "spec.py", seeds=2)
    run = ["run", str(spec), "--on", "inline", "--campaign", str(root)]
    ablate(*run)
    files = {path: path.read_bytes() for path in (Layout(root).grid_header("tried"), Layout(root).grid_trials("tried"))}
    write_spec(spec, seeds=2, operators='ssa(), ssa(b=0.7).changed(name="other")')
    assert "2 finished trials" in ablate(*run, code=2).err
    assert {path: path.read_bytes() for path in files} == files
    assert len([*Layout(root).trial_keys()]) == 4  # nothing was trained
    code, said = answer("n", *run)
    assert (code, "2 finished trials" in said, shown(root)) == (2, True, 4)
    assert answer("y", *run)[0] == 0
    assert shown(root) == 4  # two of SSA, and two new ones
    assert len([*Layout(root).trial_keys()]) == 6
    write_spec(spec, seeds=1)
    ablate(*run, "--replace")
    assert shown(root) == 2


def test_a_plan_that_keeps_its_finished_trials_is_changed_without_a_question(tmp_path: Path, ablate: Callable) -> None:
    root, spec = tmp_path / "c", write_spec(tmp_path / "spec.py", seeds=2)
    run = ["run", str(spec), "--on", "inline", "--campaign", str(root)]
    ablate(*run, "seeds=0")
    write_spec(
        spec, seeds=1, operators='softmax(), ssa(), ssa(b=0.7).changed(name="other")'
    )  # seed 1 was planned and has not run
    ablate(*run)
    assert shown(root) == 3


def test_a_submission_is_refused_too(tmp_path: Path, slurm: PretendSlurm, ablate: Callable) -> None:
    root, spec = tmp_path / "c", write_spec(tmp_path / "spec.py", seeds=2)
    where = ["--campaign", str(root)]
    ablate("run", spec, "--on", "inline", *where)
    write_spec(spec, seeds=1)
    cluster = ["run", spec, "--on", "slurm", "--gpus", "0", *where]
    assert "2 finished trials" in ablate(*cluster, code=2).err
    assert shown(root) == 4
    ablate(*cluster, "--replace")
    assert shown(root) == 2


def test_python_replaces_a_plan_only_if_told_to(tmp_path: Path) -> None:
    assert run_quietly(tmp_path, toy_grid()).done == 6
    with pytest.raises(ReplacesResults):
        run_quietly(tmp_path, toy_grid(seeds=[0]))
    assert issubclass(ReplacesResults, SpecError)
    assert run_quietly(tmp_path, toy_grid(seeds=[0]), replace=True).skipped == 2
