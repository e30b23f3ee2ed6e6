"""Panels of a picture, stacked one below the other: strips of cells, charts, maps with bars below, words."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from runners.catalogue.svg import WIDTH, axis, opening, signed, text

MARGIN = 16
_WIDE = 24
"""Letters of a row's name that fit before its bars."""
_TALLEST = 120
"""Height of a map."""
_PALEST, _NOTHING = 0.15, 5e-3
"""How much of its colour the least square of a map has, and below which size it has none."""
STYLE = (
    ".cell{fill:none;stroke:var(--grid)}.cell.mark{fill:var(--key);fill-opacity:.22;stroke:var(--key)}"
    ".cell.odd{fill:var(--other);fill-opacity:.22;stroke:var(--other)}.word{font-size:11px}"
    ".cell.plain{stroke:var(--faint);stroke-dasharray:4 3}.dim{font-size:11px;fill:var(--faint)}"
    ".arc{fill:none;stroke:var(--faint);stroke-width:1.2}"
    ".line{fill:none;stroke-width:1.8}.line.mark{stroke:var(--key)}.line.odd{stroke:var(--other)}"
    ".line.plain{stroke:var(--faint);stroke-dasharray:4 3}.dot.mark{fill:var(--key)}.dot.odd{fill:var(--other)}"
    ".dot.plain{fill:var(--faint)}"
)


class Panel(Protocol):
    """A part of a picture, as wide as the picture."""

    @property
    def height(self) -> int:
        """In pixels, with the space below it."""

    def drawn(self, top: int) -> list[str]:
        """Its elements, where it begins at `top`."""


def picture(title: str, panels: Sequence[Panel], legend: Mapping[str, str] | None = None) -> str:
    """The whole SVG; `legend` says what cells and lines of a style ("mark", "odd", "plain") mean."""
    height = 40 + (22 if legend else 0) + sum(panel.height for panel in panels)
    parts = [*opening(title, height, STYLE), text("title", MARGIN, 26, title)]
    top, x = 40, float(MARGIN)
    for style, words in (legend or {}).items():
        parts.append(f'<rect class="cell {style}" x="{x:g}" y="{top}" width="12" height="12" rx="2"/>')
        parts.append(text("dim", x + 18, top + 10, words))
        x += 18 + 6.2 * len(words) + 18
    top += 22 if legend else 0
    for panel in panels:
        parts += panel.drawn(top)
        top += panel.height
    return "\n".join((*parts, "</svg>", ""))


class Cell(NamedTuple):
    """One place of a strip."""

    words: str
    style: str = ""
    """"mark", "odd", "dim" for words without a box, or none."""


class Row(NamedTuple):
    """One line of cells; None leaves a place empty."""

    label: str
    cells: Sequence[Cell | None]


class Strip(NamedTuple):
    """Rows of cells in as many parts as needed; arcs lead from a place of the first row to another."""

    heading: str
    rows: Sequence[Row]
    size: int = 30
    """Width of a cell."""
    arcs: Sequence[tuple[int, int]] = ()
    """Of a strip that needs one part."""
    left: int = 64

    @property
    def _parts(self) -> list[slice]:
        there = (WIDTH - self.left - MARGIN) // self.size
        longest = max(len(row.cells) for row in self.rows)
        return [slice(at, at + there) for at in range(0, longest, there)]

    @property
    def _above(self) -> int:
        return (24 if self.heading else 6) + (34 if self.arcs else 0)

    @property
    def height(self) -> int:
        return self._above + len(self._parts) * (26 * len(self.rows) + 8) + 8

    def drawn(self, top: int) -> list[str]:
        found = [text("small", MARGIN, top + 14, self.heading)] if self.heading else []
        y = top + self._above
        for begin, end in self.arcs:
            one, other = (self.left + self.size * (at + 0.5) for at in (begin, end))
            rise = min(30.0, 10 + 0.08 * abs(other - one)) * 4 / 3
            found.append(
                f'<path class="arc" d="M{one:g} {y - 1}C{one:g} {y - rise:.0f} {other:g} {y - rise:.0f} '
                f'{other:g} {y - 5}m-3 -4l3 5l3 -5"/>'
            )
        for part in self._parts:
            for row in self.rows:
                found.append(text("dim end", self.left - 8, y + 16, row.label))
                for at, cell in enumerate(row.cells[part]):
                    found += self._cell(cell, self.left + self.size * at, y) if cell else []
                y += 26
            y += 8
        return found

    def _cell(self, cell: Cell, x: int, y: int) -> list[str]:
        words = "dim" if cell.style == "dim" else "word"
        said = [text(f"{words} mid", x + self.size / 2, y + 16, signed(cell.words))] if cell.words else []
        if cell.style == "dim":
            return said
        style = f"cell {cell.style}".strip()
        return [f'<rect class="{style}" x="{x + 1}" y="{y}" width="{self.size - 2}" height="23" rx="2"/>', *said]


