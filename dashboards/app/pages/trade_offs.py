"""Trade-offs: what a better measure costs in time, memory, parameters, energy, or anything else that runs record."""

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import polars as pl

from dashboards.app.measures import MeasuredAddress, judged_by, measure_controls, measurements, text_of, unit_of
from dashboards.app.once import once
from dashboards.app.page import Control, Key, Option, Page, Shown, Slot, View, grid_of, link
from dashboards.figures import parallel
from dashboards.figures.pareto import WORDS, TradeOffs, draw_trade_offs, trade_offs
from dashboards.figures.pivot import table
from dashboards.problems import Unknown
from dashboards.sections.charts import named
from dashboards.theme import ROPE, Style, dark_partners
from dashboards.words import BETWEEN, count, listed, point
from store.pareto import Quantity, better, known_costs

COST_WORDS: Final = {
    "train_s": "seconds of training",
    "memory_bytes": "bytes of memory",
    "parameters": "parameters",
    "flops": "floating point operations",
    "joules": "joules",
    "flops_per_s": "operations per second",
    "tokens_per_s": "tokens per second",
}
_MOST_TESTED: Final = 500
_MOST_AXES: Final = 8
"""More axes beside each other cannot be read."""


class TradeOffsAddress(MeasuredAddress):
    """The measure, what it is held against, and the scales of both axes."""

    against: str | None = None
    """A cost of `COST_WORDS`, or a measurement or probe as `text_of` writes it; None is the first cost there is."""
    against_better: Literal["lower", "higher"] | None = None
    """None: lower, but for what is per second."""
    x_scale: Literal["log", "linear"] | None = None
    """None: log for costs."""
    y_scale: Literal["log", "linear"] | None = None
    """None: that of the measure."""


class _Against(NamedTuple):
    quantity: Quantity
    title: str
    cost: bool


def _quantities(view: View) -> dict[str, tuple[str, dict[str, float]]]:
    """Measurements, then probes that no measurement is called like, by `text_of`: name and point."""
    about = grid_of(view)
    found = measurements(view.store, about.grid)
    probes = view.store.sql(
        "SELECT DISTINCT p.name, p.point FROM v_probe p JOIN grid_trial g USING (trial) WHERE g.grid = $grid "
        "ORDER BY p.name, p.point::VARCHAR",
        {"grid": about.grid},
    )
    names = {name for name, _ in found.values()}
    rows = [(str(name), dict(at)) for name, at in probes.iter_rows() if name not in names]
    return found | {text_of(*row): row for row in rows}


def _against(view: View) -> _Against:
    way = view.address.against_better
    wanted = view.address.against or _first_cost(view)
    if wanted in COST_WORDS:
        return _Against(Quantity(wanted, better=way), COST_WORDS[wanted], cost=True)
    known = once(view.store, ("quantities", grid_of(view).grid), lambda: _quantities(view))
    if wanted not in known:
        raise Unknown(
            f"nothing is called {wanted!r} here; there are {', '.join([*COST_WORDS, *list(known)[:_MOST_AXES]])}"
        )
    name, at = known[wanted]
    return _Against(Quantity(name, at, way, wanted), wanted, cost=False)


def _first_cost(view: View) -> str:
    have = once(view.store, ("costs", grid_of(view).grid), lambda: known_costs(view.store, grid_of(view).grid))
    return next(iter(have), "train_s")


def _compared(view: View) -> TradeOffs:
    about, measure, against = grid_of(view), judged_by(view), _against(view)
    cells = [cell.cell for cell in about.cells]
    if len(cells) > _MOST_TESTED:
        raise Unknown(
            f"the pairs of {len(cells):,} cells cannot be tested while one waits; `ablate pareto` tests them, and here "
            f"are shown up to {_MOST_TESTED} cells"
        )
    key = ("trade-offs", about.grid, str(measure), str(against))
    return once(view.store, key, lambda: trade_offs(view.store, about.grid, measure, against.quantity, cells))


def _logs(view: View) -> tuple[bool, bool]:
    """Whether x and y are logarithmic."""
    address = view.address
    x = address.x_scale or ("log" if _against(view).cost else "linear")
    y = address.y_scale or ("log" if judged_by(view).scale == "log" else "linear")
    return x == "log", y == "log"


def _scatter(view: View) -> Shown:
    about, measure, against = grid_of(view), judged_by(view), _against(view)
    if against.quantity.name == measure.name and (against.quantity.column or measure.name) == measure.name:
        return Shown(message=f"{measure.name} cannot be held against itself; choose something else.")
    found = _compared(view)
    log = _logs(view)
    lost = [_lost(found.frame["x"], log=log[0]), _lost(found.frame["value"], log=log[1])]
    unit = unit_of(view, measure)
    figure = draw_trade_offs(found, about.look, (against.title, f"{measure.name}{f', {unit}' if unit else ''}"), log)
    counts = dict(found.frame["standing"].value_counts().iter_rows())
    said = listed([f"{counts[word]} {word}" for word in WORDS if counts.get(word)])
    caption = (
        f"{measure.name} against {against.title}; {count(found.frame.height, 'cell')}, "
        f"{_n(found.frame['n'].to_list())}. Point: average over seeds"
        f"; bars: {(1 - measure.alpha) * 100:g} % t intervals of both. Line: the cells whose averages no other cell "
        f"beats in both. What the seeds show is another matter: {said} (paired tests, Holm over all pairs). Faint: "
        f"dominated, shown to be worse than another cell in both.{_hidden(sum(lost))}"
    )
    drawn = set(about.drawn)
    legend = [
        Key(about.look.styles[cell], about.look.names[cell], cell) for cell in found.frame["cell"] if cell in drawn
    ]
    legend.append(Key(Style(ROPE, dark_partners([])[ROPE], "solid", "circle"), "best of both", "steps"))
    missing = len(about.cells) - found.frame.height
    message = f"{count(missing, 'cell')} without both values in any run: not drawn." if missing else ""
    data = named(found.frame.drop("label"), about)
    return Shown(figure, caption, data, legend, message)


