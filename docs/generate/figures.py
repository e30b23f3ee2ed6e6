"""SVG pictures drawn with matplotlib: strips of cells, charts, attention maps and lines of text."""

import io
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch, Rectangle

WIDTH: Final = 6.4
"""Width of all pictures, in inches."""
COLOURS: Final = {"mark": "#0072b2", "odd": "#d55e00", "plain": "#6e7781", "": "#ffffff"}
_PALE: Final = {"mark": "#c8e0ef", "odd": "#f7d9c5", "plain": "#f0f1f2", "": "#ffffff"}
_EDGE: Final = "#c5ccd3"
_MAP_STEP: Final = 0.245
"""Distance of maps as a share of the width."""
_SETTINGS: Final = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


class Panel(Protocol):
    """A part of a picture, as wide as the picture."""

    @property
    def height(self) -> float:
        """Height in inches."""

    def draw(self, figure: SubFigure) -> None:
        """Draw the panel."""


def draw_picture(title: str, panels: Sequence[Panel], legend: Mapping[str, str] | None = None) -> str:
    """Draw panels below each other and return the SVG. `legend` explains the colours by style."""
    key = [Legend(legend)] if legend else []
    parts: list[Panel] = [Lines([title], size=11), *key, *panels]
    heights = [part.height for part in parts]
    with matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": title}):
        figure = Figure(figsize=(WIDTH, sum(heights)))
        places = figure.subfigures(len(parts), 1, squeeze=False, hspace=0, height_ratios=heights)
        for part, place in zip(parts, places[:, 0], strict=True):
            part.draw(place)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


class Lines(NamedTuple):
    """Lines of text."""

    lines: Sequence[str]
    size: float = 8

    @property
    def height(self) -> float:
        return 0.028 * self.size * len(self.lines) + 0.06

    def draw(self, figure: SubFigure) -> None:
        figure.text(0.02, 0.5, "\n".join(self.lines), va="center", fontsize=self.size)


_SIGNED: Final = LinearSegmentedColormap.from_list("signed", [COLOURS["odd"], "white", COLOURS["mark"]])


class Legend(NamedTuple):
    """Explains colours."""

    words: Mapping[str, str]

    @property
    def height(self) -> float:
        return 0.18 * len(self.words)

    def draw(self, figure: SubFigure) -> None:
        handles = [Patch(color=COLOURS[style], label=words) for style, words in self.words.items()]
        figure.legend(handles=handles, loc="center left", frameon=False, fontsize=7.5, labelspacing=0.2)


class Cell(NamedTuple):
    """A box of a strip. The style "dim" is text without a box."""

    words: str
    style: str = ""


class Strip(NamedTuple):
    """Rows of cells that continue below if they are too long. Arrows lead from one cell of the first row to another."""

    heading: str
    rows: Mapping[str, Sequence[Cell | None]]
    size: float = 0.27
    """Width of a cell, in inches."""
    arrows: Sequence[tuple[int, int]] = ()
    """They need a strip that fits into one line."""
    label_width: float = 0.9

    @property
    def _lines(self) -> list[tuple[str, Sequence[Cell | None]]]:
        fitting, longest = int((WIDTH - self.label_width) / self.size), max(map(len, self.rows.values()))
        lines: list[tuple[str, Sequence[Cell | None]]] = []
        for start in range(0, longest, fitting):
            lines += [("", [])] if start else []
            lines += [(label, cells[start : start + fitting]) for label, cells in self.rows.items()]
        return lines

    @property
    def _top(self) -> float:
        return (0.22 if self.heading else 0.06) + (0.35 if self.arrows else 0)

    @property
    def height(self) -> float:
        return self._top + 0.21 * len(self._lines) + 0.06

    def draw(self, figure: SubFigure) -> None:
        figure.text(0.02, 1 - 0.12 / self.height, self.heading, va="center")
        lines = self._lines
        axes = figure.add_axes((0, 0.06 / self.height, 1, 0.21 * len(lines) / self.height))
        axes.axis("off")
        axes.set(xlim=(-self.label_width / self.size, (WIDTH - self.label_width) / self.size), ylim=(len(lines), 0))
        for line, (label, cells) in enumerate(lines):
            axes.text(-0.2, line + 0.5, label, ha="right", va="center", fontsize=6.5, color=COLOURS["plain"])
            for place, cell in enumerate(cells):
                if cell is not None:
                    _draw_cell(axes, place, line, cell)
        for begin, end in self.arrows:
            bend = -min(0.5, 1.6 / max(1, abs(end - begin)))
            style = {"arrowstyle": "->", "color": COLOURS["plain"], "connectionstyle": f"arc3,rad={bend:g}"}
            axes.annotate("", (end + 0.5, 0), (begin + 0.5, 0), arrowprops=style, annotation_clip=False)


