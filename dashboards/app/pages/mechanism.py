"""Mechanism: what attention does inside the models, by what probes recorded."""

from collections.abc import Sequence
from typing import Final, Literal

import polars as pl

from dashboards.app.address import entries
from dashboards.app.measures import MeasuredAddress, judged_by, measure_controls, measure_title
from dashboards.app.page import AppPage, Key, PageView, Slot, SlotContent, cell_key, grid_of, memoise
from dashboards.app.parts import Control, options
from dashboards.app.run_groups import cells_control, chosen_cells, chosen_words
from dashboards.data.captions import n_words, name_cells
from dashboards.data.formatting import count, join_words, number
from dashboards.data.grid_context import CellLook
from dashboards.data.probe_labels import PROBES, SHARE, probe_label
from dashboards.data.seed_averages import interval_words
from dashboards.data.user_errors import Unknown, require
from dashboards.figures import probe_curves
from dashboards.figures.canvas import is_cut
from dashboards.figures.heat import draw_heat, heat_ramp
from dashboards.figures.histogram import bin_edges, count_bins, draw_histogram, middles, of_bins
from dashboards.figures.lines import Drawing, draw_lines, of_cells
from dashboards.theme.styles import REST

_FIRST: Final = ("sink_share", "first_token_weight", "entropy", "ground_mass")
"""Shown first among probes that tell cells apart equally well."""
_COUNTS: Final = ("weight_sum_count", "sink_sequences", "raw_sink_sequences")
"""Rows whose mean over places says nothing of a cell."""
ALONG: Final = "Along a coordinate"
"""The title of a slot that others lead to."""
_BINS: Final = "sum"
"""The coordinate whose values are the middles of bins."""


class MechanismAddress(MeasuredAddress):
    """A probe, where it looks, and which cells are shown."""

    probe: str | None = None
    """None is the one that tells cells apart most."""
    at: tuple[str, ...] = ()
    """Entries COORDINATE=VALUE, such as eps=0.3."""
    layer: int | None = None
    """None is all layers."""
    step: int | None = None
    """None is the end of training."""
    cells: tuple[str, ...] = ()
    """Names of cells; empty: the baseline and the best."""
    band: Literal["seeds", "heads"] = "seeds"
    """Bands are t intervals over seeds, or the standard deviation over heads."""
    along: str | None = None
    """A coordinate of several values; None is that with the most."""


@memoise
def _names(view: PageView) -> list[str]:
    return probe_curves.names(view.store, grid_of(view).grid)


def _probe(view: PageView) -> str:
    """The probe that is shown. Raises Unknown where there is none at all."""
    if view.address.probe is not None:
        return str(view.address.probe)
    there = _names(view)
    if not there:
        raise Unknown(
            f"no run of {grid_of(view).grid!r} has recorded a probe yet; a trial without `probing` has the default "
            "ones at its end, others are listed in its spec: Trial(probing=Probing(probes=(SinkShare(), ...))) with "
            f"any of {', '.join(PROBES)}"
        )
    found = _differing(view).drop_nulls("share")
    best = found.filter(pl.col("share").round(3) == pl.col("share").round(3).max())["name"].to_list()
    return next((name for name in (*_FIRST, *best) if name in best), there[0])


@memoise
def _differing(view: PageView) -> pl.DataFrame:
    found = probe_curves.differing(view.store, grid_of(view).grid)
    return found.filter(~pl.col("name").is_in(_COUNTS))


def _answer(view: PageView) -> str:
    """Between which cells the probe differs most, and whether that is more than the seeds do."""
    rows = _differing(view).filter(pl.col("name") == _probe(view)).drop_nulls("share")
    if rows.is_empty() or rows["low_cell"][0] == rows["high_cell"][0]:
        return ""
    row, names = rows.row(0, named=True), grid_of(view).look.names
    ends = f"{number(row['low'])} ({names[row['low_cell']]}) to {number(row['high'])} ({names[row['high_cell']]})"
    title = probe_label(row["name"]).title
    most = "" if view.address.probe is not None else " differs most between cells"
    return f"{title[:1].upper()}{title[1:]}{most}: {ends}; cells explain {row['share']:.0%} of its variance over runs."


