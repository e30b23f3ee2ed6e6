"""What a page of the app is: a state, controls for it, and slots that say what they show for a view of a campaign."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import dash_ag_grid  # type: ignore[import-untyped]
import plotly.graph_objects as go
import polars as pl
from dash import dcc as _dcc, html as _html

from dashboards.app.address import Address
from dashboards.data.grid_context import GridContext
from dashboards.data.user_errors import Unknown
from dashboards.theme.styles import Style
from grid.operator_view import OperatorCatalogue
from store import Store


class PageView(NamedTuple):
    """One page of one campaign at one moment, for one state."""

    campaign: str
    store: Store
    address: Any
    """Of the page's own class of `Address`."""
    operators: dict[str, Style]
    about: GridContext | None
    """The grid that is shown; None while the campaign has none."""
    maths: OperatorCatalogue | None = None
    """What knows the operators; None where nothing does."""
    again: bool = False
    """Whether the page is there already, and a control or new results refresh it."""
    whole: bool = False
    """Whether a file is made of what a slot shows: all rows, not those alone that a page has room for."""


def grid_of(view: PageView) -> GridContext:
    """The grid that is shown. Raises Unknown where the campaign has none."""
    if view.about is None:
        raise Unknown("this campaign has no grid yet; `ablate run` makes one")
    return view.about


class ControlOption(NamedTuple):
    """One choice of a control."""

    value: str
    label: str


class Control(NamedTuple):
    """What sets one field of the state."""

    field: str
    """A field of the page's `Address`; "numbers:beta" is the entry "beta=..." of a field with entries name=value."""
    label: str
    kind: Literal["choice", "choices", "switch", "text", "number", "slider", "code", "hidden"]
    """`code` is text of several lines that a button runs; `hidden` is set by clicks on a figure alone."""
    options: Sequence[ControlOption] = ()
    hint: str = ""
    usual: Any = None
    """What is shown, and meant, while the address says nothing."""
    span: tuple[float, float, float] | None = None
    """Of a slider: least, greatest, step."""
    remakes: bool = False
    """Whether other controls depend on it, so that the page is made anew when it changes."""
    resets: Sequence[str] = ()
    """Fields that mean something else once it changes: they go back to their defaults. Of one that `remakes`."""


def options(names: Iterable[str]) -> list[ControlOption]:
    """Choices that are called as they are written."""
    return [ControlOption(name, name) for name in names]


class Key(NamedTuple):
    """An entry of a legend."""

    style: Style
    name: str
    key: str
    """The `legendgroup` of the traces that it shows and hides; empty where it does neither."""
    note: str = ""
    """Beside the name, such as how many runs there are; it may change while the name stays."""


class SlotContent(NamedTuple):
    """What a slot shows for one view: a figure, a table, or a sentence why there is neither."""

    figure: go.Figure | None = None
    caption: str = ""
    """What bars, lines and bands are, n, and the unit."""
    data: pl.DataFrame = pl.DataFrame()
    """What is drawn or listed, with full precision."""
    legend: Sequence[Key] = ()
    message: str = ""
    """Instead of what could not be shown, or beside what was left out."""
    hint: str = ""
    """What a reader can do with it on the page; files and reports, which are paper, leave it out."""
    columns: Sequence[dict[str, Any]] = ()
    """Of a table: column definitions of AG Grid; see `link`."""
    parts: Sequence[Any] = ()
    """Dash components below the words, for what is neither figure nor table."""
    files: Mapping[str, Callable[[], str]] = MappingProxyType({})
    """By its ending a file that is made in another way than from `data`, such as a table for LaTeX."""


def link(field: str, page: str, names: str, **more: Any) -> dict[str, Any]:
    """A column whose cells lead to `page` with `names` set to the cell's text: link("trial", "run", "run")."""
    return {"field": field, "cellRenderer": "AblateLink", "cellRendererParams": {"page": page, "names": names}, **more}


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
    """Of a table: its rows can be selected, and taken there."""
    row: str = ""
    """Of a table: the column that tells rows apart, so that new results keep what is selected."""


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
    """Those beside that of the grid."""
    slots: Sequence[Slot]
    of: Literal["grid", "campaign"] = "grid"
    """What it is about; that of a campaign has no control for the grid, and `View.about` may be None."""
    listed: bool = True
    """Whether the navigation shows it; others are reached by links."""


T = TypeVar("T")

_KEPT: Final[WeakKeyDictionary[Store, dict[Hashable, Any]]] = WeakKeyDictionary()


def once(store: Store, key: Hashable, make: Callable[[], T]) -> T:
    """What `make` returns, or what it returned under this `key` since `store` was opened. Errors are not kept."""
    kept = _KEPT.setdefault(store, {})
    if key not in kept:
        kept[key] = make()
    found: T = kept[key]
    return found


Component = Any

html: Final[Any] = _html
dcc: Final[Any] = _dcc
AgGrid: Final[Any] = dash_ag_grid.AgGrid
