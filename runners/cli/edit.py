"""Commands that change a campaign: tags, notes, removed trials, names of grids."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.names import some
from ablate.runners.cli.cell_selection import sort_by_plan
from ablate.runners.cli.options import Campaign, Json, WholeGrid
from ablate.runners.cli.resolve import choose_grid, find_several, open_campaign
from ablate.runners.output import format_count, tell, write, write_json, write_prose, write_table

if TYPE_CHECKING:
    import polars as pl

    from ablate.store.files.annotations import Subject

_TAGGED = """
    SELECT a.grid, left(a.trial, 8) AS run, a.label, a.seed, array_to_string(a.tags, ' ') AS tags, a.note, a.trial,
           g.cell, CASE WHEN NOT EXISTS (FROM note n WHERE n.trial = a.trial) THEN a.grid END AS noted_grid
    FROM v_annotation a JOIN grid_trial g USING (grid, trial) WHERE $grid IS NULL OR grid = $grid
    ORDER BY grid, position
"""
"""Trials with tags or notes, in the order of execution."""


def tag(
    *words: Annotated[str, Parameter(allow_leading_hyphen=True)],
    grid: WholeGrid = None,
    campaign: Campaign = None,
    as_json: Json = False,
) -> None:
    """Add or remove tags of trials or of a grid: `ablate tag operator=SSA +good -bad`.

    Without tags, it lists what has any. Every query takes tag=good as a condition.

    Parameters
    ----------
    words
        A query, then +TAG to add and -TAG to remove.
    """
    from ablate.store.files.annotations import check_tag

    add = [check_tag(word[1:]) for word in words if word.startswith("+")]
    remove = [check_tag(word[1:]) for word in words if word.startswith("-")]
    query = [word for word in words if not word.startswith(("+", "-"))]
    if not add and not remove:
        with open_campaign(campaign) as store:
            try:
                keys = find_several(store, query) if query else None
            except NotFoundError as error:
                if len(query) < 2:
                    raise
                usage = f"ablate tag {shlex.join(query[:-1])} +{query[-1]}"
                raise NotFoundError(
                    f"{error}; a tag has a sign: `{usage}` adds one, -{query[-1]} removes it"
                ) from error
            tagged = store.sql(_TAGGED, {"grid": None if grid is None else choose_grid(store, grid)})
            rows = sort_by_plan(store, tagged).drop("cell")
        rows = rows if keys is None else rows.filter(rows["trial"].is_in(keys))
        if as_json:
            write_json("tag", rows.drop("noted_grid").rows(named=True))
        else:
            _write_tags(rows)
        return
    if both := sorted(set(add) & set(remove)):
        raise SpecError(f"the tag {both[0]!r} is both added and removed; leave +{both[0]} or -{both[0]} out")
    _annotate(query, grid, campaign, add, remove)


def _write_tags(rows: "pl.DataFrame") -> None:
    """Write a line for the trials of a cell with the same tags, then each note with its trials."""
    import polars as pl

    if rows.is_empty():
        write("no trial has a tag or a note")
        return
    kept = ["label", "tags"] if rows["grid"].n_unique() == 1 else ["label", "grid", "tags"]
    groups = rows.filter(pl.col("tags") != "").group_by(kept, maintain_order=True).agg(pl.len(), pl.col("run"))
    if groups.height:
        cells = [(*row[:-1], some(row[-1], 3)) for row in groups.rows()]
        write_table(["cell", *kept[1:], "n", "trials"], cells, spare=(len(kept) + 1,), labels=1)
    named = pl.coalesce(pl.format("grid {}", "noted_grid"), pl.format("{} seed {}", "label", "seed")).alias("named")
    notes = rows.drop_nulls("note").group_by("note", maintain_order=True).agg(named.unique(maintain_order=True))
    for text, trials in notes.rows():
        write_prose(f"note on {some(trials, 3)}: {text}")


def note(*words: str, grid: WholeGrid = None, campaign: Campaign = None) -> None:
    """Write a note on trials or on a grid: `ablate note operator=SSA "loss spikes"`.

    Parameters
    ----------
    words
        A query, then the text in quotes.
    """
    if not words or not words[-1].strip():
        raise SpecError(
            'a note without a text; write it in quotes after the query: `ablate note operator=SSA "loss spikes"`'
        )
    _annotate(words[:-1], grid, campaign, note=words[-1].strip())


def _annotate(
    query: Sequence[str],
    grid: str | None,
    campaign: Campaign,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    note: str | None = None,
) -> None:
    from ablate.store.files.annotations import annotate
    from ablate.store.ingest.ingest_lock import ingest_lock

    if bool(query) == (grid is not None):
        raise SpecError(
            f"{'a query and --grid are' if query else 'neither a query nor --grid is'} there; name trials by one"
        )
    with open_campaign(campaign) as store:
        subjects: list[Subject] = [(key, None) for key in find_several(store, query)] if query else [(None, grid)]
        if grid is not None:
            store.grid(grid)
        layout = store.layout
    with ingest_lock(layout, wait=True):
        changed = annotate(layout, subjects, add=add, remove=remove, note=note)
    if changed:
        tell(f"written on {f'grid {grid}' if grid is not None else format_count(changed, 'trial')}")
    else:
        tell(f"no tag has changed{'; --grid NAME removes tags of a grid' if remove and grid is None else ''}")


def rm(*query: str, grid: str | None = None, campaign: Campaign = None) -> None:
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
    from ablate.runners.monitoring.remove import remove_trials, trials_of
    from ablate.runners.monitoring.trial_locations import locate_trials
    from ablate.store.analysis.trial_query import select_planned

    if bool(query) == (grid is not None):
        raise SpecError(
            f"{'a query and --grid are' if query else 'neither a query nor --grid is'} there; give one of the two, and "
            "grid=NAME as a condition of a query"
        )
    with open_campaign(campaign) as store:
        keys = find_several(store, query) if query else []
        planned = [] if query else trials_of(store, str(grid))
        known = set(store.sql("SELECT DISTINCT trial FROM grid_trial")["trial"])
        if known.intersection(keys):
            planned = select_planned(store, query)
        where = locate_trials(store)
        removed, kept, place = remove_trials(store, planned, [key for key in keys if key not in known], where)
    write(f"{format_count(removed, 'trial')} removed" if grid is None else f"grid {grid} and {removed} trials removed")
    if kept:
        tell(f"another grid plans {format_count(kept, 'more trial')}; the results stay")
    tell(f"the files lie in {place}; `cp -a trash/{place.name}/. .` in the campaign restores them")


def rename(old: str, new: str, /, *, campaign: Campaign = None) -> None:
    """Give a grid another name; every result stays.

    Change the name in the spec file, too.

    Parameters
    ----------
    old
        The grid.
    new
        Its new name.
    """
    from ablate.runners.monitoring.remove import rename_grid
    from ablate.runners.monitoring.trial_locations import locate_trials

    with open_campaign(campaign) as store:
        rename_grid(store, old, new, locate_trials(store))
    write(f"grid {old} is called {new}")
    tell("change the name in the spec file, too; otherwise the next run plans the old name again")
