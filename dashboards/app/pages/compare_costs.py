"""Costs of a better measure: time, memory, parameters, energy, or anything else that runs record."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from ablate.dashboards.app import measures
from ablate.dashboards.app.address import entries
from ablate.dashboards.app.page import Control, Key, PageView, SlotContent, cell_key, memoise, options
from ablate.dashboards.app.settings import settings_of
from ablate.dashboards.app.table_columns import FOLD, WRAP
from ablate.dashboards.data.captions import n_words, name_cells
from ablate.dashboards.data.formatting import count, join_words
from ablate.dashboards.data.grid_context import Appearance, appearance_of, in_order
from ablate.dashboards.data.seed_averages import average_words
from ablate.dashboards.data.user_errors import Unknown, catch_user_error, require
from ablate.dashboards.figures import parallel
from ablate.dashboards.figures.pareto import FRONT, TradeOffs, draw_trade_offs, goes_beyond, trade_offs
from ablate.dashboards.figures.pivot import table
from ablate.dashboards.theme.styles import REST
from ablate.store.analysis.measurements import measurements, text_of
from ablate.store.analysis.pareto import EXACT, Quantity, Way, known_costs, rule
from ablate.store.analysis.row_labels import unit_of
from ablate.store.database.queries import agrees
from ablate.store.statistics import STANDINGS

COST_WORDS: Final = {
    "train_s": "seconds of training",
    "memory_bytes": "bytes of memory",
    "parameters": "parameters",
    "flops": "floating point operations",
    "joules": "joules",
    "flops_per_s": "operations per second",
    "tokens_per_s": "tokens per second",
}
_LOGGED_COSTS: Final = ("tokens", "parameters", "params", "seconds", "flops")
_MOST_TESTED: Final = 500
_MOST_AXES: Final = 8  # more axes beside each other cannot be read
_MOST_BEST: Final = 5  # names in the answer


class _Against(NamedTuple):
    quantity: Quantity
    title: str
    unit: str
    way: Way  # how it is compared, unless the address says in which direction


@memoise
def _quantities(view: PageView) -> dict[str, tuple[str, dict[str, float]]]:
    """Measurements, then probes that no measurement is called like, by `text_of`: name and point."""
    context = settings_of(view)
    measured = measurements(view.store, context.grid)
    probes = view.store.sql(
        "SELECT DISTINCT p.name, p.point FROM v_probe p JOIN grid_trial g USING (trial) WHERE g.grid = $grid "
        "ORDER BY p.name, p.point",
        {"grid": context.grid},
    )
    names = {name for name, _ in measured.values()}
    rows = [(str(name), dict(at)) for name, at in probes.iter_rows() if name not in names]
    return measured | {text_of(*row): row for row in rows}


@memoise
def _against(view: PageView) -> _Against:
    context, better = settings_of(view), view.address.against_better
    wanted = view.address.against or _first_cost(view)
    if wanted in COST_WORDS:
        quantity = Quantity(wanted, better=better)
        return _Against(quantity, COST_WORDS[wanted], "", rule(view.store, context.grid, wanted))
    known = _quantities(view)
    name, at = known[require(repr(context.grid), "quantity", wanted, known | COST_WORDS)]
    way, unit = rule(view.store, context.grid, name), unit_of(context.header, name)
    return _Against(Quantity(name, at, better, wanted), wanted, unit, way)


def _title(against: _Against) -> str:
    """A cost with its unit; the usual ones are called by their units."""
    return ", ".join(filter(None, (against.title, against.unit)))


@memoise
def _first_cost(view: PageView) -> str:
    """Return the first cost; without any, tokens, parameters or seconds that runs logged, or what else varies."""
    context = settings_of(view)
    if costs := known_costs(view.store, context.grid):
        return costs[0]
    measured, measure = measurements(view.store, context.grid), measures.judged_by(view)
    for text, (name, at) in sorted(measured.items(), key=lambda each: each[1][0] not in _LOGGED_COSTS):
        means_cost = text in COST_WORDS  # in an address, such a name is no measurement
        if not means_cost and not measures.is_of(measure, name, at) and _varies(view, name, at):
            return text
    return "train_s"


def _varies(view: PageView, name: str, at: Mapping[str, float]) -> bool:
    condition, parameters = agrees(at)
    values = "SELECT count(DISTINCT value) FROM v_final WHERE grid = $grid AND name = $name AND isfinite(value) AND "
    of = {"grid": settings_of(view).grid, "name": name, **parameters}
    return bool(view.store.sql(values + condition, of).item() > 1)


@memoise
def _compare(view: PageView) -> TradeOffs:
    context, measure, against = settings_of(view), measures.judged_by(view), _against(view)
    if measures.is_of(measure, against.quantity.name, against.quantity.point):
        raise Unknown(f"{against.title} cannot be held against itself; choose something else")
    cells = [cell.cell for cell in context.compared]
    if len(cells) > _MOST_TESTED:
        raise Unknown(
            f"the pairs of {len(cells):,} cells cannot be tested while one waits; `ablate pareto` tests them, and here "
            f"are shown up to {_MOST_TESTED} cells"
        )
    return trade_offs(view.store, context.grid, measure, against.quantity, cells)


@memoise
def _colours(view: PageView) -> Appearance:
    """The appearance of the cells; of too many only those of the line and of other pages have a style."""
    context = settings_of(view)
    return appearance_of(context, {*_compare(view).frame.filter("step")["cell"], *context.drawn})


def _logs(view: PageView) -> tuple[bool, bool]:
    return _against(view).way.scale == "log", measures.judged_by(view).scale == "log"


def draw_costs(view: PageView) -> SlotContent:
    """Draw the measure of every cell against its cost."""
    context, measure, against = settings_of(view), measures.judged_by(view), _against(view)
    log, missing = _logs(view), _compare(view).planned - _compare(view).frame.height
    trade_offs = _compare(view)._replace(frame=_keep_brushed(view))
    frame = trade_offs.frame
    if frame.is_empty():
        return SlotContent(message="No cell has both values yet.")
    title = ", ".join(filter(None, (measure.name, measures.unit(view))))  # arrows say what is better
    appearance = _colours(view)
    figure = draw_trade_offs(trade_offs, appearance, (_title(against), title), log)
    counts = dict(frame["standing"].value_counts().iter_rows())
    said = join_words([f"{counts[word]} {word}" for word in STANDINGS if counts.get(word)])
    caption = (
        f"{measures.words(view)} against {against.title} ({trade_offs.x.better} is better); "
        f"{count(frame.height, 'cell')}, {n_words(frame)} seeds. Point: {_averages(trade_offs)}. "
        "Line: the cells to which no other is at least equal in both averages and better in one. What the seeds show "
        f"is another matter: {said} (paired tests, see the table). Bars: {(1 - measure.alpha) * 100:g} % t "
        f"intervals of each cell alone. Faint: dominated. {measures.warn_of_guess(view)}"
    )
    if goes_beyond(frame, appearance, log):
        caption += " Bars that end at the edge of the figure go on beyond it."
    if lacking := int((frame["lacks"] > 0).sum()):
        caption += f" Ringed: {count(lacking, 'cell')} without some seeds that others have."
    if not against.way.known and view.address.against_better is None:
        caption += f" The direction of {against.title} is unknown; lower is taken as better."
    legend = [cell_key(appearance, cell) for cell in frame["cell"] if appearance.styles[cell] != REST]
    if others := frame.height - len(legend):
        caption += f" Grey: {count(others, 'other cell')}."
        legend.append(Key(REST, "other cells", "rest", str(others)))
    legend.append(Key(FRONT, "best of both", "steps"))
    message = answer = ""
    if missing:
        message = f"{count(missing, 'cell')} without both values: not drawn, and counted in Holm's correction."
    if best := [context.appearance.names[cell] for cell in frame.filter("step").sort("value")["cell"]]:
        verb = "is" if len(best) == 1 else "are"
        proven = [context.appearance.names[cell] for cell in frame.filter(standing="on the front")["cell"]]
        answer = f"{len(best)} of {count(frame.height, 'cell')} {verb} best of both on average: {_list_best(best)}."
        answer += f"\nShown by tests over seeds: {_list_best(proven) or 'none'}."
    data = name_cells(frame.drop("label"), context)
    return SlotContent(figure, caption, data, legend, message, answer=answer, measured=measures.columns(view))


def _averages(trade_offs: TradeOffs) -> str:
    return f"{average_words(trade_offs.y.scale)} over seeds up, {average_words(trade_offs.x.scale)} across"


def _list_best(names: Sequence[str]) -> str:
    return join_words(names[:_MOST_BEST]) + (" and others" if len(names) > _MOST_BEST else "")


class _Lines(NamedTuple):
    rows: pl.DataFrame
    kept: pl.DataFrame  # rows with both values
    axes: Sequence[parallel.ParallelAxis]


@memoise
def _lines(view: PageView) -> _Lines:
    context, measure, against = settings_of(view), measures.judged_by(view), _against(view)
    trade_offs = _compare(view)
    whole, levels = table(view.store, context.grid, measure)
    wide = [name for name, of in levels.items() if len(of) > 1][:_MOST_AXES]
    *axes, across, up = _apart([*wide, against.title, measure.name])
    chosen = whole.select("cell", *(pl.col(f"axis: {name}").alias(axis) for name, axis in zip(wide, axes, strict=True)))
    values = trade_offs.frame.select("cell", "n", "planned", pl.col("x").alias(across), pl.col("value").alias(up))
    rows = in_order(chosen.unique("cell").join(values, on="cell", how="inner"), [cell.cell for cell in context.cells])
    numbers = list(zip((across, up), _logs(view), strict=True))
    kept = parallel.complete_rows(rows, numbers)
    scales = parallel.scales(kept, {axis: levels[name] for name, axis in zip(wide, axes, strict=True)}, numbers)
    return _Lines(rows, kept, scales)


def _keep_brushed(view: PageView) -> pl.DataFrame:
    """The compared cells inside the ranges of the address. Raises Unknown if none is."""
    frame, lines = _compare(view).frame, _lines(view)
    if not view.address.brush:
        return frame
    inside = parallel.within(lines.kept, lines.axes, entries(view.address.brush))["cell"]
    if inside.is_empty():
        raise Unknown("no cell lies within the chosen ranges; Ranges, behind More, takes them back")
    return frame.filter(pl.col("cell").is_in(inside.implode()))


def kept_cells(view: PageView) -> Sequence[str] | None:
    """Keys of the cells inside the ranges of the address; None if it has no range. Raises Unknown if none is inside."""
    return _keep_brushed(view)["cell"].to_list() if view.address.brush else None


def check_costs(view: PageView) -> None:
    """Raise Unknown if the address names a cost that is not there, or ranges without a cell."""
    if view.address.against is not None:
        _against(view)
    kept_cells(view)


def draw_axes(view: PageView) -> SlotContent:
    """Draw levels and outcomes of every cell along parallel axes."""
    context, against, trade_offs = settings_of(view), _against(view), _compare(view)
    (rows, kept, axes), ranges = _lines(view), entries(view.address.brush)
    if kept.is_empty():
        return SlotContent(message="No cell has both values yet.")
    appearance = _colours(view)
    figure = parallel.draw_parallel(kept, axes, appearance, ranges)
    lost = trade_offs.planned - kept.height
    left_out = f" {count(lost, 'cell')} without both values: left out." if lost else ""
    message = ""
    if ranges:
        n, said = parallel.within(kept, axes, ranges).height, join_words([f"{k} {v}" for k, v in ranges.items()])
        message = f"This page shows the {n} of {count(kept.height, 'cell')} with {said}. Ranges above takes them back."
    words = f"{against.title} ({trade_offs.x.better} is better) and {measures.words(view)}"
    caption = (
        f"A line per cell, {count(kept.height, 'cell')}, {n_words(kept)} seeds. First its level on each axis in the "
        f"grid's order, then {words}. Averages: {_averages(trade_offs)}. Faint: cells without a colour of their "
        f"own.{left_out}"
    )
    legend = [cell_key(appearance, cell) for cell in kept["cell"] if appearance.styles[cell] != REST]
    hint = "Drag over a part of an axis to keep the cells inside."
    return SlotContent(figure, caption, name_cells(rows, context), legend, message, hint)


def standings_of(view: PageView) -> tuple[pl.DataFrame, dict[str, dict[str, Any]], str]:
    """List by `variant` what the seeds show of measure and cost; return parts of the columns and a caption, too."""
    context, against = settings_of(view), _against(view)
    standings = _keep_brushed(view).select(
        "cell",
        pl.col("x").alias("cost"),
        "standing",
        pl.col("dominated_by").list.join(", ").alias("dominated by"),
        "note",
    )
    cost = against.quantity.name
    exact = f", or equal in {COST_WORDS[cost]}, which have no noise" if cost in EXACT else ""
    cells = _compare(view).planned
    caption = (
        f"Standing, by {measures.judged_by(view).name} and {against.title}: dominated, if another cell is shown to be "
        f"better in both{exact} (Holm over {cells * (cells - 1):,} ordered pairs); on the front, if against each other "
        f"cell it is shown to be better in one of the two (Holm over {count(cells, 'cell')}). One-sided t tests paired "
        "by seed, of three shared seeds or more. A note says why a claim is cautious or missing."
    )
    own = {"cost": {"headerName": _title(against)}, "dominated by": WRAP, "note": FOLD}
    return name_cells(standings, context), own, caption


def _apart(names: Sequence[str]) -> list[str]:
    """Mark names that columns of cells have, too, or an earlier name has."""
    taken = {"cell", "n", "planned", "variant"}
    apart = []
    for name in names:
        while name in taken:
            name += " (value)"
        taken.add(name)
        apart.append(name)
    return apart


def cost_controls(view: PageView) -> Sequence[Control]:
    """Pickers of the cost and of its direction, and the ranges of the parallel axes."""
    against, _ = catch_user_error(lambda: _against(view))
    first, _ = catch_user_error(lambda: _first_cost(view))
    ways = {"lower": "lower" if against is None or against.way.known else "lower, a guess", "higher": "higher"}
    quantities = COST_WORDS | measures.label_measurements(_quantities(view))
    usual = None if against is None else against.way.better
    return (
        Control("against", "Cost", "choice", quantities, usual=first, resets=("against_better",)),
        Control("against_better", "Of the cost, better is", "choice", ways, usual=usual),
        Control("brush", "Ranges", "choices", options(view.address.brush), "Drag over a part of a parallel axis"),
    )
