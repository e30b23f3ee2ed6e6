"""Warnings about results, and the order of a plan, by SQL over the views; each takes the function that runs SQL."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import polars as pl

from ablate.grid.names import label_of
from ablate.store.database import quoting
from ablate.store.files.code_versions import versions_used

RETRAIN = "run `ablate run SPEC --rerun-stale` to train them again, or restore the shard that held them"
PLAN = "run the same `ablate run` again, or restore the file"
AGAIN = "`ablate repro KEY` trains one again beside the campaign, `ablate run SPEC --rerun-stale` all of them"
"""Advice about trials whose results cannot be read, a damaged plan, and trials whose attempts disagree."""

MOST_FILES = 50
"""Damaged files of a kind that are told one by one."""

MADE_BY = """
finished AS (SELECT trial, max(attempt) AS last FROM attempt WHERE status = 'ok' GROUP BY trial),
made_by AS (
    SELECT trial, last, coalesce(max(attempt) FILTER (WHERE resumed_attempt IS NULL), 1) AS first
    FROM attempt JOIN finished USING (trial) WHERE attempt <= last GROUP BY ALL
)
"""
"""Latest attempt that is ok, and the one that began it: the code of a result is that of all between."""

Sql = Callable[[str, Mapping[str, Any]], pl.DataFrame]  # runs one query with named parameters


def baseline_cells(header: Mapping[str, Any]) -> set[str | None]:
    """Return the baselines of a grid; {None} if it has none."""
    return set((header.get("baselines") or {}).values()) or {header.get("baseline")}


def in_plan_order(sql: Sql, header: Mapping[str, Any], frame: pl.DataFrame) -> pl.DataFrame:
    """`frame`, which has a column `cell`, with baselines first and then by the levels of the axes as declared."""
    cells = sql(
        "SELECT cell, json_extract(arg_min(axes, position), $members), min(position) FROM grid_trial "
        "WHERE grid = $grid GROUP BY cell",
        {"grid": header["grid"], "members": [quoting.member(axis["name"]) for axis in header["axes"]]},
    )
    ranks = [{label: at for at, label in enumerate(axis["labels"])} for axis in header["axes"]]
    first = baseline_cells(header)
    places = {}
    for cell, levels, position in cells.rows():
        places_of_levels = [rank.get(_label(level), len(rank)) for rank, level in zip(ranks, levels, strict=True)]
        places[cell] = cell not in first, places_of_levels, position
    keys = [places[cell] for cell in frame["cell"]]
    return frame[sorted(range(frame.height), key=keys.__getitem__)]


def levels_of_cells(sql: Sql, header: Mapping[str, Any]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the axes of a grid that vary, and `levels_on` them; labels of cells if axes name none."""
    names = [axis["name"] for axis in header["axes"] if len(axis["labels"]) > 1]
    levels = levels_on(sql, header, names)
    if not names or len(set(map(tuple, levels.values()))) < len(levels):
        labels = sql("SELECT DISTINCT cell, label FROM grid_trial WHERE grid = $grid", {"grid": header["grid"]})
        return ["cell"], {cell: [label] for cell, label in labels.iter_rows()}
    return names, levels


def levels_on(sql: Sql, header: Mapping[str, Any], names: Sequence[str]) -> dict[str, list[str]]:
    """Return the labels of each cell on the axes `names`; empty on an axis that does not apply to it."""
    blank = {axis["name"] for axis in header["axes"] if label_of(None) not in axis["labels"]}
    query = "SELECT DISTINCT cell, CAST(axes AS VARCHAR) FROM grid_trial WHERE grid = $grid"

    def label(name: str, level: object) -> str:
        return "" if level is None and name in blank else label_of(level)

    rows = sql(query, {"grid": header["grid"]}).rows()
    return {cell: [label(name, json.loads(text).get(name)) for name in names] for cell, text in rows}


@cache  # very many cells have the same few levels
def _label(level: str | None) -> str:
    return label_of(None if level is None else json.loads(level))


def _tell_files(told: list[str], table: str) -> list[str]:
    """Return the first sentences about damaged files, and how many files more the table has."""
    more = len(told) - MOST_FILES
    end = [f"{more} files more cannot be read; `ablate sql 'from {table}'` lists all"] if more > 0 else []
    return told[:MOST_FILES] + end


