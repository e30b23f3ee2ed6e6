"""Scripts that tests run as programs of trials."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ablate import Command
from ablate.grid import Experiment
from ablate.runners.attempts.experiments import train_experiment
from ablate.runners.processes.training_context import TrainingResult

Script = Callable[..., Command]


def trained(command: Experiment, context: Any, place: Path) -> TrainingResult:
    return train_experiment(command, context, place / "files")


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
