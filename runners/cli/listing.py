"""Which rows of a table a person asked for, in which order and with which columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, final

from cyclopts import Parameter

from grid.errors import NotFoundError, SpecError
from grid.suggestions import suggest_name

if TYPE_CHECKING:
    import polars as pl

    from store.store import Store

Query = Annotated[str, Parameter(help="Only these cells: operator=SSA, training.lr=0.001, or a label.")]


@final
@dataclass(frozen=True)
class Listing:
    """Order and columns.

    Parameters
    ----------
    sort
        By effect, the best first; by p; or in the order of the plan.
    columns
        Columns of the JSON answer to show instead, separated by commas: label,pairs,hedges_g.
    """

    sort: Literal["effect", "p", "plan"] = "effect"
    columns: str | None = None

    def names(self, frame: "pl.DataFrame") -> list[str] | None:
        """The columns that were asked for; None if none were.

        Raises:
            SpecError: one is not there.
        """
        if self.columns is None:
            return None
        wanted = [name.strip() for name in self.columns.split(",")]
        for name in wanted:
            if name not in frame.columns:
                raise SpecError(
                    f"--columns takes {', '.join(frame.columns)}; got {name!r}{suggest_name(name, frame.columns)}"
                )
        return wanted

    def order(self, frame: "pl.DataFrame", better: str, within: Sequence[str] = ()) -> "pl.DataFrame":
        """Sort the rows of each group `within`; rows without a number come last."""
        if self.sort == "plan":
            return frame
        by = "difference" if self.sort == "effect" else "p_holm"
        falling = self.sort == "effect" and better == "higher"
        descending = [False] * len(within) + [falling]
        return frame.sort([*within, by], descending=descending, nulls_last=True, maintain_order=True)


LISTING = Annotated[Listing, Parameter(name="*")]
"""Flattened: `--sort` and `--columns`."""

BY_EFFECT = Listing()


def keep_cells(store: "Store", grid: str, frame: "pl.DataFrame", query: Sequence[str]) -> "pl.DataFrame":
    """The rows whose cell the query means; all without a query.

    Raises:
        SpecError: a word is about a field that there is not.
        NotFoundError: no cell of the grid is so, or the baseline alone.
    """
    if not query:
        return frame
    kept = frame.filter(frame["cell"].is_in(find_cells(store, grid, query)))
    if kept.is_empty():
        raise NotFoundError(f"{' '.join(query)!r} fits no cell that is compared with the baseline")
    return kept


def find_cells(store: "Store", grid: str, query: Sequence[str]) -> list[str]:
    """Cells of `grid` that a query means, in the order of the plan. Raises as `keep_cells` does."""
    from runners.monitoring.trial_query import select

    keys = select(store, [*query, f"grid={grid}"])
    found = store.sql(
        "SELECT cell FROM grid_trial WHERE grid = $grid AND list_contains($keys, trial) GROUP BY cell "
        "ORDER BY min(position)",
        {"grid": grid, "keys": keys},
    )
    return [str(cell) for cell in found["cell"]]