def damage(sql: Sql, grid: str | None) -> list[str]:
    """Sentences about damaged files, and per grid with lost lines of its plan, lost results or disagreeing attempts."""
    shards = sql("SELECT file, reason FROM bad_shard ORDER BY file", {}).rows()
    records = sql("SELECT file, reason FROM bad_record ORDER BY file, reason", {}).rows()
    of = "WHERE $grid IS NULL OR grid = $grid"
    lost = sql(f"SELECT grid, count(*) AS n FROM v_unreadable {of} GROUP BY grid ORDER BY grid", {"grid": grid}).rows()
    planned = sql(
        f"SELECT grid, any_value(h.trials) AS planned, count(t.trial) AS n FROM grid h LEFT JOIN grid_trial t "
        f"USING (grid) {of} GROUP BY grid HAVING n < planned ORDER BY grid",
        {"grid": grid},
    ).rows()
    doubts = sql(
        "SELECT grid, counts, count(*), min((g.label, g.seed, trial)), arg_min(reason, (g.label, g.seed, trial)) "
        "FROM grid_trial g JOIN doubt USING (trial) WHERE kind = 'disagree' AND ($grid IS NULL OR grid = $grid) "
        "GROUP BY ALL ORDER BY ALL",
        {"grid": grid},
    ).rows()
    told = _tell_files([f"the shard {file} is not served: {reason}" for file, reason in shards], "bad_shard")
    told += _tell_files([f"the record {file} cannot be read: {reason}" for file, reason in records], "bad_record")
    for name, trials, n in planned:
        told.append(
            f"the plan of {name} has {trials} trials, and {n} can be read: every number of it is of a part; {PLAN}"
        )
    for name, n in lost:
        have = "trial of {} has" if n == 1 else "trials of {} have"
        told.append(f"{n} finished {have.format(name)} no readable result; {RETRAIN}")
    for name, counts, n, example, reason in doubts:
        label, seed, trial = example.values()
        trials = "trial was" if n == 1 else "trials were"
        said = f"{n} {trials} trained twice with the same code and disagree, such as {label} seed {seed} ({trial[:8]})"
        if counts:
            told.append(f"grid {name}: {said}: {reason}; the later attempt counts")
        else:
            rule = "on the CPU they must be equal bit for bit, so no mean has them"
            told.append(f"error in grid {name}: {said}: {reason}; {rule}; {AGAIN}")
    return told


def mixtures(sql: Sql, grid: str | None) -> Iterator[str]:
    """Yield a sentence per grid whose finished trials used several versions of one source.

    Different operators use different sources; only versions of the same source count. A trial has the sources of all
    attempts from the one that began it.
    """
    rows = sql(
        f"""
        WITH {MADE_BY} SELECT DISTINCT grid, CAST(sources AS VARCHAR), code, path
        FROM grid_trial JOIN made_by USING (trial) JOIN attempt USING (trial)
        WHERE attempt BETWEEN first AND last AND ($grid IS NULL OR grid = $grid)
        """,
        {"grid": grid},
    )
    versions: dict[str, dict[str, set[str]]] = {}
    for name, text, code, path in rows.rows():
        for source, version in versions_used(json.loads(text) if text else None, code, path).items():
            versions.setdefault(name, {}).setdefault(source, set()).add(version)
    for name in sorted(versions):
        mixed = sorted(source for source, used in versions[name].items() if len(used) > 1)
        if mixed:
            yield (
                f"the results of {name} mix versions of the code ({', '.join(mixed)}), so differences may not be the "
                "operators'; `ablate run SPEC --rerun-stale` trains those of other code again"
            )


def coordinates(sql: Sql, source: str, parameters: Mapping[str, Any], taken: Collection[str] = ()) -> str:
    """Columns for the coordinates of `point` in `source`, each after a comma; `point.<name>` if the name is `taken`."""
    keys = sql(f"SELECT DISTINCT unnest(map_keys(point)) AS key FROM {source} ORDER BY key", parameters)["key"]
    named = {key: f"point.{key}" if key.lower() in taken else key for key in keys}
    return "".join(f", point[{quoting.text(key)}] AS {quoting.identifier(name)}" for key, name in named.items())


def agrees(point: Mapping[str, float]) -> tuple[str, dict[str, Any]]:
    """A condition that the column `point` has these coordinates, and its parameters."""
    terms = [f"point[$coordinate_{i}] = $at_{i}" for i in range(len(point))]
    parameters: dict[str, Any] = {}
    for i, (name, value) in enumerate(point.items()):
        parameters |= {f"coordinate_{i}": name, f"at_{i}": float(value)}
    return " AND ".join(terms) or "true", parameters
