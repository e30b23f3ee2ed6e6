"""Texts of a result of SQL are drawn as they are: plotly reads markup and %{...} in them otherwise."""

from typing import Any, get_args

import polars as pl
import pytest

from ablate.dashboards.figures.chart import ChartColumns, Kind, draw_chart, group_styles, select_rows

HOSTILE = "<b>%{meta}</b>"


@pytest.mark.parametrize("kind", get_args(Kind))
def test_no_text_of_a_result_is_read_by_plotly(kind: Any) -> None:
    found = pl.DataFrame({HOSTILE: [HOSTILE, "two"], "y": [1.0, 2.0], "who": [HOSTILE, "b"]})
    columns = ChartColumns(HOSTILE, "who", "y") if kind == "heat" else ChartColumns(HOSTILE, "y", "who")
    drawn = select_rows(found, kind, columns)
    styles = {} if kind == "heat" else group_styles(drawn, {})
    figure = draw_chart(drawn, kind, columns, styles).to_dict()
    read: list[str] = []
    for trace in figure["data"]:
        read += [str(trace.get(name, "")).replace("%{text}", "").replace("%{y:.6g}", "") for name in ("hovertemplate",)]
        read += [str(each) for each in (trace.get("text") if trace.get("text") is not None else [])]
    for name, axis in figure["layout"].items():
        if name.startswith(("xaxis", "yaxis")):
            read += [axis.get("title", {}).get("text") or "", *(axis.get("ticktext") or ())]
    assert not [each for each in read if "<b>" in each or "%{meta}" in each]


@pytest.mark.parametrize("kind", ["points", "lines", "bars"])
@pytest.mark.parametrize("levels", [6, 7])
def test_many_names_are_rows_of_a_chart_on_its_side(kind: Any, levels: int) -> None:
    found = pl.DataFrame({"who": [f"cell {at}" for at in range(levels)], "y": [float(at) for at in range(levels)]})
    columns = ChartColumns("who", "y")
    figure = draw_chart(select_rows(found, kind, columns), kind, columns, {}, log=["y"])
    names, values = ("y", "x") if levels > 6 else ("x", "y")
    (trace,) = figure.data
    assert (list(trace[names]), list(trace[values])) == (found["who"].to_list(), found["y"].to_list())
    axes = {name: figure.layout[f"{name}axis"] for name in "xy"}
    assert (axes[names].title.text, axes[values].title.text, axes[values].type) == ("who", "y", "log")
    assert (axes[names].autorange == "reversed") == (levels > 6)  # the first row is at the top
