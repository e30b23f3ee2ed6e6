"""Caption above a table of a grid's numbers."""

from collections.abc import Mapping
from typing import Any


def describe_measure(header: Mapping[str, Any]) -> str:
    """Grid, measure, point and unit of a grid's header: `quickstart: mse at sigma_x=1 in squared output units`."""
    measure = header["measure"]
    point = ", ".join(f"{axis}={value:g}" for axis, value in measure["point"].items())
    unit = f" in {measure['unit']}" if measure.get("unit") else ""
    return f"{header['grid']}: {measure['name']}{f' at {point}' if point else ''}{unit}"


def average_of(measure: Mapping[str, Any]) -> str:
    """How values of the measure are averaged, as a column's heading."""
    return {"log": "geometric mean", "logit": "mean of log odds"}.get(measure["scale"], "mean")
