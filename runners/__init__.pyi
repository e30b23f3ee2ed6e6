from .attempts.run_request import RunRequest as RunRequest
from .backends.slurm.spec import Needs as Needs, Slurm as Slurm
from .execution.run import RunResult as RunResult, run_campaign as run_campaign
from .programs.command import Command as Command
from .programs.script_run import current_run as current_run
from .trainers import (
    accelerate_tracker as accelerate_tracker,
    lightning_logger as lightning_logger,
    transformers_callback as transformers_callback,
)
