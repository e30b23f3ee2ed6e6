"""Commands that answer from the store of a campaign."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runners.cli.measure_text import average_of, describe_measure
from runners.cli.options import AnyGrid, Campaign, Csv, Json, OneGrid
from runners.output import say, write, write_frame, write_json, write_table

if TYPE_CHECKING:
    from store.store import Store


def status(*, campaign: Campaign = None, grid: AnyGrid = None, as_json: Json = False) -> int:
    """Show the progress of each cell, the running trials and the failures, from the files and the scheduler."""
    from runners.cli.resolve import choose_grid, open_campaign
    from runners.monitoring.status_text import read_status, write_status
    from runners.monitoring.trial_states import locate_trials
    from runners.slurm.scheduler import SlurmScheduler

    with open_campaign(campaign, thorough=False) as store:
        names = store.grids() if grid is None else [choose_grid(store, grid)]
        found = read_status(store, locate_trials(store, SlurmScheduler(), ended=as_json), names, grid)
    if as_json:
        write_json("status", found.data(), found.warnings)
    else:
        write_status(found)
    return 0


def table(
    *,
    campaign: Campaign = None,
    grid: OneGrid = None,
    why: str | None = None,
    best_over: Sequence[str] = (),
    as_json: Json = False,
    as_csv: Csv = False,
) -> int:
    """The verdict table: every cell against the grid's baseline, paired by seed.

    Parameters
    ----------
    why
        A cell, by its label or key: all that its verdict rests on, instead of the table.
    best_over
        An axis such as the learning rate, or several: every setting of the others is represented by its best cell,
        chosen on half of the seeds and compared on the other half.
    """
    from grid.errors import SpecError
    from runners.cli.resolve import choose_grid, open_campaign
    from runners.provenance.mixed_code import warn_of_mixtures
    from store.analysis.tuned_verdicts import selected_verdicts
    from store.analysis.verdicts import verdicts

    if why is not None and (best_over or as_csv):
        raise SpecError(
            "--why is about one cell of the whole table, as text or --json; leave --best-over and --csv out"
        )
    with open_campaign(campaign) as store:
        name = choose_grid(store, grid)
        if why is not None:
            return _write_why(store, name, why, as_json=as_json)
        header = store.grid(name)
        found = selected_verdicts(store, name, best_over) if best_over else verdicts(store, name)
        warn_of_mixtures(store, [name], say)
    if not as_json and not as_csv:
        write(f"{describe_measure(header)}, {header['measure']['better']} is better")
    shown = _SHOWN | {"value": average_of(header["measure"])}
    write_frame("table", found, as_json=as_json, as_csv=as_csv, shown={k: v for k, v in shown.items() if k in found})
    return 0


_SHOWN = {
    "label": "cell",
    "pairs": "pairs",
    "value": "mean",
    "percent": "difference %",
    "low_percent": "low",
    "high_percent": "high",
    "p_holm": "p (Holm)",
    "verdict": "verdict",
    "reason": "because",
}


def _write_why(store: "Store", grid: str, cell: str, *, as_json: bool) -> int:
    from store.analysis.explain_verdict import why, why_text

    found = why(store, grid, cell)
    if as_json:
        write_json("why", found)
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
    from runners.monitoring.trial_comparison import compare_trials

    with open_campaign(campaign) as store:
        found = compare_trials(store, find_trial(store, first), find_trial(store, second))
    if as_json:
        write_json("compare", {"spec": found.spec, "results": found.results.rows(named=True)})
        return 0
    write("\n".join(found.spec) or "the specs are equal")
    write_table(found.results.columns, found.results.rows())
    return 0
