"""Runs: a row per trial, what varies first, to filter, sort and pick from."""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from dashboards.app.address import Address
from dashboards.app.page import Control, Page, Shown, Slot, View, grid_of, options
from dashboards.problems import Unknown
from store import quoting

ALWAYS: Final = ("label", "seed", "status")
_KEYS: Final = ("trial", "cell", "operator")


class RunsAddress(Address):
    """The grid, and the columns beyond those that are always shown."""

    columns: tuple[str, ...] = ()
    """Empty: the grid's measure, steps and seconds."""


def _table(view: View) -> pl.DataFrame:
    """Every trial of the grid with the state of its attempts and its last values."""
    source = quoting.identifier(f"trials_{grid_of(view).grid}")
    return view.store.sql(
        f"SELECT r.*, t.reason, t.attempts, t.step, t.wall_s FROM {source} r JOIN trial t USING (trial) "
        "ORDER BY r.label, r.seed"
    )


def varying(found: pl.DataFrame) -> list[str]:
    """The columns that may be picked: those that vary first, in the order of the table."""
    names = [name for name in found.columns if name not in (*ALWAYS, *_KEYS)]
    return sorted(names, key=lambda name: found[name].drop_nulls().n_unique() < 2)


def _usual(view: View, found: pl.DataFrame) -> list[str]:
    about = grid_of(view)
    axes = [axis["name"] for axis in about.header["axes"]]
    measure = [about.measure.name] if about.measure else []
    wanted = (*axes, *measure, "loss", "step", "wall_s", "attempts", "reason")
    return [name for name in wanted if name in found.columns and name not in (*ALWAYS, *_KEYS)]


def _runs(view: View) -> Shown:
    found = _table(view)
    asked = view.address.columns
    unknown = [name for name in asked if name not in found.columns]
    if unknown:
        raise Unknown(f"runs of {grid_of(view).grid!r} have no {unknown[0]!r}; they have {', '.join(varying(found))}")
    columns = [*ALWAYS, *(asked or _usual(view, found))]
    shown = found.select("trial", *dict.fromkeys(columns))
    return Shown(data=shown, columns=[_column(name, shown) for name in shown.columns])


def _column(name: str, found: pl.DataFrame) -> dict[str, Any]:
    numeric = found[name].dtype.is_numeric()
    column: dict[str, Any] = {"field": name, "headerName": {"label": "cell", "wall_s": "seconds"}.get(name, name)}
    if name == "trial":
        return column | {"width": 120, "pinned": "left"}
    if numeric:
        column |= {"filter": "agNumberColumnFilter", "type": "rightAligned"}
    if found[name].dtype.is_float():
        column["valueFormatter"] = {"function": "params.value == null ? '–' : d3.format('.4~g')(params.value)"}
    return column


def _controls(view: View) -> Sequence[Control]:
    names = varying(_table(view))
    return (Control("columns", "Columns", "choices", options(names), "What varies comes first"),)


RUNS = Page(
    name="runs",
    title="Runs",
    letter="r",
    about="What has run, with which choices, and what came out?",
    address=RunsAddress,
    controls=_controls,
    slots=(Slot("runs", "Runs", _runs, "table"),),
)
