"""Commands that take trials and grids out of a campaign, and give grids other names."""

from runners.cli.options import Campaign
from runners.output import format_count, say, write


def rm(*query: str, grid: str | None = None, campaign: Campaign = None) -> int:
    """Remove trials, or a grid, into the campaign's trash; nothing else is lost.

    A trial that another grid plans keeps its results. Trials that are queued or running are not removed.

    Parameters
    ----------
    query
        Which trials: the beginning of a key, a label, or conditions such as operator=SSA seed=3. With grid=NAME, only
        that grid loses them.
    grid
        A grid as a whole, with the results that no other grid plans.
    """
    from grid.errors import SpecError
    from runners.cli.resolve import find_several, open_campaign
    from runners.monitoring.remove import remove_trials, trials_of
    from runners.monitoring.trial_locations import locate_trials
    from runners.monitoring.trial_query import select_planned
    from runners.slurm.scheduler import SlurmScheduler

    if bool(query) == (grid is not None):
        raise SpecError("`ablate rm` takes a query of trials, or --grid NAME; a query takes grid=NAME as a condition")
    with open_campaign(campaign) as store:
        keys = find_several(store, query) if query else []
        planned = [] if query else trials_of(store, str(grid))
        known = set(store.sql("SELECT DISTINCT trial FROM grid_trial")["trial"])
        if known.intersection(keys):
            planned = select_planned(store, query)
        where = locate_trials(store, SlurmScheduler())
        removed, kept, place = remove_trials(store, planned, [key for key in keys if key not in known], where)
    write(f"{format_count(removed, 'trial')} removed" if grid is None else f"grid {grid} and {removed} trials removed")
    if kept:
        say(f"ablate: another grid plans {format_count(kept, 'more trial')}; the results stay")
    say(f"ablate: the files lie in {place}; `cp -a trash/{place.name}/. .` in the campaign restores them")
    return 0


def rename(old: str, new: str, /, *, campaign: Campaign = None) -> int:
    """Give a grid another name; every result stays. Change the name in the spec file, too.

    Parameters
    ----------
    old
        The grid.
    new
        Its new name.
    """
    from runners.cli.resolve import open_campaign
    from runners.monitoring.remove import rename_grid
    from runners.monitoring.trial_locations import locate_trials
    from runners.slurm.scheduler import SlurmScheduler

    with open_campaign(campaign) as store:
        rename_grid(store, old, new, locate_trials(store, SlurmScheduler()))
    write(f"grid {old} is called {new}")
    say("ablate: change the name in the spec file, too; otherwise the next run plans the old name again")
    return 0
