"""Definition of a page: its address, its controls, and slots that turn a view of a campaign into content."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeVar

import dash_ag_grid  # type: ignore[import-untyped]
import plotly.graph_objects as go
import polars as pl
from dash import dcc as _dcc, html as _html

from ablate.dashboards.app.address import Address
from ablate.dashboards.data.grid_context import Appearance, GridContext
from ablate.dashboards.data.user_errors import Unknown
from ablate.dashboards.theme.styles import Style
from ablate.store import Store
from ablate.store.analysis.once import remember

Component = Any
html: Final[Any] = _html
dcc: Final[Any] = _dcc
AgGrid: Final[Any] = dash_ag_grid.AgGrid


class PageView(NamedTuple):
    """One page of one campaign at one moment, for one state."""

    campaign: str
    store: Store
    address: Any  # has the page's own class of `Address`
    styles: Mapping[str, Style]  # from `campaign_styles`: of cells by key, of operators by name
    context: GridContext | None  # the shown grid; None while the campaign has none
    is_refresh: bool = False  # true if new results refresh the open page
    whole: bool = False  # true for a file, which has all rows; a page has room for fewer


def grid_of(view: PageView) -> GridContext:
    """Return the shown grid. Raises Unknown if the campaign has none, EnvironmentProblem if none is read yet."""
    if view.context is None:
        view.store.require_read(view.store.layout.grid_names())
        raise Unknown("this campaign has no grid yet; `ablate run` makes one")
    return view.context


class Key(NamedTuple):
    """An entry of a legend."""

    style: Style
    name: str
    key: str  # the `legendgroup` of the traces that it shows and hides; empty if it does neither
    note: str = ""  # text beside the name, such as the number of runs


def cell_key(appearance: Appearance, cell: str) -> Key:
    """Make the entry of a cell."""
    return Key(appearance.styles[cell], appearance.names[cell], cell)


AS_ABOVE = "As above."
"""The message of a slot that is not shown: it lacks content for the reason of an earlier one, or has no question."""


class SlotContent(NamedTuple):
    """Content of a slot: a figure, a table, or a message if there is neither."""

    figure: go.Figure | None = None
    caption: str = ""  # explains lines, bars and bands, and gives n and the unit
    data: pl.DataFrame = pl.DataFrame()  # the plotted or listed data, with full precision
    legend: Sequence[Key] = ()
    message: str = ""  # explains missing content
    hint: str = ""  # tells how to use it on the page; files and reports leave it out
    columns: Sequence[dict[str, Any]] = ()  # column definitions of AG Grid, for a table; see `columns`
    parts: Sequence[Any] = ()  # Dash components below the words, for content that is neither figure nor table
    files: Mapping[str, Callable[[], str]] = MappingProxyType({})
    """By its ending a file that is not made from `data`, such as a table for LaTeX."""
    selected: Sequence[str] = ()  # identifiers of the rows that are selected at first, for a table
    pinned: pl.DataFrame = pl.DataFrame()  # rows that stay on top of a table
    answer: str = ""  # the finding of the page in a sentence, for the first slot; a second line is smaller
    measured: Mapping[str, str] = MappingProxyType({})
    """Columns of one value that files have beside `data`, such as the measure, its unit and its direction."""
    above: str = ""  # one line above the answer, such as the progress of a grid


class Pick(NamedTuple):
    """A page that shows the rows selected in a table, with those that its field `pin` names."""

    label: str
    page: str
    names: str  # the field of that page's address that gets `column` of every selected row
    column: str = "trial"
    least: int = 1  # the fewest rows that it takes


class Slot(NamedTuple):
    """One part of a page."""

    name: str  # part of addresses of downloads; unique on the page
    title: str
    make: Callable[[PageView], SlotContent]
    kind: Literal["figure", "table", "words"] = "figure"
    sets: str = ""
    """The field that a click on a point of the figure sets, to the first entry of the point's `customdata`.

    "compare:cell" opens the page Compare with its field `cell` set.
    """
    picks: Sequence[Pick] = ()  # destinations for selected rows, for a table
    selects: str = ""  # the field that gets the identifiers of selected rows, for a table
    sorts: str = ""  # the field that gets the column by which the reader sorts, for a table
    half: bool = False  # true if two such slots stand side by side in a wide window
    row: str = ""  # the column that identifies a row, for a table, so that new results keep the selection


class Control(NamedTuple):
    """An input for one field of the address."""

    field: str
    """A field of the page's `Address`; "numbers:beta" is the entry "beta=..." of a field with entries name=value."""
    label: str
    kind: Literal["choice", "choices", "switch", "text", "slider", "code", "hidden"]
    """`code` is text of several lines that a button runs; `hidden` is set by clicks on a figure."""
    options: Mapping[str, str] = MappingProxyType({})  # labels by value
    hint: str = ""
    usual: Any = None  # the value if the address gives none
    span: tuple[float, float, float] | None = None  # least, greatest and step of a slider
    resets: Sequence[str] = ()  # fields that go back to their defaults if this one changes


class AppPage(NamedTuple):
    """One page of the app."""

    name: str  # its part of the address
    title: str
    letter: str  # the key that opens it after `g`; empty if none does
    question: str  # that it answers
    address: type[Address]
    controls: Callable[[PageView], Sequence[Control]]  # controls beside the one for the grid
    slots: Sequence[Slot]
    of: Literal["grid", "campaign"] = "grid"
    """A campaign's page has no control for the grid, and `PageView.context` may be None."""
    main: Sequence[str] | None = None
    """Fields of the controls that are always visible; others are behind "More". None: all are."""
    listed: bool = True  # true if the navigation shows it; others are reached by links
    checks: bool = True  # true if making the controls is cheap enough to check an address by them
    named: Sequence[str] = ()  # fields whose values are options of their controls, or nothing can be shown
    check: Callable[[PageView], object] | None = None  # raises AblateError if the address names what is not there


def options(names: Iterable[str]) -> dict[str, str]:
    """Make options whose labels are their values."""
    return {name: name for name in names}


T = TypeVar("T")


def memoise(find: Callable[[PageView], T]) -> Callable[[PageView], T]:
    """Compute a function of a view once per open store, grid and address. Errors are not kept."""

    @wraps(find)
    def look_up(view: PageView) -> T:
        key = (find, view.context and view.context.grid, view.address)
        return remember(view.store, key, lambda: find(view))

    return look_up
