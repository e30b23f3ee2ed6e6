"""Histograms of bins that are known by their middles."""

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.figures.histogram import draw_histogram, of_bins
from ablate.dashboards.figures.lines import Series
from ablate.dashboards.theme.styles import REST

SERIES = {name: Series(name, REST) for name in ("a", "<b>%{x}</b>")}


def bars(figure: go.Figure) -> list[go.Bar]:
    assert figure.to_json()
    return [trace for trace in figure.data if isinstance(trace, go.Bar)]


def test_each_series_has_a_panel_with_its_name_literally_and_its_rules() -> None:
    rows = [("a", 0.0, 1.0), ("a", 1.0, 2.0), ("a", 2.5, 1.0), ("<b>%{x}</b>", 1.0, 2.0)]
    counts = of_bins(pl.DataFrame(rows, schema=["series", "x", "value"], orient="row"))
    assert counts.select("low", "high").rows()[1:3] == [(0.5, 1.5), (2.0, 3.0)]
    means = pl.DataFrame({"series": list(SERIES), "mean": [1.25, 1.0], "median": [1.0, None]})
    figure = draw_histogram(counts, means, SERIES, x="x", y="heads")
    one, two = bars(figure)
    assert list(one.y) == [1, 2, 1]
    assert list(two.y) == [2]
    assert [note.text for note in figure.layout.annotations] == ["a", "&lt;b&gt;%&#123;x}&lt;/b&gt;"]
    rules = [(trace.xaxis, trace.line.dash, trace.x[0]) for trace in figure.data if isinstance(trace, go.Scatter)]
    assert rules == [("x", "solid", 1.25), ("x", "dash", 1.0), ("x2", "solid", 1.0)]
