"""Histograms of bins that are known by their middles."""

import plotly.graph_objects as go
import polars as pl
import pytest

from dashboards.figures.histogram import draw_histogram, of_bins
from dashboards.figures.lines import Series
from dashboards.theme.styles import REST

SERIES = {name: Series(name, REST) for name in ("a", "<b>%{x}</b>")}


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
    rows = [("a", 0.0, 1.0), ("a", 1.0, 2.0), ("a", 2.0, 0.0), ("a", 3.0, 1.0), ("<b>%{x}</b>", 2.0, 2.0)]
    found = pl.DataFrame(rows, schema=["series", "x", "value"], orient="row")
    figure = draw_histogram(*of_bins(found), SERIES, x="x", y="heads")
    one, two = bars(figure)
    assert list(one.y) == [1, 2, 0, 1]
    assert list(two.y) == [2]
    assert [note.text for note in figure.layout.annotations] == ["a", "&lt;b&gt;%&#123;x}&lt;/b&gt;"]
    rules = [(trace.xaxis, trace.line.dash, trace.x[0]) for trace in figure.data if isinstance(trace, go.Scatter)]
    assert rules == [("x", "solid", 1.25), ("x", "dash", 1.0), ("x2", "solid", 2.0), ("x2", "dash", 2.0)]
