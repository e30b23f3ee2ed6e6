"""Definition of a page: its address, its controls, and slots that turn a view of a campaign into content."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import dash_ag_grid  # type: ignore[import-untyped]
import plotly.graph_objects as go
import polars as pl
from dash import dcc as _dcc, html as _html

from dashboards.app.address import Address
from dashboards.app.parts import Control, Pick
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
    """Column definitions of AG Grid, for a table; see `tables.columns`."""
    parts: Sequence[Any] = ()
    """Dash components below the words, for content that is neither figure nor table."""
    files: Mapping[str, Callable[[], str]] = MappingProxyType({})
    """By its ending a file that is made in another way than from `data`, such as a table for LaTeX."""
    selected: Sequence[str] = ()
    """Rows that are selected when the page is opened, for a table, by what identifies them."""
    answer: str = ""
    """The finding of the page in a sentence; of the first slot of a page. A second line is smaller."""
    above: str = ""
    """One line above the answer, such as how far a grid is."""


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
    selects: str = ""
    """The field that gets what identifies the selected rows, for a table."""
    half: bool = False
    """Whether two such slots stand side by side in a wide window."""
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
    main: Sequence[str] | None = None
    """Fields of the controls that are always in sight; others are behind "More". None: all are."""
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
