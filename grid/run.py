"""The run of a trial as training code sees it; a worker makes one, and `Campaign.start`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex

from ablate.grid.errors import SpecError
from ablate.grid.values import show

if TYPE_CHECKING:
    import numpy as np

State = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""The values that a loop saves and restores, by name."""

REASONS = ("diverged", "out_of_memory", "error", "killed")
"""Reasons that training code may give for a failure."""


def require_reason(reason: str | None) -> None:
    """Raise SpecError for a reason that no failure has."""
    if reason is not None and reason not in REASONS:
        raise SpecError(f"{reason!r} is no reason of a failure; give one of {', '.join(REASONS)}")


class RunRecorder(ABC):
    """One run of one trial: where training code records values.

    Values go to the campaign together, with a checkpoint or every half minute, and at the end. Methods that record
    raise `SpecError` for a name or a value that no table can hold, and then record nothing of the call. Where `step` is
    left out, a value is of the step at work.
    """

    @property
    def device(self) -> str:
        """ "cuda" or "cpu": as the execution of an experiment says, else what torch sees."""
        return "cuda" if resolve_name("torch.cuda:is_available")() else "cpu"

    @property
    def threads(self) -> int:
        """Threads on the CPU: torch has been set to those of an experiment; else what torch uses."""
        count: int = resolve_name("torch:get_num_threads")()
        return count

    @property
    @abstractmethod
    def directory(self) -> Path:
        """A directory for files of the trial, which all its attempts share; it stays in the campaign."""

    def log(
        self,
        step: SupportsIndex | Mapping[str, SupportsFloat] | None = None,
        metrics: Mapping[str, SupportsFloat] | None = None,
        /,
        **named: SupportsFloat,
    ) -> None:
        """Record metrics of one step, by keyword or, where a name is no Python name, in a mapping.

        `log(loss=loss)`, `log({"val/loss": loss})` and `log(step, loss=loss)`. The step of a metric rises.
        """
        at, values = (None, step) if isinstance(step, Mapping) and metrics is None else (step, metrics)
        if isinstance(at, Mapping) or not isinstance(values, Mapping | None):
            raise SpecError(f"log got {show(metrics)}; give metrics by name, such as loss=0.5")
        if twice := sorted((values or {}).keys() & named.keys()):
            raise SpecError(f"log got {twice[0]!r} in the mapping and by keyword; give a metric once")
        if at is None and not (values or named):
            raise SpecError("log got no metric of the step; give them by name, such as loss=0.5")
        self._log(self._step_at_work() if at is None else at, {**(values or {}), **named})

    def evaluate(
        self,
        step: SupportsIndex | str,
        name: str | SupportsFloat | None = None,
        value: SupportsFloat | None = None,
        *,
        point: Mapping[str, SupportsFloat] | None = None,
        items: SupportsIndex | Mapping[str, SupportsFloat] = 1,
        se_items: SupportsFloat | None = None,
    ) -> None:
        """Record one value of an evaluation: `evaluate("val_loss", 3.2)`, or with the step first.

        `point` is its place on the grid of the evaluation, such as `{"length": 512}`. `items` is the number of items
        that `value` is the mean of, or a mapping of their values by name. Then the value and its standard error
        `se_items`, in the value's unit, may be left out. A place has one value.
        """
        at, named, number = self._name_first(step, name, value)
        self._evaluate(at, named, number, {} if point is None else point, items, se_items)

    def knockout(
        self,
        fields: str | Iterable[str],
        name: str,
        value: SupportsFloat | None = None,
        *,
        point: Mapping[str, SupportsFloat] | None = None,
        items: SupportsIndex | Mapping[str, SupportsFloat] = 1,
        se_items: SupportsFloat | None = None,
    ) -> None:
        """Record an evaluation that was just made, made once more on the trained model without one or more fields.

        `run.evaluate("val_loss", items=losses)`, then `run.knockout("gate", "val_loss", items=losses_without_gate)`:
        the check *on* of a verdict reads whether what a cell changes did anything. Fields are named as axes name them,
        such as "model.gate". The items are those of the evaluation; without their values, both need `se_items`.
        """
        paths = [fields] if isinstance(fields, str) else [*fields]
        for at, *row in self._knock_out(paths, name, value, {} if point is None else point, items, se_items):
            self._evaluate(at, *row)

    def probe(
        self,
        step: SupportsIndex | str,
        name: str | SupportsFloat | None = None,
        value: SupportsFloat | None = None,
        *,
        layer: SupportsIndex | None = None,
        head: SupportsIndex | None = None,
        point: Mapping[str, SupportsFloat] | None = None,
    ) -> None:
        """Record one value seen inside the model, of a layer and head where it belongs to one."""
        at, named, number = self._name_first(step, name, value)
        self._probe(at, named, number, layer, head, {} if point is None else point)

    @abstractmethod
    def artefact(self, name: str, arrays: Mapping[str, "np.ndarray"]) -> None:
        """Keep arrays of the step at work in one compressed file; the name is lower-case words joined by -."""

    @abstractmethod
    def cost(self, **costs: SupportsFloat) -> None:
        """Record what the run took, by name with unit, such as `gpu_memory_bytes`."""

    @abstractmethod
    def fail(self, error: BaseException | str, reason: str | None = None) -> None:
        """End the run as failed; `reason` is one of `REASONS`, by default told by `error`."""

    def _name_first(self, step: SupportsIndex | str, name: object, value: object) -> tuple[SupportsIndex, Any, Any]:
        """Return step, name and value of a call that may leave out the step."""
        if isinstance(step, str) and name is not None and value is not None:
            raise SpecError(f"the step of {show(name)} is {show(step)}; give a whole number")
        if isinstance(step, str):
            return self._step_at_work(), step, name if value is None else value
        return step, name, value

    @abstractmethod
    def _step_at_work(self) -> int: ...

    @abstractmethod
    def _log(self, step: SupportsIndex, metrics: Mapping[str, SupportsFloat]) -> None: ...

    @abstractmethod
    def _evaluate(self, step: SupportsIndex, name: str, value: SupportsFloat | None, *rest: Any) -> None:
        """Record an evaluation; `rest` is point, items and se_items."""

    @abstractmethod
    def _knock_out(self, paths: Collection[str], name: str, *rest: Any) -> Iterable[tuple[Any, ...]]:
        """Return the arguments of `_evaluate` for a knock-out; `rest` is value, point, items and se_items."""

    @abstractmethod
    def _probe(self, step: SupportsIndex, name: str, value: SupportsFloat, *rest: Any) -> None:
        """Record a probe; `rest` is layer, head and point."""


