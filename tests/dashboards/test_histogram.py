"""Histograms count every value once, between edges that take all of them."""

import math

import plotly.graph_objects as go
import polars as pl
import pytest

from dashboards.figures.histogram import MOST_BINS, bin_edges, count_bins, draw_histogram, middles, of_bins
from dashboards.figures.lines import Series
from dashboards.theme.styles import REST

SERIES = {name: Series(name, REST) for name in ("a", "<b>%{x}</b>")}


def values(**series: list[float]) -> pl.DataFrame:
    rows = [(name, value) for name, of in series.items() for value in of]
    return pl.DataFrame(rows, schema={"series": pl.String, "value": pl.Float64}, orient="row")


@pytest.mark.parametrize(
    "found",
    [[0.0, 1.0, 2.0, 3.0], [5.0], [0.0, 0.0], [], [math.nan, math.inf, 1.0, 2.0], [1e30, -1e30], [1.0] * 50 + [9.0]],
)
def test_every_finite_value_is_counted_once(found: list[float]) -> None:
    edges = bin_edges(found)
    assert edges == sorted(set(edges))
    assert 2 <= len(edges) <= MOST_BINS + 1
    kept = [value for value in found if math.isfinite(value)]
    counts = count_bins(values(a=found), edges)
    assert sum(counts["count"]) == len(kept)
    for low, high, n in counts.select("low", "high", "count").iter_rows():
        last = high == edges[-1]
        assert n == sum(low <= value < high or (last and value == high) for value in kept)


def test_bins_that_are_known_by_their_middles_keep_counts_and_have_weighted_rules() -> None:
    found = pl.DataFrame({"series": "a", "x": [0.5, 1.0, 2.0], "value": [1.0, 2.0, 1.0]})
    counts, rules = of_bins(found)
    assert counts["count"].to_list() == [1, 2, 1]
    assert counts.select("low", "high").rows() == [(0.25, 0.75), (0.75, 1.25), (1.75, 2.25)]
    assert rules.select("mean", "median").row(0) == (pytest.approx(4.5 / 4), 1.0)
    counts, rules = of_bins(found.with_columns(value=pl.lit(0.0)))
    assert rules.is_empty()


def bars(figure: go.Figure) -> list[go.Bar]:
    assert figure.to_json()
    return [trace for trace in figure.data if isinstance(trace, go.Bar)]


def test_each_series_has_a_panel_with_its_name_literally_and_its_rules() -> None:
    found = values(**{"a": [0.0, 1, 1, 4], "<b>%{x}</b>": [2.0, 2]})
    edges = [0.0, 1.0, 2.0, 3.0, 4.0]
    figure = draw_histogram(count_bins(found, edges), middles(found), SERIES, x="x", y="heads")
    one, two = bars(figure)
    assert list(one.y) == [1, 2, 0, 1]
    assert list(two.y) == [0, 0, 2, 0]
    assert [note.text for note in figure.layout.annotations] == ["a", "&lt;b&gt;%&#123;x}&lt;/b&gt;"]
    rules = [(trace.xaxis, trace.line.dash, trace.x[0]) for trace in figure.data if isinstance(trace, go.Scatter)]
    assert rules == [("x", "solid", 1.5), ("x", "dash", 1.0), ("x2", "solid", 2.0), ("x2", "dash", 2.0)]
