"""Granularity: the axes along which a learned number varies; `ablate.variants.number` says what each means."""

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator

Axis = Literal["layer", "head", "query", "token"]

_ORDER: tuple[Axis, ...] = ("layer", "head", "query", "token")
NAMED: dict[str, tuple[Axis, ...]] = {
    "constant": (),
    "layer": ("layer",),
    "head": ("layer", "head"),
    "query": ("layer", "head", "query"),
    "token": ("layer", "head", "token"),
}
"""Usual names."""

PerScalar = Literal["constant", "layer", "head", "query"]
PerVector = Literal["constant", "layer", "head"]

granularities = get_args(PerScalar)
"""The granularities of a scalar number that the papers compare, coarse to fine: values for an axis that ends in `.per`.

A scalar may also vary per "token": predicted from the layer's input and not from the query alone.
"""


def _axes(per: object) -> object:
    if isinstance(per, str):
        if per not in NAMED:
            raise ValueError(f"a granularity is one of {', '.join(NAMED)} or a tuple of axes, got {per!r}")
        return NAMED[per]
    if isinstance(per, list | tuple):
        return tuple(axis for axis in _ORDER if axis in per) + tuple(axis for axis in per if axis not in _ORDER)
    return per


def name_axes(axes: tuple[Axis, ...]) -> str:
    """Return the usual name of a granularity, else its axes joined by +."""
    return next((name for name, usual in NAMED.items() if usual == axes), "+".join(axes))


Granularity = Annotated[tuple[Axis, ...], BeforeValidator(_axes)]
