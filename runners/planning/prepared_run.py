"""Preparation of a run, for every backend and for a plan: its grids are checked, then its trials are looked up."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, final

from ablate.grid import Grid, Planned
from ablate.runners.attempts.disk_space import require_disk_space
from ablate.runners.attempts.experiments import preload_of
from ablate.runners.attempts.manifest import write_grid
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.attempts.unreadable_results import find_unreadable, mark_unreadable
from ablate.runners.planning.kept_results import require_kept
from ablate.runners.planning.longer import choose_longer
from ablate.runners.planning.worklist import Worklist, collect_cells, list_trials
from ablate.store.files.layout import Layout
from ablate.store.files.trust import trust_new
from ablate.store.state import State


@final
class PreparedRun:
    """A run of valid grids that loses no result; nothing is written before `publish`.

    `visit` gets each cell, as of `collect_cells`; `require` then raises what only the backend refuses.

    Raises SpecError if a grid is invalid, or finished trials would leave its plan, unless `request.replace`.
    """

    def __init__(
        self,
        request: RunRequest,
        grids: Iterable[Grid],
        visit: Callable[[str, Planned], None],
        require: Callable[[], None] = lambda: None,
    ) -> None:
        self.layout = Layout(request.root.resolve())
        self.grids = [choose_longer(self.layout, grid) for grid in grids]
        files, preload = tuple(file.resolve() for file in request.files), request.preload or preload_of(self.grids)
        self.request = replace(request, root=self.layout.root, files=files, preload=preload)
        self._cells = collect_cells(self.grids, visit, request.files)
        require()
        if not request.replace:
            require_kept(self.layout, self.grids)
        names = [grid.name for grid in self.grids]
        self.unreadable = find_unreadable(self.layout.root, names) if request.again else frozenset[str]()

    def list_trials(self, take: Callable[[Grid, Iterable[Mapping[str, Any]]], None] | None = None) -> Worklist:
        """List all trials, also those that are not requested; `take` receives every grid with its lines."""
        again, retry = self.request.again, self.request.retry
        worklist = list_trials(self.layout, self.grids, self._cells, retry=retry, again=again, take=take)
        if any(trial.state == State.FAILED for trial in worklist.to_do):
            self.request = replace(self.request, retry=True)  # each at most once by a submission
        return worklist.without_results(self.unreadable)

    def publish(self) -> Worklist:
        """Write the grids into the campaign, and list their trials on the way.

        Raises EnvironmentProblem if the campaign cannot be written.
        """
        self.layout.make()
        require_disk_space(self.layout.root)
        trust_new(self.layout)
        mark_unreadable(self.layout, self.unreadable)
        return self.list_trials(partial(write_grid, self.layout))