def _n(counts: Sequence[int]) -> str:
    ends = list(dict.fromkeys([min(counts, default=0), max(counts, default=0)]))
    return f"n {' to '.join([*map(str, ends[:-1]), count(ends[-1], 'seed')])}"


def _lost(values: pl.Series, *, log: bool) -> int:
    return int((values <= 0).sum()) if log else 0


def _hidden(n: int) -> str:
    return f" {count(n, 'value')} cannot be shown on a logarithmic axis." if n else ""


def _parallel(view: View) -> Shown:
    about, measure, against = grid_of(view), judged_by(view), _against(view)
    found = _compared(view)
    whole, levels = table(view.store, about.grid, measure)
    wide = [name for name, of in levels.items() if len(of) > 1][:_MOST_AXES]
    axes = whole.select("cell", *(pl.col(f"axis: {name}").alias(name) for name in wide)).unique("cell")
    columns = _apart([against.title, measure.name], wide)
    values = found.frame.select("cell", pl.col("x").alias(columns[0]), pl.col("value").alias(columns[1]))
    rows = axes.join(values, on="cell", how="inner")
    log = _logs(view)
    numbers = list(zip(columns, log, strict=True))
    kept = parallel.drawn(rows, numbers)
    if kept.is_empty():
        return Shown(message="No cell has both values yet.")
    scales = parallel.scales(kept, {name: levels[name] for name in wide}, numbers)
    faint = " Faint: cells beyond those that colours tell apart." if len(about.cells) > len(about.drawn) else ""
    figure = parallel.draw_parallel(kept, scales, about.look)
    lost = len(about.cells) - kept.height
    left_out = f" {count(lost, 'cell')} without both values: left out." if lost else ""
    caption = (
        f"A line per cell, {count(kept.height, 'cell')}: its level on each axis in the grid's order, and its averages "
        f"over seeds.{faint}{left_out}"
    )
    here = set(kept["cell"])
    legend = [Key(about.look.styles[cell], about.look.names[cell], cell) for cell in about.drawn if cell in here]
    return Shown(figure, caption, named(rows, about), legend)


def _standings(view: View) -> Shown:
    about = grid_of(view)
    found = _compared(view).frame
    several = pl.col("dominated_by").list.join(", ").alias("dominated by")
    rows = named(found.drop("label"), about).select("variant", "standing", several, "n", "note")
    columns = [
        link("variant", "compare", "cell", width=220),
        {"field": "standing", "width": 150},
        _wrapped("dominated by"),
        {"field": "n", "width": 70, "filter": False},
        _wrapped("note"),
    ]
    caption = "Paired tests over seeds, Holm over all pairs of cells. A note says why a claim is cautious or missing."
    return Shown(caption=caption, data=rows, columns=columns)


def _wrapped(name: str) -> dict[str, Any]:
    return {"field": name, "flex": 1, "minWidth": 220, "wrapText": True, "autoHeight": True}


def _apart(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Names of columns; one that an axis has already gets a mark."""
    return [f"{name} (value)" if name in taken else name for name in names]


def _controls(view: View) -> Sequence[Control]:
    about = grid_of(view)
    known = once(view.store, ("quantities", about.grid), lambda: _quantities(view))
    costs = [Option(name, words) for name, words in COST_WORDS.items()]
    more = [Option(text, name + (f"{BETWEEN}{point(at)}" if at else "")) for text, (name, at) in known.items()]
    against = _against(view)
    scales = [Option("log", "logarithmic"), Option("linear", "linear")]
    log = _logs(view)
    usual = ["log" if each else "linear" for each in log]
    ways = [Option("lower", "lower"), Option("higher", "higher")]
    return (
        *measure_controls(view),
        Control(
            "against",
            "Against",
            "choice",
            [*costs, *more],
            "What the measure is held against",
            usual=_first_cost(view),
            remakes=True,
            resets=("against_better", "x_scale"),
        ),
        Control("against_better", "Of that, better is", "choice", ways, usual=better(against.quantity.name)),
        Control("x_scale", "Axis across", "choice", scales, usual=usual[0]),
        Control("y_scale", "Axis up", "choice", scales, usual=usual[1]),
    )


TRADE_OFFS = Page(
    name="trade-offs",
    title="Trade-offs",
    letter="t",
    about="What does a better result cost, and which cells are worse in everything?",
    address=TradeOffsAddress,
    controls=_controls,
    slots=(
        Slot("scatter", "Measure against cost", _scatter),
        Slot("standings", "What the seeds show", _standings, "table"),
        Slot("parallel", "Axes and outcomes side by side", _parallel),
    ),
)
