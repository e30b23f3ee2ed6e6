"""Cells that a query means, and their order in tables."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.suggestions import suggest_name

if TYPE_CHECKING:
    import polars as pl

    from ablate.store.store import Store

_CHECK = "check."  # before the name of a check in a query


def keep_cells(store: "Store", grid: str, frame: "pl.DataFrame", query: Sequence[str]) -> "pl.DataFrame":
    """Keep the rows whose cell the query means; all without a query. Raise NotFoundError if there are none.

    Words such as check.on=no are about the checks of verdicts.
    """
    checks = [word for word in query if word.startswith(_CHECK)]
    frame, query = _keep_checked(frame, checks), [word for word in query if word not in checks]
    if not query:
        return frame
    from ablate.store.database.queries import baseline_cells

    kept = frame.filter(frame["cell"].is_in(cells := find_cells(store, grid, query)))
    if kept.is_empty():
        if set(cells) <= baseline_cells(store.grid(grid)):
            raise NotFoundError(f"{' '.join(query)!r} fits baselines alone, which are not compared; name other cells")
        raise NotFoundError(f"{' '.join(query)!r} fits no cell that is compared with the baseline")
    return kept


def _keep_checked(frame: "pl.DataFrame", words: Sequence[str]) -> "pl.DataFrame":
    from ablate.store.analysis.query import split_condition
    from ablate.store.statistics.check import ANSWERS, CHECK_NAMES

    for word in words:
        name, sign, answer = split_condition(word) or (word, "", "")
        check = name.removeprefix(_CHECK)
        if check not in CHECK_NAMES:
            known = ", ".join(CHECK_NAMES)
            raise NotFoundError(f"there is no check {check!r}; there are {known}{suggest_name(check, [*CHECK_NAMES])}")
        if sign not in ("=", "!=") or answer not in ANSWERS:
            raise SpecError(f"{word!r} is no answer of a check; write {_CHECK}{check}= and one of {', '.join(ANSWERS)}")
        if check not in frame.columns:
            raise SpecError(f"{word!r} asks for a check, which this table does not have; leave it out")
        frame = frame.filter((frame[check] == answer) == (sign == "="))
    if words and frame.is_empty():
        raise NotFoundError(f"no verdict has {' '.join(words)}")
    return frame


def find_cells(store: "Store", grid: str, query: Sequence[str]) -> list[str]:
    """List the cells of `grid` that a query means, in the order of the spec.

    Raises SpecError if a word names seeds or a grid, NotFoundError for an unknown field or if no cell fits.
    """
    from ablate.store.analysis.query import split_condition, split_quoted
    from ablate.store.analysis.trial_query import select

    query = split_quoted(query)
    for word in query:
        name, sign, _ = split_condition(word) or ("", "", "")
        if name == "seed":
            raise SpecError(f"{word!r} chooses a seed, and a cell is compared on all of its seeds; leave it out")
        if (name, sign) == ("grid", "="):
            raise SpecError(f"{word!r} chooses a grid, and a table is about one; leave it out and give --grid")
    keys = select(store, [*query, f"grid={grid}"])
    cells = store.sql(
        "SELECT DISTINCT cell FROM grid_trial WHERE grid = $grid AND list_contains($keys, trial)",
        {"grid": grid, "keys": keys},
    )
    matching = set(cells["cell"])
    return [cell for cell in label_cells(store, grid) if cell in matching]


def label_cells(store: "Store", grid: str) -> dict[str, str]:
    """Return the label of each cell of `grid`, in the order of the spec."""
    from ablate.store.database.queries import in_plan_order

    cells = store.sql("SELECT DISTINCT cell, label FROM grid_trial WHERE grid = $grid", {"grid": grid})
    return dict(in_plan_order(store.sql, store.grid(grid), cells).rows())


def sort_by_plan(store: "Store", rows: "pl.DataFrame") -> "pl.DataFrame":
    """Sort rows with columns grid and cell by the grid, then as `label_cells` lists cells; equal ones keep their order.

    The rows of a grid are next to each other.
    """
    import polars as pl

    from ablate.store.database.queries import in_plan_order

    grids = rows.partition_by("grid", maintain_order=True)
    return pl.concat([in_plan_order(store.sql, store.grid(part["grid"][0]), part) for part in grids] or [rows])
