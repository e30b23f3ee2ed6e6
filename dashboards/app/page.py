"""What a page of the app is: a state, controls for it, and slots that say what they show for a view of a campaign."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import plotly.graph_objects as go
import polars as pl

from dashboards.app.address import Address
from dashboards.problems import Unknown
from dashboards.subject import Subject
from dashboards.theme import Style
from store import Store


class View(NamedTuple):
    """One page of one campaign at one moment, for one state."""

    campaign: str
    store: Store
    address: Any
    """Of the page's own class of `Address`."""
    operators: dict[str, Style]
    about: Subject | None
    """The grid that is shown; None while the campaign has none."""


def grid_of(view: View) -> Subject:
    """The grid that is shown. Raises Unknown where the campaign has none."""
    if view.about is None:
        raise Unknown("this campaign has no grid yet; `ablate run` makes one")
    return view.about


class Option(NamedTuple):
    """One choice of a control."""

    value: str
    label: str


class Control(NamedTuple):
    """What sets one field of the state."""

    field: str
    label: str
    kind: Literal["choice", "choices", "switch", "text", "number"]
    options: Sequence[Option] = ()
    hint: str = ""


def options(names: Iterable[str]) -> list[Option]:
    """Choices that are called as they are written."""
    return [Option(name, name) for name in names]


class Key(NamedTuple):
    """An entry of a legend."""

    style: Style
    name: str
    key: str
    """The `legendgroup` of the traces that it shows and hides; empty where it does neither."""


class Shown(NamedTuple):
    """What a slot shows for one view: a figure, a table, or a sentence why there is neither."""

    figure: go.Figure | None = None
    caption: str = ""
    """What bars, lines and bands are, n, and the unit."""
    data: pl.DataFrame = pl.DataFrame()
    """What is drawn or listed, with full precision."""
    legend: Sequence[Key] = ()
    message: str = ""
    """Instead of what could not be shown, or beside what was left out."""
    columns: Sequence[dict[str, Any]] = ()
    """Of a table: column definitions of AG Grid."""


class Slot(NamedTuple):
    """One figure or table of a page."""

    name: str
    """Part of addresses of downloads; unique on the page."""
    title: str
    make: Callable[[View], Shown]
    kind: Literal["figure", "table", "words"] = "figure"


class Page(NamedTuple):
    """One page of the app."""

    name: str
    """Its part of the address."""
    title: str
    letter: str
    """The key that opens it after `g`."""
    about: str
    """One sentence: the question that it answers."""
    address: type[Address]
    controls: Callable[[View], Sequence[Control]]
    """Those beside that of the grid; asked where there is one."""
    slots: Sequence[Slot]
