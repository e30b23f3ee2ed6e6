"""Runs of a grid in groups: by cell, by any axis, by any field of the spec, or each alone."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from dashboards.data.formatting import BETWEEN
from dashboards.data.grid_context import GridContext
from dashboards.data.result_table import flat
from dashboards.data.user_errors import Unknown
from dashboards.theme.styles import CellStyle, Style, cell_styles, operator_styles
from store import Store
from store.database import quoting

CELL: Final = "cell"
"""All but the seed."""
TRIAL: Final = "run"
"""Each alone."""
UNDEFINED: Final = "undefined"
"""The group of runs that lack what they are grouped by."""

_FIXED: Final = {CELL: "g.cell", TRIAL: "g.trial", "seed": "g.seed::VARCHAR"}


def axes(about: GridContext) -> list[str]:
    """Names of the axes of a grid."""
    return [str(axis["name"]) for axis in about.header["axes"]]


def fields(store: Store, grid: str) -> list[str]:
    """Dotted paths of the spec at which the cells of a grid differ, or that some of them lack."""
    specs = store.sql(
        "SELECT any_value(t.spec)::VARCHAR AS spec FROM grid_trial g JOIN trial t USING (trial) "
        "WHERE g.grid = $grid AND t.spec IS NOT NULL GROUP BY g.cell",
        {"grid": grid},
    )["spec"]
    flats = [{path: json.dumps(value) for path, value in flat(json.loads(text)).items()} for text in specs]
    paths = sorted({path for each in flats for path in each})
    return [path for path in paths if path != "seed" and len({each.get(path) for each in flats}) > 1]


def group_sql(about: GridContext, by: Sequence[str]) -> str:
    """SQL for the group of a trial, of columns of g (`grid_trial`) and t (`trial`).

    Raises Unknown if there is nothing of that name to group by.
    """
    parts = [_part(about, name) for name in by or (CELL,)]
    return parts[0] if len(parts) == 1 else f"concat_ws({quoting.text(BETWEEN)}, {', '.join(parts)})"


def _part(about: GridContext, name: str) -> str:
    known = axes(about)
    if name in known:
        path, column = '$."' + name.replace("\\", "\\\\").replace('"', '\\"') + '"', "g.axes"
    elif name in _FIXED:
        return _FIXED[name]
    else:
        steps = (f"[{step}]" if step.isdecimal() else f'."{step}"' for step in name.replace('"', "").split("."))
        path, column = "$" + "".join(steps), "t.spec"
        if not _has(about, path):
            rest = "any dotted path of their specs"
            raise Unknown(
                f"runs of {about.grid!r} have no {name!r}; there are {', '.join([*_FIXED, *known])}, and {rest}"
            )
    return f"coalesce({column}->>{quoting.text(path)}, {quoting.text(UNDEFINED)})"


def _has(about: GridContext, path: str) -> bool:
    found = about.store.sql(
        f"SELECT count(t.spec->>{quoting.text(path)}) AS n FROM grid_trial g JOIN trial t USING (trial) "
        "WHERE g.grid = $grid",
        {"grid": about.grid},
    )
    return int(found["n"][0]) > 0


def names(about: GridContext, by: Sequence[str], found: pl.DataFrame) -> dict[str, str]:
    """Name the groups of `found`, the frame of `figures.training.groups`, by `series`."""
    rows = found.select("series", "cell", "seed").iter_rows()
    if tuple(by) in ((), (CELL,)):
        return {series: about.look.names[cell] for series, cell, _ in rows}
    if tuple(by) == (TRIAL,):
        return {series: f"{about.look.names[cell]}{BETWEEN}seed {seed}" for series, cell, seed in rows}
    return {series: series for series, _, _ in rows}


def styles(
    about: GridContext, by: Sequence[str], found: pl.DataFrame, operators: Mapping[str, Style]
) -> dict[str, Style]:
    """How the groups of `found` look: cells and operators as everywhere, others in colours of their own."""
    keys = found["series"].to_list()
    if tuple(by) in ((), (CELL,)):
        if set(keys) <= set(about.drawn):
            return {key: about.look.styles[key] for key in keys}
        cells: list[CellStyle] = [cell for cell in about.cells if cell.cell in set(keys)]
        return cell_styles(cells, operators, about.baseline)
    if set(keys) <= set(operators):
        return {key: operators[key] for key in keys}
    return operator_styles(keys, neutral=baseline_of(about, found) if tuple(by) != (TRIAL,) else None)


def baseline_of(about: GridContext, found: pl.DataFrame) -> str | None:
    """The group that has the baseline's runs."""
    holds = [series for series, cells in found.select("series", "cells").iter_rows() if about.baseline in cells]
    return str(holds[0]) if holds else None
