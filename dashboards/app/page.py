"""Definition of a page: its address, its controls, and slots that turn a view of a campaign into content."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import dash_ag_grid  # type: ignore[import-untyped]
import plotly.graph_objects as go
import polars as pl
from dash import dcc as _dcc, html as _html

from dashboards.app.address import Address
from dashboards.data.grid_context import CellLook, GridContext
from dashboards.data.user_errors import Unknown
from dashboards.theme.styles import Style
from grid.operator_view import OperatorCatalogue
from store import Store


class PageView(NamedTuple):
    """One page of one campaign at one moment, for one state."""

    campaign: str
    store: Store
    address: Any
    """Has the page's own class of `Address`."""
    operators: dict[str, Style]
    about: GridContext | None
    """The grid that is shown; None while the campaign has none."""
    maths: OperatorCatalogue | None = None
    """Describes operators; None if nothing does."""
    again: bool = False
    """Whether the page is there already, and a control or new results refresh it."""
    whole: bool = False
    """True for a file, which has all rows; a page has room for fewer."""


def grid_of(view: PageView) -> GridContext:
    """The grid that is shown. Raises Unknown where the campaign has none."""
    if view.about is None:
        raise Unknown("this campaign has no grid yet; `ablate run` makes one")
    return view.about


class Control(NamedTuple):
    """An input for one field of the address."""

    field: str
    """A field of the page's `Address`; "numbers:beta" is the entry "beta=..." of a field with entries name=value."""
    label: str
    kind: Literal["choice", "choices", "switch", "text", "number", "slider", "code", "hidden"]
    """`code` is text of several lines that a button runs; `hidden` is set by clicks on a figure."""
    options: Mapping[str, str] = MappingProxyType({})
    """Labels by value."""
    hint: str = ""
    usual: Any = None
    """The value if the address gives none."""
    span: tuple[float, float, float] | None = None
    """Least, greatest and step of a slider."""
    resets: Sequence[str] | None = None
    """Fields that go back to their defaults if this one changes. Unless None, the page is made anew then."""


def options(names: Iterable[str]) -> dict[str, str]:
    """Choices that are called as they are written."""
    return {name: name for name in names}


class Key(NamedTuple):
    """An entry of a legend."""

    style: Style
    name: str
    key: str
    """The `legendgroup` of the traces that it shows and hides; empty where it does neither."""
    note: str = ""
    """Beside the name, such as how many runs there are; it may change while the name stays."""


def cell_key(look: CellLook, cell: str) -> Key:
    """The entry of a cell."""
    return Key(look.styles[cell], look.names[cell], cell)


class SlotContent(NamedTuple):
    """Content of a slot: a figure, a table, or a message if there is neither."""

    figure: go.Figure | None = None
    caption: str = ""
    """Explains lines, bars and bands, and gives n and the unit."""
    data: pl.DataFrame = pl.DataFrame()
    """The plotted or listed data, with full precision."""
    legend: Sequence[Key] = ()
    message: str = ""
    """Explains missing content."""
    hint: str = ""
    """Tells how to use it on the page; files and reports leave it out."""
    columns: Sequence[dict[str, Any]] = ()
    """Column definitions of AG Grid, for a table; see `columns`."""
    parts: Sequence[Any] = ()
    """Dash components below the words, for content that is neither figure nor table."""
    files: Mapping[str, Callable[[], str]] = MappingProxyType({})
    """By its ending a file that is made in another way than from `data`, such as a table for LaTeX."""


WRAP: Final[dict[str, Any]] = {"flex": 1, "minWidth": 240, "wrapText": True, "autoHeight": True}
"""A column of long texts."""
WIDE: Final = {**WRAP, "flex": 2}


def link(page: str, names: str, **more: Any) -> dict[str, Any]:
    """A column whose cells lead to `page` with the field `names` set to the cell's text."""
    return {"cellRenderer": "AblateLink", "cellRendererParams": {"page": page, "names": names}, **more}


def columns(data: pl.DataFrame, own: Mapping[str, Mapping[str, Any]] | None = None) -> list[dict[str, Any]]:
    """Column definitions of AG Grid: numbers to the right, with few digits; `own` are further parts by name."""
    return [{"field": name, **_numeric(data[name].dtype), **(own or {}).get(name, {})} for name in data.columns]


def _numeric(kind: pl.DataType) -> dict[str, Any]:
    if not kind.is_numeric():
        return {}
    shown = {"function": "params.value == null ? '–' : d3.format('.4~g')(params.value)"}
    found = {"filter": "agNumberColumnFilter", "type": "rightAligned"}
    return found | ({"valueFormatter": shown} if kind.is_float() else {})


class Pick(NamedTuple):
    """Where rows that a reader selects in a table can be taken to."""

    label: str
    page: str
    names: str
    """The field of that page's state that gets `column` of every selected row."""
    column: str = "trial"
    least: int = 1
    """So many rows at least."""


class Slot(NamedTuple):
    """One part of a page."""

    name: str
    """Part of addresses of downloads; unique on the page."""
    title: str
    make: Callable[[PageView], SlotContent]
    kind: Literal["figure", "table", "words"] = "figure"
    sets: str = ""
    """The field that a click on a point of the figure sets, to the first entry of the point's `customdata`."""
    picks: Sequence[Pick] = ()
    """Destinations for selected rows, for a table."""
    row: str = ""
    """The column that identifies a row, for a table, so that new results keep the selection."""


class AppPage(NamedTuple):
    """One page of the app."""

    name: str
    """Its part of the address."""
    title: str
    letter: str
    """The key that opens it after `g`."""
    about: str
    """One sentence: the question that it answers."""
    address: type[Address]
    controls: Callable[[PageView], Sequence[Control]]
    """Controls beside the one for the grid."""
    slots: Sequence[Slot]
    of: Literal["grid", "campaign"] = "grid"
    """A campaign's page has no control for the grid, and `PageView.about` may be None."""
    listed: bool = True
    """Whether the navigation shows it; others are reached by links."""


T = TypeVar("T")

_KEPT: Final[WeakKeyDictionary[Store, dict[Hashable, Any]]] = WeakKeyDictionary()


def memoise(find: Callable[[PageView], T]) -> Callable[[PageView], T]:
    """Compute a function of a view once per open store, grid and address. Errors are not kept."""

    @wraps(find)
    def once(view: PageView) -> T:
        kept = _KEPT.setdefault(view.store, {})
        key = (find, view.about and view.about.grid, view.address)
        if key not in kept:
            kept[key] = find(view)
        found: T = kept[key]
        return found

    return once


Component = Any

html: Final[Any] = _html
dcc: Final[Any] = _dcc
AgGrid: Final[Any] = dash_ag_grid.AgGrid