@memoise
def _places(view: PageView) -> probe_curves.Places:
    return probe_curves.places(view.store, grid_of(view).grid, _probe(view))


def _reading(view: PageView) -> probe_curves.ProbeReading:
    """Read the choices of a view. Raises Unknown for a probe, place, step or layer that is not recorded."""
    there, address = _places(view), view.address
    for field, values in (("step", there.steps), ("layer", there.layers)):
        if getattr(address, field) is not None:
            require(repr(_probe(view)), field, getattr(address, field), values)
    at = probe_curves.choose_places(there, entries(address.at))
    return probe_curves.ProbeReading(grid_of(view).grid, _probe(view), at, address.step, address.layer)


def _title(reading: probe_curves.ProbeReading) -> str:
    what = probe_label(reading.name)
    at = [f"{axis} {value:g}" for axis, value in reading.at.items() if value is not None]
    where = f" ({', '.join(at)})" if at else ""
    return f"{what.title}{where}" + (f", {what.unit}" if what.unit else "")


def _legend(found: pl.DataFrame, look: CellLook) -> list[Key]:
    cells = dict.fromkeys(found["cell"].to_list())
    return [cell_key(look, cell) for cell in cells if look.styles[cell] != REST]


def _over(view: PageView) -> str:
    """Over what a value is averaged before seeds."""
    there, layer = _places(view), view.address.layer
    if not there.layers:
        return "Of the whole model."
    if layer is not None:
        return f"Mean over heads of layer {layer}." if there.heads else f"Of layer {layer}."
    return "Mean over layers and heads." if there.heads else "Mean over layers."


def _holes(view: PageView, cells: Sequence[str], *, without: str = "", last: bool = True) -> str:
    lost = probe_curves.not_finite(view.store, _reading(view), cells, without=without, last=last)
    return f" {count(lost, 'recorded value')} not finite: left out." if lost else ""


def _notes(view: PageView, found: pl.DataFrame, *, without: str = "", last: bool = True) -> str:
    """When values were recorded, and what is left out. Raises Unknown if there is no value.

    Args:
        view: what is shown.
        found: the values.
        without: a coordinate that is not fixed.
        last: whether they are of one step.
    """
    cells, look = chosen_cells(view)
    holes, step, name = _holes(view, cells, without=without, last=last), view.address.step, _probe(view)
    if found.is_empty():
        when = "recorded" if not last else "finished with" if step is None else f"recorded at step {step:,}"
        raise Unknown(f"no trial that is shown has {when} {name!r} at this place yet.{holes}")
    when = " At the end of training, of trials that are done." if step is None else f" At step {step:,}."
    lost = [look.names[cell] for cell in cells if cell not in set(found["cell"].to_list())]
    missing = f" Not recorded: {join_words(lost)}." if lost else ""
    return f"{when if last else ' Failed trials are left out.'}{holes}{missing}{chosen_words(view)}"


def _refuse_bins(view: PageView) -> None:
    """Raise Unknown if the probe counts by bins, so that its other figures mean nothing."""
    if _BINS in _places(view).coordinates:
        raise Unknown(f"{_probe(view)!r} counts by bins, which stand below: {ALONG.lower()}")


def _band(view: PageView) -> Literal["seeds", "heads"]:
    """Return the kind of bands; a probe without heads has no spread over them."""
    return view.address.band if _places(view).heads else "seeds"


def _band_words(view: PageView, found: pl.DataFrame) -> str:
    if _band(view) == "heads":
        return f"Band: one standard deviation over heads, each averaged over seeds, {n_words(found)} heads."
    cut = " Bands that end at the edge go on beyond it." if is_cut(found, "linear") else ""
    return f"Band: {interval_words('linear')}, {n_words(found)}.{cut}"


def _lines(
    view: PageView, found: pl.DataFrame, caption: str, x: str, reading: probe_curves.ProbeReading
) -> SlotContent:
    _, look = chosen_cells(view)
    if probe_label(reading.name).unit == SHARE:
        found = found.with_columns(pl.col("low", "high").clip(0.0, 1.0))
    drawing = Drawing(height=340, markers=found["x"].n_unique() <= 40)
    figure = draw_lines(found.rename({"cell": "series"}), of_cells(look), x=x, y=_title(reading), drawing=drawing)
    return SlotContent(figure, caption, name_cells(found.rename({"x": x}), grid_of(view)), _legend(found, look))


