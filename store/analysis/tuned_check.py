"""Were both arms tuned: the check of a verdict that the levels of nuisance axes answer.

Levels that are numbers have edges: the smallest and the largest of those that were tried. Beyond an edge nothing is
known. Other levels, such as schedules, have no order, so they cannot show that the best lies inside.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import polars as pl

from ablate.store.analysis.once import once
from ablate.store.analysis.tuned_verdicts import ComparedRuns, nuisance_axes
from ablate.store.analysis.verdicts import compared_runs, measure_of, runs, verdicts
from ablate.store.database import quoting
from ablate.store.state import ENDED
from ablate.store.statistics.check import Check
from ablate.store.store import Store

FEWEST: Final = 3
"""With fewer levels every one is at an edge."""
_EDGE: Final = re.compile(r"(\S+) (\S+) is the (smallest|largest) of \d+ tried")
_TUNABLE: Final = "training"
"""The field whose axes are what one tunes: if it is all that two cells differ in, it is what they compare."""


@once
def tuned_checks(
    store: Store, grid: str, *, baseline: str | None = None, measure: Mapping[str, Any] | None = None
) -> dict[str, Check]:
    """Return the check of each row of `verdicts`, by cell. Raises as it does."""
    by = measure_of(store, grid, measure)
    header, compared = store.grid(grid), compared_runs(store, grid, by, baseline=baseline)
    paths = {axis["name"]: axis["path"] for axis in header["axes"]}
    every = runs(store, grid, by)
    levels = {cell: json.loads(axes) for cell, axes in every.select("cell", "axes").iter_rows()}
    tried = set(every.filter(pl.col("state").is_in(ENDED))["cell"])
    values = _read_values(store, grid, {name: paths[name] for name in nuisance_axes(header)})
    checks = {}
    for row in verdicts(store, grid, baseline=baseline, measure=by._asdict()).iter_rows(named=True):
        cell, base = row["cell"], row["baseline"]
        arms = [_Arm(where, each, compared, tried) for where, each in (("here", cell), ("in the baseline", base))]
        check = _judge(arms, values)
        differing = [name for name in paths if levels[cell].get(name) != levels[base].get(name) and name not in values]
        if check.answer == "unknown" and {paths[name].partition(".")[0] for name in differing} == {_TUNABLE}:
            check = Check("tuned", "-", f"{', '.join(differing)} itself is compared")
        checks[cell] = check
    return checks


def _read_values(store: Store, grid: str, paths: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The value of each field in `paths` in the specs of cells: by name, then by cell, without cells that lack it."""
    query = (
        "SELECT g.cell, json_extract(any_value(t.spec), $members) FROM grid_trial g JOIN trial t USING (trial) "
        "WHERE g.grid = $grid GROUP BY g.cell"
    )
    members = ["$" + "".join(quoting.member(name)[1:] for name in path.split(".")) for path in paths.values()]
    rows = store.sql(query, {"grid": grid, "members": members}).rows() if paths else []
    return {
        name: {cell: json.loads(fields[at]) for cell, fields in rows if fields[at] is not None}
        for at, name in enumerate(paths)
    }


def levels_beyond(reason: str) -> list[str]:
    """Return the levels that the reason of a check asks for, those beyond an edge: 'lr below 0.001'."""
    beyond = {"smallest": "below", "largest": "above"}
    return [*{f"{name} {beyond[side]} {level}": None for name, level, side in _EDGE.findall(reason)}]


class _Arm(NamedTuple):
    """A cell of a comparison, and where it stands."""

    where: str
    cell: str
    compared: ComparedRuns
    tried: set[str]

    def rivals(self) -> list[str]:
        """The cells of its setting that have ended runs."""
        setting = [each for each, stands in self.compared.stands_for.items() if stands == self.cell]
        return [each for each in setting or [self.cell] if each in self.tried]


class _Place(NamedTuple):
    """Where the chosen level lies among those of one axis that one arm tried."""

    kind: Literal["inside", "edge", "unknown"]
    words: str
    number: float


def _judge(arms: Sequence[_Arm], values: Mapping[str, Mapping[str, Any]]) -> Check:
    """Judge the axes; only one whose field both arms have shows that both are tuned."""
    for arm in arms:
        choice = arm.compared.choices.get(arm.cell)
        if choice is not None and not choice.among:
            return Check("tuned", "unknown", f"nothing was chosen {arm.where}")
    axes = [[_find_place(name, arm, of) for arm in arms if arm.cell in of] for name, of in values.items()]
    places = [place for axis in axes for place in axis]
    edges = [place for place in places if place.kind == "edge"]
    inside = [place for axis in axes if [each.kind for each in axis] == ["inside"] * len(arms) for place in axis]
    if edges:
        words = ", and ".join(place.words for place in edges)
        return Check("tuned", "no", f"{words}: the best may lie beyond", edges[0].number)
    if inside:
        return Check("tuned", "yes", ", and ".join(place.words for place in inside), inside[0].number)
    for place in places:
        if place.kind == "unknown":
            return Check("tuned", "unknown", place.words, place.number)
    if places:
        told = ", and ".join(place.words for place in places)
        return Check("tuned", "unknown", f"{told}, and no nuisance axis applies to both")
    return Check("tuned", "unknown", "not tuned: no axis is a nuisance axis, so both have one level of everything else")


def _find_place(name: str, arm: _Arm, values: Mapping[str, Any]) -> _Place:
    levels, level = [values[cell] for cell in arm.rivals() if cell in values], values[arm.cell]
    if not all(type(each) in (int, float) for each in [*levels, level]):
        return _Place("unknown", f"the levels of {name} {arm.where} have no order, so none lies inside", len(levels))
    tried = sorted({*levels})
    if len(tried) < FEWEST:
        count = f"{len(tried)} level{'s' * (len(tried) != 1)}"
        words = f"{name} has {count} {arm.where}; {FEWEST} can show that the best lies inside"
        return _Place("unknown", words, len(tried))
    if level in (tried[0], tried[-1]):
        side = "smallest" if level == tried[0] else "largest"
        return _Place("edge", f"{name} {level:g} is the {side} of {len(tried)} tried {arm.where}", level)
    return _Place("inside", f"{name} {level:g} lies inside {tried[0]:g} to {tried[-1]:g} {arm.where}", level)
