"""The figures of the report, one function each, for a notebook: a campaign in, a plotly figure out.

    from ablate.dashboards import differences
    from ablate.store import Campaign

    differences(Campaign("campaigns/quickstart"))

Where `grid` is None the only grid is meant. They raise what `Campaign` raises, and NotFoundError if a grid has nothing
of a kind to show.
"""

from urllib.parse import urlencode

import plotly.graph_objects as go

from ablate.dashboards.data.formatting import point
from ablate.dashboards.data.grid_context import GridContext, campaign_styles, grid_context
from ablate.dashboards.data.user_errors import Unknown
from ablate.dashboards.figures import forest, probe_curves, shift, training
from ablate.dashboards.figures.canvas import standalone
from ablate.dashboards.figures.lines import Drawing, draw_lines, of_cells
from ablate.store import Campaign
from ablate.store.analysis.verdicts import GridMeasure, measure_of
from ablate.store.campaign import only


def differences(campaign: Campaign, grid: str | None = None) -> go.Figure:
    """Every variant against the baseline: mean difference, interval, verdict, and the band that counts as equal."""
    return _draw_slot(campaign, "compare/differences", grid)


def error_by(campaign: Campaign, along: str | None = None, grid: str | None = None) -> go.Figure:
    """The measured evaluation along one coordinate of its points, a line with a 95 % band per variant."""
    context, measure = _grid_and_measure(campaign, grid)
    along, where = _coordinate(context, measure, along)
    points = shift.average_points(context.store, context.grid, measure, [along], context.drawn)
    figure = shift.draw_error_by_shift(points, context.appearance, measure, along, measure.name)
    return standalone(figure, f"{measure.name} by {where}", legend=True)


def change_by(campaign: Campaign, along: str | None = None, grid: str | None = None) -> go.Figure:
    """As `error_by`, the changes from the baseline, paired by seed."""
    context, measure = _grid_and_measure(campaign, grid)
    along, where = _coordinate(context, measure, along)
    points = shift.average_points(context.store, context.grid, measure, [along], context.drawn, paired=True)
    if points["value"].is_null().all():
        raise Unknown("no change from the baseline can be computed yet")
    figure = shift.draw_change_by_shift(points, context.appearance, measure, along)
    return standalone(figure, f"{measure.name}: change from {context.baseline_name} by {where}", legend=True)


def error_map(campaign: Campaign, label: str | None = None, grid: str | None = None) -> go.Figure:
    """Draw the measured evaluation over the two coordinates with most values.

    A variant `label` is shown as its change from the baseline, paired by seed; the default is the baseline.
    """
    context, measure = _grid_and_measure(campaign, grid)
    axes = shift.list_varying(shift.coordinates(context.store, context.grid, measure.name))[:2]
    if len(axes) < 2:
        raise Unknown(f"{measure.name} has no two coordinates that vary, so there is no map")
    labels = {cell.label or cell.operator: cell.cell for cell in context.cells}  # the baseline is first
    usual = next(iter(labels)) if label is None else label
    cell = labels[only("variant", usual, list(labels), f"grid {context.grid!r}")]
    points = shift.shift_map(context.store, context.grid, measure, axes, [cell])
    if points.is_empty():
        raise Unknown("no trial of this variant has finished yet")
    column = "value" if cell == context.baseline or points["change"].is_null().all() else "change"
    figure = shift.draw_shift_maps(points, context.appearance, measure, axes, column)
    what = measure.name if column == "value" else f"{measure.name}: change from {context.baseline_name}"
    return standalone(figure, f"{what} of {context.appearance.names[cell]}")


def main_effects(campaign: Campaign, grid: str | None = None) -> go.Figure:
    """Draw what each level of each axis does to the measure, against the level of the baseline."""
    return _draw_slot(campaign, "factors/effects", grid)


def training_curves(campaign: Campaign, name: str = "loss", grid: str | None = None) -> go.Figure:
    """A training metric by step, the average of a variant's seeds with its 95 % band."""
    context = _context(campaign, grid)
    campaign.curves(name, context.grid, buckets=1)  # an error names the metrics there are
    scale = context.measure.scale if context.measure is not None else "log"
    curves = training.curves(context.store, context.grid, name, context.drawn, scale=scale).frame
    if curves.is_empty():
        raise Unknown(f"no value of {name} can be shown on the {scale} scale")
    drawing = Drawing(width=1.6)
    figure = draw_lines(curves, of_cells(context.appearance), x="training step", y=name, scale=scale, drawing=drawing)
    return standalone(figure, f"{name} by training step", legend=True)


def learned_numbers(campaign: Campaign, name: str | None = None, grid: str | None = None) -> go.Figure:
    """One learned number of the operators after training, by layer and head."""
    context = _context(campaign, grid)
    numbers = probe_curves.numbers(context.store, context.grid, context.drawn)
    chosen = only("learned number", name, sorted(set(numbers["name"].to_list())), f"grid {context.grid!r}")
    rows = numbers.filter(numbers["name"] == chosen)
    return standalone(probe_curves.draw_numbers(rows, context.appearance), f"{chosen} after training", legend=True)


def failure_rates(campaign: Campaign, grid: str | None = None) -> go.Figure:
    """The share of ended trials of each variant that failed, with its 95 % Wilson interval."""
    context = _context(campaign, grid)
    rates = forest.rates(context.store, context.grid, [cell.cell for cell in context.cells])
    return standalone(forest.draw_rates(rates, context.appearance), "Trials that failed")


def progress(campaign: Campaign, grid: str | None = None) -> go.Figure:
    """The state of every trial; of many cells the share that is done."""
    return _draw_slot(campaign, "overview/progress", grid)


def dashboard_figure(campaign: Campaign, address: str) -> go.Figure:
    """Draw a figure of the dashboard; *Copy Python* below the figure writes this call.

    `address` is page, part, and the state of the page: "curves/curves?metric=loss&by=operator".

    Raises NotFoundError for an unknown page, part or state, and for a part without a figure; else as `Campaign`.
    """
    from ablate.dashboards.app.downloads import figure_at  # here: dash takes a third of a second to import

    return figure_at(campaign, address)


def _draw_slot(campaign: Campaign, place: str, grid: str | None) -> go.Figure:
    return dashboard_figure(campaign, f"{place}?{urlencode({'grid': campaign.grid_named(grid)})}")


def _context(campaign: Campaign, grid: str | None) -> GridContext:
    store = campaign.store
    return grid_context(store, campaign.grid_named(grid), campaign_styles(store))


def _grid_and_measure(campaign: Campaign, grid: str | None) -> tuple[GridContext, GridMeasure]:
    context = _context(campaign, grid)
    return context, context.measure if context.measure is not None else measure_of(context.store, context.grid, None)


def _coordinate(context: GridContext, measure: GridMeasure, wanted: str | None) -> tuple[str, str]:
    """The coordinate `wanted`, by default that with most values, and in words with the others of the measure."""
    varying = shift.list_varying(shift.coordinates(context.store, context.grid, measure.name))
    default = wanted if wanted is not None or not varying else varying[0]
    along = only("varying coordinate", default, varying, f"{measure.name} of grid {context.grid!r}")
    rest = {name: value for name, value in measure.point.items() if name != along}
    return along, f"{along} at {point(rest)}" if rest else along
