"""Panels of the pictures of results: differences from the baseline, or plain values where there is none."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

import polars as pl
from figures import COLOURS
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure

from ablate.dashboards.data.formatting import count
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.statistics.scales import margin
from ablate.store.statistics.verdict import CLAIMS

"""Verdicts on differences that are shown not to be zero."""
_PERCENTS: Final = (0, -90, 900, -50, 100, -20, 20, -10, 10, -5, 5, -2, 2, -1, 1)
"""Ticks; the earlier ones go first where there is no room for all."""


def _label_ticks(axes: Axes, measure: GridMeasure) -> None:
    """Write few ticks; differences of logarithms in per cent."""
    if measure.scale == "linear":
        axes.locator_params(axis="x", nbins=6)
    else:
        low, high = axes.get_xlim()
        ticks: dict[float, str] = {}
        for percent in _PERCENTS:
            tick = math.log1p(percent / 100)
            if low <= tick <= high and all(abs(tick - each) > (high - low) / 9 for each in ticks):
                ticks[tick] = f"{percent:+} %" if percent else "0"
        axes.set_xticks(list(ticks), list(ticks.values()))


class Forest(NamedTuple):
    """Differences from the baseline with their intervals: thick uncorrected, thin corrected."""

    found: pl.DataFrame
    measure: GridMeasure

    @property
    def height(self) -> float:
        return 0.18 * self.found.height + 0.82

    def draw(self, figure: SubFigure) -> None:
        rows, height = self.found.rows(named=True), self.height
        names = [f"{row['label']}: {row['verdict']}" for row in rows]
        axes = _add_rows(figure, names, 0.67 / height, 1 - 0.72 / height)
        band = margin(self.measure.rope, self.measure.scale)
        axes.axvspan(-band, band, color="#eef0f2")
        axes.axvline(0, color=COLOURS["plain"], linewidth=0.6)
        for place, row in enumerate(rows):
            gain = (row["difference"] or 0) * (1 if self.measure.better == "higher" else -1)
            colour = COLOURS["plain" if row["verdict"] not in CLAIMS else "mark" if gain > 0 else "odd"]
            for low, high, width in (
                (row["corrected_low"], row["corrected_high"], 0.7),
                (row["low"], row["high"], 2.4),
            ):
                if low is not None:
                    axes.plot((low, high), (place, place), color=colour, linewidth=width, solid_capstyle="butt")
            if row["difference"] is not None:
                axes.plot(row["difference"], place, "o", color=colour, markersize=3.5)
        _label_ticks(axes, self.measure)
        pairs, family = self.found["pairs"].max(), self.found["family"].max()
        unit = "difference" if self.measure.scale == "linear" else "difference in per cent"
        axes.set_xlabel(
            f"{unit} of {self.measure.name}; {self.measure.better} is better\n{pairs} pairs; grey counts as equal\n"
            f"thick: {100 * (1 - self.measure.alpha):g} % interval, thin: corrected for {count(family, 'comparison')}",
            fontsize=7,
        )


class Values(NamedTuple):
    """Values of every run, by cell."""

    runs: pl.DataFrame
    """Columns `label` and `value`."""
    measure: GridMeasure

    @property
    def _values(self) -> dict[str, list[float]]:
        """Values by label, the best cell first."""
        found = self.runs.drop_nulls("value").group_by("label", maintain_order=True).agg("value")
        higher = self.measure.better == "higher"
        return dict(sorted(found.rows(), key=lambda row: median(row[1]), reverse=higher))

    @property
    def height(self) -> float:
        return 0.18 * len(self._values) + 0.66

    def draw(self, figure: SubFigure) -> None:
        cells, height = self._values, self.height
        axes = _add_rows(figure, list(cells), 0.51 / height, 1 - 0.56 / height)
        axes.set_xscale(self.measure.scale)
        for place, values in enumerate(cells.values()):
            axes.plot(values, [place] * len(values), "o", color=COLOURS["mark"], markersize=3.5, alpha=0.6)
            axes.plot(median(values), place, "|", color="black", markersize=9)
        axes.grid(axis="x", color="#c5ccd3", linewidth=0.4)
        axes.set_xlabel(f"{self.measure.name}; {self.measure.better} is better\ndot: run, line: median", fontsize=7)


def _add_rows(figure: SubFigure, names: Sequence[str], bottom: float, extent: float) -> Axes:
    """Add axes with a named row per cell, the first on top."""
    left = max(0.42, 0.01 + 0.0075 * max(map(len, names)))
    axes = figure.add_axes((left, bottom, 0.97 - left, extent))
    axes.set(ylim=(len(names) - 0.4, -0.6), yticks=range(len(names)))
    axes.set_yticklabels(names, fontsize=6.5)
    axes.tick_params(length=0)
    axes.tick_params(axis="x", labelsize=7)
    return axes
