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


def charts(context: GridContext, styles: Mapping[str, Style], key: str, *, is_finished: bool) -> str:
    """Every figure for which the grid has data, as HTML, and why it has no others; some need a measure or baseline."""
    shown, missing = "", list[tuple[str, str]]()
    for title, place, slot, view in _slots(context, styles, is_finished=is_finished):
        block, problem = catch_user_error(lambda: _block(slot, view, f"{key}-{place}"))  # noqa: B023
        if isinstance(block, FigureBlock):
            shown += picture(block, folded=place not in UNFOLDED)
        elif block is not None:
            missing.append((f"{title}: {slot.title}", block))
        else:
            shown += tag("div", tag("h3", text(slot.title)) + state(str(problem)), class_="block")
    if (measure := context.measure) is not None:
        at = shift.coordinates(context.store, context.grid, measure.name)
        shown += draw_all(measure.name, _shifts(context, measure, at, key))
        shown += draw_all(f"Map of {measure.name}", _maps(context, measure, at, key))
    shown += draw_all("Learned numbers", _numbers(context, key))
    if missing:
        listed = details("Figures that are not shown, and why", plain_table(("figure", "why"), missing))
        shown += tag("div", listed, class_="block")
    return shown


def _slots(
    context: GridContext, styles: Mapping[str, Style], *, is_finished: bool
) -> Iterator[tuple[str, str, "Slot", "PageView"]]:
    """The title of the page, the place of the slot, the slot and its view."""
    from ablate.dashboards.app.page import PageView  # dash takes a third of a second to import
    from ablate.dashboards.app.pages import app_pages

    for page in sorted(app_pages(only=SHOWN), key=lambda page: page.name != "compare"):  # differences first
        if page.name not in SHOWN or (context.measure is None and page.name not in WITHOUT_MEASURE):
            continue
        if page.name == "overview" and is_finished:
            continue
        view = PageView("", context.store, page.address(grid=context.grid), styles, context)
        slots = {slot.name: slot for slot in page.slots}
        for name in SHOWN[page.name]:
            if context.baseline is not None or name not in OF_BASELINE:
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


def _lines(context: GridContext, frame: pl.DataFrame, figure: go.Figure, words: tuple[str, str, str]) -> FigureBlock:
    """A figure of cells with its legend; `words` are key, title and caption."""
    legend = cell_legend(list(dict.fromkeys(frame["cell"])), context.appearance)
    return FigureBlock(*words, [(None, figure)], name_cells(frame, context), legend)


def _shifts(context: GridContext, measure: GridMeasure, at: dict[str, list[float]], key: str) -> Iterator[FigureBlock]:
    cells, scale = context.drawn, measure.scale
    for along in sorted(name for name, values in at.items() if len(values) > 2):
        points = shift.average_points(context.store, context.grid, measure, [along], cells)
        if points.is_empty() or points["x"].n_unique() < 2:
            continue
        fixed = {name: value for name, value in measure.point.items() if name != along}
        lost, word = int(points["lost"].sum()), "value"
        caption = (
            f"Line: {average_words(scale)} over seeds{f', at {point(fixed)}' if fixed else ''}. Band: "
            f"{interval_words(scale)}, {n_words(points)}.{_cut(points, scale)}{describe_selection(context, cells)}"
            f"{f' {count(lost, word)} could not be shown on this scale.' if lost else ''}"
        )
        title = f"{measure.name}, {context.unit}" if context.unit else measure.name
        figure = shift.draw_error_by_shift(points, context.appearance, measure, along, title)
        yield _lines(context, points, figure, (f"{key}-by-{along}", f"{measure.name} by {along}", caption))
        points = shift.average_points(context.store, context.grid, measure, [along], cells, paired=True)
        if points["value"].is_null().all():
            continue
        change = {"log": " of log ratios", "logit": " of log ratios of odds", "linear": " difference"}[scale]
        caption = (
            f"The same curves as changes from {context.baseline_name}, paired by seed, which the wide range above "
            f"hides. Line: mean{change}. Band: {interval_words('linear')}, {n_words(points)}.{_cut(points, 'linear')} "
            f"{'Grey: what counts as equal.' if measure.rope else NO_MARGIN} Away from the point of the measure of the "
            "grid this is exploratory."
        )
        figure = shift.draw_change_by_shift(points, context.appearance, measure, along)
        title = f"Change from {context.baseline_name} by {along}"
        yield _lines(context, points, figure, (f"{key}-change-by-{along}", title, caption))


def _cut(points: pl.DataFrame, scale: Scale) -> str:
    return " Bands that end at the edge of the figure go on beyond it." if is_cut(points, scale) else ""


def _maps(context: GridContext, measure: GridMeasure, at: dict[str, list[float]], key: str) -> Iterator[FigureBlock]:
    axes = shift.list_varying(at)[:2]
    if len(axes) < 2:
        return
    points = shift.shift_map(context.store, context.grid, measure, axes, context.drawn)
    if points.is_empty():
        return
    changed = points.filter(pl.col("change").is_not_null())
    own = points.filter(~pl.col("cell").is_in(changed["cell"].unique().to_list()))
    over, selection = f"over {axes[0]} and {axes[1]}", describe_selection(context, context.drawn)
    caption = f"{average_words(measure.scale).capitalize()} of {measure.name} over seeds, {n_words(points)}.{selection}"
    figure = shift.draw_shift_maps(own, context.appearance, measure, axes, "value")
    title = f"{measure.name} of {context.baseline_name or 'each cell'} {over}"
    yield FigureBlock(f"{key}-map", title, caption, [(None, figure)], name_cells(own, context))
    if changed.height:
        caption = f"Change from {context.baseline_name}, paired by seed and averaged, {n_words(changed)}.{selection}"
        figure = shift.draw_shift_maps(changed, context.appearance, measure, axes, "change")
        title = f"Change from {context.baseline_name} {over}"
        yield FigureBlock(f"{key}-map-change", title, caption, [(None, figure)], name_cells(changed, context))


def _numbers(context: GridContext, key: str) -> Iterator[FigureBlock]:
    values = numbers(context.store, context.grid, context.drawn)
    if values.is_empty():
        return
    panels: list[tuple[str | None, go.Figure]] = [
        (str(name), draw_numbers(rows, context.appearance))
        for (name,), rows in values.sort("name", maintain_order=True).group_by("name", maintain_order=True)
    ]
    caption = (
        "Learned numbers of the operators after training, by layer; heads stand side by side. Point: mean over seeds. "
        f"Bar: {interval_words('linear')}, {n_words(values)}.{describe_selection(context, context.drawn)}"
    )
    block = _lines(context, values, go.Figure(), (f"{key}-numbers", "Learned numbers", caption))
    yield block._replace(panels=panels)