class Series(NamedTuple):
    """Points of a chart in one style."""

    style: str
    points: Sequence[tuple[float, float]]
    as_dots: bool = False


class Chart(NamedTuple):
    """Lines or dots over x; `words` stand where they say, in the numbers of the axes."""

    heading: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    words: Sequence[tuple[float, float, str]] = ()
    as_bars: float = 0.0
    """Width of bars that the first series is drawn as, in numbers of the x axis; 0 draws lines."""

    @property
    def height(self) -> int:
        return 232

    def drawn(self, top: int) -> list[str]:
        points = [point for series in self.series for point in series.points]
        half = self.as_bars / 2
        x_axis = axis([x + side for x, _ in points for side in (-half, half)])
        y_axis = axis([*((0.0,) if self.as_bars else ()), *(y for _, y in points)])
        left, right, first, bottom = 64, WIDTH - MARGIN - 8, top + 26, top + 182

        def x_at(value: float) -> float:
            return round(left + (value - x_axis[0]) / (x_axis[1] - x_axis[0]) * (right - left), 1) + 0.0

        def y_at(value: float) -> float:
            return round(bottom - (value - y_axis[0]) / (y_axis[1] - y_axis[0]) * (bottom - first), 1) + 0.0

        found = [text("small", MARGIN, top + 14, f"{self.heading}; {self.y_label}" if self.heading else self.y_label)]
        for value in _ticks(y_axis):
            found.append(f'<path class="{"zero" if value == 0 else "grid"}" d="M{left} {y_at(value)}H{right}"/>')
            found.append(text("small end", left - 6, y_at(value) + 4, signed(f"{value:g}")))
        for value in _ticks(x_axis):
            found.append(f'<path class="grid" d="M{x_at(value)} {bottom}v4"/>')
            found.append(text("small mid", x_at(value), bottom + 17, signed(f"{value:g}")))
        found.append(text("small", left, bottom + 35, self.x_label))
        for series in self.series:
            placed = [(x_at(x), y_at(y)) for x, y in series.points]
            if self.as_bars:
                size = round(self.as_bars / (x_axis[1] - x_axis[0]) * (right - left), 1) - 2
                found += [_bar(x - size / 2, size, y, y_at(0), series.style) for x, y in placed]
            elif series.as_dots:
                found += [f'<circle class="dot {series.style}" cx="{x}" cy="{y}" r="3.5"/>' for x, y in placed]
            else:
                lines = "L".join(f"{x} {y}" for x, y in placed)
                found.append(f'<path class="line {series.style}" d="M{lines}"/>')
        return [*found, *(text("word", x_at(x), y_at(y), signed(words)) for x, y, words in self.words)]


def _ticks(ends: tuple[float, float, float]) -> list[float]:
    low, high, tick = ends
    return [round(low + count * tick, 6) + 0.0 for count in range(round((high - low) / tick) + 1)]


def _bar(x: float, width: float, end: float, zero: float, style: str) -> str:
    top, size = min(end, zero), round(abs(end - zero), 1)
    return f'<rect class="dot {style}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="{size}" rx="1"/>'


class Map(NamedTuple):
    """Rows of numbers as squares: deeper where they are larger, up to 1; in another colour where they are negative."""

    title: str
    rows: Sequence[Sequence[float]]
    beside: Sequence[float] = ()
    """A column of its own at the left: what is no key."""


