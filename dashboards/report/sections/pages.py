"""Figures of the dashboard's pages in the report, with their default choices."""

from typing import TYPE_CHECKING, Final, NamedTuple

from dashboards.data.grid_context import GridContext
from dashboards.data.user_errors import Unknown, catch_user_error, sentence
from dashboards.html.blocks import FigureBlock, key_legend, picture, state
from dashboards.html.markup import details, plain_table, tag, text
from dashboards.theme.styles import Style

if TYPE_CHECKING:
    from dashboards.app.page import PageView, Slot

SHOWN: Final[dict[str, tuple[str, ...]]] = {
    "compare": ("paired", "wins"),
    "factors": ("matrix", "pair", "pivot", "half-normal"),
    "trade-offs": ("scatter", "parallel"),
    "mechanism": ("training", "layers", "heads"),
}
"""Slots by page; what else the pages have, the report has in a form of its own, or it takes a reader's choice."""

WITHOUT_MEASURE: Final = ("mechanism",)
"""Pages that need none."""

OF_BASELINE: Final = ("paired",)
"""Slots that need one."""


def pages(about: GridContext, operators: dict[str, Style], key: str) -> str:
    """The figures of `SHOWN` that the grid has data for, as HTML, and why it has no others.

    Without a measure, or a baseline, what needs one is left out: the report says above that there is none.
    """
    from dashboards.app.page import PageView  # dash takes a third of a second to import
    from dashboards.app.pages import PAGES

    parts, missing = "", list[tuple[str, str]]()
    for page in (each for each in PAGES if each.name in SHOWN and (about.measure or each.name in WITHOUT_MEASURE)):
        view = PageView("", about.store, page.address(grid=about.grid), operators, about)
        slots = {slot.name: slot for slot in page.slots}
        for name in (each for each in SHOWN[page.name] if about.baseline is not None or each not in OF_BASELINE):
            slot = slots[name]
            made, problem = catch_user_error(lambda: _make(slot, view, f"{key}-{page.name}-{slot.name}"))  # noqa: B023
            if made is None:
                parts += tag("div", tag("h3", text(slot.title)) + state(str(problem)), class_="block")
                continue
            parts += made.html
            if made.why:
                missing.append((f"{page.title}: {slot.title}", made.why))
    if missing:
        listed = details("Figures that are not shown, and why", plain_table(("figure", "why"), missing))
        parts += tag("div", listed, class_="block")
    return parts


class _Made(NamedTuple):
    html: str
    why: str
    """Why there is none; empty where there is."""


def _make(slot: "Slot", view: "PageView", place: str) -> _Made:
    try:
        shown = slot.make(view)
    except Unknown as error:  # there is nothing of the kind in this grid
        return _Made("", sentence(error))
    if shown.figure is None:
        return _Made("", shown.message)
    legend = key_legend([(entry.key, entry.name, entry.style) for entry in shown.legend])
    caption = " ".join(filter(None, (shown.caption, shown.message)))
    return _Made(picture(FigureBlock(place, slot.title, caption, [(None, shown.figure)], shown.data, legend)), "")
