"""Figures and tables of 003, Scaled Signed Averaging."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

import polars as pl

from dashboards.data.formatting import count
from dashboards.data.grid_context import MOST_CURVES, GridContext
from dashboards.figures.canvas import value_axis
from dashboards.figures.heat import heat_ramp
from dashboards.figures.lines import Drawing, Panel, Series
from dashboards.figures.panels import place_side_by_side
from dashboards.figures.weights import draw_functions
from dashboards.papers.attention_maps import attention_panels
from dashboards.papers.data import named_series, read_measurement, series_of
from dashboards.papers.drawing import OVER_SEEDS, drawn_heat, drawn_lines, join_parts, lacking, look_of
from dashboards.papers.heatmaps import by_points, error_map
from dashboards.papers.histograms import counted_norms
from dashboards.papers.item import Drawn, Item, PrintedPoints, figure_item
from dashboards.papers.paper_tables import printed_item
from dashboards.theme.styles import REST

PAPER: Final = "003"
_MSE: Final = "mse"
_POWERS: Final = (1.1, 1.5, 2.0)


def base_functions() -> pl.DataFrame:
    """(1 + b |x|) ** (n sgn x) at b = 1, and the exponential: series, x, value."""
    rows = [("exp", x / 20, math.exp(x / 20)) for x in range(-80, 81)]
    rows += [(f"SSA, n = {n:g}", x / 20, _power(x / 20, n)) for n in _POWERS for x in range(-80, 81)]
    return pl.DataFrame(rows, schema=["series", "x", "value"], orient="row")


def _power(x: float, n: float) -> float:
    """Paper 003, equation 5, with b = 1."""
    return float((1 + abs(x)) ** math.copysign(n, x))


def _functions(about: GridContext) -> Drawn:
    del about
    found = base_functions()
    series = named_series(list(dict.fromkeys(found["series"])))
    figure = draw_functions(found, look_of(series), x="logit", y="f (log axis)")
    ends = (pl.lit(None, pl.Float64).alias(name) for name in ("low", "high"))
    figure.update_yaxes(**value_axis(found.with_columns(ends), "log"))
    return Drawn("By formula with b = 1: nothing here is measured.", found, figure, legend=series)


def _boundaries(about: GridContext) -> Drawn:
    """Figure 1: the steepest function that was asked for, a panel per model."""
    slopes = _slopes(about)
    if not slopes:
        return lacking(_PREDICTION)
    found = read_measurement(about, _PREDICTION, "x", at={"a": slopes[-1]})
    of = {str(cell): rows for (cell,), rows in found.group_by("series", maintain_order=True)}
    panels = [
        Panel(_with_target(rows, slopes[-1]), f"prediction, {about.look.names[cell]}") for cell, rows in of.items()
    ]
    return _drawn_boundaries(about, panels, f"Asked for: {slopes[-1]:g} x.")


def _ranges(about: GridContext) -> Drawn:
    """Figure 9: the least slope at high x, the steepest at usual and at low x; all models in each."""
    slopes = _slopes(about)
    if not slopes:
        return lacking(_PREDICTION)
    shown = [
        (slopes[0], "high", pl.col("x") >= 0),
        (slopes[-1], "usual", pl.col("x").abs() <= USUAL),
        (slopes[-1], "low", pl.col("x") <= 0),
    ]
    panels = []
    for slope, words, where in shown:
        found = read_measurement(about, _PREDICTION, "x", at={"a": slope}).filter(where)
        panels.append(Panel(_with_target(found, slope), f"prediction of {slope:g} x, {words} x"))
    return _drawn_boundaries(about, panels, f"Usual x are those within {USUAL:g} of 0.", own=True)


def _slopes(about: GridContext) -> list[float]:
    found = about.store.sql(
        "SELECT DISTINCT point['a'] AS a FROM v_final WHERE grid = $grid AND name = $name ORDER BY a",
        {"grid": about.grid, "name": _PREDICTION},
    )
    return found["a"].drop_nulls().to_list()


def _with_target(found: pl.DataFrame, slope: float) -> pl.DataFrame:
    truth = pl.DataFrame({"x": found["x"].unique().sort()}).select(
        pl.lit(_TARGET).alias("series"), "x", value=slope * pl.col("x")
    )
    return pl.concat([truth, found], how="diagonal") if found.height else found


def _drawn_boundaries(about: GridContext, panels: Sequence[Panel], words: str, *, own: bool = False) -> Drawn:
    series = {_TARGET: Series("target", REST), **series_of(about)}
    caption = f"Line: mean prediction over prompts and seeds, and the target: what was asked for. {words} {OVER_SEEDS}"
    drawing = Drawing(300, min(len(panels), 3), own_x=own)
    return drawn_lines(panels, series, x="x", caption=caption, drawing=drawing)


_PREDICTION: Final = "boundary_prediction"
_TARGET: Final = "target"
USUAL: Final = 10.0
"""The largest |x| of the middle panel of figure 9."""


def _attention(about: GridContext) -> Drawn:
    found = attention_panels(about, layer="last")
    if found.figure is None:
        return found
    return found._replace(
        caption=f"{found.caption} The paper's prompt ends in a value of 70; here it is a sequence that the probe kept."
    )


def _by_shift(about: GridContext) -> Drawn:
    """Both halves: the curve at sigma_x = 1, and the maps."""
    curve = read_measurement(about, _MSE, "sigma_f", at={"sigma_x": 1.0}, scale="log")
    if curve.is_empty():
        return lacking(_MSE)
    words = "squared error"
    line = drawn_lines([Panel(curve, words, "log")], series_of(about), x="sigma_f", caption="", drawing=Drawing(300))
    found = by_points(about, _MSE, ("sigma_f", "sigma_x"), scale="log")
    ramp = heat_ramp(found["value"], words, log=True)
    heat = drawn_heat(found, ramp, x="sigma_f", y="sigma_x", caption="")
    panels = [("At sigma_x = 1", line.figure), ("Over both shifts", heat.figure)]
    caption = f"Geometric means over seeds. {OVER_SEEDS} Maps share one logarithmic scale of colours."
    figure = place_side_by_side([(title, each) for title, each in panels if each is not None], 1)
    return join_parts([("line", line), ("map", heat)], figure, caption)


def _errors(about: GridContext, quantifier: str, widest: int) -> Drawn:
    """Draw the cells whose task asks about `quantifier`; `widest` is the greatest sigma of the paper's map."""
    found = about.store.sql(
        "SELECT g.cell, max(t.spec->>'$.task.quantifier') FROM grid_trial g JOIN trial t USING (trial) "
        "WHERE g.grid = $grid GROUP BY g.cell",
        {"grid": about.grid},
    )
    asked = dict(found.iter_rows())
    kept = [cell.cell for cell in about.cells if asked.get(cell.cell) == quantifier]
    if not kept:
        return Drawn(message=f'No cell of this grid has `task.quantifier` "{quantifier}", which this figure is about.')
    drawn = [cell for cell in about.drawn if cell in kept] or kept[:MOST_CURVES]
    caption = (
        f'Share of wrong answers on the task "{quantifier}", mean over seeds; one scale of colours for all maps. '
        f"Lengths and sigmas are those at which the task was evaluated; the paper's are 10 to 200 and 1 to {widest}."
    )
    more = f" {count(len(kept) - len(drawn), 'further cell')} not shown." if len(kept) > len(drawn) else ""
    of_task = about._replace(drawn=drawn)
    return error_map(of_task, "error_rate", ("length", "sigma"), "error rate", caption + more)


