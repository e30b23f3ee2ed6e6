"""Grids whose plans the store has not read yet, counted by their files: *not read yet* is not *absent*."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from ablate.grid.errors import EnvironmentProblem, NotFoundError, StoreError
from ablate.store.files.layout import Layout
from ablate.store.files.records import Header
from ablate.store.store import Store

_KEY = re.compile(rb'^\{"trial":"([0-9a-f]{32})"', re.MULTILINE)


class UnreadGrid(NamedTuple):
    """Trials of a grid that the store does not know."""

    grid: str
    cells: int
    planned: int
    submitted: int
    """Trials in a manifest: a run or workers on a cluster have begun them, or will."""
    begun: int
    """Trials that have a directory."""

    def words(self) -> str:
        """Describe it in a line of `ablate status`."""
        counts = f"{self.planned} trials planned, {self.submitted} submitted, {self.begun} begun"
        return f"{self.grid}: {counts}; its plan is not read yet: `ablate table` reads all"


def find_unread(store: Store, grid: str | None = None) -> list[UnreadGrid]:
    """Count the trials of grids that are planned on disk and not in the store; with `grid`, of that one alone."""
    layout = store.layout
    names = {name for name in layout.grid_names() if grid in (None, name)} - set(store.grids())
    return list(_count(layout, names)) if names else []


def _count(layout: Layout, names: Collection[str]) -> Iterator[UnreadGrid]:
    submitted = {key for of in layout.submission_ids() for key in _keys(layout.manifest(of))}
    begun = {key.encode() for key in layout.trial_keys()}
    for name in sorted(names):
        try:
            header = Header.read(layout.grid_header(name))
        except (NotFoundError, StoreError, EnvironmentProblem):
            continue  # the store says what is wrong with it
        keys = set(_keys(layout.grid_trials(name)))
        yield UnreadGrid(name, header.cells, header.trials, len(keys & submitted), len(keys & begun))


def _keys(path: Path) -> list[bytes]:
    try:
        return _KEY.findall(path.read_bytes())
    except OSError:  # the store says what is wrong with it
        return []
