"""Cells of a map over two axes: an average over settings of the other axes, or the reason for its absence."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from dashboards.data.formatting import change, count, listed, number, plain
from dashboards.data.seed_averages import Scale
from dashboards.figures.canvas import cut
from store.analysis.verdicts import GridMeasure
from store.statistics import balanced_means
from store.statistics.paired import or_null
from store.statistics.scales import back

_STATES: Final = {"running": "running", "pending": "not run"}
_OFF_SCALE: Final[Mapping[Scale, str]] = {
    "log": "not positive, where the log scale has no value",
    "logit": "not between 0 and 1, where the logit scale has no value",
    "linear": "too large to average",
}
_MOST_NAMED: Final = 3
_LONGEST: Final = 18
"""Letters of a level in a cell."""


class Average(NamedTuple):
    """Average of the runs behind a cell of the map, in the measure's unit."""

    value: float
    low: float | None
    high: float | None
    n: int
    """Seeds of the setting with the fewest."""
    runs: int


def averages(found: pl.DataFrame, measure: GridMeasure, keys: Sequence[str]) -> dict[tuple[str, str], Average]:
    """By the levels of the two axes `keys`; `found` as `balanced_means` takes it, with nulls in units."""
    means = balanced_means(found.drop_nulls("units"), keys, alpha=measure.alpha)
    averaged: dict[tuple[str, str], Average] = {}
    for across, up, *ends, n, runs in means.select(*keys, "mean", "low", "high", "n", "runs").iter_rows():
        value, low, high = (None if end is None else or_null(back(end, measure.scale)) for end in ends)
        if value is not None:
            averaged[across, up] = Average(value, low, high, n, runs)
    return averaged


def reason(runs: pl.DataFrame, scale: Scale) -> str:
    """Why planned runs have no value: 'failed: diverged', 'failed: diverged 2, error 1; running 1', 'not run'."""
    if runs.is_empty():
        return "not planned"
    failed = Counter(str(why or "unknown") for why in runs.filter(pl.col("status") == "failed")["why"])
    others = runs.filter(pl.col("status") != "failed").iter_rows(named=True)
    states = Counter(_state(run, scale) for run in others)
    said = []
    if failed:
        counts = ", ".join(f"{why} {n}" if len(failed) > 1 else why for why, n in failed.most_common())
        said.append(f"failed: {counts}")
    said += [f"{word} {n}" if failed or len(states) > 1 else word for word, n in states.most_common()]
    return "; ".join(said)


def _state(run: Mapping[str, Any], scale: Scale) -> str:
    """Why a run that did not fail has no value."""
    if run["status"] in _STATES:
        return _STATES[run["status"]]
    if run["value"] is None:
        return "unreadable" if run["unreadable"] else "not recorded"
    return _OFF_SCALE[scale] if math.isfinite(run["value"]) else "no finite value"


class Settings(NamedTuple):
    """Settings of the axes that vary behind the cells of a map."""

    names: Sequence[str]
    """The axes."""
    every: Sequence[str]
    """Settings, in words, that some cell of the map plans."""

    def lacking(self, there: Sequence[str]) -> list[str]:
        """List the settings that are not in `there`."""
        return [each for each in self.every if each not in set(there)]


class Behind(NamedTuple):
    """The settings behind a cell of a map that has a value."""

    there: Sequence[str]
    """Settings that the value averages or was chosen among."""
    best: str | None
    """The one that stands for them, if one does."""
    fewer: Mapping[str, str]
    """Settings that could not be chosen, with their numbers of values: '2 of 3 values'."""


def behind(runs: pl.DataFrame, chosen: pl.DataFrame | None) -> Behind:
    """Describe the settings in all `runs` of a cell; `chosen` are the runs of its best setting, if one stands for all.

    One with fewer values than the best is not chosen, however good they are (`select_then_report`).
    """
    counts = runs.group_by("setting", maintain_order=True).agg(pl.col("units").count().alias("n"), pl.len())
    known = {setting: (n, planned) for setting, n, planned in counts.iter_rows() if n}
    if chosen is None:
        return Behind(list(known), None, {})
    most = chosen["units"].count()
    fewer = {setting: f"{n} of {count(planned, 'value')}" for setting, (n, planned) in known.items() if n < most}
    return Behind([each for each in known if each not in fewer], str(chosen["setting"][0]), fewer)


def describe_cell(average: Average, planned: int, settings: Settings, found: Behind, scale: Scale) -> tuple[str, str]:
    """A cell in words, lines as plotly takes them, and more for who points at it."""
    value, low, high, n, runs = average
    spread = spread_words(value, low, high, scale)
    few = "" if runs == planned else f", {runs}/{planned} runs"
    lines = [number(value), *([spread] if spread else []), f"n {n}{few}"]
    notes = [] if low is None or high is None else [f"{number(low)} to {number(high)}"]
    notes.append(f"{runs} of {count(planned, 'planned run')}")
    names = listed(settings.names)
    if found.best is not None:
        lines.append(f"best: {plain(cut(found.best, _LONGEST))}")
        notes.append(f"best: {names} {found.best}")
    lacking = settings.lacking(found.there)
    if lacking:
        lines.append(f"{len(found.there)}/{len(settings.every)} settings")
    if without := [each for each in lacking if each not in found.fewer]:
        notes.append(f"without {names} {_some(without)}")
    if found.fewer:
        few = _some([f"{setting} has {counts}" for setting, counts in found.fewer.items()])
        notes.append(f"{names} {few}, so not chosen")
    return "<br>".join(lines), "; ".join(notes)


def _some(settings: Sequence[str]) -> str:
    more = len(settings) - _MOST_NAMED
    return listed(settings if more <= 0 else [*settings[:_MOST_NAMED], f"{more} more"])


def spread_words(value: float, low: float | None, high: float | None, scale: Scale) -> str:
    """Half an interval: '± 0.02'; on the log scale '± 4 %' or '×÷ 2.3'; '' where there is none."""
    if low is None or high is None:
        return ""
    if scale == "log" and value > 0 and high > 0:
        half = math.log(high / value)
        return f"±{change(half, 'log').replace('+', ' ')}" if half < math.log(2) else f"×÷ {math.exp(half):.2g}"
    return f"± {number((high - low) / 2, 2)}"
