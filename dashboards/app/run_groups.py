"""Which runs a page shows, in which groups: what its address says, and what it says to the reader."""

from typing import Final, NamedTuple

import polars as pl

from dashboards import grouping
from dashboards.app.address import Address
from dashboards.app.page import View, grid_of
from dashboards.figures.training import Grouped, groups
from dashboards.problems import Unknown
from dashboards.sections.charts import chosen
from dashboards.subject import MOST_CURVES, Subject, averages, worth_drawing
from dashboards.theme import Style
from dashboards.words import count, listed

MOST: Final = 40
"""Groups in one picture."""


class GroupedAddress(Address):
    """The grid, how its runs are grouped, and which groups are shown."""

    by: tuple[str, ...] = ()
    """Empty: all but the seed."""
    show: tuple[str, ...] = ()
    """Names of groups; empty: the baseline and the best; "*": as many as a picture holds."""
    run: tuple[str, ...] = ()
    """The only runs that are meant: beginnings of their keys."""
    failed: bool = False
    """With failed trials."""


class RunGroups(NamedTuple):
    """What is shown, of what there is."""

    given: Grouped
    found: pl.DataFrame
    """As `groups`, that of the baseline first, then in the grid's order."""
    keep: list[str]
    names: dict[str, str]
    styles: dict[str, Style]
    why: str
    """Which are shown, where it is not all of them."""


def by_of(view: View) -> tuple[str, ...]:
    """How runs are grouped: those that were picked stand alone unless the address says otherwise."""
    by: tuple[str, ...] = view.address.by
    return by or ((grouping.TRIAL,) if view.address.run else ())


def run_groups(view: View) -> RunGroups:
    """The groups of a view whose address is a `GroupedAddress`. Raises Unknown for runs and groups not there."""
    about, by = grid_of(view), by_of(view)
    runs = _runs(view)
    given = Grouped(about.grid, grouping.grouped(about, by), runs, view.address.failed or bool(runs))
    found = _in_grid_order(about, groups(view.store, given))
    names = grouping.names(about, by, found)
    keep, why = _kept(view, about, found, names)
    shown = found.filter(pl.col("series").is_in(keep))
    return RunGroups(given, found, keep, names, grouping.styles(about, by, shown, view.operators), why)


def _in_grid_order(about: Subject, found: pl.DataFrame) -> pl.DataFrame:
    """The groups by the first of their cells; trials are planned in another order, which is shuffled on purpose."""
    place = {cell.cell: i for i, cell in enumerate(about.cells)}
    first = [min(place[cell] for cell in cells) for cells in found["cells"]]
    return found.with_columns(pl.Series("place", first, pl.Int64)).sort("place", maintain_order=True).drop("place")


def _runs(view: View) -> list[str]:
    """Keys of the runs that the address names. Raises Unknown."""
    keys: list[str] = []
    for begins in view.address.run:
        found = view.store.sql(
            "SELECT trial FROM grid_trial WHERE grid = $grid AND starts_with(trial, $begins)",
            {"grid": grid_of(view).grid, "begins": begins},
        )["trial"].to_list()
        if len(found) != 1:
            many = "none begins" if not found else f"{len(found)} begin"
            raise Unknown(f"run={begins!r} names one run of {grid_of(view).grid!r}; {many} so")
        keys += found
    return keys


def _kept(view: View, about: Subject, found: pl.DataFrame, names: dict[str, str]) -> tuple[list[str], str]:
    """Which groups are shown, and a sentence that says which where it is not all."""
    keys: list[str] = found["series"].to_list()
    wanted, cells = view.address.show, by_of(view) in ((), (grouping.CELL,))
    if wanted and wanted != ("*",):
        by_name = {name: key for key, name in names.items()}
        unknown = [name for name in wanted if name not in by_name and name not in names]
        if unknown:
            there = listed([repr(name) for name in list(names.values())[:8]])
            raise Unknown(f"there is no group {unknown[0]!r} of runs here; there are {there}")
        chosen_keys = list(dict.fromkeys(by_name.get(name, name) for name in wanted))[:MOST]
        kept = [key for key in keys if key in set(chosen_keys)]
        return kept, f" Shown: {len(kept)} of {count(len(keys), 'group')}, as chosen." if len(kept) < len(keys) else ""
    most = MOST if wanted or view.address.run else MOST_CURVES
    if len(keys) <= most:
        return keys, ""
    if cells:
        known = None if about.measure is None else averages(about.store, about.grid, about.measure)
        best = about.drawn if not wanted else worth_drawing(about.cells, about.baseline, known, about.measure, most)
        return [key for key in best if key in set(keys)], chosen(about, best)
    base = grouping.baseline_of(about, found)
    first = [key for key in keys if key != base][: most - (base is not None)]
    kept = [key for key in keys if key == base or key in set(first)]
    return kept, f" Shown: {names[base] + ' and ' if base else ''}the first {len(first)} of {len(keys)} groups."
