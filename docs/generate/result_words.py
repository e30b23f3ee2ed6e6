"""Measures, sizes and changes of docs/results.md in words."""

import math

from ablate.papers.results.grid_results import GridResult
from ablate.runners.cli.cell_tables import format_number, format_percent
from ablate.store.analysis.verdicts import GridMeasure


def say_measure(result: GridResult, measure: GridMeasure) -> str:
    unit = result.header["measure"]["unit"]
    return f"{name_measure(measure)}{f', {unit}' if unit else ''}; {measure.better} is better."


def name_measure(measure: GridMeasure) -> str:
    """Return the name and the point of a measure, such as "`mse` at sigma_f 3"."""
    point = ", ".join(f"{axis} {value:g}" for axis, value in measure.point.items())
    return f"`{measure.name}`{f' at {point}' if point else ''}"


def say_size(value: float | None, measure: GridMeasure) -> str:
    if value is None:
        return ""
    if measure.scale == "linear":
        return f"{value:.2g}"
    percent = 100 * math.expm1(value)
    if percent > 900:
        return "more than tenfold"
    return f"{percent:,.0f} %" if percent >= 100 else f"{percent:.2g} %"


def say_change(value: float | None, measure: GridMeasure) -> str:
    if value is None:
        return ""
    return f"{value:+.3f}" if measure.scale == "linear" else f"{format_percent(100 * math.expm1(value))} %"


def say_number(value: float | None) -> str:
    return format_number(value) or ""
