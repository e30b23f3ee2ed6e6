"""Mechanism: what attention does inside the models, by what probes recorded."""

from collections.abc import Sequence
from typing import Final, Literal

import polars as pl

from dashboards.app.address import entries
from dashboards.app.measures import MeasuredAddress, judged_by, measure_controls, unit_of
from dashboards.app.page import (
    AppPage,
    Control,
    ControlOption,
    Key,
    PageView,
    Slot,
    SlotContent,
    grid_of,
    memoise,
    options,
)
from dashboards.app.run_groups import cells_control, chosen_cells, chosen_words
from dashboards.data.captions import name_cells
from dashboards.data.formatting import count, join_words, number
from dashboards.data.grid_context import CellLook
from dashboards.data.probe_labels import PROBES, probe_label
from dashboards.data.seed_averages import interval_words
from dashboards.data.user_errors import Unknown
from dashboards.figures import probe_curves
from dashboards.figures.canvas import is_cut
from dashboards.figures.heat import draw_heat, heat_ramp
from dashboards.figures.histogram import bin_edges, count_bins, draw_histogram, middles, of_bins
from dashboards.figures.lines import Drawing, draw_lines, of_cells
from dashboards.theme.styles import REST

_FIRST: Final = ("sink_share", "first_token_weight", "entropy", "ground_mass")
"""Shown first if it is recorded."""
ALONG: Final = "Along a coordinate"
"""The title of a slot that others lead to."""
_BINS: Final = "sum"
"""The coordinate whose values are the middles of bins."""


class MechanismAddress(MeasuredAddress):
    """A probe, where it looks, and which cells are shown."""

    probe: str | None = None
    """None is the first of the usual ones that is there."""
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


def _names(view: PageView) -> list[str]:
    about = grid_of(view)
    return memoise(view.store, ("probes", about.grid), lambda: probe_curves.names(view.store, about.grid))


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
    return next((name for name in _FIRST if name in there), there[0])


def _places(view: PageView) -> probe_curves.Places:
    about, name = grid_of(view), _probe(view)
    return memoise(view.store, ("places", about.grid, name), lambda: probe_curves.places(view.store, about.grid, name))


def _reading(view: PageView) -> probe_curves.ProbeReading:
    """Read the choices of a view. Raises Unknown for a probe, place, step or layer that is not recorded."""
    there, address = _places(view), view.address
    for field, values in (("step", there.steps), ("layer", there.layers)):
        said = getattr(address, field)
        if said is not None and said not in values:
            raise Unknown(
                f"{_probe(view)!r} has no {field} {said}; it has {join_words([str(each) for each in values]) or 'none'}"
            )
    at = probe_curves.choose_places(there, entries(address.at))
    return probe_curves.ProbeReading(grid_of(view).grid, _probe(view), at, address.step, address.layer)


def _title(reading: probe_curves.ProbeReading) -> str:
    what = probe_label(reading.name)
    at = [f"{axis} {value:g}" for axis, value in reading.at.items() if value is not None]
    where = f" ({', '.join(at)})" if at else ""
    return f"{what.title}{where}" + (f", {what.unit}" if what.unit else "")


def _legend(found: pl.DataFrame, look: CellLook) -> list[Key]:
    cells = dict.fromkeys(found["cell"].to_list())
    return [Key(look.styles[cell], look.names[cell], cell) for cell in cells if look.styles[cell] != REST]


def _counts(found: pl.DataFrame) -> str:
    counts = found["n"].to_list()
    least, most = min(counts, default=0), max(counts, default=0)
    return f"n = {most}" if least == most else f"n = {least} to {most}"


def _over(reading: probe_curves.ProbeReading, there: probe_curves.Places) -> str:
    """Over what a value is averaged before seeds."""
    if not there.layers:
        return "Of the whole model."
    heads = "heads" if there.heads else ""
    layers = f"layer {reading.layer}" if reading.layer is not None else ""
    if layers:
        return f"Mean over heads of {layers}." if heads else f"Of {layers}."
    return "Mean over layers and heads." if heads else "Mean over layers."


