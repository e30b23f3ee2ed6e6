"""All items: 35 figures and 38 tables."""

from collections.abc import Sequence
from typing import Final

from dashboards.data.user_errors import Unknown
from dashboards.papers import affine_scaled, integral, principled, signed_averaging, sink_emergence
from dashboards.papers.item import Item

ITEMS: Final[Sequence[Item]] = (
    *affine_scaled.ITEMS,
    *principled.ITEMS,
    *integral.ITEMS,
    *signed_averaging.ITEMS,
    *sink_emergence.ITEMS,
)


def item(paper: str, kind: str, number: int | None) -> Item:
    """One of them. Raises Unknown, naming what the paper has."""
    of_paper = [each for each in ITEMS if each.paper == paper]
    for each in of_paper:
        if (each.kind, each.number) == (kind, number):
            return each
    raise Unknown(f"paper {paper!r} has no such item; it has {', '.join(each.name for each in of_paper) or 'none'}")
