"""Colours are fixed to cells, told apart without colour, and legible in both themes."""

import math
from itertools import combinations

import plotly.graph_objects as go
import pytest

from ablate.dashboards.app.frame import recolour
from ablate.dashboards.html.document import VARIABLES
from ablate.dashboards.theme.styles import (
    DIVERGING,
    INK,
    MUTED,
    PAPER,
    REST,
    SEQUENTIAL,
    STATE_COLORS,
    CellStyle,
    cell_styles,
    contrast,
    dark_partners,
    name_styles,
)

NAMES = ["softmax", "SSA", "Integral", "Principled", "Affine", "Cog", "Diff", "Gated", "Sink"]


def cells(*operators: str) -> list[CellStyle]:
    return [CellStyle(f"key {i}", f"label {i}", operator) for i, operator in enumerate(operators)]


def test_softmax_is_black_whatever_else_there_is() -> None:
    for names in (NAMES, ["softmax"], ["A", "Softmax"]):
        found = cell_styles(cells(*names), "key 0")
        plain = [f"key {place}" for place, name in enumerate(names) if name.lower() == "softmax"]
        assert [found[key][:4] for key in plain] == [("#23282e", "#e9ecf0", "solid", "circle")]
        assert name_styles(names, {})[names[int(plain[0][4:])]] == found[plain[0]]
    several = cell_styles(cells("softmax", "SSA", "softmax"), "key 1")
    assert several["key 0"].color == several["key 2"].color == "#23282e" != several["key 1"].color
    assert several["key 0"] != several["key 2"]


def test_without_softmax_or_with_nothing_else_the_baseline_is_black() -> None:
    for operator in ("softmax", "SSA"):
        found = cell_styles(cells(operator, operator, operator), "key 1")
        assert [style.color == "#23282e" for style in found.values()] == [False, True, False]


def test_no_two_of_many_cells_look_alike_as_points_or_as_lines() -> None:
    found = [*cell_styles(cells("softmax", *(f"operator {i}" for i in range(54)))).values()]
    assert len({(style.color, style.marker) for style in found}) == len(found)
    assert len({(style.color, style.dash) for style in found}) == len(found)


def test_a_name_that_is_known_keeps_its_style_and_no_other_has_it() -> None:
    known = cell_styles(cells("SSA", "Integral"))
    found = name_styles(["b", "key 0", "softmax", "a"], known)
    assert found["key 0"] == known["key 0"]
    assert len(set(found.values())) == len(found)
    assert found["softmax"].color == "#23282e"


def oklab(color: str) -> tuple[float, float, float]:
    """Oklab of Ottosson 2020, in which equal distances look alike."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    long = math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
    middle = math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
    short = math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


@pytest.mark.parametrize("edition", [0, 1])
def test_no_two_colours_of_a_figure_look_alike(edition: int) -> None:
    found = cell_styles(cells("softmax", *(f"operator {i:02}" for i in range(30))))
    colours = list(dict.fromkeys((style.color, style.dark)[edition] for style in found.values()))
    assert min(math.dist(oklab(one), oklab(other)) for one, other in combinations(colours, 2)) > 0.12
    every = [oklab((style.color, style.dark)[edition]) for style in found.values()]
    hues = [(math.degrees(math.atan2(b, a)), (light, a, b)) for light, a, b in dict.fromkeys(every)]
    alike = [(one, other) for (h, one), (k, other) in combinations(hues, 2) if min(abs(h - k), 360 - abs(h - k)) < 15]
    assert min(math.dist(one, other) for one, other in alike) > 0.13  # in one hue
    differences = [(color, dark_partners([])[color])[edition] for color in (DIVERGING[0], DIVERGING[-1])]
    every = [(style.color, style.dark)[edition] for style in found.values()]
    assert min(math.dist(oklab(one), oklab(other)) for one in every for other in differences) > 0.12


@pytest.mark.parametrize("edition", [0, 1])
def test_texts_have_a_contrast_of_at_least_4_5_and_lines_of_2_6(edition: int) -> None:
    partners = dark_partners([])
    paper = (PAPER, partners[PAPER])[edition]
    colors = [(color, partners[color])[edition] for color in (INK, MUTED)]
    colors += [pair[edition] for name, pair in VARIABLES.items() if name != "shade"]
    assert min(contrast(color, paper) for color in colors) >= 4.5
    styles = [REST, *name_styles(NAMES, {}).values()]
    assert min(contrast((style.color, style.dark)[edition], paper) for style in styles) >= 2.6


def test_every_colour_of_a_figure_has_a_partner_in_the_dark() -> None:
    styles = list(name_styles(NAMES, {}).values())
    partners = dark_partners(styles)
    assert {*SEQUENTIAL, *DIVERGING, *STATE_COLORS.values(), *(style.color for style in styles)} <= partners.keys()


def test_a_text_that_reads_like_a_colour_stays_in_the_dark_edition() -> None:
    light = "#123456"
    figure = go.Figure(
        go.Scatter(x=[light], y=[1], name=light, text=[light], customdata=[light], line={"color": light})
    )
    [trace] = recolour(figure, {light: "#abcdef"})["data"]
    assert trace["line"]["color"] == "#abcdef"
    assert (trace["x"], trace["name"], trace["text"], trace["customdata"]) == ([light], light, [light], [light])
