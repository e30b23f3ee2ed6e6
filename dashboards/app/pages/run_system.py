"""Load of a run on its machine: speed, processor, memory and GPU over its time, and totals of the whole run."""

from typing import Final

import polars as pl

from ablate.dashboards.app.page import PageView, SlotContent
from ablate.dashboards.data.formatting import count, duration, join_words, number
from ablate.dashboards.figures.lines import Drawing, Panel, Series, draw_panels
from ablate.dashboards.theme.styles import MUTED, shared_style
from ablate.store import Store

PARTS: Final = 60  # points of a line
_LINE: Final = shared_style(MUTED)
_SPEED: Final = """
    WITH logged AS (
        SELECT attempt, step, max(wall_s) AS seconds FROM v_metric WHERE trial = $key AND wall_s > 0 GROUP BY ALL
    ),
    parts AS (
        SELECT attempt, max(step) AS step, max(seconds) AS seconds
        FROM (SELECT *, ntile($parts) OVER (PARTITION BY attempt ORDER BY step) AS part FROM logged)
        GROUP BY attempt, part
    )
    SELECT 'steps per second' AS quantity, attempt, step, seconds,
           (step - lag(step) OVER own) / nullif(seconds - lag(seconds) OVER own, 0) AS value
    FROM parts WINDOW own AS (PARTITION BY attempt ORDER BY step)
    QUALIFY value > 0 ORDER BY attempt, step
"""
_LOAD: Final = """
    SELECT name AS quantity, attempt, max(step) AS step, max(wall_s) AS seconds, avg(value) AS value
    FROM (SELECT *, ntile($parts) OVER (PARTITION BY name, attempt ORDER BY step) AS part FROM v_metric
          WHERE trial = $key AND starts_with(name, 'system.'))
    GROUP BY name, attempt, part ORDER BY name, attempt, step
"""
QUANTITIES: Final = {
    "system.gpu_utilisation": ("GPU in use (%)", 100.0),
    "system.gpu_memory_bytes": ("GPU memory (GiB)", 2.0**-30),
    "system.cpu_cores": ("processor cores in use", 1.0),
    "system.memory_bytes": ("memory (GiB)", 2.0**-30),
}
"""Title and unit of the metrics that `ablate.runners.attempts.system_load` samples, in the order of their panels."""


def show_system(view: PageView, key: str) -> SlotContent:
    """Speed and load along the seconds of training, a line per attempt, and what the whole run took."""
    totals = _totals(view.store, key)
    speed = _tokens(view.store, key, view.store.sql(_SPEED, {"key": key, "parts": PARTS}))
    load = view.store.sql(_LOAD, {"key": key, "parts": PARTS})
    if speed.is_empty() and load.is_empty():
        return SlotContent(message=totals or "This run has logged no times yet.")
    for name, (title, unit) in QUANTITIES.items():
        rows = load.filter(pl.col("quantity") == name)
        speed = speed.vstack(rows.with_columns(pl.lit(title).alias("quantity"), pl.col("value") * unit))
    attempts = pl.format("attempt {}", "attempt").alias("series")
    bare = (pl.lit(None, pl.Float64).alias(end) for end in ("low", "high"))
    lines = speed.select("quantity", attempts, pl.col("seconds").alias("x"), "value", *bare)
    panels = [Panel(rows, str(title)) for (title,), rows in lines.group_by("quantity", maintain_order=True)]
    series = {name: Series(name, _LINE) for name in lines["series"].unique()}
    drawing = Drawing(height=240 if len(panels) == 1 else 120, markers=speed.height < 3)
    figure = draw_panels(panels, series, x="seconds of training", drawing=drawing)
    figure.for_each_yaxis(lambda axis: axis.update(rangemode="tozero", range=axis.range and (0, 1.1 * axis.range[1])))
    caption = f"Speed between logged steps; load every ten seconds; up to {count(PARTS, 'part')} per attempt. {totals}"
    return SlotContent(figure, caption.strip(), speed)


def tell_times(store: Store, key: str) -> str:
    """'training 17 s (89 %), evaluation 2 s (10 %, 0.8 s of it refits), ...'; empty if no attempt has told."""
    row = store.sql(
        "SELECT sum(train_s) AS training, sum(evaluate_s) AS evaluation, sum(probe_s) AS probes, sum(wall_s) AS wall, "
        "sum((cost->>'$.compile_s')::DOUBLE) AS compiling, sum((cost->>'$.refit_s')::DOUBLE) AS refits "
        "FROM attempt WHERE trial = $key AND train_s IS NOT NULL",
        {"key": key},
    ).row(0, named=True)
    if not row["wall"]:
        return ""
    rest = row["wall"] - sum(row[name] or 0.0 for name in ("training", "evaluation", "probes"))
    told, parts = [], {**row, "start and saving": max(rest, 0.0)}
    for name, part in (("training", "compiling"), ("evaluation", "refits"), ("probes", ""), ("start and saving", "")):
        seconds, within = parts[name] or 0.0, parts.get(part)
        share = f"{100 * seconds / row['wall']:.0f} %" if seconds > 0.005 * row["wall"] else ""
        notes = ", ".join(filter(None, (share, f"{duration(within)} of it {part}" if within else "")))
        told.append(f"{name} {duration(seconds)}{f' ({notes})' if notes else ''}")
    return join_words(told)


def _tokens(store: Store, key: str, speed: pl.DataFrame) -> pl.DataFrame:
    """Return the speed in tokens if the run has counted them."""
    tokens = store.sql(
        "SELECT sum((cost->>'$.tokens')::DOUBLE) / nullif(sum((cost->>'$.steps')::DOUBLE), 0) AS tokens "
        "FROM attempt WHERE trial = $key",
        {"key": key},
    )["tokens"][0]
    if tokens is None:
        return speed
    return speed.with_columns(pl.lit("tokens per second").alias("quantity"), pl.col("value") * tokens)


def _totals(store: Store, key: str) -> str:
    """'Whole run: 412 MB of memory at most, 12 s of training, 31 % of the reachable operations.'"""
    rows = store.sql("SELECT * FROM v_cost WHERE trial = $key LIMIT 1", {"key": key}).to_dicts()
    peak = "SELECT max(memory_bytes) AS memory_bytes FROM attempt WHERE trial = $key"
    row = rows[0] if rows else store.sql(peak, {"key": key}).row(0, named=True)
    memory, utilisation = row.get("memory_bytes"), row.get("flop_utilisation")
    parts = [
        "" if memory is None else f"{number(memory / 2**20)} MiB of memory at most",
        "" if row.get("train_s") is None else f"{duration(row['train_s'])} of training",
        "" if row.get("tokens_per_s") is None else f"{number(row['tokens_per_s'])} tokens per second",
        "" if utilisation is None else f"{100 * utilisation:.2g} % of the reachable operations",
        "" if row.get("joules") is None else f"{number(row['joules'])} J",
    ]
    return f"Whole run: {', '.join(filter(None, parts))}." if any(parts) else ""
