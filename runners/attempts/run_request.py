"""A run as it is requested: by a command or a program, in the record of its submission, and by each of its workers."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, final

from ablate.grid import Spec
from ablate.runners.provenance.earlier_names import current_name
from ablate.store.files.attempts import BEAT_EVERY_S

OF_TRIALS: Final = ("torch", "torch._dynamo", "torch.optim", "pyarrow.parquet", "ablate.training.loop.train")
"""Modules that every `Trial` imports."""


@final
@dataclass(frozen=True)
class RunRequest:
    """Request of a run: what is trained and how, on any machine; none of it changes a measured number."""

    root: Path = Path()
    """The campaign."""
    submission: str = ""
    """Its id; a submission sets it, no user."""
    files: tuple[Path, ...] = ()
    """The spec files the grids came from, for workers in other processes."""
    retry: bool = False
    """Try failed trials again."""
    again: bool = False
    """Train finished trials again that other code made, such as an edited formula, and those with no readable result,
    from the beginning; the latest attempt that is ok counts."""
    preload: tuple[str, ...] = ()
    """Modules that workers import before any trial; empty: those that trials of these classes need."""
    workers: int | None = None
    """Worker processes here, or workers of a backend in all; None: it chooses."""
    heartbeat_s: float = BEAT_EVERY_S
    oom: Literal["fail", "halve"] = "fail"
    """A trial out of memory has failed; "halve": it goes on at once with half the micro-batch."""
    place: Mapping[str, Any] | None = None
    """Where a scheduler runs this worker, as in `start.json`; a submission sets it, no user."""
    callbacks: bool = True
    """True to call `on_step` and `on_evaluation` of the spec files; a submission sets it, no user."""
    only: frozenset[str] | None = None
    """Keys of the trials to train, of those that are to be trained; None: all."""
    seeds: Collection[int] | None = None
    """Seeds of the trials to train; the plan keeps the others. None: all."""
    replace: bool = False
    """Take trials that have finished out of a grid's plan, if the grid does not have them any more; see `run_campaign`.
    """
    cluster: Spec | None = None
    """Request for the workers of a backend, such as a `Slurm`; None: that of the first spec file."""
    budget: Mapping[str, Any] | None = None
    """Workers on a cluster take no more trials after so much use: {"hours": float, "unit": "gpuh" or "cpuh"}."""
    land_every_s: float | None = 3.0
    """Seconds between snapshots while running here; None leaves the store alone, at the end too."""
    progress: bool = True
    """Show the progress of a run on this machine."""

    def data(self) -> dict[str, Any]:
        """Return what workers need as JSON data, without root, submission and place."""
        data = {name: getattr(self, name) for name in ("retry", "again", "heartbeat_s", "oom")}
        return {**data, "preload": list(self.preload), "files": [str(file) for file in self.files]}

    @classmethod
    def read(cls, data: Mapping[str, Any], tree: Path, **here: Any) -> "RunRequest":
        """Read such data; `files` are relative to `tree`, and `here` are more fields.

        Earlier releases have an `entry` in place of `preload`. It always says that `Trial` trains itself, as a line
        without `experiment` does, so it is not read.
        """
        known = {name: value for name, value in data.items() if name in {each.name for each in fields(cls)}}
        preload, files = (
            tuple(map(current_name, data.get("preload", OF_TRIALS))),
            tuple(tree / file for file in data.get("files", ())),
        )
        return cls(**{**known, "preload": preload, "files": files, **here})
