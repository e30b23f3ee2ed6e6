"""Mechanism: what attention does inside the models, by what probes recorded, down to the weights themselves."""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from ablate.dashboards.app import measures
from ablate.dashboards.app.address import entries
from ablate.dashboards.app.page import (
    AS_ABOVE,
    AppPage,
    Control,
    Key,
    PageView,
    Slot,
    SlotContent,
    cell_key,
    grid_of,
    memoise,
    options,
)
from ablate.dashboards.app.pages.mechanism_maps import (
    check_maps,
    draw_heads,
    draw_one_map,
    draw_other_map,
    has_maps,
    map_controls,
    map_steps,
    nearest_step,
)
from ablate.dashboards.app.run_groups import cells_control, chosen_cells, chosen_words
from ablate.dashboards.data.captions import describe_selection, n_words, name_cells
from ablate.dashboards.data.formatting import capitalise, count, join_words, number
from ablate.dashboards.data.grid_context import MOST_CURVES, Appearance, appearance_of, averages, worth_drawing
from ablate.dashboards.data.seed_averages import interval_words
from ablate.dashboards.data.user_errors import Unknown, require
from ablate.dashboards.figures import probe_curves
from ablate.dashboards.figures.canvas import is_cut
from ablate.dashboards.figures.forest import draw_values
from ablate.dashboards.figures.heat import draw_heat, heat_ramp
from ablate.dashboards.figures.lines import Drawing, draw_lines, of_cells
from ablate.dashboards.theme.styles import REST
from ablate.store.analysis.row_labels import PROBES, clip_interval, row_label

_FIRST: Final = ("sink_share", "first_token_weight", "entropy", "ground_mass")
"""Shown first among probes that tell cells apart equally well."""
_COUNTS: Final = ("weight_sum_count", "sink_sequences", "raw_sink_sequences")
"""Rows whose mean over places says nothing of a cell."""
ALONG: Final = "Along a coordinate"  # the title of a slot that others lead to


class MechanismAddress(measures.MeasuredAddress):
    """A probe, its coordinates, which cells are shown, and the attention maps of one run."""

    probe: str | None = None  # None is the one that differs most, of those that the most cells recorded
    at: tuple[str, ...] = ()  # entries COORDINATE=VALUE, such as eps=0.3
    layer: int | None = None  # None is all layers
    step: int | None = None  # a step of probes or maps, which show their nearest; None is the end of training
    cells: tuple[str, ...] = ()  # names of cells; empty: the baseline and the best
    along: str | None = None  # a coordinate of several values; None is the one with the most
    cell: str | None = None  # its name; None is the best with maps of `cells`, a baseline only if no other has any
    seed: int | None = None  # None is the cell's first that has maps
    sequence: int = 1  # counted from 1
    head: str | None = None  # LAYER.HEAD; None is the one that differs most from the cell beside it
    beside: str | None = None  # the cell beside it; None is its baseline, or the best other one that has maps


def _probe(view: PageView) -> str:
    """Return the shown probe. Raises Unknown if no probe is recorded."""
    if view.address.probe is not None:
        return str(view.address.probe)
    names = probe_curves.names(view.store, grid_of(view).grid)
    if not names:
        raise Unknown(
            f"no run of {grid_of(view).grid!r} has recorded a probe; a spec without `probing` has the default ones, "
            "Trial(probing=Probing(probes=(SinkShare(), ...))) those that it lists, which may be any of "
            f"{', '.join(PROBES)}"
        )
    differing = _differing(view).drop_nulls("share").filter(pl.col("cells") == pl.col("cells").max())
    best = differing.filter(pl.col("share").round(3) == pl.col("share").round(3).max())["name"].to_list()
    return next((name for name in (*_FIRST, *best) if name in (best or names)), names[0])


@memoise
def _differing(view: PageView) -> pl.DataFrame:
    probes = probe_curves.differing(view.store, grid_of(view).grid)
    return probes.filter(~pl.col("name").is_in(_COUNTS))


def _extremes(view: PageView) -> dict[str, Any] | None:
    """Return the row of `_differing` of the probe; None if no two cells differ."""
    rows = _differing(view).drop_nulls("share").filter(pl.col("name") == _probe(view))
    return None if rows.is_empty() or rows["low_cell"][0] == rows["high_cell"][0] else rows.row(0, named=True)


