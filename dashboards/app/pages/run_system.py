"""Load of a run on its machine: speed over its time, and memory, energy and utilisation of the whole run."""

from typing import Any, Final

import plotly.graph_objects as go
import polars as pl

from dashboards.app.page import PageView, SlotContent
from dashboards.data.formatting import count, duration, number
from dashboards.figures.canvas import canvas
from dashboards.theme.styles import SEQUENTIAL, Style
from store import Store

PARTS: Final = 60
"""Points of a line."""
_LINE: Final = Style(SEQUENTIAL[3], "#5c9fd3", "solid", "circle")
_SPEED: Final = """
    WITH logged AS (
        SELECT attempt, step, max(wall_s) AS seconds FROM v_metric WHERE trial = $key AND wall_s > 0 GROUP BY ALL
    ),
    parts AS (
        SELECT attempt, max(step) AS step, max(seconds) AS seconds
        FROM (SELECT *, ntile($parts) OVER (PARTITION BY attempt ORDER BY step) AS part FROM logged)
        GROUP BY attempt, part
    )
    SELECT attempt, step, seconds,
           (step - lag(step) OVER own) / nullif(seconds - lag(seconds) OVER own, 0) AS steps_per_s
    FROM parts WINDOW own AS (PARTITION BY attempt ORDER BY step)
    QUALIFY steps_per_s > 0 ORDER BY attempt, step
"""


def show_system(view: PageView, key: str) -> SlotContent:
    """Speed along the seconds of training, one line per attempt, and what the whole run took."""
    told = _totals(view.store, key)
    found = view.store.sql(_SPEED, {"key": key, "parts": PARTS})
    if found.is_empty():
        return SlotContent(message=told or "This run has logged no times yet.")
    tokens = _tokens_of_a_step(view.store, key)
    speed, unit = ("tokens_per_s", "tokens per second") if tokens else ("steps_per_s", "steps per second")
    if tokens:
        found = found.with_columns((pl.col("steps_per_s") * tokens).alias(speed))
    figure = canvas(240, x="seconds of training", y=unit)
    for (attempt,), rows in found.group_by("attempt", maintain_order=True):
        figure.add_trace(_line(rows, speed, f"attempt {attempt}"))
    caption = f"Line: {unit} between logged steps, up to {count(PARTS, 'part')} per attempt. {told}"
    return SlotContent(figure.update_yaxes(rangemode="tozero"), caption.strip(), found)


def _line(rows: pl.DataFrame, speed: str, name: str) -> go.Scatter:
    line = {"color": _LINE.color, "width": 1.8}
    hover = f"{name}<br>step %{{customdata:,}}<br>%{{y:.4s}}<extra></extra>"
    mode = "lines+markers" if rows.height < 3 else "lines"
    return go.Scatter(
        x=rows["seconds"], y=rows[speed], mode=mode, line=line, customdata=rows["step"], hovertemplate=hover
    )


def _tokens_of_a_step(store: Store, key: str) -> float | None:
    found = store.sql(
        "SELECT sum((cost->>'$.tokens')::DOUBLE) / nullif(sum((cost->>'$.steps')::DOUBLE), 0) AS tokens "
        "FROM attempt WHERE trial = $key",
        {"key": key},
    )
    value = found["tokens"][0]
    return None if value is None else float(value)


def _totals(store: Store, key: str) -> str:
    """'Whole run: 412 MB of memory at most, 12 s of training, 31 % of the reachable operations.'"""
    rows = store.sql("SELECT * FROM v_cost WHERE trial = $key LIMIT 1", {"key": key}).to_dicts()
    row: dict[str, Any] = rows[0] if rows else {}
    if not row:
        row = store.sql("SELECT max(memory_bytes) AS memory_bytes FROM attempt WHERE trial = $key", {"key": key}).row(
            0, named=True
        )
    memory, utilisation = row.get("memory_bytes"), row.get("flop_utilisation")
    parts = [
        "" if memory is None else f"{number(memory / 2**20)} MiB of memory at most",
        "" if row.get("train_s") is None else f"{duration(row['train_s'])} of training",
        "" if row.get("tokens_per_s") is None else f"{number(row['tokens_per_s'])} tokens per second",
        "" if utilisation is None else f"{100 * utilisation:.2g} % of the reachable operations",
        "" if row.get("joules") is None else f"{number(row['joules'])} J",
    ]
    return f"Whole run: {', '.join(filter(None, parts))}." if any(parts) else ""
