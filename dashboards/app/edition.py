"""Figures in the light or the dark edition, as JSON that goes to the browser."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import plotly.graph_objects as go

Theme = Literal["light", "dark"]

_COLOR: Final = re.compile(r"#[0-9a-f]{6}([0-9a-f]{2})?")
_TEXTS: Final = frozenset({"text", "ticktext", "name", "hovertemplate", "x", "y", "z", "customdata"})
"""Parts of a figure that are data, in which no text is a colour."""


def edition(figure: go.Figure, partners: Mapping[str, str] | None) -> dict[str, Any]:
    """The figure as plain data; with `partners` (light colour -> dark one) in the dark edition."""
    plain: dict[str, Any] = json.loads(figure.to_json())
    return plain if partners is None else _darkened(plain, partners)


def _darkened(value: Any, partners: Mapping[str, str]) -> Any:
    if isinstance(value, str) and _COLOR.fullmatch(value):
        return partners.get(value[:7], value[:7]) + value[7:]  # #rrggbbaa keeps its alpha
    if isinstance(value, list):
        return [_darkened(each, partners) for each in value]
    if isinstance(value, dict):
        return {name: each if name in _TEXTS else _darkened(each, partners) for name, each in value.items()}
    return value
