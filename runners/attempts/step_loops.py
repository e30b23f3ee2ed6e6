"""Loops over the steps of a training, which save their state and go on where an earlier attempt has saved."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeVar, final

from ablate.grid.errors import SpecError
from ablate.grid.run import State
from ablate.grid.values import require_whole, show
from ablate.runners.attempts import loop_state
from ablate.runners.attempts.loop_state import random_states, set_random_states
from ablate.runners.checkpoint import require_plain
from ablate.runners.processes.failure import breaks_process, failure_of
from ablate.runners.processes.training_context import UnfitCheckpoint

Item = TypeVar("Item")


class LoopOwner(Protocol):
    """The run that loops belong to."""

    def enter(self, loop: "StepLoop[Any]") -> Mapping[str, Any] | None:
        """Begin `loop`; return what a checkpoint holds of it."""

    def door(self) -> AbstractContextManager[None]:
        """Return a context whose errors end the run."""

    @property
    def rank(self) -> int:
        """The number of this process among those that train the trial."""

    def begin_step(self, step: int) -> None:
        """Begin a step of the loop at work, counted from 1."""

    def end_step(self, step: int) -> None:
        """Note that a step was made; save if it is time. Raises `TrainingStopped` once a stop was requested."""

    def leave(self) -> None:
        """End the loop at work, which has made all its steps."""


@final
class Batches:
    """Batches of a loader, epoch after epoch without end; a resumed run gets those that would have come next."""

    def __init__(self, loader: Iterable[Any]) -> None:
        if isinstance(loader, Iterator) or not isinstance(loader, Iterable):
            raise SpecError(
                f"{show(loader)} is no loader that begins anew in each epoch; give one, such as a DataLoader"
            )
        if getattr(loader, "persistent_workers", False):
            raise SpecError(
                "the loader has persistent_workers=True, which would draw other random numbers in a resumed run; leave "
                "it out"
            )
        self._loader = loader
        self.epoch = self._taken = 0
        self._began: Any = None
        self._batches: Iterator[Any] = iter(())

    def begin(self, saved: Mapping[str, Any] | None) -> None:
        """Begin the first epoch, or the saved one, without the batches that were taken of it."""
        if saved is None:
            self._begin_epoch(1)
            return
        set_random_states(saved["random"])
        for generator, state in zip(self._generators(), saved["generators"], strict=True):
            generator.set_state(state)
        self._begin_epoch(saved["epoch"])
        for _ in range(saved["taken"]):
            next(self._batches)
        self._taken = saved["taken"]

    def next(self) -> Any:
        """Return the next batch. Raises SpecError if the loader is empty."""
        for _ in range(2):
            for batch in self._batches:
                self._taken += 1
                return batch
            self._begin_epoch(self.epoch + 1)
        raise SpecError(
            f"the loader {type(self._loader).__name__} has no batch in epoch {self.epoch}; it has at least one in each"
        )

    def state(self) -> dict[str, Any]:
        """Return the epoch, the batches taken of it, and the random states from which it began."""
        return {**self._began, "epoch": self.epoch, "taken": self._taken}

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch, self._taken = epoch, 0
        sampler: Any = getattr(self._loader, "sampler", None)
        if callable(getattr(sampler, "set_epoch", None)):
            sampler.set_epoch(epoch - 1)
        self._began = {"random": random_states(), "generators": [each.get_state() for each in self._generators()]}
        self._batches = iter(self._loader)

    def _generators(self) -> list[Any]:
        """Return the generators of random numbers that the loader and its samplers hold."""
        batches = getattr(self._loader, "batch_sampler", None)
        owners = (self._loader, getattr(self._loader, "sampler", None), batches, getattr(batches, "sampler", None))
        every = (getattr(owner, "generator", None) for owner in owners)
        return list({id(each): each for each in every if hasattr(each, "get_state")}.values())


@final
class StepLoop(Generic[Item]):
    """The steps of a training as an iterable with a length; see `TrialRun.steps`."""

    def __init__(
        self,
        owner: LoopOwner,
        steps: int,
        batches: Batches | None,
        state: State,
        name: str,
        item: Callable[[int, Any], Item],
    ) -> None:
        self.name, self.is_named, self.step = name or "steps", bool(name), 0
        self._steps = require_whole(steps, "the steps of a loop")
        self.ended = False
        """True once training said that it ends with the step at work."""
        self._owner, self._batches, self._state, self._item = owner, batches, state, item

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Item]:
        loop_state.require_restorable(self._state)
        require_plain(loop_state.take(self._state), f"state of the loop {self.name!r}")
        saved = self._owner.enter(self)
        with self._owner.door():
            self._restore(saved)
        while self.step < self._steps and not self.ended:
            batch = None if self._batches is None else self._batches.next()
            self._owner.begin_step(self.step + 1)
            yield self._item(self.step + 1, batch)
            self.step += 1
            if self.ended and self.step < self._steps:
                raise SpecError(f"the loop {self.name!r} went on after run.finish({self.step}); break after it")
            self._owner.end_step(self.step)
        self._owner.leave()

    def contents(self) -> dict[str, Any]:
        """Return its part of a checkpoint; "ranks" has that of this process alone."""
        batches = {} if self._batches is None else {"batches": self._batches.state()}
        own = {"step": self.step, "random": random_states(), **batches}
        return {"step": self.step, "ended": self.ended, "state": loop_state.take(self._state), "ranks": [own]}

    def _restore(self, saved: Mapping[str, Any] | None) -> None:
        if saved is None:
            if self._batches is not None:
                self._batches.begin(None)
            return
        try:
            own = saved["ranks"][self._owner.rank]
            if self._batches is not None:
                self._batches.begin(own["batches"])
            loop_state.put_back(self._state, saved["state"])
            set_random_states(own["random"])
            self.step, self.ended = int(saved["step"]), bool(saved.get("ended"))
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
            if breaks_process(error) or failure_of(error).reason == "out_of_memory":
                raise  # the checkpoint may be sound
            raise UnfitCheckpoint(f"the state of the loop {self.name!r} does not fit ({error})") from error


def batches_of(batches: object) -> Batches | None:
    """Return `batches` if a loop can take batches from it; else raise SpecError."""
    if batches is None or isinstance(batches, Batches):
        return batches
    raise SpecError(f"batches={show(batches)} cannot restore their order; write batches=run.batches(loader)")


def epoch_loop(
    owner: LoopOwner, epochs: int, loader: Iterable[Any], state: State, name: str
) -> StepLoop[tuple[int, int, Any]]:
    """Return the loop of `TrialRun.epochs`. Raises SpecError for a loader without a length, or without a batch."""
    batches = Batches(loader)
    length = len(loader) if isinstance(loader, Sized) else None
    if not length:
        raise SpecError(
            f"the {type(loader).__name__} has {'no length' if length is None else 'no batch'}, and an epoch needs one; "
            "lower its batch size, leave out drop_last, or use run.steps(steps, run.batches(...))"
        )
    size = length

    def item(step: int, batch: Any) -> tuple[int, int, Any]:
        if batches.epoch != (step - 1) // size + 1:
            raise SpecError(
                f"the {type(loader).__name__} has the length {length} and began epoch {batches.epoch} at step {step}; "
                "make both agree"
            )
        return batches.epoch, step, batch

    return StepLoop(owner, require_whole(epochs, "the epochs of a loop") * size, batches, state, name, item)
