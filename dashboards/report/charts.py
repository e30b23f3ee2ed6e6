"""The figures of a grid: which apply, their captions, their panels."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.captions import describe_selection, n_words, name_cells
from ablate.dashboards.data.formatting import NO_MARGIN, count, point
from ablate.dashboards.data.grid_context import GridContext
from ablate.dashboards.data.seed_averages import Scale, average_words, interval_words
from ablate.dashboards.data.user_errors import Unknown, catch_user_error, sentence
from ablate.dashboards.figures import shift
from ablate.dashboards.figures.canvas import is_cut
from ablate.dashboards.figures.probe_curves import draw_numbers, numbers
from ablate.dashboards.html.blocks import FigureBlock, cell_legend, draw_all, key_legend, picture, state
from ablate.dashboards.html.markup import details, plain_table, tag, text
from ablate.dashboards.theme.styles import Style
from ablate.store.analysis.verdicts import GridMeasure

if TYPE_CHECKING:
    from ablate.dashboards.app.page import PageView, Slot

SHOWN: Final[dict[str, tuple[str, ...]]] = {
    "overview": ("progress",),
    "compare": ("differences", "paired", "scatter", "parallel", "wins"),
    "factors": ("effects", "matrix", "pair", "pivot"),
    "curves": ("curves",),
    "mechanism": ("training", "layers", "heads"),
}
"""Slots of the pages of the app, by page."""

UNFOLDED: Final = ("compare-differences", "factors-effects", "curves-curves")
"""Figures that are seen at once; a title opens another."""

WITHOUT_MEASURE: Final = ("overview", "curves", "mechanism")  # pages that need none

OF_BASELINE: Final = ("differences", "paired")  # slots that need one


def charts(about: GridContext, looks: Mapping[str, Style], key: str, *, is_finished: bool) -> str:
    """Every figure for which the grid has data, as HTML, and why it has no others; some need a measure or baseline."""
    shown, missing = "", list[tuple[str, str]]()
    for title, place, slot, view in _slots(about, looks, is_finished=is_finished):
        block, problem = catch_user_error(lambda: _block(slot, view, f"{key}-{place}"))  # noqa: B023
        if isinstance(block, FigureBlock):
            shown += picture(block, folded=place not in UNFOLDED)
        elif block is not None:
            missing.append((f"{title}: {slot.title}", block))
        else:
            shown += tag("div", tag("h3", text(slot.title)) + state(str(problem)), class_="block")
    if (measure := about.measure) is not None:
        at = shift.coordinates(about.store, about.grid, measure.name)
        shown += draw_all(measure.name, _shifts(about, measure, at, key))
        shown += draw_all(f"Map of {measure.name}", _maps(about, measure, at, key))
    shown += draw_all("Learned numbers", _numbers(about, key))
    if missing:
        listed = details("Figures that are not shown, and why", plain_table(("figure", "why"), missing))
        shown += tag("div", listed, class_="block")
    return shown


def _slots(
    about: GridContext, looks: Mapping[str, Style], *, is_finished: bool
) -> Iterator[tuple[str, str, "Slot", "PageView"]]:
    """The title of the page, the place of the slot, the slot and its view."""
    from ablate.dashboards.app.page import PageView  # dash takes a third of a second to import
    from ablate.dashboards.app.pages import PAGES

    for page in sorted(PAGES, key=lambda page: page.name != "compare"):  # differences first
        if page.name not in SHOWN or (about.measure is None and page.name not in WITHOUT_MEASURE):
            continue
        if page.name == "overview" and is_finished:
            continue
        view = PageView("", about.store, page.address(grid=about.grid), looks, about)
        slots = {slot.name: slot for slot in page.slots}
        for name in SHOWN[page.name]:
            if about.baseline is not None or name not in OF_BASELINE:
                yield page.title, f"{page.name}-{name}", slots[name], view


def _block(slot: "Slot", view: "PageView", key: str) -> FigureBlock | str:
    try:
        shown = slot.make(view)
    except Unknown as error:  # there is nothing of the kind in this grid
        return sentence(error)
    if shown.figure is None:
        return shown.message
    legend = key_legend([(entry.key, entry.name, entry.style) for entry in shown.legend])
    caption = " ".join(filter(None, (shown.caption, shown.message)))
    return FigureBlock(key, slot.title, caption, [(None, shown.figure)], shown.data, legend)


def _lines(about: GridContext, found: pl.DataFrame, figure: go.Figure, words: tuple[str, str, str]) -> FigureBlock:
    """A figure of cells with its legend; `words` are key, title and caption."""
    legend = cell_legend(list(dict.fromkeys(found["cell"])), about.look)
    return FigureBlock(*words, [(None, figure)], name_cells(found, about), legend)


def _shifts(about: GridContext, measure: GridMeasure, at: dict[str, list[float]], key: str) -> Iterator[FigureBlock]:
    cells, scale = about.drawn, measure.scale
    for along in sorted(name for name, values in at.items() if len(values) > 2):
        found = shift.average_points(about.store, about.grid, measure, [along], cells)
        if found.is_empty() or found["x"].n_unique() < 2:
            continue
        fixed = {name: value for name, value in measure.point.items() if name != along}
        lost, word = int(found["lost"].sum()), "value"
        caption = (
            f"Line: {average_words(scale)} over seeds{f', at {point(fixed)}' if fixed else ''}. Band: "
            f"{interval_words(scale)}, {n_words(found)}.{_cut(found, scale)}{describe_selection(about, cells)}"
            f"{f' {count(lost, word)} could not be shown on this scale.' if lost else ''}"
        )
        title = f"{measure.name}, {about.unit}" if about.unit else measure.name
        figure = shift.draw_error_by_shift(found, about.look, measure, along, title)
        yield _lines(about, found, figure, (f"{key}-by-{along}", f"{measure.name} by {along}", caption))
        found = shift.average_points(about.store, about.grid, measure, [along], cells, paired=True)
        if found["value"].is_null().all():
            continue
        change = {"log": " of log ratios", "logit": " of log ratios of odds", "linear": " difference"}[scale]
        caption = (
            f"The same curves as changes from {about.baseline_name}, paired by seed, which the wide range above hides. "
            f"Line: mean{change}. Band: {interval_words('linear')}, {n_words(found)}.{_cut(found, 'linear')} "
            f"{'Grey: what counts as equal.' if measure.rope else NO_MARGIN} Away from the point of the measure of the "
            "grid this is exploratory."
        )
        figure = shift.draw_change_by_shift(found, about.look, measure, along)
        title = f"Change from {about.baseline_name} by {along}"
        yield _lines(about, found, figure, (f"{key}-change-by-{along}", title, caption))


def _cut(found: pl.DataFrame, scale: Scale) -> str:
    return " Bands that end at the edge of the figure go on beyond it." if is_cut(found, scale) else ""


def _maps(about: GridContext, measure: GridMeasure, at: dict[str, list[float]], key: str) -> Iterator[FigureBlock]:
    axes = shift.list_varying(at)[:2]
    if len(axes) < 2:
        return
    found = shift.shift_map(about.store, about.grid, measure, axes, about.drawn)
    if found.is_empty():
        return
    changed = found.filter(pl.col("change").is_not_null())
    own = found.filter(~pl.col("cell").is_in(changed["cell"].unique().to_list()))
    over, selection = f"over {axes[0]} and {axes[1]}", describe_selection(about, about.drawn)
    caption = f"{average_words(measure.scale).capitalize()} of {measure.name} over seeds, {n_words(found)}.{selection}"
    figure = shift.draw_shift_maps(own, about.look, measure, axes, "value")
    title = f"{measure.name} of {about.baseline_name or 'each cell'} {over}"
    yield FigureBlock(f"{key}-map", title, caption, [(None, figure)], name_cells(own, about))
    if changed.height:
        caption = f"Change from {about.baseline_name}, paired by seed and averaged, {n_words(changed)}.{selection}"
        figure = shift.draw_shift_maps(changed, about.look, measure, axes, "change")
        title = f"Change from {about.baseline_name} {over}"
        yield FigureBlock(f"{key}-map-change", title, caption, [(None, figure)], name_cells(changed, about))


def _numbers(about: GridContext, key: str) -> Iterator[FigureBlock]:
    found = numbers(about.store, about.grid, about.drawn)
    if found.is_empty():
        return
    panels: list[tuple[str | None, go.Figure]] = [
        (str(name), draw_numbers(rows, about.look))
        for (name,), rows in found.sort("name", maintain_order=True).group_by("name", maintain_order=True)
    ]
    caption = (
        "Learned numbers of the operators after training, by layer; heads stand side by side. Point: mean over seeds. "
        f"Bar: {interval_words('linear')}, {n_words(found)}.{describe_selection(about, about.drawn)}"
    )
    block = _lines(about, found, go.Figure(), (f"{key}-numbers", "Learned numbers", caption))
    yield block._replace(panels=panels)
