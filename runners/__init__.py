"""Running it: trials, tasks, training, campaigns, machines and the command `ablate`.

What a spec file needs is imported from here; each name is loaded when it is first used, so that the command answers
`--help` without loading torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runners.evaluations.boundary_values import BoundaryValues as BoundaryValues
    from runners.evaluations.deviant_inputs import DeviantInputs as DeviantInputs
    from runners.evaluations.deviant_inputs import Prompt as Prompt
    from runners.evaluations.large_value import LargeValue as LargeValue
    from runners.optimisers import AdamW as AdamW
    from runners.optimisers import Optimiser as Optimiser
    from runners.optimisers import Training as Training
    from runners.runs.run import RunOptions as RunOptions
    from runners.runs.run import RunResult as RunResult
    from runners.runs.run import run_campaign as run_campaign
    from runners.schedules import WSD as WSD
    from runners.schedules import Constant as Constant
    from runners.schedules import Cosine as Cosine
    from runners.schedules import Schedule as Schedule
    from runners.slurm.spec import Needs as Needs
    from runners.slurm.spec import Slurm as Slurm
    from runners.tasks.linear_functions import Curriculum as Curriculum
    from runners.tasks.linear_functions import LinearFunctions as LinearFunctions
    from runners.tasks.linear_functions import ShiftGrid as ShiftGrid
    from runners.tasks.quantifiers import LengthGrid as LengthGrid
    from runners.tasks.quantifiers import Quantifiers as Quantifiers
    from runners.tasks.task import Task as Task
    from runners.tasks.text import Text as Text
    from runners.trial import Execution as Execution
    from runners.trial import Trial as Trial

_HOMES = {
    "AdamW": "runners.optimisers",
    "BoundaryValues": "runners.evaluations.boundary_values",
    "Constant": "runners.schedules",
    "Cosine": "runners.schedules",
    "Curriculum": "runners.tasks.linear_functions",
    "DeviantInputs": "runners.evaluations.deviant_inputs",
    "Execution": "runners.trial",
    "LargeValue": "runners.evaluations.large_value",
    "LengthGrid": "runners.tasks.quantifiers",
    "LinearFunctions": "runners.tasks.linear_functions",
    "Needs": "runners.slurm.spec",
    "Optimiser": "runners.optimisers",
    "Prompt": "runners.evaluations.deviant_inputs",
    "Quantifiers": "runners.tasks.quantifiers",
    "RunOptions": "runners.runs.run",
    "RunResult": "runners.runs.run",
    "Schedule": "runners.schedules",
    "ShiftGrid": "runners.tasks.linear_functions",
    "Slurm": "runners.slurm.spec",
    "Task": "runners.tasks.task",
    "Text": "runners.tasks.text",
    "Training": "runners.optimisers",
    "Trial": "runners.trial",
    "WSD": "runners.schedules",
    "run_campaign": "runners.runs.run",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'runners' has no attribute {name!r}; it has {sorted(_HOMES)}")
    return getattr(import_module(home), name)


__all__ = [
    "WSD",
    "AdamW",
    "BoundaryValues",
    "Constant",
    "Cosine",
    "Curriculum",
    "DeviantInputs",
    "Execution",
    "LargeValue",
    "LengthGrid",
    "LinearFunctions",
    "Needs",
    "Optimiser",
    "Prompt",
    "Quantifiers",
    "RunOptions",
    "RunResult",
    "Schedule",
    "ShiftGrid",
    "Slurm",
    "Task",
    "Text",
    "Training",
    "Trial",
    "run_campaign",
]


def __dir__() -> list[str]:
    return sorted(_HOMES)
