"""The map of the Factors page: a grid over two of its axes, and the runs behind one of its cells."""

from collections.abc import Mapping, Sequence
from itertools import product

import polars as pl

from dashboards.app.address import entries
from dashboards.app.measures import judged_by, measure_words
from dashboards.app.page import PageView, SlotContent, grid_of, memoise
from dashboards.app.parts import Control, columns, link, options
from dashboards.data.formatting import count, join_words
from dashboards.data.seed_averages import average_words, interval_words
from dashboards.data.user_errors import Unknown, require
from dashboards.figures import pivot
from store.analysis.verdicts import GridMeasure

_Table = tuple[pl.DataFrame, dict[str, list[str]]]


@memoise
def _table(view: PageView) -> _Table:
    return pivot.table(view.store, grid_of(view).grid, judged_by(view))


def _axes(view: PageView, table: _Table) -> tuple[str, str] | None:
    """Return the axes of the map: from the address, else the first two that vary independently."""
    found, levels = table
    x, y = view.address.x, view.address.y
    for name in (x, y):
        if name is not None:
            require(repr(grid_of(view).grid), "axis", name, levels)
    if x is not None and y is not None:
        if x == y:
            raise Unknown(f"a map needs two axes; the address says {x!r} for both")
        return x, y
    wide = [name for name, of in levels.items() if len(of) > 1]
    nested = None
    for pair in product([x] if x else wide, [y] if y else wide):
        if pair[0] == pair[1]:
            continue
        tied = [pivot.follows(found, *order) for order in (pair, pair[::-1])]
        if not any(tied):
            return pair
        nested = nested or (None if all(tied) else pair)
    return nested


def _no_map(levels: Mapping[str, Sequence[str]]) -> str:
    wide = [name for name, of in levels.items() if len(of) > 1]
    why = f"{join_words(wide)} always move together" if len(wide) > 1 else f"{wide[0] if wide else 'none'} alone varies"
    return f"A map needs two axes that vary apart; in this grid {why}."


def _read_fixed(view: PageView, axes: tuple[str, str], levels: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return levels that the address fixes, of axes that the map does not show."""
    found = entries(view.address.fix)
    for name, level in found.items():
        require(repr(grid_of(view).grid), "axis", name, levels)
        require(f"axis {name!r}", "level", level, levels[name])
    return {name: level for name, level in found.items() if name not in axes}


def map_of(view: PageView) -> SlotContent:
    """The map, the other axes averaged, fixed or best."""
    measure, best = judged_by(view), view.address.others == "best"
    found, levels = _table(view)
    axes = _axes(view, (found, levels))
    if axes is None:
        return SlotContent(message=_no_map(levels))
    fixed = _read_fixed(view, axes, levels)
    made = pivot.pivot(found, levels, measure, axes, fixed=fixed, best=best)
    log = (view.address.colours or _usual_colours(measure)) == "log"
    figure = pivot.draw_pivot(made, axes, measure.name, log=log, shared=view.address.shared)
    fewest = " of the setting with the fewest" if made.rest.names and not best else ""
    caption = (
        f"{measure_words(view)} by {axes[0]} and {axes[1]}{_over(made, best=best)}"
        f"{''.join(f', at {name} = {level}' for name, level in fixed.items())}. "
        f"{average_words(measure.scale).capitalize()} over seeds, ± half of the "
        f"{interval_words(measure.scale, measure.alpha)}; n: seeds{fewest}. A sign marks a cell without a value."
        f"{''.join(f' Each level of {by} has one of {name}.' for name, by in made.followers.items())}"
    )
    warning = f"Winner's curse: {made.warning}." if made.warning else ""
    said = [warning, _partial(made, best=best), _count_uncoloured(made) if log else ""]
    hint = "The pointer tells why; a click on a cell lists its runs."
    data = made.frame.drop("key", "text", "partial", *([] if best else ["best"]))
    return SlotContent(figure, caption, data, message=" ".join(filter(None, said)), hint=hint)


def _over(made: pivot.Pivot, *, best: bool) -> str:
    """Explain how the other axes are reduced."""
    if not made.rest.names:
        return ""
    settings = count(len(made.rest.every), "setting")
    if best:
        names = join_words(made.rest.names)
        return f", the best of {settings} of {names}, named in the cell: of those with the most values, the best mean"
    return f", averaged over {join_words(made.rest.names)} ({settings}, each counted alike)"


def _partial(made: pivot.Pivot, *, best: bool) -> str:
    lacking, known = int(made.frame["partial"].sum()), made.frame["value"].count()
    if not lacking:
        return ""
    what = "were chosen among fewer than there are" if best else "average over other things"
    few = ", or have too few values of some to choose them," if best else ","
    return (
        f"{lacking} of {count(known, 'cell')} with a value lack settings of {join_words(made.rest.names)} that there "
        f"are{few} and say so (an open diamond where words have no room): they {what}, "
        "so do not compare them with others."
    )


def _count_uncoloured(made: pivot.Pivot) -> str:
    lost = int((made.frame["value"] <= 0).sum())
    if not lost:
        return ""
    have = "has a mean that is" if lost == 1 else "have means that are"
    return f"{count(lost, 'cell')} {have} not positive, without a colour on a logarithmic scale; take linear colours."


def _usual_colours(measure: GridMeasure) -> str:
    return "log" if measure.scale == "log" else "linear"


def runs_of(view: PageView) -> SlotContent:
    """The runs behind the cell of the map that the address names."""
    measure = judged_by(view)
    found, levels = _table(view)
    axes = _axes(view, (found, levels))
    if axes is None or view.address.at is None:
        return SlotContent(message="A click on a cell of the map lists its runs here.")
    found = pivot.at_levels(found, _read_fixed(view, axes, levels))
    rows = pivot.runs_at(found, levels, axes, view.address.at)
    if rows.is_empty():
        return SlotContent(message="The cell of the map that was chosen has no planned runs.")
    where = ", ".join(f"{name} {rows['axis: ' + name][0]}" for name in axes)
    shown = rows.select("trial", "label", "seed", "status", pl.col("why").alias("reason"), "value")
    if measure.name not in shown.columns:
        shown = shown.rename({"value": measure.name})
    kept = columns(shown, {"trial": link("run", "run")})
    return SlotContent(caption=f"{count(shown.height, 'run')} at {where}.", data=shown, columns=kept)


def map_controls(view: PageView) -> list[Control]:
    """Make controls for the axes of the map, for the other axes, and for its colours."""
    measure = judged_by(view)
    found, levels = _table(view)
    axes = _axes(view, (found, levels))
    if axes is None:
        return []
    fixed = _read_fixed(view, axes, levels)
    wide = [name for name, of in levels.items() if len(of) > 1 or name in axes]
    free = [
        name
        for name in wide
        if name not in axes and (name in fixed or not any(pivot.follows(found, name, by) for by in axes))
    ]
    colours = {"log": "logarithmic", "linear": "linear"}
    fixes = {name: {"": "averaged", **options(levels[name])} for name in free}
    return [
        Control("x", "Map across", "choice", options(wide), usual=axes[0], resets=("at",)),
        Control("y", "Map down", "choice", options(wide), usual=axes[1], resets=("at",)),
        Control("others", "Other axes", "choice", {"averaged": "averaged", "best": "best cell"}),
        *(Control(f"fix:{name}", name, "choice", of, "Fix this axis", "") for name, of in fixes.items()),
        Control("colours", "Colours", "choice", colours, usual=_usual_colours(measure)),
        Control("shared", "Colours span the whole grid", "switch"),
        Control("at", "", "hidden"),
    ]