def _describe_lost(cells: Sequence[str], found: pl.DataFrame, look: CellLook) -> str:
    lost = [look.names[cell] for cell in cells if cell not in set(found["cell"].to_list())]
    return f" Not recorded: {join_words(lost)}." if lost else ""


def _holes(
    view: PageView, reading: probe_curves.ProbeReading, cells: Sequence[str], *, without: str = "", last: bool = True
) -> str:
    lost = probe_curves.not_finite(view.store, reading, cells, without=without, last=last)
    return f" {count(lost, 'recorded value')} not finite: left out." if lost else ""


def _is_histogram(view: PageView) -> str:
    """A sentence where the probe counts by bins, so that its other figures mean nothing; else empty."""
    counts = _BINS in _places(view).coordinates
    return f"{_probe(view)!r} counts by bins, which stand below: {ALONG.lower()}." if counts else ""


def _training(view: PageView) -> SlotContent:
    reading, there = _reading(view), _places(view)
    if said := _is_histogram(view):
        return SlotContent(message=said)
    cells, look = chosen_cells(view)
    found = probe_curves.along(view.store, reading, cells, "step")
    if found.is_empty():
        holes = _holes(view, reading, cells, last=False)
        return SlotContent(message=f"No trial that is shown has recorded {reading.name!r} at this place yet.{holes}")
    caption = (
        f"{_over(reading, there)} Line: mean over seeds. Band: {interval_words('linear')}, {_counts(found)}."
        f"{_cut(found)} Failed trials are left out.{_holes(view, reading, cells, last=False)}"
        f"{_describe_lost(cells, found, look)}{chosen_words(view)}"
    )
    if found["x"].n_unique() == 1:
        caption += " Recorded at one step only; `training.evaluate_every` has probes look on the way, too."
    lines = found.rename({"cell": "series"})
    drawing = Drawing(height=360, markers=found["x"].n_unique() <= 40)
    figure = draw_lines(lines, of_cells(look), x="training step", y=_title(reading), drawing=drawing)
    return SlotContent(figure, caption, name_cells(found, grid_of(view)), _legend(found, look))


def _band(view: PageView) -> Literal["seeds", "heads"]:
    """Return the kind of bands; a probe without heads has no spread over them."""
    return view.address.band if _places(view).heads else "seeds"


def _band_words(view: PageView, found: pl.DataFrame) -> str:
    if _band(view) == "heads":
        return f"Band: one standard deviation over heads, each averaged over seeds, {_counts(found)} heads."
    return f"Band: {interval_words('linear')}, {_counts(found)}.{_cut(found)}"


def _cut(found: pl.DataFrame) -> str:
    return " Bands that end at the edge go on beyond it." if is_cut(found, "linear") else ""


def _no_layers(view: PageView) -> str:
    return "" if _places(view).layers else f"{_probe(view)!r} is of whole models; it has no layers."


def _layers(view: PageView) -> SlotContent:
    reading, there = _reading(view)._replace(layer=None), _places(view)
    if said := _is_histogram(view) or _no_layers(view):
        return SlotContent(message=said)
    cells, look = chosen_cells(view)
    found = probe_curves.along(view.store, reading, cells, "layer", _band(view))
    if found.is_empty():
        return SlotContent(message=_nothing(view, reading) + _holes(view, reading, cells))
    mean = "mean over heads and seeds" if there.heads else "mean over seeds"
    said = f"{_when(view)}{_holes(view, reading, cells)}{_describe_lost(cells, found, look)}{chosen_words(view)}"
    caption = f"Line: {mean}. {_band_words(view, found)}{said}"
    drawing = Drawing(height=340, markers=True)
    figure = draw_lines(found.rename({"cell": "series"}), of_cells(look), x="layer", y=_title(reading), drawing=drawing)
    figure.update_xaxes(tickvals=list(there.layers) if len(there.layers) <= 40 else None)
    return SlotContent(figure, caption, name_cells(found.rename({"x": "layer"}), grid_of(view)), _legend(found, look))


def _when(view: PageView) -> str:
    step = view.address.step
    return " At the end of training, of trials that are done." if step is None else f" At step {step:,}."


