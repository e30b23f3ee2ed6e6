"""Experiments: specs that train themselves, the unit of work of a grid."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import iscoroutinefunction, isfunction, isgeneratorfunction, signature
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BeforeValidator, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic_core import PydanticCustomError

from ablate.grid.durations import read_duration
from ablate.grid.errors import SpecError
from ablate.grid.spec import Choice, OutsideKey, Spec
from ablate.grid.values import show

if TYPE_CHECKING:
    from ablate.grid.measure import Measure
    from ablate.grid.row_info import RowInfo
    from ablate.grid.run import Run


class ExperimentExecution(Spec):
    """How an experiment is computed; outside the key, and recorded with the attempt."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """ "auto" is CUDA if there is one; training code reads `run.device`."""
    threads: PositiveInt = 1
    """Threads of a worker process on the CPU."""
    checkpoint_s: NonNegativeFloat = 20.0
    """Seconds between checkpoints, from which an interrupted trial goes on; 0: after every step."""
    gpus: PositiveInt = 1
    """GPUs that train one trial together, each by a process of its own; on the CPU, processes."""
    stall: Annotated[PositiveFloat | None, BeforeValidator(read_duration)] = None
    """Longest time without a step, such as "30m": after it, the attempt is ended and the trial has failed.
    None: no limit. In a run with worker processes."""


class Findings(NamedTuple):
    """Findings about the cells of a grid, which its plan shows."""

    lines: Sequence[str] = ()
    """One sentence each."""
    data: Mapping[str, Any] = {}
    """The same for `ablate plan --json`."""


class Experiment(Choice):
    """A spec that trains itself: its fields say what is trained, and `train` does it.

    A class of your own has a `kind`, which is part of its keys: `kind: Literal["nanogpt"] = "nanogpt"`. Every field is
    an axis that a grid may vary. Equal fields are the same trial, so all that changes a number is a field, or the code.

    Without a `train` it is a base of other classes. All methods below `train` are optional.
    """

    own_processes: ClassVar[bool] = False
    """True if `train` starts a process per GPU itself; else it is called in one for each of `execution.gpus`."""

    seed: NonNegativeInt = 0
    """Fixes all random numbers of a run; seeds are replicates, paired across cells."""
    execution: Annotated[ExperimentExecution, OutsideKey()] = ExperimentExecution()
    """Where and how it is computed; it is no part of the key, since it changes no result beyond rounding."""

    def train(self, run: "Run") -> None:
        """Train, and record values by `run`. Random numbers of Python, numpy and torch are seeded by `seed` before."""
        raise NotImplementedError(f"{type(self).__name__} has no train(self, run), which trains it")

    def parameters(self) -> int | None:
        """Count the trained parameters, for plans; None: they are not shown."""
        return None

    def flops(self) -> float | None:
        """Count the FLOPs of a whole training, by which a plan estimates its time; None: by `steps`, if it has any."""
        return None

    def other_code(self) -> dict[str, str]:
        """Hash code beside the class and the modules that it imports, by name. Raises SpecError if it is not there."""
        return {}

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]] | None:
        """Return the points of every value that it records, by name; a grid with another measure is refused.

        None: nobody can tell before the training.
        """
        return None

    def row_infos(self) -> "Sequence[RowInfo]":
        """Return titles, units and lower bounds of values that it records, for pages, reports and commands."""
        return ()

    def controls(self, measure: "Measure", baseline: Self) -> Sequence[Any]:
        """Return the simplest explanations of what it changes of its baseline, as `ControlChange`.

        A grid that has them as cells tells whether a difference goes beyond them.
        """
        del measure, baseline
        return ()

    def longer(self, factor: int) -> Self:
        """Return the experiment trained `factor` times as long, for `Grid(longer=2)`."""
        raise SpecError(
            f"{type(self).__name__} has no longer(self, factor), which returns it trained {factor} times as long"
        )

    def check_inputs(self) -> None:
        """Open what the training reads, such as files, before any trial is trained. Raises SpecError if it fails."""

    @classmethod
    def warnings(cls, cells: Mapping[str, Self]) -> Findings:
        """Say what is strange about the cells of a grid, each at its first seed, by label; plans show it."""
        del cells
        return Findings()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for name in cls.model_fields.keys() - Experiment.model_fields.keys():
            if hasattr(Experiment, name):
                raise SpecError(f"{cls.__name__} has a field {name!r}, which every experiment has already; rename it")
        for name, own in vars(cls).items():
            wanted = vars(Experiment).get(name)
            if isfunction(wanted) and not name.startswith("_") and not callable(own):
                raise SpecError(f"{cls.__name__}.{name} is no method, as it is in every experiment; rename it")
            if isinstance(wanted, classmethod) and not isinstance(own, classmethod):
                raise SpecError(f"{cls.__name__}.{name} is no method of the class; write @classmethod above it")
        train = vars(cls).get("train")
        if train is not None and (not isfunction(train) or len(signature(train).parameters) != 2):
            raise SpecError(f"{cls.__name__}.train is no method train(self, run); write it so")
        if iscoroutinefunction(train) or isgeneratorfunction(train):
            raise SpecError(f"{cls.__name__}.train is async, or has a yield; train does its work when it is called")

    @classmethod
    def _choose(cls, value: object) -> "Choice":
        if cls is not Experiment and not cls.members():
            raise PydanticCustomError("experiment", "{told}", {"told": _missing_kind(cls)})
        return super()._choose(value)


def group_by_method(
    cells: Mapping[str, Experiment], name: str
) -> Iterator[tuple[Callable[..., Any], dict[str, Experiment]]]:
    """Yield a class method of experiments, if their class has it, with the cells that it is for, by label."""
    groups: dict[Any, tuple[Callable[..., Any], dict[str, Experiment]]] = {}
    for label, cell in cells.items():
        method = getattr(type(cell), name, None)
        if method is not None:
            groups.setdefault(method.__func__, (method, {}))[1][label] = cell
    yield from groups.values()


def _missing_kind(cls: type[Experiment]) -> str:
    name = cls.__name__.lower()
    return f'{cls.__name__} has no kind, which keeps its trials apart; add kind: Literal["{name}"] = "{name}"'


def require_train(cls: type[Experiment]) -> None:
    """Raise `SpecError` for a class that is a base of others and trains nothing."""
    if cls.train is Experiment.train:
        raise SpecError(
            f"{cls.__name__} has no train(self, run), by which an experiment trains itself; write it, or use a subclass"
        )


def require_experiment(grid: str, base: object) -> None:
    """Raise `SpecError` unless the base of a grid is an experiment."""
    if isinstance(base, Experiment):
        return
    cls, remedy = base if isinstance(base, type) else type(base), "give a Trial(...), or one of a class of your own"
    if issubclass(cls, Experiment):
        remedy = f"call it: {cls.__name__}(...)"
    elif issubclass(cls, Spec):
        remedy = f"write class {cls.__name__}(Experiment), with a kind and train(self, run)"
    raise SpecError(f"the base of grid {grid!r} is {show(base)}, and no Experiment; {remedy}")


def reference_of(cls: type[Spec]) -> str | None:
    """Return how a plan names the class of an experiment: by its kind, after "module:" if it can be imported by name.

    None for `Trial`, and for other specs.
    """
    if not issubclass(cls, Experiment) or "kind" not in cls.model_fields:
        return None
    kind, module = str(cls.model_fields["kind"].default), sys.modules.get(cls.__module__)
    if module is None or module.__spec__ is None:  # a spec file, or the main program
        return kind
    return f"{cls.__module__}:{kind}"
