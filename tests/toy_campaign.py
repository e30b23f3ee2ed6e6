"""Grids of toy trials, what a campaign of them holds in the end, and processes that run them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toy_training import Execution, Falling, Rising, ToyTrial

from ablate.grid import Grid, over
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.execution import Inline, Machine
from ablate.runners.execution.run import RunResult, run_campaign
from ablate.store.files.layout import Layout
from ablate.store.ingest.ingest import ingest
from ablate.store.store import Store

QUIET = RunRequest(land_every_s=None, progress=False)
"""Toy training, no store, nothing on stderr."""

TABLES = {
    "final": "SELECT grid, cell, label, operator, trial, seed, source, name, point, value FROM v_final "
    "WHERE NOT starts_with(name, 'system.') ORDER BY ALL",
    "metric": "SELECT trial, step, name, value FROM v_metric WHERE NOT starts_with(name, 'system.') ORDER BY ALL",
    "evaluation": "SELECT trial, step, name, point, value, items, se_items FROM v_evaluation ORDER BY ALL",
    "probe": "SELECT trial, step, name, layer, head, point, value FROM v_probe ORDER BY ALL",
    "progress": "SELECT grid, cell, planned, done, failed FROM v_progress ORDER BY ALL",
    "trial": "SELECT trial, spec, state, reason, step FROM trial ORDER BY ALL",
}
"""Columns and rows that depend neither on how often a run was interrupted nor on the load of the machine."""


def toy_grid(
    name: str = "toy", *, seeds: Sequence[int] = (0, 1, 2), fates: Sequence[str] = ("ok",), **base: Any
) -> Grid:
    """Two operators by `fates` by `seeds`; `base` are fields of the trial or of its execution."""
    execution = {field: base.pop(field) for field in list(base) if field in Execution.model_fields}
    return Grid(
        name=name,
        base=ToyTrial(execution=Execution(**execution), **base),
        axes=[over("operator", [Falling(), Rising()], labels=["falling", "rising"]), over("fate", list(fates))],
        seeds=seeds,
    )


def run_quietly(root: Path, grid: Grid, machine: Machine | None = None, **options: Any) -> RunResult:
    """Run `grid` with toy training."""
    return run_campaign(root, [grid], machine or Inline(), RunRequest(**{**vars(QUIET), **options}))


def tables(root: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything the campaign says in the end, apart from times and attempts."""
    ingest(root, threads=1)
    with Store.open(root, refresh=False) as store:
        return {name: [_plain(row) for row in store.sql(query).rows()] for name, query in TABLES.items()}


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(str(value) if isinstance(value, list | dict) else value for value in row)


def keys(root: Path) -> list[str]:
    """Keys of the trials that have begun."""
    return list(Layout(root).trial_keys())
