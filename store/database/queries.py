"""The questions that every page asks, as SQL over the views; each takes the function that runs SQL."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import polars as pl

from grid.errors import SpecError
from grid.names import label_of
from store.database import quoting
from store.files.code_aliases import current_sources

RETRAIN = "run `ablate run SPEC --rerun-stale` to train them again, or restore the shard that held them"
"""Advice about trials whose results cannot be read."""


PLAN = "run the same `ablate run` again, or restore the file"
"""Advice about a damaged plan."""

AGAIN = "`ablate repro KEY` trains one again beside the campaign, `ablate run SPEC --rerun-stale` all of them"
"""Advice about trials whose attempts disagree."""


class Sql(Protocol):
    """Runs one query with named parameters."""

    def __call__(self, query: str, parameters: Mapping[str, Any], /) -> pl.DataFrame: ...


def final(sql: Sql, grid: str, name: str, point: Mapping[str, float]) -> pl.DataFrame:
    """One row per planned trial of `grid`; see `Store.final`."""
    condition, parameters = agrees(point)
    found = sql(
        f"""
        WITH found AS (
            SELECT * FROM v_final WHERE grid = $grid AND name = $name AND {condition}
            QUALIFY source = min(source) OVER ()    -- an evaluation before a metric of the same name
        )
        SELECT g.grid, g.cell, g.label, g.operator, g.trial, g.seed, t.status, f.value, f.se_items, f.point, g.position
        FROM grid_trial g JOIN trial t USING (trial) LEFT JOIN found f USING (trial)
        WHERE g.grid = $grid ORDER BY g.position
        """,
        {"grid": grid, "name": name, **parameters},
    )
    points = sorted(
        {tuple(sorted(entry.items())): str(entry) for entry in found["point"] if entry is not None}.values()
    )
    if len(points) > 1:
        raise SpecError(
            f"{name!r} has {len(points)} points that agree with {dict(point)}, such as {points[0]} and {points[1]}; "
            "say at which one"
        )
    return found.drop("point", "position")


def evaluation(sql: Sql, grid: str, name: str, where: Mapping[str, float]) -> pl.DataFrame:
    """One row per ok trial and point; see `Store.evaluation`."""
    condition, parameters = agrees(where)
    of = f"v_final WHERE grid = $grid AND name = $name AND source = 'evaluation' AND {condition}"
    parameters = {"grid": grid, "name": name, **parameters}
    keys = sql(f"SELECT DISTINCT unnest(map_keys(point)) AS key FROM {of} ORDER BY key", parameters)["key"]
    coordinates = "".join(f", point[{quoting.text(key)}] AS {quoting.identifier(key)}" for key in keys)
    return sql(
        f"SELECT cell, label, operator, trial, seed, step{coordinates}, value, items, se_items FROM {of} ORDER BY ALL",
        parameters,
    )


def curves(sql: Sql, grid: str, name: str, buckets: int) -> pl.DataFrame:
    """One row per trial and bucket of steps; see `Store.curves`."""
    if buckets < 1:
        raise SpecError(f"curves need at least one bucket; got {buckets}")
    return sql(
        """
        WITH chosen AS (
            SELECT g.cell, g.label, g.operator, g.trial, g.seed, g.position, m.step, m.value
            FROM v_metric m JOIN grid_trial g USING (trial) WHERE g.grid = $grid AND m.name = $name
        ),
        width AS (SELECT CAST(ceil((max(step) + 1) / $buckets) AS BIGINT) AS width FROM chosen)
        SELECT cell, label, operator, trial, seed, step // width * width AS step,
               avg(value) FILTER (WHERE isfinite(value)) AS mean, min(value) FILTER (WHERE isfinite(value)) AS low,
               max(value) FILTER (WHERE isfinite(value)) AS high, count(*) AS n,
               count(*) FILTER (WHERE isfinite(value)) AS n_finite
        FROM chosen, width
        GROUP BY cell, label, operator, trial, seed, position, step // width * width
        ORDER BY position, 6
        """,
        {"grid": grid, "name": name, "buckets": buckets},
    )


def progress(sql: Sql, grid: str) -> pl.DataFrame:
    """One row per cell of `grid`, in the order of the plan."""
    return sql(
        """
        SELECT p.cell, p.label, p.operator, p.planned, p.ok, p.failed, p.running, p.pending, p.unreadable
        FROM v_progress p JOIN (SELECT cell, min(position) AS position FROM grid_trial WHERE grid = $grid GROUP BY cell)
        USING (cell) WHERE p.grid = $grid ORDER BY position
        """,
        {"grid": grid},
    )


def in_plan_order(sql: Sql, header: Mapping[str, Any], found: pl.DataFrame) -> pl.DataFrame:
    """`found`, which has a column `cell`, with baselines first and then by the levels of the axes as declared."""
    cells = sql(
        """
        SELECT cell, json_extract(arg_min(axes, position), $members), min(position)
        FROM grid_trial WHERE grid = $grid GROUP BY cell
        """,
        {"grid": header["grid"], "members": [quoting.member(axis["name"]) for axis in header["axes"]]},
    )
    orders = [_order(axis["labels"]) for axis in header["axes"]]
    first = set((header.get("baselines") or {}).values()) or {header.get("baseline")}
    places = {
        cell: (cell not in first, [order(level) for order, level in zip(orders, levels, strict=True)], position)
        for cell, levels, position in cells.rows()
    }
    keys = [places[cell] for cell in found["cell"]]
    return found[sorted(range(found.height), key=keys.__getitem__)]


def _order(labels: Sequence[str]) -> Callable[[str | None], int]:
    """By the JSON of a level, which place it has among an axis' `labels`; last where it is none of them."""
    places = {label: at for at, label in enumerate(labels)}

    @cache  # very many cells have the same few levels
    def order(level: str | None) -> int:
        return places.get(label_of(None if level is None else json.loads(level)), len(places))

    return order