@memoise
def _cells_to_draw(view: PageView) -> tuple[Sequence[str], Appearance, str]:
    """Return the cells to draw, their appearance and words: as chosen, else the baseline, the best and the extremes."""
    context, row, cells = grid_of(view), _extremes(view), chosen_cells(view)
    ends = set() if row is None or view.address.cells else {row["low_cell"], row["high_cell"]}
    if ends <= {*cells}:
        return cells, appearance_of(context, cells), chosen_words(view)
    known = None if context.measure is None else averages(context.store, context.grid, context.measure)
    best = worth_drawing(context.cells, context.baselines, known, context.measure, MOST_CURVES - len(ends - {*cells}))
    cells = [cell.cell for cell in context.cells if cell.cell in {*best, *ends}]
    words = (
        f"{describe_selection(context, best)} Beside these: the cells with the lowest and highest mean of the probe."
    )
    return cells, appearance_of(context, cells), words


def _answer(view: PageView) -> str:
    """Name the cells between which the probe differs most, and the share of variance between cells."""
    row = _extremes(view)
    if row is None:
        return ""
    names, (drawn, *_) = grid_of(view).appearance.names, _cells_to_draw(view)
    ends = " to ".join(
        f"{number(row[end])} ({names[cell]}{'' if cell in drawn else ', not drawn'})"
        for end in ("low", "high")
        if (cell := row[f"{end}_cell"])
    )
    title = row_label(grid_of(view).header, row["name"]).title
    most = "" if view.address.probe is not None else " differs most between cells"
    if most and row["cells"] > _differing(view).drop_nulls("share")["cells"].min():
        cells = f"{row['cells']} of {len(grid_of(view).cells)}"
        most += f", of the probes that the most cells recorded ({cells})"
    said = f"{capitalise(title)}{most}: {ends}; cells explain {100 * row['share']:.0f} % of its variance over runs."
    places = _places(view)
    over = join_words(["layers"] * bool(places.layers) + ["heads"] * places.heads)
    return f"{said} Each value is a mean over {over}; opposite signs cancel." if over else said


@memoise
def _places(view: PageView) -> probe_curves.Places:
    return probe_curves.places(view.store, grid_of(view).grid, _probe(view))


def _reading(view: PageView) -> probe_curves.ProbeReading:
    """Read the choices of a view. Raises Unknown for a probe, place, step or layer that is not recorded."""
    places, address, step = _places(view), view.address, None
    if address.layer is not None:
        require(repr(_probe(view)), "layer", address.layer, places.layers)
    if address.step is not None:
        step = nearest_step(places.steps, require("the page", "step", address.step, _steps(view)))
    at = probe_curves.choose_places(places, entries(address.at))
    return probe_curves.ProbeReading(grid_of(view).grid, _probe(view), at, step, address.layer)


def _steps(view: PageView) -> Sequence[int]:
    """Steps of the probe and of the maps."""
    return sorted({*_places(view).steps, *map_steps(view)})


def _title(view: PageView, reading: probe_curves.ProbeReading) -> str:
    what = row_label(grid_of(view).header, reading.name)
    at = [f"{axis} {value:g}" for axis, value in reading.at.items() if value is not None]
    where = f" ({', '.join(at)})" if at else ""
    return f"{what.title}{where}" + (f", {what.axis_unit}" if what.axis_unit else "")


def _legend(frame: pl.DataFrame, appearance: Appearance) -> list[Key]:
    cells = frame["cell"].unique(maintain_order=True)
    return [cell_key(appearance, cell) for cell in cells if appearance.styles[cell] != REST]


def _over(view: PageView) -> str:
    """Say over which layers and heads a value is averaged before seeds."""
    places, layer = _places(view), view.address.layer
    over = [*(["layers"] if places.layers and layer is None else []), *(["heads"] if places.heads else [])]
    return f"Mean over {join_words(over)}." if over else "A single value."


def _holes(view: PageView, cells: Sequence[str], *, without: str = "", last: bool = True) -> str:
    lost = probe_curves.not_finite(view.store, _reading(view), cells, without=without, last=last)
    return f" {count(lost, 'recorded value')} not finite: left out." if lost else ""


