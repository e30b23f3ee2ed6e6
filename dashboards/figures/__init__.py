"""One figure, one file: data first (a tested polars frame), drawing second (a plotly figure)."""
