"""Curves: what is logged in training, by step, seconds or tokens, averaged over the runs of a group."""

from collections.abc import Sequence
from typing import Final, Literal

import polars as pl
from pydantic import Field

from dashboards.app.page import AppPage, Control, Key, PageView, Slot, SlotContent, grid_of, options
from dashboards.app.run_groups import (
    CELL,
    MOST,
    TRIAL,
    GroupedAddress,
    RunGroups,
    baseline_group,
    by_of,
    list_axes,
    list_fields,
    run_groups,
)
from dashboards.data.formatting import count, join_words, number
from dashboards.data.seed_averages import Band, Scale, average_words, band_words
from dashboards.data.user_errors import Unknown, require
from dashboards.figures.lines import Drawing, Panel, Series, beyond, draw_panels, extremes_words
from dashboards.figures.training import Along, Reduced, Reduction, buckets_for, list_metrics, smooth, training
from store.analysis.metrics import direction

_ALONG: Final[dict[str, str]] = {"step": "training step", "seconds": "seconds of training", "tokens": "tokens"}
_AMOUNT: Final = {"exponential": 0.9, "window": 9.0}


class CurvesAddress(GroupedAddress):
    """The grid, the metrics, how runs are grouped, what the axes are, and what lines and bands are."""

    metric: tuple[str, ...] = ()  # empty: the loss, or the first there is
    x: Along = "step"
    band: Literal["interval", "spread", "range", "seeds", "none"] = "none"
    linear: bool = False
    logx: bool = False
    smooth: Literal["none", "exponential", "window"] = "none"
    amount: float | None = Field(default=None, ge=0, le=10_000)
    """Exponential: the share that is kept, below 1; window: points."""
    quiet: bool = False  # without the least and greatest values of buckets


def draw_curves(view: PageView) -> SlotContent:
    """Panels of metrics with a line per group."""
    address: CurvesAddress = view.address
    about, known = grid_of(view), list_metrics(view.store, grid_of(view).grid)
    if not known:
        return SlotContent(message="No run of this grid has logged anything yet.")
    metrics = address.metric or known[:1]
    for name in metrics:
        require(f"grid {about.grid!r}", "logged metric", name, known)
    chosen_groups = run_groups(view)
    found = {name: _reduce(view, name, chosen_groups, len(metrics)) for name in metrics}
    if all(each.frame.is_empty() for each, _ in found.values()):
        return SlotContent(message=_nothing(view, metrics, chosen_groups))
    series = _series(chosen_groups, [each for each, _ in found.values()])
    panels = [_panel(view, name, each, scale) for name, (each, scale) in found.items()]
    figure = draw_panels(
        panels, series, x=_ALONG[address.x] + (", log axis" if address.logx else ""),
        drawing=Drawing(height=400 if len(panels) == 1 else 260, log_x=address.logx, width=1.6,
                        bands=address.band not in ("seeds", "none")),
    )  # fmt: skip
    data = pl.concat(
        panel.found.filter(pl.col("series").is_in(chosen_groups.keep)).select(
            pl.lit(name).alias("metric"),
            pl.col("series").replace_strict(chosen_groups.names, return_dtype=pl.String).alias("group"),
            pl.exclude("series").name.map(lambda column: address.x if column == "x" else column),
        )
        for name, panel in zip(metrics, panels, strict=True)
    )
    logged = [dict(each.reached.iter_rows()) for each, _ in found.values()]
    reached = {key: max(each.get(key, 0) for each in logged) for key in chosen_groups.keep}
    return SlotContent(
        figure,
        _caption(view, found, chosen_groups),
        data,
        _legend(chosen_groups, reached, _noun(view)),
        _warnings(panels, found, chosen_groups, reached),
        answer=_answer(view, metrics[0], found[metrics[0]][0], chosen_groups),
    )


def _answer(view: PageView, name: str, found: Reduced, of: RunGroups) -> str:
    """Which group of those shown ends best in a metric whose direction is known, beside the baseline."""
    way = direction(name)
    ends = found.frame.filter(pl.col("series").is_in(of.keep)).drop_nulls("value")
    ends = ends.filter(pl.col("x") == pl.col("x").max()).sort("value", descending=way == "higher", maintain_order=True)
    if way is None or ends.height < 2:
        return ""
    values = dict(ends.select("series", "value").iter_rows())
    best = next(iter(values))
    base = baseline_group(grid_of(view), of.found, best)
    beside = (
        f" ({of.names[base]}: {number(values[base])})" if base is not None and base in values and base != best else ""
    )
    extreme = "highest" if way == "higher" else "lowest"
    ends_with = f"{of.names[best]} ends with the {extreme} mean {name} of those shown: {number(values[best])}{beside}."
    return f"{ends_with} Overview tells which differences are real."