def failures(sql: Sql, grid: str | None) -> pl.DataFrame:
    """One row per kind of failure, of `grid` or of all."""
    return sql(
        """
        WITH counted AS (
            SELECT a.* FROM attempt a JOIN trial t USING (trial)
            WHERE t.status = 'failed' AND a.status IS NOT NULL
              AND ($grid IS NULL OR trial IN (SELECT trial FROM grid_trial WHERE grid = $grid))
            QUALIFY a.attempt = max(a.attempt) OVER (PARTITION BY a.trial)
        ),
        labelled AS (
            SELECT trial, list_sort(list(DISTINCT label)) AS labels FROM grid_trial SEMI JOIN counted USING (trial)
            WHERE $grid IS NULL OR grid = $grid GROUP BY trial
        )
        SELECT fingerprint, min(reason) AS reason, count(*) AS n, min(trial) AS example,
               list_sort(list_distinct(flatten(list(coalesce(labels, []))))) AS labels,
               arg_min(message, trial) AS message, arg_min(traceback, trial) AS traceback
        FROM counted LEFT JOIN labelled USING (trial) GROUP BY fingerprint ORDER BY n DESC, fingerprint
        """,
        {"grid": grid},
    )


def damage(sql: Sql, grid: str | None) -> list[str]:
    """A sentence per damaged file, per grid with lost lines of its plan or lost results; see `Store.damage`."""
    shards = sql("SELECT file, reason FROM bad_shard ORDER BY file", {}).rows()
    records = sql("SELECT file, reason FROM bad_record ORDER BY file, reason", {}).rows()
    of = "WHERE $grid IS NULL OR grid = $grid"
    lost = sql(f"SELECT grid, count(*) AS n FROM v_unreadable {of} GROUP BY grid ORDER BY grid", {"grid": grid}).rows()
    planned = sql(
        f"""
        WITH planned AS (SELECT grid, (header->>'$.trials')::BIGINT AS trials FROM grid {of}),
        known AS (SELECT grid, count(*) AS n FROM grid_trial {of} GROUP BY grid)
        SELECT grid, trials, coalesce(n, 0) AS n FROM planned LEFT JOIN known USING (grid)
        WHERE coalesce(n, 0) < trials ORDER BY grid
        """,
        {"grid": grid},
    ).rows()
    doubts = sql(
        "SELECT grid, counts, count(*), min((g.label, g.seed, trial)), arg_min(reason, (g.label, g.seed, trial)) "
        "FROM grid_trial g JOIN doubt USING (trial) WHERE kind = 'disagree' AND ($grid IS NULL OR grid = $grid) "
        "GROUP BY ALL ORDER BY ALL",
        {"grid": grid},
    ).rows()
    return [
        *(f"the shard {file} is not served: {reason}" for file, reason in shards),
        *(f"the record {file} cannot be read: {reason}" for file, reason in records),
        *(
            f"the plan of {name} has {trials} trials, and {n} can be read: every number of it is of a part; {PLAN}"
            for name, trials, n in planned
        ),
        *(
            f"{n} finished {'trial' if n == 1 else 'trials'} of {grid} {'has' if n == 1 else 'have'} no readable "
            f"result; {RETRAIN}"
            for grid, n in lost
        ),
        *(_disagreement(*row) for row in doubts),
    ]


