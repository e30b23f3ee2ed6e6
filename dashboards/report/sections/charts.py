"""The figures of a grid: which apply, their captions, their panels."""

from collections.abc import Iterator, Sequence
from typing import Final

import plotly.graph_objects as go
import polars as pl

from dashboards.data.captions import (
    ICONS,
    describe_measure,
    describe_selection,
    difference_of,
    effects_words,
    mark_verdict,
    n_words,
    name_cells,
    paired_words,
)
from dashboards.data.formatting import NO_MARGIN, count, point
from dashboards.data.grid_context import GridContext
from dashboards.data.seed_averages import Scale, average_words, interval_words, rope_words
from dashboards.figures import effects as effects_figure, forest, numbers, shift, training
from dashboards.figures.canvas import is_cut
from dashboards.html.blocks import FigureBlock, cell_legend, draw_all
from dashboards.html.markup import tag, text
from store.analysis.verdicts import GridMeasure

LOSS: Final = "loss"


def charts(about: GridContext, verdicts: pl.DataFrame | None, key: str) -> str:
    """Every figure for which the grid has data, as HTML; where one cannot be computed, why."""
    return "".join(draw_all(title, pictures) for title, pictures in _parts(about, verdicts, key))


def _parts(about: GridContext, verdicts: pl.DataFrame | None, key: str) -> Iterator[tuple[str, Iterator[FigureBlock]]]:
    cells = about.drawn
    measure = about.measure
    if measure is not None:
        if verdicts is not None:
            yield f"Difference from {about.baseline_name}", _forest(about, measure, verdicts, key)
        at = shift.coordinates(about.store, about.grid, measure.name)
        yield measure.name, _shifts(about, measure, at, cells, key)
        yield f"Map of {measure.name}", _maps(about, measure, at, cells, key)
        yield "Main effects", _effects(about, measure, key)
    yield "Training loss", _curves(about, cells, key)
    yield "Learned numbers", _numbers(about, cells, key)


def _forest(about: GridContext, measure: GridMeasure, verdicts: pl.DataFrame, key: str) -> Iterator[FigureBlock]:
    found = forest.differences(verdicts, measure)
    if found["difference"].is_null().all():
        return
    rope = rope_words(measure.rope, measure.scale, about.unit)
    most = verdicts.height > found.height
    caption = (
        f"{describe_measure(measure, about.unit)} of each variant against {about.baseline_name}, "
        f"{paired_words(found)}. Point: mean difference{difference_of(measure.scale)}. "
        f"Bar: {(1 - measure.alpha) * 100:g} % t interval over seeds of that comparison alone. "
        + (f"Grey band: differences within {rope}, which count as equal." if measure.rope else NO_MARGIN)
        + (f" Shown: the {found.height} of {verdicts.height} with the smallest p, best first." if most else "")
        + (" Bars that end at the edge of the axis go on beyond it." if forest.is_cut(found, measure) else "")
    )
    figure = forest.draw_differences(found, about.look, measure, {word: mark_verdict(word) for word in ICONS})
    yield FigureBlock(
        f"{key}-differences",
        f"Difference from {about.baseline_name}",
        caption,
        [(None, figure)],
        name_cells(found, about),
    )


def _shifts(
    about: GridContext, measure: GridMeasure, at: dict[str, list[float]], cells: Sequence[str], key: str
) -> Iterator[FigureBlock]:
    for along in sorted(name for name, values in at.items() if len(values) > 2):
        found = shift.error_by_shift(about.store, about.grid, measure, along, cells)
        if found.is_empty() or found["x"].n_unique() < 2:
            continue
        fixed = {name: value for name, value in measure.point.items() if name != along}
        figure = shift.draw_error_by_shift(found, about.look, measure, along, _axis(about, measure))
        caption = (
            f"Line: {average_words(measure.scale)} over seeds"
            + (f", at {point(fixed)}" if fixed else "")
            + f". Band: {interval_words(measure.scale)}, {n_words(found)}.{_cut(found, measure.scale)}"
            f"{describe_selection(about, cells)}{_count_lost(found)}"
        )
        title = f"{measure.name} by {along}"
        legend = cell_legend(_in(found), about.look)
        yield FigureBlock(f"{key}-by-{along}", title, caption, [(None, figure)], name_cells(found, about), legend)
        yield from _changes(about, measure, along, cells, key)


def _changes(
    about: GridContext, measure: GridMeasure, along: str, cells: Sequence[str], key: str
) -> Iterator[FigureBlock]:
    found = shift.change_by_shift(about.store, about.grid, measure, along, cells)
    if found["value"].is_null().all():
        return
    equal = "Grey: what counts as equal." if measure.rope else NO_MARGIN
    caption = (
        f"The same curves as changes from {about.baseline_name}, paired by seed, which the wide range above hides. "
        f"Line: mean{_change_of(measure.scale)}. Band: {interval_words('linear')}, {n_words(found)}."
        f"{_cut(found, 'linear')} {equal} Away from the point that judges the grid this "
        "is exploratory."
    )
    figure = shift.draw_change_by_shift(found, about.look, measure, along)
    legend = cell_legend(_in(found), about.look)
    title = f"Change from {about.baseline_name} by {along}"
    yield FigureBlock(f"{key}-change-by-{along}", title, caption, [(None, figure)], name_cells(found, about), legend)