def _notes(view: PageView, frame: pl.DataFrame, *, without: str = "", last: bool = True) -> str:
    """Say when values were recorded, and what is left out. Raises Unknown if there is no value.

    `without` is a coordinate that is not fixed; `last` is true for values of one step.
    """
    (cells, appearance, words), step = _cells_to_draw(view), _reading(view).step
    holes = _holes(view, cells, without=without, last=last)
    if frame.is_empty():
        raise Unknown(f"no trial that is shown has a finite value of {_probe(view)!r} at this place yet.{holes}")
    lost = [appearance.names[cell] for cell in cells if cell not in set(frame["cell"].to_list())]
    missing = f" Not recorded: {join_words(lost)}." if lost else ""
    when = "Failed trials are left out."
    if last:
        when = "At the end of training, of trials that are done." if step is None else f"At step {step:,}."
    return f" {when}{holes}{missing}{words}"


def _refuse_bins(view: PageView) -> None:
    """Raise Unknown if the probe counts by bins, so that its other figures mean nothing."""
    if probe_curves.BINS in _places(view).coordinates:
        raise Unknown(f"{_probe(view)!r} counts by bins, which stand below: {ALONG.lower()}")


def _band_words(frame: pl.DataFrame, band: str) -> str:
    if (frame["n"] < 2).all():
        return f"No {band.lower()}, as {n_words(frame)}."
    cut = f" {band}s that end at the edge go on beyond it." if is_cut(frame, "linear") else ""
    return f"{band}: {interval_words('linear')}, {n_words(frame)}.{cut}"


def _lines(
    view: PageView, reading: probe_curves.ProbeReading, axis: str, mean: str, *, without: str = "", last: bool = True
) -> SlotContent:
    """Draw the probe along `axis`; `mean` says what a line is, `without` and `last` are those of `_notes`."""
    cells, appearance, _ = _cells_to_draw(view)
    frame = probe_curves.along(view.store, reading, cells, axis)
    notes = _notes(view, frame, without=without, last=last)  # it refuses an empty frame
    x, places = "training step" if axis == "step" else axis, frame["x"].unique().sort()
    alone = len(places) == 1 or (axis == "step" and frame["cell"].is_unique().all())
    if alone:  # a single place has neither a line nor a band
        mean = mean.replace("Line:", "Point:")
    caption = f"{mean}. {_band_words(frame, 'Bar' if alone else 'Band')}{notes}"
    frame = clip_interval(grid_of(view).header, frame, reading.name)
    data = name_cells(frame.rename({"x": x}), grid_of(view))
    if alone:
        title = f"{_title(view, reading)}, at {x} {' or '.join(map(number, places))}"
        return SlotContent(draw_values(frame, appearance, title), caption, data)
    drawing = Drawing(height=340, markers=frame["x"].n_unique() <= 40)
    figure = draw_lines(
        frame.rename({"cell": "series"}), of_cells(appearance), x=x, y=_title(view, reading), drawing=drawing
    )
    return SlotContent(figure, caption, data, _legend(frame, appearance))


def _training(view: PageView) -> SlotContent:
    _refuse_bins(view)
    shown = _lines(view, _reading(view), "step", f"{_over(view)} Line: mean over seeds", last=False)
    return shown._replace(answer=_answer(view))


def _layers(view: PageView) -> SlotContent:
    reading, places = _reading(view)._replace(layer=None), _places(view)
    _refuse_bins(view)
    if not places.layers:
        raise Unknown(f"{_probe(view)!r} is of whole models; it has no layers")
    over = "heads and seeds" if places.heads else "seeds"
    shown = _lines(view, reading, "layer", f"Line: mean over {over}")
    if shown.figure is not None and len(places.layers) <= 40:
        shown.figure.update_xaxes(tickvals=list(places.layers))
    return shown


def _coordinate(view: PageView) -> str:
    """Return the coordinate with the most values; empty if no coordinate has several."""
    wide = {axis: len(values) for axis, values in _places(view).coordinates.items() if len(values) > 1}
    if view.address.along is not None:
        return require(repr(_probe(view)), "coordinate of several values", str(view.address.along), wide)
    return max(wide, key=lambda axis: wide[axis], default="")


def _along(view: PageView) -> SlotContent:
    reading, axis = _reading(view), _coordinate(view)
    if not axis:
        return SlotContent(message=AS_ABOVE)
    at = {name: value for name, value in reading.at.items() if name != axis}
    return _lines(view, reading._replace(at=at), axis, f"{_over(view)} Line: mean over seeds", without=axis)


