"""Removes trials and grids from a campaign, and renames grids."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.names import label_of, require_slug
from ablate.runners.attempts.manifest import encode_line, submission_id
from ablate.runners.monitoring.trial_locations import TrialLocations
from ablate.runners.output import format_count
from ablate.store.external_runs.logged_plans import derive, move_run, submissions_of
from ablate.store.files.annotations import rename_annotated
from ablate.store.files.atomic import read_json, write_atomic, write_json
from ablate.store.files.layout import Layout
from ablate.store.files.plans import PlanFile, read_plan
from ablate.store.files.removals import Trash
from ablate.store.ingest.ingest_lock import ingest_lock
from ablate.store.state import CLAIMED
from ablate.store.store import Store


def remove_trials(
    store: Store, planned: Iterable[tuple[str, str]], more: Iterable[str], where: TrialLocations
) -> tuple[int, int, Path]:
    """Remove trials (grid, key) from their grids, and their results unless another grid plans them.

    `more` are trials of no grid.

    Returns:
        the number of trials whose results were removed, of those that another grid keeps, and where the files lie now.

    Raises SpecError if one is queued or running.
    """
    leaving: dict[str, set[str]] = defaultdict(set)
    for grid, trial in planned:
        leaving[grid].add(trial)
    wanted = {*more}.union(*leaving.values())
    needed = {
        str(trial)
        for grid, trial in store.sql("SELECT grid, trial FROM grid_trial").rows()
        if trial not in leaving.get(grid, ())
    }
    gone = sorted(wanted - needed)
    _require_free(gone, where)
    layout = store.layout
    trash = Trash(layout, submission_id(), gone)
    for grid, trials in leaving.items():
        _take_from_grid(layout, trash, grid, trials, needed)
    for trial in gone:
        trash.take_trial(trial)
    return len(gone), len(wanted) - len(gone), trash.place


def rename_grid(store: Store, old: str, new: str, where: TrialLocations) -> None:
    """Give a grid another name; results stay as they are.

    Raises SpecError if the name is none, or taken, or a trial of the grid is queued or running.
    """
    layout = store.layout
    store.grid(old)
    require_slug(new)
    if new in layout.planned_grids():
        raise SpecError(f"the campaign already has a grid {new!r}; choose another name")
    _require_free([trial for _, trial in trials_of(store, old)], where)
    plan = read_plan(layout, f"grids/{old}")
    if plan.problems or plan.header is None:
        raise SpecError(
            f"the plan of grid {old!r} is damaged, so it is not renamed; `ablate check` says what repairs it"
        )
    judged = layout.grid_header(old).with_suffix(".judged")
    if judged.is_file():
        write_json(layout.grid_header(new).with_suffix(".judged"), {**read_json(judged), "grid": new})
    for submission in submissions_of(layout, old):
        move_run(layout, submission, new)
    _write_plan(layout, new, {**plan.header, "grid": new}, [{**line, "grid": new} for line in plan.lines])
    with ingest_lock(layout, wait=True):
        rename_annotated(layout, old, new)
    for path in (layout.grid_header(old), layout.grid_trials(old), judged):
        path.unlink(missing_ok=True)


def trials_of(store: Store, grid: str) -> list[tuple[str, str]]:
    """Grid and key of every trial of `grid`."""
    store.grid(grid)
    frame = store.sql("SELECT trial FROM grid_trial WHERE grid = $grid ORDER BY position", {"grid": grid})
    return [(grid, str(trial)) for trial in frame["trial"]]


def _require_free(trials: Collection[str], where: TrialLocations) -> None:
    busy = [trial for trial in trials if trial in where.trials and where.trials[trial].state in CLAIMED]
    if busy:
        states = " or ".join(sorted({where.trials[trial].state for trial in busy}))
        raise SpecError(
            f"{format_count(len(busy), 'trial')} of {len(trials)}, such as {busy[0][:8]}, "
            f"{'is' if len(busy) == 1 else 'are'} {states}, and nothing is removed or renamed before; wait, or run "
            "`ablate cancel`"
        )


def _take_from_grid(layout: Layout, trash: Trash, grid: str, trials: Collection[str], needed: Collection[str]) -> None:
    """Take the lines of `trials` out of a grid; a grid without any line left goes as a whole."""
    plan = read_plan(layout, f"grids/{grid}")
    left = [line for line in plan.lines if line["trial"] not in trials]
    files = (layout.grid_header(grid), layout.grid_trials(grid), layout.grid_header(grid).with_suffix(".judged"))
    logged = submissions_of(layout, grid)
    for path in files:
        trash.keep(path)
    for submission, trial in logged.items():
        if trial in needed and trial in trials:  # its attempts stay for another grid, and name this submission
            trash.keep(layout.submission(submission) / "logged.json")
            move_run(layout, submission, None)
        elif trial in trials:
            trash.take(layout.submission(submission))
    if not left:
        for path in files:
            path.unlink(missing_ok=True)
    elif logged:
        derive(layout, grid)
    else:
        _write_plan(layout, grid, _smaller(plan, left), left)


def _smaller(plan: PlanFile, lines: Collection[Mapping[str, Any]]) -> dict[str, Any]:
    """The header of a grid that has only these `lines` left."""
    if plan.header is None:
        raise NotFoundError(f"{plan.source}.json cannot be read; `ablate check` says what repairs it")
    cells = {line["cell"] for line in lines}
    levels = {
        axis["name"]: {label_of(line["axes"].get(axis["name"])) for line in lines} for axis in plan.header["axes"]
    }
    kept = {cell: base for cell, base in plan.header.get("baselines", {}).items() if {cell, base} <= cells}
    first = next(iter(kept.values()), None) if "baselines" in plan.header else plan.header["baseline"]
    return {
        **plan.header,
        **({"baselines": kept} if "baselines" in plan.header else {}),
        "cells": len(cells),
        "trials": len(lines),
        "seeds": sorted({line["seed"] for line in lines}),
        "axes": [
            {**axis, "labels": [label for label in axis["labels"] if label in levels[axis["name"]]]}
            for axis in plan.header["axes"]
        ],
        "baseline": first if first in cells else None,
    }


def _write_plan(layout: Layout, grid: str, header: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> None:
    write_atomic(layout.grid_trials(grid), b"".join(map(encode_line, lines)))
    write_json(layout.grid_header(grid), header)
