"""The runs of a grid as trackers want them, a run per trial that has begun with its scalars by step; and runs read."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ablate.grid.errors import SpecError
from ablate.store.store import Store

_RUNS = """
    SELECT g.trial, g.label, g.seed, CAST(g.axes AS VARCHAR) AS axes, t.state,
           coalesce(min(a.started) FILTER (WHERE c.trial IS NOT NULL), 0) AS started
    FROM grid_trial g JOIN trial t USING (trial) JOIN attempt a USING (trial)
    LEFT JOIN counted c ON c.trial = a.trial AND c.attempt = a.attempt
    WHERE g.grid = $grid GROUP BY ALL ORDER BY any_value(g.position)
"""
_SCALARS = """
    SELECT * EXCLUDE evaluated FROM (
        SELECT m.step, m.name, MAP {}::MAP(VARCHAR, DOUBLE) AS point, m.value, a.started + m.wall_s AS at,
               false AS evaluated
        FROM v_metric m JOIN attempt a USING (trial, attempt) WHERE m.trial = $trial
        UNION ALL
        SELECT e.step, e.name, e.point, e.value, coalesce(a.ended, a.started), true
        FROM v_evaluation e JOIN attempt a USING (trial, attempt) WHERE e.trial = $trial
    ) ORDER BY step, name, point, evaluated
"""


class TrackerRun(NamedTuple):
    """A trial that has begun."""

    trial: str
    label: str
    seed: int
    state: str
    started: float  # Unix time
    settings: Mapping[str, Any]  # the level of each axis, and the seed

    @property
    def name(self) -> str:
        return f"{self.label} seed {self.seed}"


class Scalar(NamedTuple):
    """A metric or an evaluation at a step."""

    step: int
    name: str  # a measurement at a point is called `mse/sigma_f=5,sigma_x=1`
    value: float
    at: float  # Unix time


class FoundRun(NamedTuple):
    """A run that files of a tracker hold."""

    name: str
    files: tuple[Path, ...]
    label: str | None
    """The name of its replicates, if the files say it."""
    config: dict[str, Any]
    scalars: list[Scalar]
    failure: str | None = None
    """Why it failed, if the files say that it did."""
    damage: str | None = None
    """Where the files cannot be read; the scalars are those before."""


def in_order(values: Mapping[tuple[str, int], tuple[float, float]]) -> list[Scalar]:
    """Return the scalars of a run by step, from value and time by name and step."""
    ordered = sorted(values.items(), key=lambda each: (each[0][1], each[0][0]))
    return [Scalar(step, name, value, at) for (name, step), (value, at) in ordered]


def read_runs(store: Store, grid: str) -> list[TrackerRun]:
    """Read the trials of `grid` that have begun, in the order of its plan."""
    return [
        TrackerRun(trial, label, seed, state, started, {**json.loads(axes), "seed": seed})
        for trial, label, seed, axes, state, started in store.sql(_RUNS, {"grid": grid}).iter_rows()
    ]


def read_scalars(store: Store, trial: str) -> Iterator[Scalar]:
    """Yield all metrics and evaluations of a trial that count, by step; evaluations after metrics of the same name."""
    for step, name, point, value, at in store.sql(_SCALARS, {"trial": trial}).iter_rows():
        items = point.items() if isinstance(point, Mapping) else ((each["key"], each["value"]) for each in point)
        where = ",".join(f"{coordinate}={number:g}" for coordinate, number in items)
        yield Scalar(step, "/".join(filter(None, [name, where])), value, at)


def require_empty(folder: Path) -> None:
    """Raise SpecError if `folder` holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SpecError(f"runs go to a directory that is new or empty; {folder} holds something")
