"""Removed trials: `removals/<id>.json` says which, and their files lie in `trash/<id>`.

A removal outlasts the trash, because shards still have rows of the removed attempts. These are left out until the
attempts are back in `trials/`, and a new attempt of a removed trial gets a higher number.
"""

import shutil
import time
from collections.abc import Iterable
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple, final

from ablate.grid.errors import EnvironmentProblem, NotFoundError, StoreError
from ablate.store.files.atomic import disk_errors, make_directory, retry_io, sync_directory, write_json
from ablate.store.files.change_tracker import touch_trial
from ablate.store.files.layout import FILE_SCHEMA, Layout
from ablate.store.files.record_fields import Problem, file_signature


class Removals(NamedTuple):
    """The trials that were removed."""

    last: dict[str, int]  # the number of the last removed attempt, by trial; 0 if the trial had none
    problems: list[Problem]  # records that are damaged or missing; the trash says in their place what was removed
    lost: list[str]  # damaged records whose trash was emptied


def read_removals(layout: Layout) -> Removals:
    """Read the records of all removals."""
    last: dict[str, int] = {}
    problems: list[Problem] = []
    lost: list[str] = []
    trashes = layout.trashes()
    for name in sorted({*layout.removal_records(), *trashes}):
        path = layout.removals / f"{name}.json"
        try:
            removed = _read(path, retry_io(partial(file_signature, path)))
        except (NotFoundError, StoreError, EnvironmentProblem) as error:
            problems.append((f"removals/{path.name}", str(error)))
            ascending = Layout(layout.trash / name).every_attempt()
            removed = {trial: attempt for trial, attempt, _ in ascending}
            lost += [] if name in trashes else [f"removals/{path.name}"]
        last |= {trial: max(attempt, last.get(trial, 0)) for trial, attempt in removed.items()}
    return Removals(last, problems, lost)


@lru_cache(maxsize=1024)
def _read(path: Path, _signature: str) -> dict[str, int]:
    from ablate.store.files.records import Removal

    return Removal.read(path).trials


def next_attempt(layout: Layout, trial: str) -> int:
    """Return the number of the next attempt of `trial`: above all that are there, and all that were removed.

    Raises StoreError if it is not known what was removed.
    """
    removals = read_removals(layout)
    if removals.lost:
        names = ", ".join(removals.lost)
        raise StoreError(f"{names} cannot be read, and an attempt gets a number that no removed one had; restore them")
    return max([*layout.attempts(trial), removals.last.get(trial, 0)]) + 1


@final
class Trash:
    """One removal; what it takes away keeps its path below `trash/<name>`."""

    def __init__(self, layout: Layout, name: str, trials: Iterable[str]) -> None:
        """Record the removal of `trials` first, so that the numbers of their attempts are never given again."""
        self._layout = layout
        self.place = layout.trash / name
        last = {trial: max(layout.attempts(trial), default=0) for trial in trials}
        record = {"schema": FILE_SCHEMA, "removed": time.time(), "trials": last}
        write_json(layout.removals / f"{name}.json", record)

    def keep(self, path: Path) -> None:
        """Copy a file that will be written anew."""
        if path.is_file():
            shutil.copy2(path, self._place_for(path))

    def take(self, path: Path) -> None:
        if not path.exists():
            return
        with disk_errors("move", path):
            path.rename(self._place_for(path))
            sync_directory(path.parent)

    def take_trial(self, trial: str) -> None:
        touch_trial(self._layout, trial)
        self.take(self._layout.trial(trial))

    def _place_for(self, path: Path) -> Path:
        place = self.place / path.relative_to(self._layout.root)
        make_directory(place.parent)
        return place