def mixtures(sql: Sql, grid: str | None) -> Iterator[str]:
    """Yield a sentence per grid whose finished trials used several versions of one source.

    Different operators use different sources; only versions of the same source count. A trial has the sources of all
    attempts from the one that began it.
    """
    found = sql(
        """
        WITH finished AS (SELECT trial, max(attempt) AS last FROM attempt WHERE status = 'ok' GROUP BY trial),
        begun AS (
            SELECT trial, last, coalesce(max(attempt) FILTER (WHERE resumed_attempt IS NULL), 1) AS first
            FROM attempt JOIN finished USING (trial) WHERE attempt <= last GROUP BY ALL
        )
        SELECT DISTINCT grid, CAST(sources AS VARCHAR) FROM grid_trial JOIN begun USING (trial)
        JOIN attempt USING (trial) WHERE attempt BETWEEN first AND last AND ($grid IS NULL OR grid = $grid)
        """,
        {"grid": grid},
    )
    versions: dict[str, dict[str, set[str]]] = {}
    for name, text in found.rows():
        sources = current_sources(json.loads(text)) if text else None
        for source, version in ({"core": "unknown"} if sources is None else {"spec": "", **sources}).items():
            versions.setdefault(name, {}).setdefault(source, set()).add(version)
    for name in sorted(versions):
        mixed = sorted(source for source, used in versions[name].items() if len(used) > 1)
        if mixed:
            yield (
                f"the results of {name} mix versions of the code ({', '.join(mixed)}), so differences may not be the "
                "operators'; `ablate run SPEC --rerun-stale` trains those of other code again"
            )


def _disagreement(grid: str, counts: bool, n: int, example: Mapping[str, Any], reason: str) -> str:  # noqa: FBT001
    label, seed, trial = example.values()
    trials = "trial was" if n == 1 else "trials were"
    which = f"{n} {trials} trained twice with the same code and disagree, such as {label} seed {seed} ({trial[:8]})"
    if counts:
        return f"grid {grid}: {which}: {reason}; the later attempt counts"
    rule = "on the CPU they must be equal bit for bit, so no mean has them"
    return f"error in grid {grid}: {which}: {reason}; {rule}; {AGAIN}"


def agrees(point: Mapping[str, float]) -> tuple[str, dict[str, Any]]:
    """A condition that the column `point` has these coordinates, and its parameters."""
    terms = [f"point[$coordinate_{i}] = $at_{i}" for i in range(len(point))]
    parameters: dict[str, Any] = {}
    for i, (name, value) in enumerate(point.items()):
        parameters |= {f"coordinate_{i}": name, f"at_{i}": float(value)}
    return " AND ".join(terms) or "true", parameters
