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
