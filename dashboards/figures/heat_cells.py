"""Parts of a heat map: axes of levels, and cells with a value or the reason for its absence."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from dashboards.data.formatting import number, plain
from dashboards.figures.canvas import cut
from dashboards.theme.styles import DIVERGING, SEQUENTIAL

SIGNS: Final = {"failed": "x-thin-open", "not applicable": "line-ew-open", "running": "circle-dot", "masked": ""}
"""plotly's markers by how a reason begins, "" for none; any other, such as "not run", has an open circle."""

LETTER: Final = 7.0
"""Pixels."""
LINE: Final = 15
"""Pixels."""
_LONGEST_TICK: Final = 28


class Ramp(NamedTuple):
    """How values become colours, the same in all panels."""

    low: float
    """The value of the first colour; what is below has it, too."""
    high: float
    diverging: bool = False
    """From blue over neutral to orange, with the neutral colour in the middle."""
    log: bool = False
    """Colours follow the logarithm, and values that are not positive have none."""
    title: str = ""
    """Title of the bar of colours, with the unit; without one there is no bar."""
    words: Callable[[float | None], str] = number
    """A value in words."""

    @property
    def colors(self) -> Sequence[str]:
        """From low to high, at equal distances."""
        return DIVERGING if self.diverging else SEQUENTIAL

    @property
    def ends(self) -> tuple[float, float]:
        """`low` and `high` as they are drawn."""
        return (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)

    def shade(self, value: float | None) -> float | None:
        """Convert a value to its place on the ramp; None if it has no colour."""
        if value is None or not math.isfinite(value) or (self.log and value <= 0):
            return None
        return math.log10(value) if self.log else value


class HeatAxis(NamedTuple):
    """The levels of an axis."""

    values: Sequence[Any]
    """In the order of the axis."""
    names: Sequence[str]
    """The same in words, each once."""
    falls: bool
    """Whether the first is at the top."""

    def categories(self) -> list[str]:
        """The names as plotly takes them."""
        return [plain(name) for name in self.names]

    @property
    def widest(self) -> int:
        """Pixels of the longest name."""
        return round(min(max(map(len, self.names), default=0), _LONGEST_TICK) * LETTER)

    def overhang(self, pixels: float) -> int:
        """Pixels that names take beyond a line where they have to be turned, levels being `pixels` apart."""
        return self.widest - LINE if self.widest > pixels else 0

    def layout(self, pixels: float, *, turns: bool) -> dict[str, Any]:
        """plotly's axis, with as many names as there is room for; names that turn may be longer than a level."""
        n = len(self.names)
        narrow = not turns or self.overhang(pixels) > 0
        shown = self.names[:: math.ceil(LINE / pixels) if narrow else 1]
        return {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": self.categories(),
            "range": [n - 0.5, -0.5] if self.falls else [-0.5, n - 0.5],
            "tickvals": [plain(name) for name in shown],
            "ticktext": [plain(cut(name, _LONGEST_TICK)) for name in shown],
        }


def axis_of(levels: pl.Series, *, falls: bool = False) -> HeatAxis:
    """The axis of a column: numbers rise; others stand as they appear, or as their `pl.Enum` lists them."""
    if levels.dtype.is_numeric():
        values = levels.drop_nulls().unique().sort().to_list()
        return HeatAxis(values, [f"{value:.12g}" for value in values], falls=False)
    known = levels.dtype.categories.to_list() if isinstance(levels.dtype, pl.Enum) else levels.to_list()
    values = [value for value in dict.fromkeys(known) if value is not None]
    return HeatAxis(values, [str(value) for value in values], falls)


class HeatCell(NamedTuple):
    """One cell of a heat map."""

    shade: float | None
    """See `Ramp.shade`."""
    words: str
    """Its value, or why it has none, for plotly."""
    told: str
    """Words of the tooltip, for plotly."""
    sign: str
    """plotly's marker for it where it has no value; empty: none."""
    key: Any
    """The value that a click sets."""
    partial: bool = False
    """Whether its value is of less than its neighbours'."""


def heat_cells(found: pl.DataFrame, across: HeatAxis, up: HeatAxis, ramp: Ramp) -> list[list[HeatCell]]:
    """The cells of a panel, row by row along the axes."""
    rows = {(row["x"], row["y"]): row for row in found.iter_rows(named=True)}
    return [[_cell(rows.get((x, y), {}), ramp) for x in across.values] for y in up.values]


def _cell(row: Mapping[str, Any], ramp: Ramp) -> HeatCell:
    value = row.get("value")
    shade = ramp.shade(value)
    reason = row.get("reason") or "no value"
    if shade is None and value is not None and math.isfinite(value):
        reason = f"{ramp.words(value)} has no colour on a logarithmic scale"
    words = plain(reason) if shade is None else row.get("text") or plain(ramp.words(value))
    note = row.get("note")
    sign = next((sign for start, sign in SIGNS.items() if reason.startswith(start)), "circle-open")
    told = f"{words}<br>{plain(note)}" if note else words
    return HeatCell(shade, words, told, sign, row.get("key"), row.get("partial") or False)
