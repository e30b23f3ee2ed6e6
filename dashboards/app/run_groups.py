"""Which runs and cells a page shows, in groups by cell, by any axis, by any field of the spec, or each alone."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count as count_from
from typing import Final, NamedTuple

import polars as pl

from ablate.dashboards.app.address import Address
from ablate.dashboards.app.page import Control, PageView, grid_of, options
from ablate.dashboards.data.captions import describe_selection
from ablate.dashboards.data.formatting import BETWEEN, count, join_words
from ablate.dashboards.data.grid_context import MOST_CURVES, GridContext, averages, leading_cells, worth_drawing
from ablate.dashboards.data.result_table import flat
from ablate.dashboards.data.user_errors import Unknown, require
from ablate.dashboards.figures.training import Grouped, groups
from ablate.dashboards.theme.styles import Style, name_styles, vary_dash
from ablate.store import Store
from ablate.store.database import quoting

MOST: Final = 40  # groups in one picture
CELL: Final = "cell"  # all but the seed
TRIAL: Final = "run"  # each alone
UNDEFINED: Final = "undefined"  # the group of runs that lack what they are grouped by

_FIXED: Final = {CELL: "g.cell", TRIAL: "g.trial", "seed": "g.seed::VARCHAR"}


def list_axes(context: GridContext) -> list[str]:
    """Names of the axes of a grid."""
    return [str(axis["name"]) for axis in context.header["axes"]]


def list_fields(store: Store, grid: str) -> list[str]:
    """Dotted paths of the spec at which the cells of a grid differ, or that some of them lack."""
    specs = store.sql(
        "SELECT any_value(t.spec)::VARCHAR AS spec FROM grid_trial g JOIN trial t USING (trial)"
        "WHERE g.grid = $grid AND t.spec IS NOT NULL GROUP BY g.cell",
        {"grid": grid},
    )["spec"]
    flats = [{path: json.dumps(value) for path, value in flat(json.loads(text)).items()} for text in specs]
    paths = sorted({path for each in flats for path in each})
    return [path for path in paths if path != "seed" and len({each.get(path) for each in flats}) > 1]


def group_sql(context: GridContext, by: Sequence[str]) -> str:
    """SQL for the group of a trial, of columns of g (`grid_trial`) and t (`trial`). Raises Unknown for other names.

    Several fields are joined without those that the trial lacks; a field that some trials lack is named with its level.
    """
    parts = {name: _value(context, name) for name in by or (CELL,)}
    if len(parts) > 1:
        lack = ", ".join(f"bool_or({value} IS NULL)" for value in parts.values())
        rows = f"SELECT {lack} FROM grid_trial g JOIN trial t USING (trial) WHERE g.grid = $grid"
        lacking = context.store.sql(rows, {"grid": context.grid}).row(0)
        named = [
            f"{quoting.text(f'{name}=')} || {value}" if lacks else value
            for (name, value), lacks in zip(parts.items(), lacking, strict=True)
        ]
        parts = {"": f"nullif(concat_ws({quoting.text(BETWEEN)}, {', '.join(named)}), '')"}
    return f"coalesce({next(iter(parts.values()))}, {quoting.text(UNDEFINED)})"


def _value(context: GridContext, name: str) -> str:
    known = list_axes(context)
    if name in known:
        path, column = quoting.member(name), "g.axes"
    elif name in _FIXED:
        return _FIXED[name]
    else:
        steps = (f"[{step}]" if step.isdecimal() else f'."{step}"' for step in name.replace('"', "").split("."))
        path, column = "$" + "".join(steps), "t.spec"
        there = f"SELECT count(t.spec->>{quoting.text(path)}) FROM grid_trial g JOIN trial t USING (trial)"
        if not context.store.sql(f"{there} WHERE g.grid = $grid", {"grid": context.grid}).item():
            rest = "any dotted path of their specs"
            raise Unknown(
                f"runs of {context.grid!r} have no {name!r}; there are {', '.join([*_FIXED, *known])}, and {rest}"
            )
    return f"({column}->>{quoting.text(path)})"


def name_groups(context: GridContext, by: Sequence[str], groups: pl.DataFrame) -> dict[str, str]:
    """Name `groups`, the frame of `figures.training.groups`, by `series`."""
    rows = groups.select("series", "cell", "seed").iter_rows()
    if tuple(by) in ((), (CELL,)):
        return {series: context.appearance.names[cell] for series, cell, _ in rows}
    if tuple(by) == (TRIAL,):
        return {series: f"{context.appearance.names[cell]}{BETWEEN}seed {seed}" for series, cell, seed in rows}
    return {series: series for series, _, _ in rows}


def style_groups(context: GridContext, groups: pl.DataFrame, styles: Mapping[str, Style]) -> dict[str, Style]:
    """How `groups` look, which are all there are: as everywhere if each is of one cell, or an operator.

    Several groups of a cell, such as its runs, differ by their dashes.
    """
    keys, cells = groups["series"].to_list(), groups["cells"].to_list()
    if all(len(each) == 1 for each in cells):
        turns: dict[str, Iterator[int]] = defaultdict(count_from)
        return {key: vary_dash(styles[cell], next(turns[cell])) for key, (cell,) in zip(keys, cells, strict=True)}
    return name_styles(keys, styles, baseline_group(context, groups))


def baseline_group(context: GridContext, groups: pl.DataFrame, group: str | None = None) -> str | None:
    """The group with the baseline's runs; if each cell has its own baseline, that of the only cell of `group`."""
    several: Mapping[str, str] = context.header.get("baselines") or {}
    cells_of = dict(groups.select("series", "cells").iter_rows())
    own = cells_of.get(group, ())
    baseline = (several.get(own[0]) if len(own) == 1 else None) or context.baseline
    holds = [series for series, cells in cells_of.items() if baseline in cells]
    return str(holds[0]) if holds else None