def _nothing(view: PageView, reading: probe_curves.ProbeReading) -> str:
    when = "finished with" if view.address.step is None else f"recorded at step {view.address.step:,}"
    return f"No trial that is shown has {when} {reading.name!r} at this place yet."


def _coordinate(view: PageView) -> str:
    """The coordinate with the most values; empty where no coordinate has several."""
    there = _places(view).coordinates
    wide = {axis: len(values) for axis, values in there.items() if len(values) > 1}
    said: str | None = view.address.along
    if said is not None and said not in wide:
        raise Unknown(
            f"{_probe(view)!r} has no values along {said!r}; it has some along {join_words(list(wide)) or 'none'}"
        )
    return said or max(wide, key=lambda axis: wide[axis], default="")


def _along(view: PageView) -> SlotContent:
    reading, axis = _reading(view), _coordinate(view)
    if not axis:
        return SlotContent(message=f"{reading.name!r} looks at one place only.")
    cells, look = chosen_cells(view)
    found = probe_curves.along(view.store, reading, cells, axis, _band(view))
    if found.is_empty():
        return SlotContent(message=_nothing(view, reading) + _holes(view, reading, cells, without=axis))
    data = name_cells(found.rename({"x": axis}), grid_of(view))
    holes = _holes(view, reading, cells, without=axis)
    said = (
        f"{_over(reading, _places(view))}{_when(view)}{holes}{_describe_lost(cells, found, look)}{chosen_words(view)}"
    )
    if axis == _BINS:
        unit = probe_label(reading.name).unit
        counts, rules = of_bins(found.rename({"cell": "series"}))
        figure = draw_histogram(counts, rules, of_cells(look), x="sum of a query's weights", y=unit)
        rule = "Full rule: mean; dashed: median, both by the middles of bins."
        return SlotContent(figure, f"Bars: {unit} by bin, mean over seeds. {rule} {said}", data)
    caption = f"Line: mean over seeds. {_band_words(view, found)} {said}"
    few = len(_places(view).coordinates[axis]) <= 40
    at = reading._replace(at={name: value for name, value in reading.at.items() if name != axis})
    drawing = Drawing(height=340, markers=few)
    figure = draw_lines(found.rename({"cell": "series"}), of_cells(look), x=axis, y=_title(at), drawing=drawing)
    return SlotContent(figure, caption, data, _legend(found, look))


def _heads(view: PageView) -> SlotContent:
    reading, there = _reading(view)._replace(layer=None), _places(view)
    if not there.heads:
        return SlotContent(message=f"{reading.name!r} does not tell heads apart.")
    cells, look = chosen_cells(view)
    found = probe_curves.by_head(view.store, reading, cells)
    if found.is_empty():
        return SlotContent(message=_nothing(view, reading) + _holes(view, reading, cells))
    signed = bool((found["value"] < 0).any())
    drawn = found.select(
        pl.col("cell").replace_strict(dict(look.names), return_dtype=pl.String).alias("panel"),
        pl.col("head").alias("x"),
        pl.col("layer").alias("y"),
        "value",
        ("n " + pl.col("n").cast(pl.String)).alias("note"),
    )
    ramp = heat_ramp(drawn["value"], probe_label(reading.name).unit or reading.name, diverging=signed)
    caption = (
        f"Each head by layer, mean over seeds, {_counts(found)}; one scale of colours."
        f"{_when(view)}{_holes(view, reading, cells)}{_describe_lost(cells, found, look)}{chosen_words(view)}"
    )
    return SlotContent(draw_heat(drawn, ramp, x="head", y="layer"), caption, name_cells(found, grid_of(view)))


def _histogram(view: PageView) -> SlotContent:
    reading, there = _reading(view), _places(view)
    if not there.heads:
        return SlotContent(message=f"{reading.name!r} does not tell heads apart.")
    cells, look = chosen_cells(view)
    found = probe_curves.over_heads(view.store, reading, cells).rename({"cell": "series"})
    if found.is_empty():
        return SlotContent(message=_nothing(view, reading) + _holes(view, reading, cells))
    counts = count_bins(found, bin_edges(found["value"].to_list()))
    rules = middles(found)
    layer = "all layers" if reading.layer is None else f"layer {reading.layer}"
    caption = (
        f"Bars: heads of {layer} and of all seeds, {_counts(rules)} heads. Full rule: mean; dashed: median."
        f"{_when(view)}{_holes(view, reading, cells)}{chosen_words(view)}"
    )
    data = name_cells(counts.rename({"series": "cell"}), grid_of(view))
    return SlotContent(draw_histogram(counts, rules, of_cells(look), x=_title(reading), y="heads"), caption, data)


