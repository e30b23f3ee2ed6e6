"""Colours, dashes and markers: fixed for every cell of a campaign, in a light and a dark edition.

Figures are drawn in the light edition. Every colour has one dark partner, which a page puts into the figure's JSON.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

INK: Final = "#1c2126"
MUTED: Final = "#5b646e"
LINE: Final = "#e3e6ea"
AXIS: Final = "#b4bbc3"
PAPER: Final = "#ffffff"
ROPE: Final = "#8a94a0"
FONT: Final = "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

SEQUENTIAL: Final = ("#f4f7fb", "#c3d7e9", "#86b0d3", "#3f7fb3", "#0e3f6b")  # small to large

DIVERGING: Final = ("#0b5fa5", "#8fbce0", "#f2f2f0", "#f0b08a", "#b34700")
"""Blue is better, or above zero; orange is worse, or below. They keep their order for every kind of colour vision."""

ON_ANY_PAGE: Final = ("#2f86d1", "#d9691e")
"""Blue and orange of pictures whose opacity says how much, on light and on dark pages alike."""

STATE_COLORS: Final = {
    "done": "#3b8f6f",
    "running": "#3f86c6",
    "failed": "#c24d00",
    **dict.fromkeys(("stopped", "lost"), "#aab3bb"),
    "pending": "#cfd5db",
}

_NEUTRAL: Final = ("#23282e", "#e9ecf0")
_COLOURS: Final = (  # light, dark: any two are at least 0.12 apart in Oklab, and from black, and from blue and orange
    ("#1893a1", "#81d7e3"),
    ("#b42484", "#fa80c8"),
    ("#71752c", "#b0b036"),
    ("#5031b7", "#9286fa"),
    ("#9d002b", "#e93a79"),
    ("#609f21", "#aae280"),
    ("#6c2e5e", "#b479a4"),
    ("#175317", "#699b66"),
    ("#c17b85", "#ffb7cb"),
)
_DASHES: Final = ("solid", "8px,3px", "3px,2px", "9px,3px,2px,3px", "15px,4px", "15px,3px,2px,3px,2px,3px")
"""Gaps are short, so that each line reads as one."""
_MARKERS: Final = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagram")
_SURFACES: Final = {
    INK: "#e8ebee",
    MUTED: "#a3adb8",
    LINE: "#2b3138",
    AXIS: "#4b545e",
    PAPER: "#14171a",
    ROPE: "#8b95a1",
    "#f4f7fb": "#1b2836",
    "#c3d7e9": "#1f4466",
    "#86b0d3": "#2b6a9e",
    "#3f7fb3": "#5c9fd3",
    "#0e3f6b": "#cfe5f7",
    "#0b5fa5": "#5fb0f0",
    "#8fbce0": "#2b5f8c",
    "#f2f2f0": "#262a2e",
    "#f0b08a": "#8a4a20",
    "#b34700": "#ff9a5a",
    "#3b8f6f": "#4db892",
    "#3f86c6": "#5aa5e6",
    "#c24d00": "#ff8a45",
    "#aab3bb": "#626c76",
    "#cfd5db": "#3a424b",
    "#000000": "#ffffff",
    "#000001": "#000001",
    "#fffffe": "#000000",
    "#fffffd": "#fffffd",
}
_ON_FILL: Final = {
    (True, False): "#000000",
    (True, True): "#000001",
    (False, True): "#fffffe",
    (False, False): "#fffffd",
}
"""Texts by whether the fill below is light, in the light and in the dark edition."""


class Style(NamedTuple):
    """How one cell, or one operator, looks everywhere."""

    color: str  # light edition, #rrggbb
    dark: str  # dark edition, #rrggbb
    dash: str  # as plotly takes it: "solid", or pixels of strokes and gaps, "8px,3px"
    marker: str  # plotly's name of the marker


REST: Final = Style("#7b8591", "#8f99a5", "solid", "circle")  # cells of a picture of too many; see `appearance_of`


def shared_style(color: str, dash: str = "solid", marker: str = "circle") -> Style:
    """The style of a colour that no operator has, such as INK."""
    return Style(color, _SURFACES[color], dash, marker)


VERDICT_STYLES: Final = {
    "better": shared_style(DIVERGING[0]),
    "worse": shared_style(DIVERGING[-1], marker="square"),
    "real, size unproven": shared_style(INK, marker="diamond"),
    "equivalent": shared_style(MUTED, marker="diamond-open"),
    "off": Style(*REST[:3], "triangle-up-open"),
    "undecided": Style(*REST[:3], "circle-open"),
    "no verdict": Style(*REST[:3], "x"),
}


class CellStyle(NamedTuple):
    """Facts that decide a style."""

    cell: str
    label: str
    operator: str


def cell_styles(cells: Sequence[CellStyle], baseline: str | None = None) -> dict[str, Style]:
    """The style of every cell of a campaign, by its place among `cells`: no two have one as long as there are any.

    Cells of softmax are black; where there is no other operator, or no softmax, `baseline` alone is.
    """
    plain = {cell.cell for cell in cells if _is_softmax(cell.operator)}
    plain = plain if 0 < len(plain) < len(cells) else {str(baseline)}
    black, colored = map(_plain_style, count()), map(_color_style, count())
    return {cell.cell: next(black if cell.cell in plain else colored) for cell in cells}


def name_styles(names: Sequence[str], known: Mapping[str, Style], neutral: str | None = None) -> dict[str, Style]:
    """A style for each of some names, such as levels: that of `known`, else by its place, and of no other name.

    Softmax is black; without it, `neutral` is.
    """
    styles = {name: known[name] for name in names if name in known}
    plain = next(filter(_is_softmax, names), neutral)
    if plain is not None and plain in names:
        styles.setdefault(plain, _plain_style(0))
    free = (style for style in map(_color_style, count()) if style not in styles.values())
    return {name: styles.get(name) or next(free) for name in dict.fromkeys(names)}


def vary_dash(style: Style, turn: int) -> Style:
    """The style with another dash for each `turn`, such as that of each run of a cell."""
    return style._replace(dash=_DASHES[(_DASHES.index(style.dash) + turn) % len(_DASHES)])


def _is_softmax(name: str) -> bool:
    return name.lower() == "softmax"


def _plain_style(place: int) -> Style:
    return Style(*_NEUTRAL, _DASHES[place % len(_DASHES)], _MARKERS[place % len(_MARKERS)])


def _color_style(place: int) -> Style:
    rounds, color = divmod(place, len(_COLOURS))
    # each round of colours meets other dashes and markers, until every colour has had them all
    turn = place + 1 + 2 * rounds
    return Style(*_COLOURS[color], _DASHES[turn % len(_DASHES)], _MARKERS[turn % len(_MARKERS)])


def dark_partners(styles: Sequence[Style]) -> dict[str, str]:
    """Every colour of the light edition with its partner in the dark one."""
    return _SURFACES | {style.color: style.dark for style in styles}


def contrast(one: str, other: str) -> float:
    """Contrast of two colours #rrggbb, 1 to 21 (WCAG 2.2, relative luminance)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def on_fill(colors: Sequence[str], place: float) -> str:
    """The colour of a text on a ramp of `colors` at `place` (0..1), which contrasts there in both editions.

    Each of the four cases has its own near-black or near-white colour, so that a theme swap can map it.
    """
    fills = [_between(ramp, place) for ramp in (colors, [_SURFACES[color] for color in colors])]
    light, dark = (contrast(fill, "#000000") >= contrast(fill, "#ffffff") for fill in fills)
    return _ON_FILL[light, dark]


def _between(colors: Sequence[str], place: float) -> str:
    """The colour at `place` (0..1) of a ramp; parts of colours change evenly, as in plotly's."""
    at = min(max(place, 0.0), 1.0) * (len(colors) - 1)
    first = min(int(at), len(colors) - 2)
    parts = [[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in colors[first : first + 2]]
    return "#" + "".join(f"{round(a + (at - first) * (b - a)):02x}" for a, b in zip(*parts, strict=True))


def _luminance(color: str) -> float:
    parts = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