class GroupedAddress(Address):
    """The grid, how its runs are grouped, and which groups are shown."""

    by: tuple[str, ...] = ()  # empty: all but the seed
    show: tuple[str, ...] = ()  # names of groups; empty: the baseline and the best; "*": as many as a picture holds
    run: tuple[str, ...] = ()  # beginnings of the keys of the runs to show; empty: all runs
    failed: bool = False  # with failed trials


class RunGroups(NamedTuple):
    """The chosen runs and their groups."""

    grouping: Grouped
    groups: pl.DataFrame  # as `groups`, that of the baseline first, then in the grid's order
    keep: list[str]
    names: dict[str, str]
    styles: dict[str, Style]
    why: str  # which are shown, where it is not all of them


def by_of(view: PageView) -> tuple[str, ...]:
    """How runs are grouped: those that were picked stand alone unless the address says otherwise."""
    by: tuple[str, ...] = view.address.by
    return by or ((TRIAL,) if view.address.run else ())


def run_groups(view: PageView) -> RunGroups:
    """The groups of a view whose address is a `GroupedAddress`. Raises Unknown for runs and groups not there."""
    context, by = grid_of(view), by_of(view)
    runs = _runs(view)
    grouping = Grouped(context.grid, group_sql(context, by), runs, view.address.failed or bool(runs))
    place = {cell.cell: i for i, cell in enumerate(context.cells)}
    frame = groups(view.store, grouping)  # in the order of the plan, which is shuffled on purpose
    first = [min(place[cell] for cell in cells) for cells in frame["cells"]]
    frame = frame.with_columns(pl.Series("place", first, pl.Int64)).sort("place", maintain_order=True).drop("place")
    names = name_groups(context, by, frame)
    keep, why = _keep_groups(view, context, frame, names)
    return RunGroups(grouping, frame, keep, names, style_groups(context, frame, view.styles), why)


def _runs(view: PageView) -> list[str]:
    keys: list[str] = []
    for begins in view.address.run:
        trials = view.store.sql(
            "SELECT trial FROM grid_trial WHERE grid = $grid AND starts_with(trial, $begins)",
            {"grid": grid_of(view).grid, "begins": begins},
        )["trial"].to_list()
        if len(trials) != 1:
            raise Unknown(
                f"{len(trials)} runs of {grid_of(view).grid!r} have keys that begin with run={begins!r}; name one"
            )
        keys += trials
    return keys


def _keep_groups(
    view: PageView, context: GridContext, groups: pl.DataFrame, names: dict[str, str]
) -> tuple[list[str], str]:
    """Which groups are shown, and a sentence that says which where it is not all."""
    keys: list[str] = groups["series"].to_list()
    wanted, cells = view.address.show, by_of(view) in ((), (CELL,))
    if wanted and wanted != ("*",):
        by_name = {name: key for key, name in names.items()}
        chosen = {by_name[require("the grid", "group of runs", name, by_name)] for name in wanted}
        kept = [key for key in keys if key in chosen][:MOST]
        return kept, f" Shown: {len(kept)} of {count(len(keys), 'group')}, as chosen." if len(kept) < len(keys) else ""
    if cells and not wanted and not view.address.run and (leading := leading_cells(context)) is not None:
        lead, variants = leading
        if len(lead) < len(keys):
            return [key for key in lead if key in set(keys)], _describe_leading(context, lead, variants)
    most = MOST if wanted or view.address.run else MOST_CURVES
    if len(keys) <= most:
        return keys, ""
    if cells:
        best, measure = context.drawn, context.measure
        if wanted:
            known = None if measure is None else averages(context.store, context.grid, measure)
            best = worth_drawing(context.cells, context.baselines, known, measure, most)
        return [key for key in best if key in set(keys)], describe_selection(context, best)
    base = baseline_group(context, groups)
    first = [key for key in keys if key != base][: most - (base is not None)]
    kept = [key for key in keys if key == base or key in set(first)]
    return kept, f" Shown: {names[base] + ' and ' if base else ''}the first {len(first)} of {len(keys)} groups."


def _describe_leading(context: GridContext, cells: Sequence[str], variants: int) -> str:
    shown = len({*cells} - {*context.baselines.values()}) if context.header.get("baselines") else len(cells) - 1
    best = f"the best {shown} of {variants} variants" if shown < variants else count(variants, "variant")
    biased = " These were chosen by this result, so it is biased in their favour." if shown < variants else ""
    return f" Shown: {context.baseline_name} and {best}, as judged, of {len(context.cells)} cells.{biased}"


def cells_control(view: PageView) -> Control:
    """Make the control for the field `cells`: names of cells."""
    context = grid_of(view)
    names = [context.appearance.names[cell.cell] for cell in context.cells]
    return Control("cells", "Cells", "choices", options(names), "Nothing chosen: the baseline and the best")


def chosen_cells(view: PageView) -> Sequence[str]:
    """Keys of the cells of the address, in the grid's order. Raises Unknown."""
    context = grid_of(view)
    if not view.address.cells:
        return context.drawn
    known = {context.appearance.names[cell.cell]: cell for cell in context.cells}
    for name in view.address.cells:
        require(f"grid {context.grid!r}", "cell", name, known)
    return [cell.cell for name, cell in known.items() if name in view.address.cells]


def chosen_words(view: PageView) -> str:
    """A sentence that says which cells are shown, where it is not all of them."""
    context, cells = grid_of(view), chosen_cells(view)
    if not view.address.cells:
        return describe_selection(context, cells)
    names = join_words([context.appearance.names[cell] for cell in cells])
    return f" Shown: {names}, as chosen, of {len(context.cells)} cells."