def _change_of(scale: Scale) -> str:
    return {"log": " of log ratios", "logit": " of log ratios of odds", "linear": " difference"}[scale]


def _maps(
    about: GridContext, measure: GridMeasure, at: dict[str, list[float]], cells: Sequence[str], key: str
) -> Iterator[FigureBlock]:
    wide = sorted((name for name, values in at.items() if len(values) > 1), key=lambda name: -len(at[name]))
    if len(wide) < 2:
        return
    axes = (wide[0], wide[1])
    found = shift.shift_map(about.store, about.grid, measure, axes, cells)
    if found.is_empty():
        return
    log = measure.scale == "log"
    base = found.filter(pl.col("cell") == about.baseline) if about.baseline in cells else found
    spans = {"value": shift.ends(base, "value", log=log), "change": shift.ends(found, "change", log=log)}
    panels: list[tuple[str | None, go.Figure]] = []
    for (cell,), rows in found.group_by("cell", maintain_order=True):
        column = "value" if cell == about.baseline or rows["change"].is_null().all() else "change"
        figure = shift.draw_shift_map(rows, measure, axes, spans[column], column)
        panels.append((about.look.names[str(cell)], figure))
    of = about.baseline_name or "a cell without a baseline"
    caption = (
        f"Map of {of}: {average_words(measure.scale)} of {measure.name} over seeds. The others: their change from it, "
        f"paired by seed and averaged, {n_words(found)}. One colour scale for all "
        f"maps of a kind.{describe_selection(about, cells)}"
    )
    ramps = "".join(_ramp(about, measure, column, spans[column]) for column in ("value", "change"))
    yield FigureBlock(
        f"{key}-map",
        f"Over {axes[0]} and {axes[1]}",
        caption,
        panels,
        name_cells(found, about),
        tag("div", ramps, class_="ramp"),
    )


def _ramp(about: GridContext, measure: GridMeasure, column: str, span: tuple[float, float]) -> str:
    ends = shift.scale_ends(span, column, measure)
    words = measure.name if column == "value" else f"against {about.baseline_name}"
    return tag("span", text(f"{words}: {ends['low']}") + f'<i class="{column}"></i>' + text(ends["high"]))


def _effects(about: GridContext, measure: GridMeasure, key: str) -> Iterator[FigureBlock]:
    found = effects_figure.effects(about.store, about.grid, measure)
    if found.is_empty():
        return
    notes = effects_figure.notes(about.store, about.grid, measure)
    caption = effects_words(measure, about.unit, notes)
    yield FigureBlock(
        f"{key}-effects", "Main effects", caption, [(None, effects_figure.draw_effects(found, measure))], found
    )


def _curves(about: GridContext, cells: Sequence[str], key: str) -> Iterator[FigureBlock]:
    scale = about.measure.scale if about.measure is not None else "log"
    found = training.curves(about.store, about.grid, LOSS, cells, scale=scale)
    if found.frame.is_empty():
        return
    smooth = "Not smoothed."
    if found.width > 1:
        smooth = f"Each point averages {count(int(found.width), 'step')}, and stands at the first; no other smoothing."
    caption = (
        f"Line: {average_words(scale)} over seeds. Band: {interval_words(scale)}, {n_words(found.frame)}."
        f"{_cut(found.frame, scale)} {smooth}{describe_selection(about, cells)}"
    )
    figure = training.draw_curves(found, about.look, title="training loss", scale=scale)
    legend = cell_legend(_in(found.frame), about.look)
    yield FigureBlock(
        f"{key}-curves", "Training loss", caption, [(None, figure)], name_cells(found.frame, about), legend
    )


def _numbers(about: GridContext, cells: Sequence[str], key: str) -> Iterator[FigureBlock]:
    found = numbers.numbers(about.store, about.grid, cells)
    if found.is_empty():
        return
    panels: list[tuple[str | None, go.Figure]] = [
        (name, numbers.draw_numbers(rows, about.look)) for name, rows in _by_name(found)
    ]
    caption = (
        "Learned numbers of the operators after training, by layer; heads stand side by side. Point: mean over seeds. "
        f"Bar: {interval_words('linear')}, {n_words(found)}.{describe_selection(about, cells)}"
    )
    yield FigureBlock(
        f"{key}-numbers",
        "Learned numbers",
        caption,
        panels,
        name_cells(found, about),
        cell_legend(_in(found), about.look),
    )


def _by_name(found: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    names = sorted(set(found["name"].to_list()))
    return [(name, found.filter(pl.col("name") == name)) for name in names]


def _in(found: pl.DataFrame) -> list[str]:
    return list(dict.fromkeys(found["cell"]))


def _axis(about: GridContext, measure: GridMeasure) -> str:
    return f"{measure.name}, {about.unit}" if about.unit else measure.name


def _cut(found: pl.DataFrame, scale: Scale) -> str:
    return " Bands that end at the edge of the figure go on beyond it." if is_cut(found, scale) else ""


def _count_lost(found: pl.DataFrame) -> str:
    lost = int(found["lost"].sum())
    return f" {count(lost, 'value')} could not be shown on this scale." if lost else ""
