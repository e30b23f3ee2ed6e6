"""Figures and tables of the papers, and their drawings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.grid_context import GridContext
from ablate.dashboards.figures.lines import Series
from ablate.dashboards.figures.table import Sheet


class Drawn(NamedTuple):
    """A figure or a table, or the sentence why there is neither."""

    caption: str = ""  # explains lines, bars and bands, with n and the unit
    data: pl.DataFrame = pl.DataFrame()  # the drawn values, with full precision
    figure: go.Figure | None = None
    sheet: Sheet | None = None
    legend: Mapping[str, Series] = {}  # by the `legendgroup` of the traces that an entry shows and hides
    message: str = ""  # instead of what could not be drawn
    latex: str = ""  # the table for a paper


class PrintedPoints(NamedTuple):
    """Where a paper prints values of a figure."""

    number: int  # number of the table in the same paper
    x: str  # the coordinate of the points that runs along the figure's axis

    @property
    def words(self) -> str:
        """ "table 1"."""
        return f"table {self.number}"


class Item(NamedTuple):
    """One figure or table of a paper."""

    paper: str  # its number: "000"
    kind: Literal["figure", "table"]
    number: int | None  # None for the design table of 001, which has none
    title: str
    shows: str  # one sentence: axes and series
    needs: Sequence[str]  # names of the measurements that it is drawn from
    make: Callable[[GridContext], Drawn]
    spec: str = ""  # a spec of this repository whose campaign has something of it
    printed: PrintedPoints | None = None  # the table whose values the first panel of the figure shows

    @property
    def name(self) -> str:
        """ "figure 3", "design table"."""
        return f"{self.kind} {self.number}" if self.number is not None else f"design {self.kind}"

    @property
    def key(self) -> str:
        """Part of addresses and names of files: "003-figure-3"."""
        return f"{self.paper}-{self.name.replace(' ', '-')}"