_figure = partial(figure_item, PAPER)
_table = partial(printed_item, PAPER)
_SHIFT: Final = "specs/out_of_distribution.py"

ITEMS: Final[Sequence[Item]] = (
    _figure(1, "Boundary values", "x input, y prediction and target; a panel per model", (_PREDICTION,), _boundaries),
    _figure(
        2,
        "Attention with a large value",
        "maps of the last layer, mean over heads; a panel per operator",
        ("attention_maps",),
        _attention,
    ),
    _figure(
        3,
        "Error under shift",
        "x sigma_f, y squared error (log axis); maps over sigma_f and sigma_x",
        (_MSE,),
        _by_shift,
    )._replace(spec=_SHIFT, printed=PrintedPoints(1, "sigma_f")),
    _figure(
        4,
        "Errors on every",
        "map: length x sigma; a panel per operator",
        ("error_rate",),
        partial(_errors, quantifier="every", widest=30),
    ),
    _figure(
        5,
        "Errors on some",
        "map: length x sigma; a panel per operator",
        ("error_rate",),
        partial(_errors, quantifier="some", widest=30),
    ),
    _figure(
        6,
        "Errors of public models on some",
        "map: length x sigma; a panel per model",
        ("error_rate",),
        partial(_errors, quantifier="some", widest=10),
    ),
    _figure(
        7,
        "Errors of public models on every",
        "map: length x sigma; a panel per model",
        ("error_rate",),
        partial(_errors, quantifier="every", widest=10),
    ),
    _figure(8, "Norms of token embeddings", "histogram, log count", ("embedding_norm_count",), counted_norms),
    _figure(9, "More boundary values", "the same at high, usual and low x; models together", (_PREDICTION,), _ranges),
    _figure(10, "The base function", "closed form for three n, and exp", (), _functions),
    _figure(11, "Error under shift by size", "x sigma_f; a line and a map per size", (_MSE,), _by_shift)._replace(
        printed=PrintedPoints(6, "sigma_f")
    ),
    _table(1, "Squared error under shift", "rows: scores; columns: sigma_f", _SHIFT),
    _table(2, "Language tasks", "rows: tasks; columns: shots and operator"),
    _table(3, "Grammar", "rows: paradigms; columns: operators"),
    _table(4, "Language tasks with errors", "rows: tasks; columns: shots and operator"),
    _table(5, "First input wider", "columns: sigma of the first input"),
    _table(6, "Squared error by size", "rows: sizes; columns: sigma_f"),
)
