"""In words: which operator and point a published cell is of, and how its experiment differs from one's own."""

from collections.abc import Mapping

from store.published.own import Own
from store.published.reading import Cell

_ALIKE = 1.1
"""Sizes whose ratio is below this count as the same: papers round."""


def named(cell: Cell) -> str:
    """`ssa`, `temperature with tau=5`."""
    return f"{cell.operator} with {pointed(cell.arguments)}" if cell.arguments else f"{cell.operator}"


def pointed(point: Mapping[str, float] | Mapping[str, str]) -> str:
    """`sigma_f=5, sigma_x=1`."""
    return ", ".join(f"{name}={at:g}" if isinstance(at, float | int) else f"{name}={at}" for name, at in point.items())


def sized(number: float) -> str:
    """`362`, `3.62k`, `22.5M`, `20B`: counts with three digits."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:g}"


def differs(cell: Cell, own: Own) -> str:
    """What is not the same: size, training, data, layers, what else the paper sets; each with one's own value."""
    known = [
        _amounts("parameters", cell.parameters, own.parameters) or _unknown_size(cell),
        _amounts("steps", cell.steps, own.steps),
        _amounts("tokens", cell.tokens, own.tokens),
        _data(cell, own),
        f"in {cell.placement}, here {own.placement}" if cell.placement not in (None, own.placement) else "",
        f"{pointed(cell.setup)} there" if cell.setup else "",
    ]
    return "; ".join(filter(None, known))


def alike(theirs: float, ours: float | None) -> bool:
    """Whether two amounts count as the same; one that is unknown does not."""
    return ours is not None and ours > 0 and max(theirs / ours, ours / theirs) < _ALIKE


def _amounts(what: str, theirs: float | None, ours: float | None) -> str:
    if theirs is None or alike(theirs, ours):
        return ""
    return f"{sized(theirs)} {what}, here {sized(ours) if ours is not None else 'unknown'}"


def _unknown_size(cell: Cell) -> str:
    return f"{cell.model} there" if cell.parameters is None else ""


def _data(cell: Cell, own: Own) -> str:
    """Data that are drawn from the same formula are the same; a corpus is another unless it says otherwise."""
    if cell.data is None or cell.task == "linear_functions":
        return ""
    source = own.task.get("source") or own.task.get("text") or {}
    kind = source.get("kind") if isinstance(source, Mapping) else source
    return f"{cell.data}, here {kind or own.task.get('kind')}"