def _draw_cell(axes: Axes, place: int, line: int, cell: Cell) -> None:
    dim = cell.style == "dim"
    if not dim:
        edge = COLOURS[cell.style] if cell.style else _EDGE
        axes.add_patch(
            Rectangle(
                (place + 0.04, line + 0.05), 0.92, 0.9, facecolor=_PALE[cell.style], edgecolor=edge, linewidth=0.6
            )
        )
    colour = COLOURS["plain"] if dim else "black"
    axes.text(place + 0.5, line + 0.52, cell.words, ha="center", va="center", fontsize=7, color=colour)


class Chart(NamedTuple):
    """Lines, dots or bars over x, by style."""

    x_label: str
    y_label: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {}
    dots: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {}
    bars: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {}
    bar_width: float = 0.8

    @property
    def height(self) -> float:
        return 2.1

    def draw(self, figure: SubFigure) -> None:
        axes = figure.add_axes((0.1, 0.22, 0.87, 0.7))
        for style, (x, y) in self.lines.items():
            axes.plot(x, y, color=COLOURS[style], linestyle="--" if style == "plain" else "-")
        for style, (x, y) in self.dots.items():
            axes.plot(x, y, "o", color=COLOURS[style], markersize=4)
        for style, (x, y) in self.bars.items():
            axes.bar(x, y, width=self.bar_width, color=COLOURS[style])
        axes.set(xlabel=self.x_label, ylabel=self.y_label)
        axes.grid(axis="y", color=_EDGE, linewidth=0.4)


def values_strip(heading: str, cells: Sequence[Cell | None]) -> Strip:
    """Make a strip whose cells stand below the maps of `Maps`."""
    return Strip(heading, {"": cells}, size=_MAP_STEP * WIDTH, label_width=0.07)


class Maps(NamedTuple):
    """At most four matrices side by side: blue for positive, red for negative entries, full colour at 1."""

    heading: str
    maps: Mapping[str, np.ndarray]

    @property
    def height(self) -> float:
        return 1.75 if max(len(each) for each in self.maps.values()) > 1 else 0.85

    def draw(self, figure: SubFigure) -> None:
        figure.text(0.02, 1 - 0.12 / self.height, self.heading, va="center")
        bottom, top = 0.04 / self.height, 1 - 0.42 / self.height
        for place, (title, values) in enumerate(self.maps.items()):
            axes = figure.add_axes((0.02 + _MAP_STEP * place, bottom, 0.22, top - bottom))
            axes.pcolormesh(
                np.round(values, 4), cmap=_SIGNED, vmin=-1, vmax=1, edgecolors=_EDGE, linewidth=0.3, antialiased=True
            )
            axes.set(aspect="equal", xticks=[], yticks=[], anchor="NW")
            axes.set_title(title, loc="left")
            axes.invert_yaxis()
            for side in axes.spines.values():
                side.set_visible(False)


def number_words(value: float) -> str:
    """Write a number with three significant digits. Rounding errors around 0 become 0."""
    return "0" if abs(value) < 5e-7 else f"{value:.3g}"
