"""Curves: what is logged in training, by step, seconds or tokens, averaged over the runs of a group."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

import polars as pl
from pydantic import Field

from ablate.dashboards.app import run_groups
from ablate.dashboards.app.page import AppPage, Control, Key, PageView, Slot, SlotContent, grid_of, html, options
from ablate.dashboards.app.run_groups import CELL, TRIAL, GroupedAddress, RunGroups
from ablate.dashboards.data.formatting import count, join_words, number, numbers_apart
from ablate.dashboards.data.grid_context import MOST_CURVES, GridContext
from ablate.dashboards.data.seed_averages import Band, Scale, average_words, band_words
from ablate.dashboards.data.user_errors import require
from ablate.dashboards.figures.end_labels import height_for
from ablate.dashboards.figures.lines import Drawing, Panel, Series, beyond, draw_panels, extremes_words
from ablate.dashboards.figures.training import Along, Reduced, Reduction, buckets_for, list_metrics, smooth, training
from ablate.store.analysis.metrics import direction
from ablate.store.analysis.row_labels import row_label, unit_of
from ablate.store.files.plans import added_cells

_ALONG: Final[dict[str, str]] = {"step": "training step", "seconds": "seconds of training", "tokens": "tokens"}
_MOST_OFFERED: Final = 24
_Metrics = Mapping[str, tuple[Reduced, Scale]]  # by name


class CurvesAddress(GroupedAddress):
    """The grid, the metrics, how runs are grouped, what the axes are, and what lines and bands are."""

    former: ClassVar = {"amount": (), "quiet": (), "smooth": ("none", "exponential", "window")}

    metric: tuple[str, ...] = ()  # empty: the loss, or the first there is
    x: Along = "step"
    band: Literal["interval", "spread", "range", "seeds", "none"] = "interval"
    linear: bool = False
    logx: bool = False
    smooth: float = Field(default=0.0, ge=0, lt=1)  # the share of the average so far that is kept


def draw_curves(view: PageView) -> SlotContent:
    """Panels of metrics with a line per group."""
    address: CurvesAddress = view.address
    context, logged = grid_of(view), list_metrics(view.store, grid_of(view).grid)
    if not logged:
        return SlotContent(message="No run of this grid has logged anything yet.")
    metrics = address.metric or logged[:1]
    for name in metrics:
        require(f"grid {context.grid!r}", "logged metric", name, logged)
    shown = run_groups.run_groups(view)
    curves = {name: _reduce(view, name, shown, len(metrics)) for name in metrics}
    if all(each.frame.is_empty() for each, _ in curves.values()):
        return SlotContent(
            message=f"None of these runs has logged {join_words(list(metrics))} yet.{_count_failed(shown)}"
        )
    known = [name for name, (each, _) in curves.items() if each.frame["value"].is_finite().any()]
    bare = [name for name in curves if name not in known]
    empty = f"No finite value of {join_words(bare)}." if bare else ""
    if not known:
        return SlotContent(message=f"{empty}{_count_failed(shown)}")
    curves = {name: curves[name] for name in known}
    panels = {name: _panel(view, name, each, scale) for name, (each, scale) in curves.items()}
    bands = address.band not in ("seeds", "none") and len(shown.keep) <= MOST_CURVES
    height = height_for(len(shown.keep), 400 if len(panels) == 1 else 260)
    drawing = Drawing(height=height, log_x=address.logx, width=1.6, bands=bands, named=len(shown.keep) > 1)
    x = _ALONG[address.x] + (", log axis" if address.logx else "")
    figure = draw_panels(
        [*panels.values()], _series(shown, [each for each, _ in curves.values()]), x=x, drawing=drawing
    )
    columns = (
        panel.frame.filter(pl.col("series").is_in(shown.keep)).select(
            pl.lit(name).alias("metric"),
            *map(_named, ("unit", "better"), _unit_and_direction(view, name)),
            pl.col("series").replace_strict(shown.names, return_dtype=pl.String).alias("group"),
            pl.exclude("series").name.map(lambda column: address.x if column == "x" else column),
        )
        for name, panel in panels.items()
    )
    data = pl.concat(columns, how="diagonal_relaxed")  # a metric that is logged at few steps has no buckets
    runs = [dict(each.reached.iter_rows()) for each, _ in curves.values()]
    reached = {key: max(each.get(key, 0) for each in runs) for key in shown.keep}
    answer = _answer(view, known[0], *curves[known[0]], shown)
    legend, message = _legend(view, shown, reached), f"{empty} {_warnings(panels, curves, shown, reached)}".strip()
    offers = _offer_groups(context, shown)
    return SlotContent(figure, _caption(view, curves, shown), data, legend, message, answer=answer, parts=offers)


def _offer_groups(context: GridContext, of: RunGroups) -> list[Any]:
    """Return a fold with a button for each group that can be added to those shown; of many, for the first ones."""
    added, cells = added_cells(context.header), dict(of.groups.select("series", "cells").iter_rows())
    others = sorted((key for key in of.names if key not in of.keep), key=lambda key: {*cells[key]} <= {*added})
    if not others or len(of.keep) >= run_groups.MOST:
        return []
    names, more = [of.names[key] for key in others[:_MOST_OFFERED]], len(others) - _MOST_OFFERED
    buttons = [html.Button(name, type="button", className="key", **{"data-add": name}) for name in names]
    rest = [html.Span(f"{more} more under Shown", className="key note")] if more > 0 else []
    title = html.Summary(f"Add a line: {count(len(others), 'other')}", className="note")
    return [html.Details([title, html.Div([*buttons, *rest], className="legend")])]


def _answer(view: PageView, name: str, reduced: Reduced, scale: Scale, of: RunGroups) -> str:
    """Name the shown group that ends best, beside the baseline; the lowest and highest if no direction is known."""
    way, mean, context = direction(name), f"{average_words(scale)} {name}", grid_of(view)
    ends = reduced.frame.filter(pl.col("series").is_in(of.keep)).drop_nulls("value")
    ends = ends.filter(pl.col("x") == pl.col("x").max()).sort("value", descending=way == "higher", maintain_order=True)
    if ends.height < 2:
        return ""
    values = dict(ends.select("series", "value").iter_rows())
    if way is None:
        low, *_, high = values
        least, greatest = numbers_apart(values[low], values[high])
        if values[low] == values[high]:
            return f"All groups shown end with the same {mean}: {least}."
        first = f"{of.names[low]} ends with the lowest {mean} of those shown, {least}, and"
        return f"{first} {of.names[high]} with the highest, {greatest}."
    best = next(iter(values))
    base = run_groups.baseline_group(context, of.groups, best)
    if base not in values:  # the level at which the baseline is best is another one
        bases, cells = {*context.baselines.values()}, dict(of.groups.select("series", "cells").iter_rows())
        base = next((key for key in values if bases.intersection(cells[key])), None)
    ending, beside = number(values[best]), ""
    if base is not None and base != best and base in values:
        ending, other = numbers_apart(values[best], values[base])
        beside = f" ({of.names[base]}: {other})"
    extreme = "highest" if way == "higher" else "lowest"
    ends_with = f"{of.names[best]} ends with the {extreme} {mean} of those shown: {ending}{beside}."
    if context.measure is None or context.baseline is None:
        return ends_with
    tested = f"ablate curves {shlex.quote(name)} --by steps tests such differences"
    return f"{ends_with} {tested}; Overview tests those of the grid's measure, {context.measure.name}."


def _reduce(view: PageView, name: str, of: RunGroups, panels: int) -> tuple[Reduced, Scale]:
    """A metric on the log scale, unless another is wanted or it takes values that have no logarithm."""
    address: CurvesAddress = view.address
    lines, each = len(of.keep), address.band == "seeds"
    band: Band = "interval" if address.band in ("seeds", "none") else address.band  # type: ignore[assignment]
    if each:
        lines += int(of.groups.filter(pl.col("series").is_in(of.keep))["planned"].sum())
    how = Reduction(along=address.x, log_x=address.logx, band=band, each=each, buckets=buckets_for(lines * panels))
    if not address.linear:
        reduced = training(view.store, of.grouping, name, of.keep, how._replace(scale="log"))
        least = reduced.frame["least"].min()
        if not isinstance(least, float) or least > 0:
            return reduced, "log"
    return training(view.store, of.grouping, name, of.keep, how), "linear"


def _panel(view: PageView, name: str, reduced: Reduced, scale: Scale) -> Panel:
    address: CurvesAddress = view.address
    frame, title = reduced.frame, _title(view, name)
    if address.smooth:
        frame = smooth(frame, address.smooth, scale)
        title += f", smoothed ({address.smooth:g})"
    if address.band == "seeds":
        frame = frame.drop("low", "high")
    if address.band == "seeds" or not _averages_buckets(address, reduced):
        frame = frame.drop("least", "greatest")
    runs = reduced.runs.drop("series").rename({"trial": "series"})
    return Panel(pl.concat([runs, frame], how="diagonal_relaxed") if runs.height else frame, title, scale)


def _title(view: PageView, name: str) -> str:
    """A metric with its unit and its direction, if they are known."""
    unit, better = _unit_and_direction(view, name)
    title = row_label(grid_of(view).header, name).title
    return f"{title}{f', {unit}' if unit else ''}{f' ({better} is better)' if better else ''}"


def _named(column: str, words: str | None) -> pl.Expr:
    return pl.lit(words, pl.String).alias(column)


def _unit_and_direction(view: PageView, name: str) -> tuple[str | None, str | None]:
    """Return the unit of a metric and its direction, if they are known."""
    context = grid_of(view)
    measure = context.measure
    better = measure.better if measure is not None and measure.name == name else direction(name)
    return unit_of(context.header, name) or None, better


def _averages_buckets(address: CurvesAddress, reduced: Reduced) -> bool:
    """Whether buckets of one width hold more than a value of a run: a step has one, a second has any number."""
    return not address.logx and (address.x != "step" or reduced.width > 1)


def _series(of: RunGroups, curves: Sequence[Reduced]) -> dict[str, Series]:
    lines = {key: Series(of.names[key], of.styles[key]) for key in of.keep}
    for each in curves:
        for trial, series in each.runs.select("trial", "series").unique().iter_rows():
            lines[trial] = Series(f"{of.names[series]} · {trial[:8]}", of.styles[series], series, thin=True)
    return lines


def _noun(view: PageView) -> str:
    return "run" if run_groups.by_of(view) not in ((), (CELL,)) else "seed"


def _legend(view: PageView, of: RunGroups, reached: dict[str, int]) -> list[Key]:
    planned = dict(of.groups.select("series", "planned").iter_rows())
    alone = max(planned.values(), default=0) == 1
    notes = {key: "" if alone else f"{reached[key]} of {count(planned[key], _noun(view))}" for key in of.keep}
    return [Key(of.styles[key], of.names[key], key, note) for key, note in notes.items()]


def _caption(view: PageView, curves: _Metrics, of: RunGroups) -> str:
    address: CurvesAddress = view.address
    told: dict[str, list[str]] = {}
    for name, (each, scale) in curves.items():
        if not each.frame.is_empty():
            told.setdefault(_line_words(view, each, scale, of), []).append(name)
    words = next(iter(told)) if len(told) == 1 else " ".join(f"{join_words(of_)}: {said}" for said, of_ in told.items())
    words += of.why
    unknown = [name for name in curves if _unit_and_direction(view, name)[0] is None]
    words += f" No unit is recorded of {join_words(unknown)}." if unknown else ""
    if address.band != "seeds" and any(_averages_buckets(address, each) for each, _ in curves.values()):
        words += f" {extremes_words(max(each.frame['series'].n_unique() for each, _ in curves.values()))}"
    if address.smooth:
        words += f" Smoothed: keeps {address.smooth:g} of the average so far; what is not smoothed is weaker. "
        words += "Bands are not smoothed."
    return words


def _line_words(view: PageView, each: Reduced, scale: Scale, of: RunGroups) -> str:
    """Explain the lines and bands of one metric."""
    address: CurvesAddress = view.address
    noun, unit = _noun(view), {"step": "step", "seconds": "second", "tokens": "token"}[address.x]
    means = f" of means over {number(each.width)} {unit}s" if _averages_buckets(address, each) else ""
    means = f" of means over {each.frame['x'].n_unique()} parts of the axis" if address.logx else means
    if max(of.groups["planned"].to_list(), default=0) == 1:
        return f"Line: a single run{means.replace('of means', 'in means', 1)}."
    words = f"Line: {average_words(scale)} over {noun}s{means}."
    if address.band == "seeds":
        return f"{words} Thin lines: single {noun}s."
    if address.band != "none":
        most = max(each.frame["n"].to_list(), default=0)
        band = band_words(address.band, scale).replace("seeds", f"{noun}s")
        if len(of.keep) > MOST_CURVES:
            return f"{words} The pointer tells the {band}, as bands of more than {MOST_CURVES} lines hide each other."
        words += f" Band: {band}, n up to {most}; none below three."
    return words


def _count_failed(of: RunGroups) -> str:
    """Say how many failed runs are left out."""
    failed = 0 if of.grouping.failed else int(of.groups.filter(pl.col("series").is_in(of.keep))["failed"].sum())
    return f" {count(failed, 'failed run')} left out." if failed else ""


def _warnings(panels: Mapping[str, Panel], curves: _Metrics, of: RunGroups, reached: dict[str, int]) -> str:
    sizes = sorted({reached[key] for key in of.keep})
    said = f"Groups differ in size: {sizes[0]} to {count(sizes[-1], 'run')}." if len(sizes) > 1 else ""
    said += _count_failed(of)
    for name, (each, _) in curves.items():
        if lost := int(each.frame["lost"].sum()):
            said += f" {count(lost, 'value')} of {name} could not be averaged."
        if far := beyond(panels[name].frame, panels[name].scale).height:
            said += f" {count(far, 'point')} of {name} beyond the axis (▲ ▼)."
    return said.strip()


def _controls(view: PageView) -> Sequence[Control]:
    context, picked = grid_of(view), view.address.run
    known = list_metrics(view.store, context.grid)
    ways = {CELL: "all but the seed", **options(run_groups.list_axes(context)), "seed": "seed"}
    ways |= {TRIAL: "single runs", **options(run_groups.list_fields(view.store, context.grid))}
    groups = run_groups.run_groups(view)
    shown = {"*": f"as many as fit ({run_groups.MOST})", **options(groups.names.values())}
    names = tuple(groups.names[key] for key in groups.keep)
    same = "Runs with the same of these are averaged"
    by = run_groups.by_of(view) or (CELL,)
    bands = {"interval": "95 % t interval", "spread": "standard deviation", "range": "least to greatest"}
    return (
        Control("metric", "Metrics", "choices", options(known), usual=tuple(known[:1])),
        Control("by", "One line per", "choices", ways, same, by, resets=("show", "hide")),
        Control("show", "Shown", "choices", shown, "Empty: the baseline and the best", names),
        *([Control("run", "Runs", "choices", options(picked))] if picked else []),
        Control("x", "Along", "choice", _ALONG),
        Control("band", "Band", "choice", {**bands, "seeds": "single runs", "none": "none"}),
        Control("smooth", "Smoothing", "slider", usual=0.0, span=(0.0, 0.99, 0.01)),
        Control("linear", "Linear axis", "switch"),
        Control("logx", "Log steps", "switch"),
        Control("failed", "Failed runs too", "switch"),
    )


CURVES = AppPage(
    name="curves",
    title="Curves",
    letter="u",
    question="How does training go, and where do variants part?",
    address=CurvesAddress,
    named=("metric",),
    controls=_controls,
    main=("metric", "by", "show", "run", "band", "smooth"),
    slots=(Slot("curves", "Training curves", draw_curves),),
)
