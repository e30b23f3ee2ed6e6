"""Commands for tags and notes that people write on trials and grids."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from runners.cli.options import Campaign, Json
from runners.output import format_count, say, write_frame

if TYPE_CHECKING:
    import polars as pl

    from store.files.annotations import Subject
    from store.store import Store


def tag(
    *words: Annotated[str, Parameter(allow_leading_hyphen=True)],
    grid: str | None = None,
    campaign: Campaign = None,
    as_json: Json = False,
) -> int:
    """Add or remove tags of trials or of a grid: `ablate tag operator=SSA +good -bad`. Without tags, list what has any.

    Every query takes tag=good as a condition.

    Parameters
    ----------
    words
        A query, then +TAG to add and -TAG to remove.
    grid
        A grid as a whole, instead of a query.
    """
    from grid.errors import SpecError
    from store.files.annotations import check_tag

    add = [check_tag(word[1:]) for word in words if word.startswith("+")]
    remove = [check_tag(word[1:]) for word in words if word.startswith("-")]
    query = [word for word in words if not word.startswith(("+", "-"))]
    if not add and not remove:
        return _list(query, grid, campaign, as_json=as_json)
    if both := sorted(set(add) & set(remove)):
        raise SpecError(f"a tag is added or removed; got +{both[0]} and -{both[0]}")
    return _annotate(query, grid, campaign, add=add, remove=remove, note=None)


def note(*words: str, grid: str | None = None, campaign: Campaign = None) -> int:
    """Write a note on trials or on a grid: `ablate note operator=SSA seed=3 "loss spikes at step 900"`.

    Parameters
    ----------
    words
        A query, then the text in quotes.
    grid
        A grid as a whole, instead of a query.
    """
    from grid.errors import SpecError

    if not words or not words[-1].strip():
        raise SpecError('a note has a text, in quotes after the query: `ablate note operator=SSA "loss spikes"`')
    return _annotate(words[:-1], grid, campaign, add=[], remove=[], note=words[-1].strip())


def _annotate(
    query: Sequence[str],
    grid: str | None,
    campaign: Campaign,
    *,
    add: Sequence[str],
    remove: Sequence[str],
    note: str | None,
) -> int:
    from grid.errors import SpecError
    from runners.cli.resolve import find_several, open_campaign
    from store.files.annotations import annotate
    from store.ingest.ingest_lock import ingest_lock

    if bool(query) == (grid is not None):
        raise SpecError("tags and notes are about the trials of a query, or about --grid NAME; give one of the two")
    with open_campaign(campaign) as store:
        subjects: list[Subject] = [(key, None) for key in find_several(store, query)] if query else [(None, grid)]
        if grid is not None:
            store.grid(grid)
        layout = store.layout
    with ingest_lock(layout, wait=True):
        annotate(layout, subjects, add=add, remove=remove, note=note)
    say(f"ablate: written on {f'grid {grid}' if grid is not None else format_count(len(subjects), 'trial')}")
    return 0


def _list(query: Sequence[str], grid: str | None, campaign: Campaign, *, as_json: bool) -> int:
    from runners.cli.resolve import choose_grid, find_several, open_campaign

    with open_campaign(campaign) as store:
        keys = find_several(store, query) if query else None
        frame = annotations(store, None if grid is None else choose_grid(store, grid))
    shown = frame if keys is None else frame.filter(frame["trial"].is_in(keys))
    write_frame("tag", shown, as_json=as_json, as_csv=False)
    return 0


def annotations(store: "Store", grid: str | None) -> "pl.DataFrame":
    """Return the tags and the last note of each trial that has any, in the order of the plan."""
    return store.sql(
        "SELECT a.grid, left(a.trial, 8) AS run, a.label, a.seed, array_to_string(a.tags, ' ') AS tags, a.note, "
        "a.trial FROM v_annotation a JOIN grid_trial g USING (grid, trial) WHERE $grid IS NULL OR grid = $grid "
        "ORDER BY grid, position",
        {"grid": grid},
    )
