"""Scripts that tests run as programs of trials."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ablate import Command
from ablate.grid import Experiment
from ablate.runners.attempts.experiments import train_experiment
from ablate.runners.processes.training_context import TrainingResult

Script = Callable[..., Command]

LASTING = """
import os, random, signal, sys, time
lr, place, deaths = float(sys.argv[1]), sys.argv[2] + "/state.txt", sys.argv[3]
step, loss = 0, 1.0
if "--resume" in sys.argv:
    with open(place) as file:
        step, loss = int(file.readline()), float(file.readline())
while step < 12:
    step += 1
    loss *= 1 - lr * random.Random(f"{step} {os.environ['ABLATE_SEED']}").random()
    print(f"step {step} loss {loss!r}", flush=True)
    if step % 3 == 0:
        with open(place + ".new", "w") as file:
            file.write(f"{step}\\n{loss!r}")
        os.replace(place + ".new", place)
    with open(deaths) as file:
        lines = file.read().splitlines()
    if lines and int(lines[0].split()[0]) == step:
        with open(deaths, "w") as file:
            file.write("\\n".join(lines[1:]))
        os.kill(os.getppid(), signal.Signals[lines[0].split()[1]])
        time.sleep(600)
"""
"""Resumes from a state of every third step; `sys.argv[3]` is a file of signals that hit its worker, "step signal"."""


def trained(command: Experiment, context: Any, place: Path) -> TrainingResult:
    return train_experiment(command, context, place / "files")


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
