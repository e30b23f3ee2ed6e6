"""What the dashboard's pages show of a grid as they open, for the report: the same figures from the same functions."""

from collections.abc import Iterator
from typing import Final

from dashboards.blocks import Picture, key_legend
from dashboards.problems import Unknown
from dashboards.sections.guard import drawn
from dashboards.subject import Subject
from dashboards.theme import Style

SHOWN: Final[dict[str, tuple[str, ...]]] = {
    "compare": ("paired", "wins"),
    "factors": ("matrix", "pair", "pivot", "half-normal"),
    "trade-offs": ("scatter", "parallel"),
    "mechanism": ("training", "layers", "heads"),
}
"""Slots by page; what else the pages have, the report has in a form of its own, or it takes a reader's choice."""


def pages(about: Subject, operators: dict[str, Style], key: str) -> str:
    """The figures of `SHOWN` that the grid has data for, as HTML."""
    from dashboards.app.page import Page, View  # dash takes a third of a second to import
    from dashboards.app.pages import PAGES

    def pictures(page: Page, view: View, name: str) -> Iterator[Picture]:
        slot = next(slot for slot in page.slots if slot.name == name)
        try:
            shown = slot.make(view)
        except Unknown:  # there is nothing of the kind in this grid
            return
        if shown.figure is not None:
            legend = key_legend([(entry.key, entry.name, entry.style) for entry in shown.legend])
            caption = " ".join(filter(None, (shown.caption, shown.message)))
            place = f"{key}-{page.name}-{name}"
            yield Picture(place, slot.title, caption, [(None, shown.figure)], shown.data, legend)

    parts = ""
    judging = about.measure is not None and about.baseline is not None
    for page in (each for each in PAGES if each.name in SHOWN and (judging or each.name == "mechanism")):
        view = View("", about.store, page.address(grid=about.grid), operators, about)
        parts += "".join(drawn(name, pictures(page, view, name)) for name in SHOWN[page.name])
    return parts
