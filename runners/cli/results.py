"""Commands that answer from the store of a campaign."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from grid.errors import NotFoundError, SpecError
from runners.cli.listing import BY_EFFECT, LISTING, Listing, Query, find_cells, keep_cells
from runners.cli.options import MANY_FLAGS, ONE_OR_MORE, AnyGrid, Campaign, Json
from runners.output import say, write, write_frame, write_json

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
        found = read_status(store, locate_trials(store, SlurmScheduler()), names, grid)
        found = found.keep(store, select_planned(store, query)) if query else found
    if as_json:
        write_json("status", found.data(), found.warnings)
    else:
        write_status(found)
        for warning in found.warnings:
            say(f"ablate: {warning}")
    return 0


def table(
    *query: Query,
    of: MANY_FLAGS = ONE_OR_MORE,
    rows: LISTING = BY_EFFECT,
    why: str | None = None,
    best_over: Sequence[str] = (),
) -> int:
    """The verdict table: every cell against the grid's baseline, paired by seed. Each campaign has a table of its own.

    Parameters
    ----------
    why
        A cell: all that its verdict is based on, instead of the table. Its label, the beginning of its label or key, or
        a query that only this cell fits: "operator=SSA training.lr=0.001".
    best_over
        An axis such as the learning rate, or several: every setting of the others is represented by its best cell,
        chosen on half of the seeds and compared on the other half.
    """
    import polars as pl

    if why is not None and (best_over or of.as_csv):
        raise SpecError(
            "--why is about one cell of the whole table, as text or --json; leave --best-over and --csv out"
        )
    if why is not None and len(of.campaign) > 1:
        raise SpecError("--why is about one cell of one campaign; give one --campaign")
    frames, said = [], []
    for each in of.each():
        with each.open() as (store, name, warnings):
            if why is not None:
                return _write_why(store, name, _find_cell(store, name, why), warnings, as_json=of.as_json)
            if len(of.campaign) > 1 and each.as_text:
                write(f"campaign {each.campaign}")
            shown = _table_of(store, name, query, rows, best_over, as_text=each.as_text)
            if shown is not None and len(of.campaign) > 1:
                shown = shown.insert_column(0, pl.repeat(str(each.campaign), len(shown), eager=True).alias("campaign"))
            frames += [] if shown is None else [shown]
            said += warnings
    if frames:
        shown = pl.concat(frames, how="diagonal_relaxed")
        write_frame("table", shown, as_json=of.as_json, as_csv=of.as_csv, warnings=said)
    return 0


def _table_of(
    store: "Store", grid: str, query: Sequence[str], rows: Listing, best_over: Sequence[str], *, as_text: bool
) -> "pl.DataFrame | None":
    """Return the table of a grid, or write it as text and return None."""
    from runners.cli.verdict_text import write_verdicts
    from store.analysis.tuned_verdicts import selected_verdicts
    from store.analysis.verdicts import verdicts

    found = selected_verdicts(store, grid, best_over) if best_over else verdicts(store, grid)
    ordered = rows.order(found, store.grid(grid)["measure"]["better"])
    shown = keep_cells(store, grid, ordered, query)
    columns = rows.names(found)
    if as_text and columns is None:
        write_verdicts(store, grid, found, shown)
        return None
    return shown if columns is None else shown.select(columns)


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
