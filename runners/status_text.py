"""What `ablate status` says: how far each cell is, what failed, and what a reader must know."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from runners.output import say, write, write_table

if TYPE_CHECKING:
    import polars as pl

    from store.store import Store

COLUMNS = ("label", "planned", "ok", "failed", "running", "pending")


class Status(NamedTuple):
    """The state of some grids of a campaign."""

    grids: "dict[str, pl.DataFrame]"
    failures: "pl.DataFrame"
    bad_shards: "pl.DataFrame"
    warnings: list[str]

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "grids": {name: frame.rows(named=True) for name, frame in self.grids.items()},
            "failures": self.failures.rows(named=True),
            "bad_shards": self.bad_shards.rows(named=True),
        }


def read_status(store: "Store", grids: Sequence[str], grid: str | None) -> Status:
    """The state of `grids`; failures of `grid` only, where one was asked for."""
    found = {name: store.progress(name) for name in grids}
    return Status(found, store.failures(grid), store.bad_shards(), store.warnings())


def write_status(found: Status) -> None:
    """A table per grid, then failures by kind; warnings on stderr."""
    for name, frame in found.grids.items():
        total = frame.select(COLUMNS[1:]).sum().row(0)
        write(f"{name}: {total[1]} of {total[0]} trials done")
        write_table(COLUMNS, frame.select(COLUMNS).rows())
    for row in found.failures.rows(named=True):
        write(f"failed: {row['n']} x {row['reason']}: {row['message']} (trial {str(row['example'])[:12]})")
    for warning in found.warnings:
        say(f"ablate: {warning}")