def _reduce(view: PageView, name: str, of: RunGroups, panels: int) -> tuple[Reduced, Scale]:
    """A metric on the log scale, unless another is wanted or it takes values that have no logarithm."""
    address: CurvesAddress = view.address
    lines = len(of.keep) * panels
    if address.band == "seeds":
        lines += int(of.found.filter(pl.col("series").is_in(of.keep))["planned"].sum()) * panels
    band: Band = "interval" if address.band in ("seeds", "none") else address.band  # type: ignore[assignment]
    how = Reduction(address.x, address.logx, "linear", band, address.band == "seeds", buckets_for(lines))
    if address.linear:
        return training(view.store, of.given, name, of.keep, how), "linear"
    found = training(view.store, of.given, name, of.keep, how._replace(scale="log"))
    least = found.frame["least"].min()
    if isinstance(least, float) and least <= 0:
        return training(view.store, of.given, name, of.keep, how), "linear"
    return found, "log"


def _panel(view: PageView, name: str, found: Reduced, scale: Scale) -> Panel:
    address: CurvesAddress = view.address
    frame, title = found.frame, _title(view, name)
    if address.smooth != "none":
        amount = _amount(address)
        frame = smooth(frame, address.smooth, amount, scale)
        title += f", smoothed ({address.smooth} {amount:g})"
    frame = frame.drop(["low", "high"] if address.band == "seeds" else [])
    if address.quiet or address.band == "seeds" or not _averages_buckets(address, found):
        frame = frame.drop("least", "greatest")
    runs = found.runs.drop("series").rename({"trial": "series"})
    return Panel(pl.concat([runs, frame], how="diagonal_relaxed") if runs.height else frame, title, scale)


def _title(view: PageView, name: str) -> str:
    """A metric with its unit, if the grid measures it, and its direction, if it is known."""
    about, way = grid_of(view), direction(name)
    measure = about.measure if about.measure is not None and about.measure.name == name else None
    unit = f", {about.unit}" if measure is not None and about.unit else ""
    better = way if measure is None else measure.better
    return f"{name}{unit}{'' if better is None else f' ({better} is better)'}"


def _averages_buckets(address: CurvesAddress, found: Reduced) -> bool:
    """Whether buckets of one width hold more than a value of a run: a step has one, a second has any number."""
    return not address.logx and (address.x != "step" or found.width > 1)


def _amount(address: CurvesAddress) -> float:
    amount = _AMOUNT[address.smooth] if address.amount is None else address.amount
    if address.smooth == "exponential" and amount >= 1:
        raise Unknown(f"exponential smoothing keeps a share below 1; got {amount:g}")
    return amount


def _series(of: RunGroups, found: Sequence[Reduced]) -> dict[str, Series]:
    lines = {key: Series(of.names[key], of.styles[key]) for key in of.keep}
    for each in found:
        for trial, series in each.runs.select("trial", "series").unique().iter_rows():
            lines[trial] = Series(f"{of.names[series]} · {trial[:8]}", of.styles[series], series, thin=True)
    return lines


def _noun(view: PageView) -> str:
    return "run" if by_of(view) not in ((), (CELL,)) else "seed"


def _legend(of: RunGroups, reached: dict[str, int], noun: str) -> list[Key]:
    planned = dict(of.found.select("series", "planned").iter_rows())
    alone = max(planned.values(), default=0) == 1
    return [
        Key(of.styles[key], of.names[key], key, "" if alone else f"{reached[key]} of {count(planned[key], noun)}")
        for key in of.keep
    ]


def _caption(view: PageView, found: dict[str, tuple[Reduced, Scale]], of: RunGroups) -> str:
    address: CurvesAddress = view.address
    told: dict[str, list[str]] = {}
    for name, (each, scale) in found.items():
        if not each.frame.is_empty():
            told.setdefault(_line_words(view, each, scale, of), []).append(name)
    words = next(iter(told)) if len(told) == 1 else " ".join(f"{join_words(of_)}: {said}" for said, of_ in told.items())
    averaged = any(_averages_buckets(address, each) for each, _ in found.values())
    if averaged and not address.quiet and address.band != "seeds":
        words += f" {extremes_words(max(each.frame['series'].n_unique() for each, _ in found.values()))}"
    if address.smooth != "none":
        kind = f"keeps {_amount(address):g} of the average so far" if address.smooth == "exponential" else (
            f"mean of {_amount(address):g} points about each")  # fmt: skip
        words += f" Smoothed: {kind}; behind, weaker, what is not. Bands are not smoothed."
    if address.logx:
        words += " What is at zero has no place on a log axis."
    return words + of.why