def _against(view: PageView) -> SlotContent:
    about, reading, measure = grid_of(view), _reading(view), judged_by(view)
    if said := _is_histogram(view):
        return SlotContent(message=said)
    _, look = chosen_cells(view)
    found = probe_curves.against(view.store, reading, measure, [cell.cell for cell in about.cells])
    if found.is_empty():
        return SlotContent(message=f"No trial has finished with both {reading.name!r} and {measure.name!r} yet.")
    means = probe_curves.by_cell(found, measure.scale)
    rho = probe_curves.rank_correlation(means["x"], means["y"])
    said = (
        f"Rank correlation (Spearman) over {count(means.height, 'cell')}: {number(rho, 2)}."
        if rho is not None
        else "A rank correlation takes three cells that differ."
    )
    grey = "Grey: cells beyond those shown above. " if any(look.styles[cell] == REST for cell in means["cell"]) else ""
    caption = (
        f"{said} Large marks: cells, mean over seeds; small ones: runs. {_over(reading, _places(view))}{_when(view)}"
        f"{_holes(view, reading, [cell.cell for cell in about.cells])} {grey}"
        "That two quantities go together is no proof that one makes the other."
    )
    unit = unit_of(view, measure)
    title = f"{measure.name}, {unit}" if unit else measure.name
    figure = probe_curves.draw_against(found, look, x=_title(reading), y=title, scale=measure.scale)
    return SlotContent(figure, caption, name_cells(found, about), _legend(found, look))


def _controls(view: PageView) -> Sequence[Control]:
    there = _names(view)
    if not there:
        return ()
    found, name = _places(view), _probe(view)
    chosen = probe_curves.choose_places(found, entries(view.address.at))
    choices = [
        ControlOption(each, f"{each}: {probe_label(each).title}" if probe_label(each).probe else each) for each in there
    ]
    at = [
        Control(f"at:{axis}", axis, "choice", _choices(found, axis, values), usual=_usual(chosen[axis]))
        for axis, values in found.coordinates.items()
        if axis in chosen and len(values) > 1 and axis != _BINS
    ]
    wide = [axis for axis, values in found.coordinates.items() if len(values) > 1]
    along = [Control("along", "Along", "choice", options(wide), usual=_coordinate(view))] if len(wide) > 1 else []
    return (
        Control("probe", "Probe", "choice", choices, usual=name, remakes=True, resets=("at", "layer", "step", "along")),
        *at,
        Control("layer", "Layer", "choice", [ControlOption("", "all"), *options(map(str, found.layers))], usual=""),
        Control("step", "Step", "choice", [ControlOption("", "the end"), *options(map(str, found.steps))], usual=""),
        *along,
        Control(
            "band",
            "Band",
            "choice",
            [ControlOption("seeds", "over seeds"), ControlOption("heads", "over heads")],
            usual="seeds",
        ),
        cells_control(view),
        *measure_controls(view),
    )


def _choices(found: probe_curves.Places, axis: str, values: Sequence[float]) -> list[ControlOption]:
    return [*([ControlOption("", "all")] if found.bare[axis] else []), *options(f"{value:g}" for value in values)]


def _usual(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


MECHANISM = AppPage(
    name="mechanism",
    title="Mechanism",
    letter="m",
    about="What does attention do inside: sinks, entropy, rank, norms, learned numbers?",
    address=MechanismAddress,
    controls=_controls,
    slots=(
        Slot("training", "Over training", _training),
        Slot("layers", "By layer", _layers),
        Slot("heads", "By layer and head", _heads),
        Slot("histogram", "Over heads", _histogram),
        Slot("along", ALONG, _along),
        Slot("against", "Against the measure", _against),
    ),
)
