"""Import references that the record of a submission names, for its workers."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import final

from ablate import ROOMS


@final
@dataclass(frozen=True)
class WorkerEntry:
    """Import references "module:name" of the trial class and the training function."""

    trial: str = "ablate.runners.trial:Trial"
    """A Spec with `seed` and `execution` (`path`, `device`, `threads`, `checkpoint_s`)."""
    train: str = "ablate.runners.training.loop:train"
    """Called as `train(trial, context)`; returns a TrainingResult."""
    preload: tuple[str, ...] = (
        "torch",
        "torch._dynamo",
        "torch.optim",
        "pyarrow.parquet",
        "ablate.runners.training.loop",
    )

    def __post_init__(self) -> None:
        """Read references of release 0.1, too."""
        for name in ("trial", "train"):
            object.__setattr__(self, name, present_reference(getattr(self, name)))
        object.__setattr__(self, "preload", tuple(map(present_reference, self.preload)))


def present_reference(reference: str) -> str:
    """Return an import reference as it is now; release 0.1 recorded `ablate.runners.trial:Trial` without `ablate`."""
    room, _, below = reference.partition(":")[0].partition(".")
    ours = room in ROOMS and below and find_spec(f"ablate.{room}.{below.partition('.')[0]}") is not None
    return f"ablate.{reference}" if ours else reference