class Bars(NamedTuple):
    """A number for each column of maps above it."""

    name: str
    point: str
    values: Sequence[float | None]
    unit: str = ""
    """Bars of one unit have one scale."""


class Columns(NamedTuple):
    """Maps beside each other, and below each the numbers that belong to it."""

    heading: str
    maps: Sequence[Map]
    bars: Sequence[Bars] = ()
    left: int = 176

    @property
    def _square(self) -> int:
        widest = max(len(row) + (1.5 if each.beside else 0) for each in self.maps for row in each.rows)
        tallest = max(len(each.rows) for each in self.maps)
        return min(12, math.floor((self._step - 10) / widest), _TALLEST // tallest)

    @property
    def _step(self) -> int:
        return (WIDTH - self.left - 8) // len(self.maps)

    @property
    def _of_maps(self) -> int:
        return 44 + max(len(each.rows) for each in self.maps) * self._square

    @property
    def height(self) -> int:
        return self._of_maps + 34 * len(self.bars) + 14

    def drawn(self, top: int) -> list[str]:
        found = [text("small", MARGIN, top + 14, self.heading)]
        for at, each in enumerate(self.maps):
            x = self.left + at * self._step
            found.append(text("word", x, top + 34, each.title))
            found += self._map(each, x, top + 40)
        y = top + self._of_maps + 4
        sizes: dict[str, float] = {}
        for bars in self.bars:
            largest = max((abs(value) for value in bars.values if value is not None), default=0.0)
            sizes[bars.unit] = max(largest, sizes.get(bars.unit, 0.0))
        for bars in self.bars:
            name, dot, rest = bars.name.rpartition(".") if len(bars.name) > _WIDE else (bars.name, "", "")
            below = f"{dot}{rest} {bars.point}".strip()
            found.append(text("word", MARGIN, y + (10 if below else 15), name))
            found += [text("dim", MARGIN, y + 23, below)] if below else []
            found += self._bars(bars, y, sizes[bars.unit] or 1.0)
            y += 34
        return found

    def _map(self, each: Map, left: int, top: int) -> list[str]:
        size, found = self._square, []
        beside = round(1.5 * size) if each.beside else 0
        for i, value in enumerate(each.beside):
            found += _square(value, left, top + i * size, size)
        for i, row in enumerate(each.rows):
            for j, value in enumerate(row):
                found += _square(value, left + beside + j * size, top + i * size, size)
        width, high = len(each.rows[0]) * size, len(each.rows) * size
        return [*found, f'<rect class="cell" x="{left + beside}" y="{top}" width="{width}" height="{high}"/>']

    def _bars(self, bars: Bars, y: int, most: float) -> list[str]:
        """Those of a row; `most` is as long as there is room."""
        room, found = self._step - 62, []
        for at, value in enumerate(bars.values):
            x = self.left + at * self._step
            found.append(f'<path class="zero" d="M{x} {y}v22"/>')
            if value is None:
                found.append(text("dim", x + 6, y + 15, "no row"))
                continue
            width = round(abs(value) / most * room, 1)
            style = "odd" if value < 0 else "mark"
            found.append(f'<rect class="dot {style}" x="{x}" y="{y + 4}" width="{width}" height="14" rx="1"/>')
            found.append(text("word", x + width + 5, y + 15, signed(number(value))))
        return found


class Words(NamedTuple):
    """Lines of text."""

    lines: Sequence[str]

    @property
    def height(self) -> int:
        return 18 * len(self.lines) + 8

    def drawn(self, top: int) -> list[str]:
        return [text("word", MARGIN, top + 14 + 18 * at, signed(line)) for at, line in enumerate(self.lines)]


def number(value: float) -> str:
    """Three significant digits, none that say nothing; what is 0 but for rounding is 0."""
    return "0" if abs(value) < 5e-7 else f"{value:.3g}"


def _square(value: float, x: int, y: int, size: int) -> list[str]:
    if abs(value) < _NOTHING:
        return []
    shown = round(_PALEST + (1 - _PALEST) * min(abs(value), 1.0), 2)
    style = "other" if value < 0 else "key"
    return [f'<rect class="{style}" x="{x}" y="{y}" width="{size}" height="{size}" fill-opacity="{shown:g}"/>']
