"""Training metrics of groups of runs over steps, seconds or tokens: buckets per run, then an average over runs."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import polars as pl

from ablate.dashboards.data.grid_context import in_order
from ablate.dashboards.data.seed_averages import Band, Scale, over_seeds
from ablate.store import Store

Along = Literal["step", "seconds", "tokens"]

MOST_BUCKETS: Final = 400  # more points than a line has pixels
_MOST_POINTS: Final = 10_000  # most points of a whole figure, so that it stays small


class Grouped(NamedTuple):
    """The runs, and their groups."""

    grid: str
    by: str  # SQL for the group of a trial, of columns of g (`grid_trial`) and t (`trial`); text
    runs: Sequence[str] = ()  # keys of the only trials that are meant; empty: all
    failed: bool = False  # true if failed trials are in


class Reduction(NamedTuple):
    """How their values become points."""

    along: Along = "step"
    log_x: bool = False  # buckets of equal width on a log axis
    scale: Scale = "linear"
    band: Band = "interval"
    each: bool = False  # true if every run of a group is wanted beside their average
    buckets: int = MOST_BUCKETS


class Reduced(NamedTuple):
    """Curves of groups as buckets."""

    frame: pl.DataFrame
    """series, x (of the first value in the bucket), n, lost, value, low, high, least, greatest (of single values)."""
    reached: pl.DataFrame  # series, n: runs that have logged it
    runs: pl.DataFrame  # trial, series, x, value: the mean of every bucket of every run; empty unless it is wanted
    width: float  # width of a bucket, in units of x; of the first one on a log axis


def buckets_for(lines: int) -> int:
    """How many buckets each of so many lines has."""
    return max(40, min(MOST_BUCKETS, _MOST_POINTS // max(lines, 1)))


def groups(store: Store, grouping: Grouped) -> pl.DataFrame:
    """The groups in the order of the plan: series, planned and failed (trials), cells (their keys), and of the first
    trial in the plan trial, cell, seed.
    """
    return store.sql(
        f"""
        SELECT {grouping.by} AS series, count(*) AS planned, count(*) FILTER (WHERE t.state = 'failed') AS failed,
               list(DISTINCT g.cell) AS cells, arg_min(g.trial, g.position) AS trial,
               arg_min(g.cell, g.position) AS cell, arg_min(g.seed, g.position) AS seed
        FROM grid_trial g JOIN trial t USING (trial)
        WHERE g.grid = $grid AND (len($runs) = 0 OR list_contains($runs, g.trial))
        GROUP BY ALL ORDER BY min(g.position)
        """,
        {"grid": grouping.grid, "runs": list(grouping.runs)},
    )


def list_metrics(store: Store, grid: str) -> list[str]:
    """Names of the training metrics of a grid; those of most trials first, then by name."""
    logged = store.sql(
        """
        SELECT name FROM last_value JOIN grid_trial USING (trial) WHERE grid = $grid AND "table" = 'metric'
        GROUP BY name ORDER BY name <> 'loss', starts_with(name, 'system.'), count(DISTINCT trial) DESC, name
        """,
        {"grid": grid},
    )
    return [str(name) for name in logged["name"]]


def training(store: Store, grouping: Grouped, name: str, keep: Sequence[str], how: Reduction) -> Reduced:
    """The metric `name` of the groups `keep`.

    Each run has the mean of every bucket; a point of a group is the average of those means over its runs, on the scale.
    Values that are not finite are left out of a bucket and counted in `lost`. Runs that have not finished count as far
    as they went.
    """
    parameters = {"grid": grouping.grid, "runs": list(grouping.runs), "name": name, "keep": list(keep)}
    rows = _rows(grouping, how.along)
    positive = "WHERE x > 0" if how.log_x else ""
    first, last = store.sql(f"{rows} SELECT min(x), max(x) FROM points {positive}", parameters).row(0)
    if first is None:
        return Reduced(_EMPTY, _EMPTY.select("series", "n"), _EMPTY_RUNS, 1)
    place, width = _buckets(float(first), float(last), how)
    means = f"""{rows},
    means AS MATERIALIZED (
        SELECT series, trial, {place} AS bucket, min(x) AS x, avg(value) FILTER (WHERE fine) AS value,
               min(value) FILTER (WHERE fine) AS least, max(value) FILTER (WHERE fine) AS greatest,
               count(*) FILTER (WHERE NOT fine) AS gone
        FROM (SELECT *, isfinite(value) AS fine FROM points {positive}) GROUP BY ALL
    )"""
    averages = over_seeds(
        "SELECT series, bucket, value FROM means WHERE value IS NOT NULL", ["series", "bucket"], how.scale, how.band
    )
    frame = store.sql(
        f"""{means}
        SELECT series, e.x, coalesce(n, 0) AS n,
               e.gone + coalesce(lost, 0) AS lost, value, low, high, e.least, e.greatest
        FROM ({averages}) RIGHT JOIN (
            SELECT series, bucket, min(x) AS x, min(least) AS least, max(greatest) AS greatest,
                   sum(gone)::BIGINT AS gone
            FROM means GROUP BY ALL
        ) e USING (series, bucket)
        ORDER BY series, e.x
        """,
        parameters,
    )
    each = f"{means} SELECT trial, series, x, value FROM means ORDER BY series, trial, x"
    runs = store.sql(each, parameters) if how.each else _EMPTY_RUNS
    reached = store.sql(f"{rows} SELECT series, count(DISTINCT trial) AS n FROM points GROUP BY series", parameters)
    return Reduced(frame, reached, runs, width)


def curves(
    store: Store, grid: str, name: str, cells: Sequence[str], *, scale: Scale = "log", buckets: int = 60
) -> Reduced:
    """The metric `name` of `cells`, the series, by step, without single values.

    Failed trials are left out. Trials that have not finished count as far as they went, so `n` may fall along a curve.
    """
    reduced = training(store, Grouped(grid, "g.cell"), name, cells, Reduction(scale=scale, buckets=buckets))
    frame = reduced.frame.drop("least", "greatest").drop_nulls("value")
    return reduced._replace(frame=in_order(frame, cells, "x", by="series"))


_EMPTY: Final = pl.DataFrame(
    schema={"series": pl.String, "x": pl.Int64, "n": pl.Int64, "lost": pl.Int64}
    | dict.fromkeys(("value", "low", "high", "least", "greatest"), pl.Float64)
)
_EMPTY_RUNS: Final = pl.DataFrame(schema={"trial": pl.String, "series": pl.String, "x": pl.Int64, "value": pl.Float64})


def _rows(grouping: Grouped, along: Along) -> str:
    """SQL that begins with the points (series, trial, x, value) of the groups in $keep."""
    failed = "" if grouping.failed else "AND t.state <> 'failed'"
    return f"""
    WITH chosen AS (
        SELECT g.trial, {grouping.by} AS series FROM grid_trial g JOIN trial t USING (trial)
        WHERE g.grid = $grid AND (len($runs) = 0 OR list_contains($runs, g.trial)) {failed}
          AND list_contains($keep, {grouping.by})
    ),
    logged AS (SELECT * FROM v_metric JOIN chosen USING (trial) WHERE name = $name),
    points AS ({_POINTS[along]})"""


_POINTS: Final[dict[Along, str]] = {
    "step": "SELECT series, trial, step AS x, value FROM logged",
    "tokens": """
        SELECT series, trial, step * (k.tokens / k.steps) AS x, value FROM logged
        JOIN (SELECT trial, any_value(tokens) AS tokens, any_value(steps) AS steps FROM v_cost
              WHERE grid = $grid AND steps > 0 GROUP BY trial) k USING (trial)
        WHERE k.tokens IS NOT NULL
    """,
    # seconds count from the start of an attempt: those of the attempts before come first
    "seconds": """
        SELECT series, trial, wall_s + took AS x, value FROM logged JOIN (
            SELECT trial, attempt, coalesce(sum(max(wall_s)) OVER (
                PARTITION BY trial ORDER BY attempt ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS took
            FROM logged GROUP BY trial, attempt
        ) USING (trial, attempt)
    """,
}


def _buckets(first: float, last: float, how: Reduction) -> tuple[str, float]:
    """SQL for the number of the bucket of x, and the width of one; none is shorter than the others."""
    if how.log_x and last <= first:
        return "0", 1
    if how.along == "step" and not how.log_x:
        width = -(-int(last - first + 1) // how.buckets)
        full = max(int(last - first + 1) // width, 1)
        return f"least((x - {int(first)}) // {width}, {full - 1})", width
    width_s = (last - first) / how.buckets or 1.0
    place = f"(x - {first!r}) / {width_s!r}"
    if how.log_x:
        place = f"ln(x / {first!r}) / ln({last / first!r}) * {how.buckets}"
    return f"least(floor({place}), {how.buckets - 1})::BIGINT", 1 if how.log_x else width_s


def smooth(frame: pl.DataFrame, amount: float, scale: Scale) -> pl.DataFrame:
    """The frame with `value` smoothed along each series and what it was in `raw`; gaps stay gaps.

    Keep the share `amount` (0 to below 1) of the average so far at every point, corrected at the start.
    On the log scale means are geometric.
    """
    raw = pl.col("value")
    value = raw.log() if scale == "log" else raw
    made = value.ewm_mean(alpha=1 - amount, adjust=True, ignore_nulls=True).over("series")
    made = made.exp() if scale == "log" else made
    return frame.with_columns(value=pl.when(raw.is_not_null()).then(made), raw=raw)