def _heads(view: PageView) -> SlotContent:
    context, reading = grid_of(view), _reading(view)._replace(layer=None)
    cells, appearance, _ = _cells_to_draw(view)
    if not _places(view).heads:
        raise Unknown(f"{_probe(view)!r} does not tell heads apart")
    frame = probe_curves.by_head(view.store, reading, cells)
    notes = _notes(view, frame)
    drawn = frame.select(
        pl.col("cell").replace_strict(dict(appearance.names), return_dtype=pl.String).alias("panel"),
        pl.col("head").alias("x"),
        pl.col("layer").alias("y"),
        "value",
        ("n " + pl.col("n").cast(pl.String)).alias("note"),
        *([pl.format("{}.{}", "layer", "head").alias("key")] if has_maps(view) else []),
    )
    diverging = bool((frame["value"] < 0).any())
    ramp = heat_ramp(drawn["value"], row_label(context.header, reading.name).axis_unit or "value", diverging=diverging)
    caption = f"Each head by layer, mean over seeds, {n_words(frame)}; one scale of colours.{notes}"
    figure = draw_heat(drawn, ramp, x="head", y="layer", columns=2)  # as many as fit beside another slot
    return SlotContent(figure, caption, name_cells(frame, grid_of(view)))


def _against(view: PageView) -> SlotContent:
    context, reading, measure = grid_of(view), _reading(view), measures.judged_by(view)
    _refuse_bins(view)
    _, appearance, _ = _cells_to_draw(view)
    cells = [cell.cell for cell in context.cells]
    frame = probe_curves.against(view.store, reading, measure, cells)
    if frame.is_empty():
        raise Unknown(f"no trial has finished with both {reading.name!r} and {measure.name!r} yet")
    means = probe_curves.by_cell(frame, measure.scale)
    rho = probe_curves.rank_correlation(means["x"], means["y"])
    said = "A rank correlation takes three cells that differ."
    if rho is not None:
        said = f"Rank correlation (Spearman) over {count(means.height, 'cell')}: {number(rho, 2)}."
    caption = (
        f"{said} Large marks: cells, mean over seeds; small ones: runs. {_over(view)}{_holes(view, cells)}"
        " That two quantities go together is no proof that one makes the other."
    )
    figure = probe_curves.draw_against(
        frame, appearance, x=_title(view, reading), y=measures.title(view), scale=measure.scale
    )
    return SlotContent(figure, caption, name_cells(frame, context), _legend(frame, appearance))


def _controls(view: PageView) -> Sequence[Control]:
    names = probe_curves.names(view.store, grid_of(view).grid)
    if not names:
        return map_controls(view)
    places = _places(view)
    chosen = probe_curves.choose_places(places, entries(view.address.at))
    titles = {each: row_label(grid_of(view).header, each).title for each in names}
    labels = {each: f"{each}: {title}" if title != each else each for each, title in titles.items()}
    wide = {axis: values for axis, values in places.coordinates.items() if len(values) > 1}
    at = []
    for axis, values in wide.items():
        if axis in chosen and axis != probe_curves.BINS:
            offered = ({"": "all"} if places.bare[axis] else {}) | options(f"{value:g}" for value in values)
            usual = "" if chosen[axis] is None else f"{chosen[axis]:g}"
            at.append(Control(f"at:{axis}", axis, "choice", offered, usual=usual))
    along = [Control("along", "Along", "choice", options(wide), usual=_coordinate(view))] if len(wide) > 1 else []
    layers = {"": "all", **options(map(str, places.layers))}
    steps = {"": "the end", **options(map(str, _steps(view)))}
    resets = ("at", "layer", "step", "along")
    return (
        Control("probe", "Probe", "choice", labels, usual=_probe(view), resets=resets),
        *at,
        Control("layer", "Layer", "choice", layers, usual=""),
        Control("step", "Step", "choice", steps, usual=""),
        *along,
        cells_control(view),
        *measures.controls(view),
        *map_controls(view),
    )


MECHANISM = AppPage(
    name="mechanism",
    title="Mechanism",
    letter="m",
    question="What does attention do inside: sinks, entropy, rank, norms, learned numbers, "
    "and where does each head look?",
    address=MechanismAddress,
    named=("measure",),
    controls=_controls,
    main=("probe", "cells", "cell", "beside"),
    check=check_maps,
    slots=(
        Slot("training", "Over training", _training),
        Slot("layers", "By layer", _layers, half=True),
        Slot("heads", "By layer and head", _heads, sets="head", half=True),
        Slot("along", ALONG, _along),
        Slot("against", "Against the measure", _against),
        Slot("mosaic", "All heads of a run", draw_heads, sets="head", half=True),
        Slot("map", "One head", draw_one_map, half=True),
        Slot("beside", "The same head of another cell", draw_other_map, half=True),
    ),
)
