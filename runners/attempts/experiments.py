"""Experiments in a worker: their classes, by what a plan says, and their training."""

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ablate.grid import Experiment
from ablate.grid.errors import SpecError
from ablate.grid.experiment import reference_of
from ablate.runners.attempts.trial_run import TrainingStopped, TrialRun
from ablate.runners.programs.script_run import at_work
from ablate.runners.training.process_state import reset_random, use_threads
from ablate.runners.training.training_context import Failed, NullContext, TrainingContext, TrainingResult

if TYPE_CHECKING:
    from ablate.runners.training.process_group import World

Train = Callable[[Any, TrainingContext], TrainingResult]


def resolve(reference: str) -> Any:
    """Import the object that "module:name" refers to. Raises SpecError if there is no such module or name."""
    try:
        return resolve_name(reference)
    except (ImportError, AttributeError, ValueError) as error:
        raise SpecError(f"{reference!r} cannot be imported ({error}); an entry is written 'module:name'") from error


def experiment_class(reference: str) -> type[Experiment]:
    """Return the class that a plan names, as of `ablate.grid.experiment.reference_of`.

    Raises SpecError if neither the spec files nor its module define it.
    """
    module, _, kind = reference.rpartition(":")
    if kind not in Experiment.members() and module:
        with suppress(ImportError):
            import_module(module)
    known = Experiment.members()
    if kind not in known:
        where = f"neither the spec files of this run nor {module}" if module else "no spec file of this run"
        raise SpecError(f"{where} defines an experiment of kind {kind!r}; give the file that does, too")
    return known[kind]


def train_experiment(
    experiment: Experiment, context: TrainingContext, directory: Path, measure: str | None = None
) -> TrainingResult:
    """Train an experiment by its own `train`, which records by a `TrialRun`; `directory` is for its files.

    Raises what training raises; `Failed` if it has no result, also if it recorded no `measure`.
    """
    if experiment.execution.gpus == 1 or experiment.own_processes or reference_of(type(experiment)) is None:
        return _train(experiment, TrialRun(experiment, context, directory, measure))
    from ablate.runners.training.rank_launcher import ranks

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
            experiment.train(run)
        except TrainingStopped:
            return run.result(None)
        except SpecError as error:  # the spec is sound: training code gave the run something unfit
            return run.result(Failed(error))
        except Exception as error:  # noqa: BLE001  # a stop may have caused it
            return run.result(error)
        finally:
            at_work.reset(token)
        return run.result(None)
