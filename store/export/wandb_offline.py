"""Runs of a grid as offline runs of Weights & Biases, which `wandb sync` uploads."""

import os
from itertools import groupby
from pathlib import Path

from ablate.store.export.tracker_runs import TrackerRun, read_runs, read_scalars, require_empty
from ablate.store.files.atomic import make_directory
from ablate.store.store import Store


def write_wandb(store: Store, grid: str, folder: Path) -> int:
    """Write an offline run for every trial of `grid` that has begun; return the number of runs.

    The project is the grid, the group the cell, the tag the state; the config has the axes and the seed. The package
    wandb must be installed. Raises SpecError: `folder` holds something; EnvironmentProblem: it cannot be made.
    """
    require_empty(folder)
    runs = read_runs(store, grid)
    make_directory(folder)
    for run in runs:
        _write_run(store, grid, run, folder)
    return len(runs)


def _write_run(store: Store, grid: str, run: TrackerRun, folder: Path) -> None:
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # wandb would report its own faults over the network
    import wandb

    settings = wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    written = wandb.init(
        mode="offline",
        dir=folder,
        project=grid,
        group=run.label,
        name=run.name,
        id=run.trial,
        config=dict(run.settings),
        tags=[run.state],
        settings=settings,
    )
    for step, scalars in groupby(read_scalars(store, run.trial), key=lambda each: each.step):
        written.log({each.name: each.value for each in scalars}, step=step)
    written.finish(exit_code=int(run.state == "failed"))
