"""Colours are fixed to operators, told apart without colour, and legible in both themes."""

import math
import random
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
    operator_styles,
)

NAMES = ["softmax", "SSA", "Integral", "Principled", "Affine", "Cog", "Diff", "Gated", "Sink"]


def test_a_style_does_not_depend_on_the_order_of_operators() -> None:
    shuffled = random.Random(7).sample([*NAMES, *NAMES], 2 * len(NAMES))
    assert operator_styles(shuffled) == operator_styles(NAMES)


def test_softmax_is_neutral_and_plain_whatever_else_there_is() -> None:
    for names in (NAMES, ["softmax"], ["A", "Softmax"]):
        name = next(name for name in names if name.lower() == "softmax")
        assert operator_styles(names)[name][:3] == ("#23282e", "#e9ecf0", "solid")
    assert operator_styles(NAMES, neutral="SSA")["SSA"].color == "#23282e" != operator_styles(NAMES)["SSA"].color


def cells(*operators: str) -> list[CellStyle]:
    return [CellStyle(f"key {i}", f"label {i}", operator) for i, operator in enumerate(operators)]


def test_a_lone_cell_has_its_operators_style_and_siblings_differ() -> None:
    operators = operator_styles(NAMES)
    found = cell_styles(cells("softmax", "SSA", "Principled", "Principled", "Principled"), operators, "key 0")
    assert found["key 1"] == operators["SSA"]
    assert len({found[f"key {i}"] for i in (2, 3, 4)}) == 3
    assert len({(found[f"key {i}"].dash, found[f"key {i}"].marker) for i in range(5)}) == 5


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
    operators = operator_styles([f"operator {i:02}" for i in range(30)])
    shown = [f"operator {i:02}" for i in (0, 1, 1, 1, 11, 12, 22, 23, 2)]
    found = cell_styles([*cells(*shown), CellStyle("base", "", "operator 05")], operators, "base")
    colours = [(style.color, style.dark)[edition] for style in found.values()]
    assert found["key 0"] == operators["operator 00"]
    assert min(math.dist(oklab(one), oklab(other)) for one, other in combinations(colours, 2)) > 0.12
    every = [oklab((style.color, style.dark)[edition]) for style in operators.values()]
    hues = [(math.degrees(math.atan2(b, a)), (light, a, b)) for light, a, b in dict.fromkeys(every)]
    alike = [(one, other) for (h, one), (k, other) in combinations(hues, 2) if min(abs(h - k), 360 - abs(h - k)) < 15]
    assert min(math.dist(one, other) for one, other in alike) > 0.13  # in one hue
    differences = [(color, dark_partners([])[color])[edition] for color in (DIVERGING[0], DIVERGING[-1])]
    every = [(style.color, style.dark)[edition] for style in operators.values()]
    assert min(math.dist(oklab(one), oklab(other)) for one in every for other in differences) > 0.12


@pytest.mark.parametrize("edition", [0, 1])
def test_texts_have_a_contrast_of_at_least_4_5_and_lines_of_2_6(edition: int) -> None:
    partners = dark_partners([])
    paper = (PAPER, partners[PAPER])[edition]
    colors = [(color, partners[color])[edition] for color in (INK, MUTED)]
    colors += [pair[edition] for name, pair in VARIABLES.items() if name != "shade"]
    assert min(contrast(color, paper) for color in colors) >= 4.5
    styles = [REST, *operator_styles(NAMES).values()]
    assert min(contrast((style.color, style.dark)[edition], paper) for style in styles) >= 2.6


def test_every_colour_of_a_figure_has_a_partner_in_the_dark() -> None:
    styles = list(operator_styles(NAMES).values())
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