def _line_words(view: PageView, each: Reduced, scale: Scale, of: RunGroups) -> str:
    """Explain the lines and bands of one metric."""
    address: CurvesAddress = view.address
    noun = _noun(view)
    unit = {"step": "step", "seconds": "second", "tokens": "token"}[address.x]
    means = f" of means over {number(each.width)} {unit}s" if _averages_buckets(address, each) else ""
    means = f" of means over {len(set(each.frame['x']))} parts of the axis" if address.logx else means
    if max(of.found["planned"].to_list(), default=0) == 1:
        return f"Line: a single run{means.replace('of means', 'in means', 1)}."
    words = f"Line: {average_words(scale)} over {noun}s{means}."
    if address.band == "seeds":
        return f"{words} Thin lines: single {noun}s."
    if address.band != "none":
        most = max(each.frame["n"].to_list(), default=0)
        words += (
            f" Band: {band_words(address.band, scale).replace('seeds', f'{noun}s')}, n up to {most}; none below three."
        )
    return words


def _warnings(
    panels: Sequence[Panel], found: dict[str, tuple[Reduced, Scale]], of: RunGroups, reached: dict[str, int]
) -> str:
    said: list[str] = []
    sizes = sorted({reached[key] for key in of.keep})
    if len(sizes) > 1:
        said.append(f"Groups differ in size: {sizes[0]} to {count(sizes[-1], 'run')}.")
    failed = (
        0 if of.given.failed else sum(n for key, n in of.found.select("series", "failed").iter_rows() if key in of.keep)
    )
    if failed:
        said.append(f"{count(failed, 'failed run')} left out.")
    for name, (each, _) in found.items():
        lost = each.frame.filter(pl.col("lost") > 0)
        if lost.height:
            total, at = int(lost["lost"].sum()), lost.sort("x").row(0, named=True)
            who = of.names[at["series"]]
            said.append(
                f"{count(total, 'value')} of {name} could not be averaged, the first near {at['x']:,.6g} ({who})."
            )
    for name, panel in zip(found, panels, strict=True):
        far = beyond(panel.found, panel.scale)
        if far.height:
            at = far.sort("x").row(0, named=True)
            who = of.names.get(at["series"], at["series"][:8])
            said.append(
                f"{count(far.height, 'point')} of {name} beyond the axis (▲ ▼), the first {number(at['beyond'])} near "
                f"{at['x']:,.6g} ({who})."
            )
    return " ".join(said)


def _nothing(view: PageView, metrics: Sequence[str], of: RunGroups) -> str:
    words = f"None of these runs has logged {join_words(list(metrics))}"
    if view.address.x == "tokens":
        words += " and counted its tokens"
    failed = int(of.found["failed"].sum()) if not of.given.failed else 0
    return f"{words} yet." + (f" {count(failed, 'failed run')} left out." if failed else "")


def _controls(view: PageView) -> Sequence[Control]:
    about = grid_of(view)
    known = list_metrics(view.store, about.grid)
    ways = {CELL: "all but the seed", **options(list_axes(about)), "seed": "seed"}
    ways |= {TRIAL: "single runs", **options(list_fields(view.store, about.grid))}
    shown = {"*": f"as many as fit ({MOST})", **options(run_groups(view).names.values())}
    picked = view.address.run
    same = "Runs with the same of these are averaged"
    by, resets = by_of(view) or (CELL,), ("show", "hide")
    bands = {"interval": "95 % t interval", "spread": "standard deviation", "range": "least to greatest"}
    amounts = "Exponential: the share that is kept, below 1. Window: points."
    return (
        Control("metric", "Metrics", "choices", options(known), usual=tuple(known[:1])),
        Control("by", "One line per", "choices", ways, same, by, resets=resets),
        Control("show", "Shown", "choices", shown, "Empty: the baseline and the best"),
        *([Control("run", "Runs", "choices", options(picked))] if picked else []),
        Control("x", "Along", "choice", _ALONG),
        Control("band", "Band", "choice", {"none": "none", **bands, "seeds": "single runs"}),
        Control("smooth", "Smoothing", "choice", options(("none", "exponential", "window"))),
        Control("amount", "Strength", "number", hint=amounts),
        Control("linear", "Linear axis", "switch"),
        Control("logx", "Log steps", "switch"),
        Control("quiet", "Hide extremes", "switch", hint="Without the least and greatest values of buckets"),
        Control("failed", "Failed runs too", "switch"),
    )


CURVES = AppPage(
    name="curves",
    title="Curves",
    letter="u",
    about="How does training go, and where do variants part?",
    address=CurvesAddress,
    controls=_controls,
    main=("metric", "by", "show", "run"),
    slots=(Slot("curves", "Training curves", draw_curves),),
)
