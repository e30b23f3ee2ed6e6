"""The runs of a grid as trackers want them, a run per trial that has begun with its scalars by step; and runs read."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ablate.grid.errors import AblateError, SpecError
from ablate.grid.names import some
from ablate.store.store import Store

_CONFIG = """
    SELECT g.trial, CAST(g.axes AS VARCHAR),
           CASE WHEN t.spec->>'$.kind' = 'logged' THEN CAST(t.spec->'$.config' AS VARCHAR) ELSE '{}' END
    FROM grid_trial g JOIN trial t USING (trial) WHERE g.grid = $grid
"""
_RUNS = """
    SELECT g.trial, g.label, g.seed, t.state,
           coalesce(min(a.started) FILTER (WHERE c.trial IS NOT NULL), 0) AS started
    FROM grid_trial g JOIN trial t USING (trial) JOIN attempt a USING (trial)
    LEFT JOIN counted c ON c.trial = a.trial AND c.attempt = a.attempt
    WHERE g.grid = $grid GROUP BY ALL ORDER BY any_value(g.position)
"""
_SCALARS = """
    SELECT * FROM (
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
    settings: Mapping[str, Any]  # the config of a logged run, the level of each axis, and the seed

    @property
    def name(self) -> str:
        return f"{self.label} seed {self.seed}"


class Scalar(NamedTuple):
    """A metric or an evaluation at a step."""

    step: int
    name: str  # a measurement at a point is called `mse/sigma_f=5,sigma_x=1`
    value: float
    at: float  # Unix time
    evaluated: bool = False  # else it is a metric


class FoundRun(NamedTuple):
    """A run that files of a tracker hold."""

    name: str
    place: Path
    """Its file, or its directory of files."""
    label: str | None
    """The name of its replicates, if the files say it."""
    config: dict[str, Any]
    scalars: list[Scalar]
    failure: str | None = None
    """Why it failed, if the files say that it did."""
    damage: str | None = None
    """Faults of the files; the scalars are those that can be read."""
    began: float | None = None
    """Unix time; None: with the first value."""


class LeftOut(NamedTuple):
    """Values that are left out or changed though the files of a run are sound."""

    place: Path
    why: str
    """A sentence goes on with this after the place."""
    counts: Mapping[str, int] = MappingProxyType({})
    """How many values or columns of each kind."""


Reading = FoundRun | AblateError | LeftOut
"""A run, why one cannot be read, or what is left out of one."""


def tell_left_out(parts: Iterable[LeftOut]) -> Iterator[str]:
    """Yield a sentence for all places that have the same left out."""
    places, counts = defaultdict[str, list[Path]](list), defaultdict[str, Counter[str]](Counter)
    for place, why, count in parts:
        places[why].append(place)
        counts[why].update(count)
    for why, has in places.items():
        kinds = some([f"{count} of {kind}" for kind, count in sorted(counts[why].items())], 6)
        yield f"{name_places(has)}: {why}{': ' if kinds else ''}{kinds}"


def name_places(places: Sequence[Path]) -> str:
    """Name the first of some places, and how many more there are."""
    more = len({*places}) - 1
    return f"{places[0]}{f' and {more} more' if more > 0 else ''}"


Values = dict[tuple[int, str, bool], tuple[float, float]]
"""Value and time of the scalars of a run, by step, name, and whether it is an evaluation."""


def in_order(values: Values) -> list[Scalar]:
    """Return the scalars of a run by step."""
    return [Scalar(*place[:2], *values[place], place[2]) for place in sorted(values)]


def read_configs(store: Store, grid: str) -> dict[str, dict[str, Any]]:
    """Read the config of each trial of `grid`: the levels of its axes, and of a logged run the rest, too."""
    rows = store.sql(_CONFIG, {"grid": grid}).iter_rows()
    return {trial: {**json.loads(config), **json.loads(axes)} for trial, axes, config in rows}


def read_runs(store: Store, grid: str) -> list[TrackerRun]:
    """Read the trials of `grid` that have begun, in the order of its plan."""
    configs = read_configs(store, grid)
    return [
        TrackerRun(trial, label, seed, state, started, {**configs[trial], "seed": seed})
        for trial, label, seed, state, started in store.sql(_RUNS, {"grid": grid}).iter_rows()
    ]


def read_scalars(store: Store, trial: str) -> Iterator[Scalar]:
    """Yield all metrics and evaluations of a trial that count, by step; evaluations after metrics of the same name."""
    for step, name, point, value, at, evaluated in store.sql(_SCALARS, {"trial": trial}).iter_rows():
        items = point.items() if isinstance(point, Mapping) else ((each["key"], each["value"]) for each in point)
        yield Scalar(step, name_at(name, dict(items)), value, at, evaluated)


def name_at(name: str, point: Mapping[str, float]) -> str:
    """Name a measurement at a point, with all digits of its coordinates."""
    where = ",".join(f"{coordinate}={repr(number).removesuffix('.0')}" for coordinate, number in point.items())
    return f"{name}/{where}" if where else name


def flatten(config: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the entries of a config; those inside others are `model.width`."""
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def require_empty(folder: Path) -> None:
    """Raise SpecError if `folder` holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SpecError(f"{folder} holds something; name a directory that is new or empty")
