"""Results of grids that a repository keeps: `results/PAPER/GRID.json`, and a Parquet file of the runs beside it."""

import json
from pathlib import Path
from typing import Any, Final

from ablate.grid.errors import StoreError

RESULTS: Final = Path("results")
"""Where a repository keeps the results of its grids, as `docs/results.md` shows them."""
SCHEMA: Final = 1
"""Version of the files."""

PAPERS: Final = {"000": "affine_scaled", "001": "principled", "002": "integral", "003": "ssa", "004": "attention_sink"}
"""Folders below it and modules of `papers/grids`, by the number of the paper."""
VIEWS: Final = {"000": {4: 1, 5: 1}, "002": {2: 9, 3: 10, 4: 12, 5: 1, 7: 1}, "003": {4: 2, 5: 1}, "004": {4: 13}}
"""By paper: tables that the grid of another one has measured, and that one."""


def result_file(paper: str, grid: str) -> Path | None:
    """Find the result of a grid of a paper, such as "ssa" and "table1-cpu", below the working directory."""
    place = RESULTS / paper / f"{grid}.json"
    return place if place.exists() else None


def find_published(number: str, table: int) -> tuple[str, str] | None:
    """Find the grid of a table of a paper: the item, such as "ssa:table5", and its grid, such as "table1-cpu"."""
    paper, grid = PAPERS[number], f"table{VIEWS.get(number, {}).get(table, table)}-cpu"
    return (f"{paper}:table{table}", grid) if result_file(paper, grid) else None


def read_summary(place: Path) -> dict[str, Any]:
    """Read the header, the cost and the checks of a grid.

    Raises:
        StoreError: the file has another version, or is damaged.
    """
    try:
        record = json.loads(place.read_text(encoding="utf-8"))
        if record["schema"] != SCHEMA:
            raise StoreError(
                f"{place} has version {record['schema']}, and this version reads result files of version {SCHEMA}; "
                "collect the results of the campaign again"
            )
        header, cost = record["header"], record["cost"]
        cost = {**cost, "hours": float(cost["hours"])}
        header = {**header, "measure": {**header["measure"]}}
        return {"header": header, "cost": cost, "checks": {**record.get("checks", {})}}
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise damage_error(place, error) from error


def damage_error(place: Path, error: Exception) -> StoreError:
    """Return the error of a file that cannot be read."""
    return StoreError(f"{place} and its Parquet file are damaged ({error}): collect the results of the campaign again")
