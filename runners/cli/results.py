"""Commands that answer from the store of a campaign."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from grid.errors import NotFoundError, SpecError
from runners.cli.listing import BY_EFFECT, LISTING, Query, find_cells, keep_cells
from runners.cli.options import GRID_FLAGS, ONE_GRID, AnyGrid, Campaign, Json
from runners.output import write, write_frame, write_json, write_table

if TYPE_CHECKING:
    import polars as pl

    from store.store import Store

_MOST_NAMED = 8
"""Most cells that are named where one was meant."""

_MOST_INGEST_S = 1.0
"""Seconds for which `ablate status` reads what is new; it says what is left."""


def status(*query: Query, campaign: Campaign = None, grid: AnyGrid = None, as_json: Json = False) -> int:
    """Show the progress of each cell, the running trials and the failures, from the files and the scheduler.

    A query keeps cells and running trials.
    """
    from runners.cli.resolve import choose_grid, open_campaign
    from runners.monitoring.status_text import read_status, write_status
    from runners.monitoring.trial_locations import locate_trials
    from runners.monitoring.trial_query import select_planned
    from runners.slurm.scheduler import SlurmScheduler

    with open_campaign(campaign, thorough=False, most_s=_MOST_INGEST_S) as store:
        names = store.grids() if grid is None else [choose_grid(store, grid)]
        found = read_status(store, locate_trials(store, SlurmScheduler(), ended=as_json), names, grid)
        found = found.keep(store, select_planned(store, query)) if query else found
    if as_json:
        write_json("status", found.data(), found.warnings)
    else:
        write_status(found)
    return 0


def table(
    *query: Query,
    of: GRID_FLAGS = ONE_GRID,
    rows: LISTING = BY_EFFECT,
    why: str | None = None,
    best_over: Sequence[str] = (),
) -> int:
    """The verdict table: every cell against the grid's baseline, paired by seed.

    Parameters
    ----------
    why
        A cell: all that its verdict is based on, instead of the table. Its label, the beginning of its label or key, or
        a query that only this cell fits: "operator=SSA training.lr=0.001".
    best_over
        An axis such as the learning rate, or several: every setting of the others is represented by its best cell,
        chosen on half of the seeds and compared on the other half.
    """
    from runners.cli.verdict_text import write_verdicts
    from store.analysis.tuned_verdicts import selected_verdicts
    from store.analysis.verdicts import verdicts

    if why is not None and (best_over or of.as_csv):
        raise SpecError(
            "--why is about one cell of the whole table, as text or --json; leave --best-over and --csv out"
        )
    with of.open() as (store, name, warnings):
        if why is not None:
            return _write_why(store, name, _find_cell(store, name, why), warnings, as_json=of.as_json)
        found = selected_verdicts(store, name, best_over) if best_over else verdicts(store, name)
        ordered = rows.order(found, store.grid(name)["measure"]["better"])
        shown = keep_cells(store, name, ordered, query)
        columns = rows.names(found)
        if of.as_text and columns is None:
            write_verdicts(store, name, found, shown)
            return 0
    shown = shown if columns is None else shown.select(columns)
    write_frame("table", shown, as_json=of.as_json, as_csv=of.as_csv, warnings=warnings)
    return 0


def _find_cell(store: "Store", grid: str, words: str) -> str:
    """The key of the one cell that `words` mean.

    Raises:
        NotFoundError: they mean no cell, or several.
    """
    names = dict(
        store.sql(
            "SELECT cell, any_value(label) FROM grid_trial WHERE grid = $grid GROUP BY cell ORDER BY min(position)",
            {"grid": grid},
        ).rows()
    )
    exact = [cell for cell, label in names.items() if words in (cell, label)]
    begun = [cell for cell, label in names.items() if cell.startswith(words) or label.startswith(words)]
    found = exact or begun or find_cells(store, grid, words.split())
    if len(found) > 1:
        several = "; ".join(names[cell] for cell in found[:_MOST_NAMED])
        more = f"; and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        raise NotFoundError(f"--why is about one cell, and {len(found)} fit {words!r}: {several}{more}")
    return found[0]


def _write_why(store: "Store", grid: str, cell: str, warnings: Sequence[str], *, as_json: bool) -> int:
    from store.analysis.explain_verdict import why, why_text

    found = why(store, grid, cell)
    if as_json:
        write_json("why", found, warnings)
    else:
        write("\n".join([f"{found['label']}, grid {grid}", *(f"  {line}" for line in why_text(found))]))
    return 0


def compare(first: str, second: str, /, *, campaign: Campaign = None, as_json: Json = False) -> int:
    """Compare two trials: first their specs, then their results.

    Parameters
    ----------
    first
        A trial's key, or the beginning of one.
    second
        Another.
    """
    from runners.cli.resolve import find_trial, open_campaign

    with open_campaign(campaign) as store:
        spec, results = _compare_trials(store, find_trial(store, first), find_trial(store, second))
    if as_json:
        write_json("compare", {"spec": spec, "results": results.rows(named=True)})
        return 0
    write("\n".join(spec) or "the specs are equal")
    write_table(results.columns, results.rows())
    return 0


_ABSENT = "(not there)"


def _compare_trials(store: "Store", first: str, second: str) -> "tuple[list[str], pl.DataFrame]":
    """List what differs in the specs of two trials, and the final evaluations that both have."""
    specs = [
        json.loads(store.sql("SELECT spec FROM trial WHERE trial = $key", {"key": key})["spec"][0])
        for key in (first, second)
    ]
    results = store.sql(
        """
        WITH final AS (SELECT DISTINCT trial, name, point, value FROM v_final WHERE source = 'evaluation')
        SELECT a.name, a.point, a.value AS first, b.value AS second, b.value - a.value AS difference
        FROM final a JOIN final b ON a.name = b.name AND a.point IS NOT DISTINCT FROM b.point
        WHERE a.trial = $first AND b.trial = $second AND NOT coalesce(map_contains(a.point, 'position'), false)
        ORDER BY a.name, CAST(a.point AS VARCHAR)
        """,
        {"first": first, "second": second},
    )
    return list(_differences(*specs)), results


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    one, other = dict(_leaves(first)), dict(_leaves(second))
    for path in dict.fromkeys((*one, *other)):
        if one.get(path, _ABSENT) != other.get(path, _ABSENT):
            yield f"{path}: {one.get(path, _ABSENT)} -> {other.get(path, _ABSENT)}"


def _leaves(data: object, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, Mapping):
        for name, value in data.items():
            yield from _leaves(value, f"{path}.{name}" if path else str(name))
    else:
        yield path, json.dumps(data, ensure_ascii=False)