def _training(view: PageView) -> SlotContent:
    reading, (cells, _) = _reading(view), chosen_cells(view)
    _refuse_bins(view)
    found = probe_curves.along(view.store, reading, cells, "step")
    notes = _notes(view, found, last=False)
    caption = f"{_over(view)} Line: mean over seeds. {_band_words(_over_seeds(view), found)}{notes}"
    if found["x"].n_unique() == 1:
        caption += " Recorded at one step only; `training.evaluate_every` has probes look on the way, too."
    return _lines(view, found, caption, "training step", reading)._replace(answer=_answer(view))


def _over_seeds(view: PageView) -> PageView:
    return view._replace(address=view.address.model_copy(update={"band": "seeds"}))


def _layers(view: PageView) -> SlotContent:
    reading, there, (cells, _) = _reading(view)._replace(layer=None), _places(view), chosen_cells(view)
    _refuse_bins(view)
    if not there.layers:
        raise Unknown(f"{_probe(view)!r} is of whole models; it has no layers")
    found = probe_curves.along(view.store, reading, cells, "layer", _band(view))
    notes = _notes(view, found)
    mean = "mean over heads and seeds" if there.heads else "mean over seeds"
    shown = _lines(view, found, f"Line: {mean}. {_band_words(view, found)}{notes}", "layer", reading)
    if shown.figure is not None and len(there.layers) <= 40:
        shown.figure.update_xaxes(tickvals=list(there.layers))
    return shown


def _coordinate(view: PageView) -> str:
    """The coordinate with the most values; empty where no coordinate has several."""
    there = _places(view).coordinates
    wide = {axis: len(values) for axis, values in there.items() if len(values) > 1}
    if view.address.along is not None:
        return require(repr(_probe(view)), "coordinate of several values", str(view.address.along), wide)
    return max(wide, key=lambda axis: wide[axis], default="")


def _along(view: PageView) -> SlotContent:
    reading, axis, (cells, look) = _reading(view), _coordinate(view), chosen_cells(view)
    if not axis:
        raise Unknown(f"{reading.name!r} looks at one place only")
    found = probe_curves.along(view.store, reading, cells, axis, _band(view))
    notes = f"{_over(view)}{_notes(view, found, without=axis)}"
    if axis == _BINS:
        unit = probe_label(reading.name).unit
        counts, rules = of_bins(found.rename({"cell": "series"}))
        figure = draw_histogram(counts, rules, of_cells(look), x="sum of a query's weights", y=unit)
        rule = "Full rule: mean; dashed: median, both by the middles of bins."
        data = name_cells(found.rename({"x": axis}), grid_of(view))
        return SlotContent(figure, f"Bars: {unit} by bin, mean over seeds. {rule} {notes}", data)
    at = reading._replace(at={name: value for name, value in reading.at.items() if name != axis})
    return _lines(view, found, f"Line: mean over seeds. {_band_words(view, found)} {notes}", axis, at)


def _require_heads(view: PageView) -> None:
    if not _places(view).heads:
        raise Unknown(f"{_probe(view)!r} does not tell heads apart")


def _heads(view: PageView) -> SlotContent:
    reading, (cells, look) = _reading(view)._replace(layer=None), chosen_cells(view)
    _require_heads(view)
    found = probe_curves.by_head(view.store, reading, cells)
    notes = _notes(view, found)
    drawn = found.select(
        pl.col("cell").replace_strict(dict(look.names), return_dtype=pl.String).alias("panel"),
        pl.col("head").alias("x"),
        pl.col("layer").alias("y"),
        "value",
        ("n " + pl.col("n").cast(pl.String)).alias("note"),
    )
    signed = bool((found["value"] < 0).any())
    ramp = heat_ramp(drawn["value"], probe_label(reading.name).unit or reading.name, diverging=signed)
    caption = f"Each head by layer, mean over seeds, {n_words(found)}; one scale of colours.{notes}"
    return SlotContent(draw_heat(drawn, ramp, x="head", y="layer"), caption, name_cells(found, grid_of(view)))


