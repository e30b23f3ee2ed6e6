"""Experiments in a worker: their classes, by what a plan says, and their training."""

import sys
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final

from ablate.grid import Experiment, Grid
from ablate.grid.errors import SpecError
from ablate.runners.attempts.recorded_values import Measure
from ablate.runners.attempts.run_request import OF_TRIALS
from ablate.runners.attempts.trial_run import TrialRun
from ablate.runners.processes.process_state import reset_random, use_threads
from ablate.runners.processes.training_context import (
    Failed,
    NullContext,
    TrainingContext,
    TrainingResult,
    TrainingStopped,
)
from ablate.runners.programs.script_run import at_work

if TYPE_CHECKING:
    from ablate.runners.processes.process_group import World

_TRIAL: Final = "ablate.training.trial:Trial"
_OF_TORCH: Final = ("torch", "torch._dynamo", "torch.optim")


def experiment_class(reference: str | None) -> type[Experiment]:
    """Return the class that a plan names, as of `ablate.grid.experiment.reference_of`; None: `Trial`.

    Raises SpecError if neither the spec files nor its module define it.
    """
    if reference is None:
        trial: type[Experiment] = resolve_name(_TRIAL)
        return trial
    module, _, kind = reference.rpartition(":")
    if kind not in Experiment.members() and module:
        with suppress(ImportError):
            import_module(module)
    known = Experiment.members()
    if kind not in known:
        where = f"neither the spec files of this run nor {module}" if module else "no spec file of this run"
        raise SpecError(f"{where} defines an experiment of kind {kind!r}; give the file that does, too")
    return known[kind]


def preload_of(grids: Iterable[Grid]) -> tuple[str, ...]:
    """Return what workers of `grids` import before any trial: what every `Trial` needs, else torch if it is here.

    With torch comes what its optimisers load when the first is made, which wraps functions of torch.
    """
    module = sys.modules.get(_TRIAL.partition(":")[0])  # whoever has made a Trial has loaded it
    if module is not None and any(isinstance(part.base, module.Trial) for grid in grids for part in grid.parts):
        return OF_TRIALS
    return (*(_OF_TORCH if "torch" in sys.modules else ()), "pyarrow.parquet")


def train_experiment(
    experiment: Experiment, context: TrainingContext, directory: Path, measure: Measure = lambda: None
) -> TrainingResult:
    """Train an experiment by its own `train`, which records by a `TrialRun`; `directory` is for its files.

    `measure` returns the name of what is compared; None: nothing is. Raises what training raises; `Failed` if it has no
    result, also if it recorded nothing of that name.
    """
    if experiment.execution.gpus == 1 or experiment.own_processes:
        return _train(experiment, TrialRun(experiment, context, directory, measure))
    from ablate.runners.processes.rank_launcher import ranks

    with ranks(experiment, f"{__name__}:train_rank", {"directory": str(directory)}) as world:
        return _train(experiment, TrialRun(experiment, context, directory, measure, world))


def train_rank(experiment: Experiment, world: "World", more: Mapping[str, str]) -> None:
    """Train as a rank other than 0, which records nothing."""
    with reset_random(experiment.seed):
        _train(experiment, TrialRun(experiment, NullContext(), Path(more["directory"]), world=world))


def _train(experiment: Experiment, run: TrialRun) -> TrainingResult:
    threads = use_threads(experiment.execution.threads) if "torch" in sys.modules else nullcontext()
    with threads:
        token = at_work.set(run)
        try:
            return run.result(_call_train(experiment, run))
        finally:
            at_work.reset(token)
            run.close()


def _call_train(experiment: Experiment, run: TrialRun) -> Exception | None:
    """Call `train`; return its error, of which a requested stop may be the cause."""
    try:
        experiment.train(run)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001
        if isinstance(error, TrainingStopped) or (isinstance(error, SystemExit) and error.code in (None, 0)):
            return None
        if isinstance(error, Exception) and not isinstance(error, SpecError):
            return error
        return Failed(error)  # the spec is sound, and no exit of training code ends this process
    return None