class Run(RunRecorder):
    """The run that `Experiment.train` gets: it also makes loops that a stopped or lost run goes on from.

    `steps`, `batches` and `epochs` make loops; `restore`, `save` and `stop_requested` do the same by hand. Once a stop
    took effect, every method raises an exception that is no `Exception`.
    """

    @property
    @abstractmethod
    def rank(self) -> int:
        """The number of this process among the `execution.gpus` that train the trial, from 0; rank 0 alone records."""

    @property
    @abstractmethod
    def world_size(self) -> int:
        """The number of processes that train the trial; a process group joins them."""

    @abstractmethod
    def steps(self, steps: int, batches: Any = None, *, state: State, name: str = "") -> Iterable[Any]:
        """Return a loop over `steps` optimiser steps: `for step in`, or `for step, batch in` with `run.batches(...)`.

        Steps are counted from 1. `state` is what the loop saves, about every `execution.checkpoint_s` seconds and at a
        stop, and restores: `lambda: {"model": model, "optimiser": optimiser, "best": best}`. Random numbers of Python,
        numpy and torch are restored, too, so a resumed run makes the steps that an uninterrupted one would have made.
        Several loops have names, each its own; a state is kept when a loop with a name ends, for stops in what follows.
        A `break` needs `run.finish(step)`.
        """

    @abstractmethod
    def batches(self, loader: Iterable[Any]) -> Any:
        """Return the batches of a loop, which go through `loader` again and again; a resumed run restores the order.

        The batches of the epoch at work are drawn again, and those that were used are left out.
        """

    @abstractmethod
    def epochs(
        self, epochs: int, loader: Iterable[Any], *, state: State, name: str = ""
    ) -> Iterable[tuple[int, int, Any]]:
        """Return a loop over `epochs` passes through `loader`, which has a length: `for epoch, step, batch in`."""

    @abstractmethod
    def finish(self, step: SupportsIndex) -> None:
        """Say that the loop at work ends with its `step`; outside of loops, that training ends at `step`."""

    @property
    @abstractmethod
    def stop_requested(self) -> bool:
        """True if training is to save its state and return; within a loop, which looks by itself, always False."""

    @abstractmethod
    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """Return step and state of the latest `save`, or None; random numbers go on from there."""

    @abstractmethod
    def save(self, step: SupportsIndex, state: Mapping[str, Any]) -> None:
        """Save tensors and plain data as the state of `step`."""

    @abstractmethod
    def keep(self, name: str, state: State) -> None:
        """Keep a state beyond the end of the trial, such as the best one; it replaces the one of that name."""

    @abstractmethod
    def load_kept(self, name: str) -> dict[str, Any] | None:
        """Return the state that this trial kept under `name`, in whichever attempt, as tensors and plain data."""