def _histogram(view: PageView) -> SlotContent:
    reading, (cells, look) = _reading(view), chosen_cells(view)
    _require_heads(view)
    found = probe_curves.over_heads(view.store, reading, cells)
    notes = _notes(view, found)
    found = found.rename({"cell": "series"})
    counts, rules = count_bins(found, bin_edges(found["value"].to_list())), middles(found)
    layer = "all layers" if reading.layer is None else f"layer {reading.layer}"
    heads = f"heads of {layer} and of all seeds, {n_words(rules)} heads"
    caption = f"Bars: {heads}. Full rule: mean; dashed: median.{notes}"
    data = name_cells(counts.rename({"series": "cell"}), grid_of(view))
    return SlotContent(draw_histogram(counts, rules, of_cells(look), x=_title(reading), y="heads"), caption, data)


def _against(view: PageView) -> SlotContent:
    about, reading, measure = grid_of(view), _reading(view), judged_by(view)
    _refuse_bins(view)
    _, look = chosen_cells(view)
    cells = [cell.cell for cell in about.cells]
    found = probe_curves.against(view.store, reading, measure, cells)
    if found.is_empty():
        raise Unknown(f"no trial has finished with both {reading.name!r} and {measure.name!r} yet")
    means = probe_curves.by_cell(found, measure.scale)
    rho = probe_curves.rank_correlation(means["x"], means["y"])
    said = (
        f"Rank correlation (Spearman) over {count(means.height, 'cell')}: {number(rho, 2)}."
        if rho is not None
        else "A rank correlation takes three cells that differ."
    )
    grey = "Grey: cells beyond those shown above. " if any(look.styles[cell] == REST for cell in means["cell"]) else ""
    step = view.address.step
    when = "At the end of training, of trials that are done." if step is None else f"At step {step:,}."
    caption = (
        f"{said} Large marks: cells, mean over seeds; small ones: runs. {_over(view)} {when}"
        f"{_holes(view, cells)} {grey}That two quantities go together is no proof that one makes the other."
    )
    figure = probe_curves.draw_against(found, look, x=_title(reading), y=measure_title(view), scale=measure.scale)
    return SlotContent(figure, caption, name_cells(found, about), _legend(found, look))


def _controls(view: PageView) -> Sequence[Control]:
    there = _names(view)
    if not there:
        return ()
    found, name = _places(view), _probe(view)
    chosen = probe_curves.choose_places(found, entries(view.address.at))
    choices = {each: f"{each}: {probe_label(each).title}" if probe_label(each).probe else each for each in there}
    at = [
        Control(f"at:{axis}", axis, "choice", _choices(found, axis, values), usual=_usual(chosen[axis]))
        for axis, values in found.coordinates.items()
        if axis in chosen and len(values) > 1 and axis != _BINS
    ]
    wide = [axis for axis, values in found.coordinates.items() if len(values) > 1]
    along = [Control("along", "Along", "choice", options(wide), usual=_coordinate(view))] if len(wide) > 1 else []
    layers = {"": "all", **options(map(str, found.layers))}
    steps = {"": "the end", **options(map(str, found.steps))}
    bands = {"seeds": "over seeds", "heads": "over heads"}
    return (
        Control("probe", "Probe", "choice", choices, usual=name, resets=("at", "layer", "step", "along")),
        *at,
        Control("layer", "Layer", "choice", layers, usual=""),
        Control("step", "Step", "choice", steps, usual=""),
        *along,
        Control("band", "Band", "choice", bands, usual="seeds"),
        cells_control(view),
        *measure_controls(view),
    )


def _choices(found: probe_curves.Places, axis: str, values: Sequence[float]) -> dict[str, str]:
    return ({"": "all"} if found.bare[axis] else {}) | options(f"{value:g}" for value in values)


def _usual(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


MECHANISM = AppPage(
    name="mechanism",
    title="Mechanism",
    letter="m",
    about="What does attention do inside: sinks, entropy, rank, norms, learned numbers?",
    address=MechanismAddress,
    controls=_controls,
    main=("probe", "cells"),
    slots=(
        Slot("training", "Over training", _training),
        Slot("layers", "By layer", _layers, half=True),
        Slot("histogram", "Over heads", _histogram, half=True),
        Slot("heads", "By layer and head", _heads),
        Slot("along", ALONG, _along),
        Slot("against", "Against the measure", _against),
    ),
)
