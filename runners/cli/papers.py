"""The command `papers`: tables and figures of the papers, their grids, and your results beside printed values."""

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from grid.errors import NotFoundError
from grid.paper import PaperGrids, PaperItem, PaperScale
from runners.cli.options import Flag, Json
from runners.cli.published import doubts, flat, write_cells
from runners.cli.resolve import CAMPAIGNS, load_paper, paper_files, read_warnings
from runners.output import (
    format_count,
    round_value,
    slow_notice,
    tell,
    write_frame,
    write_json,
    write_prose,
    write_table,
)
from store.files.atomic import read_json
from store.files.layout import Layout
from store.files.trial_status import trial_state

if TYPE_CHECKING:
    import polars as pl

    from grid import Grid


def papers(
    item: str | None = None,
    /,
    *,
    scale: PaperScale = "cpu",
    campaign: Path | None = None,
    cost: Flag = False,
    as_json: Json = False,
) -> None:
    """List the papers' tables and figures as grids, or show one with your results.

    Parameters
    ----------
    item
        A paper, such as ssa, or one of its items, such as ssa:table1.
    scale
        paper: the paper's own setting; gpu: an hour of one accelerator per table; cpu: about ten minutes of two cores.
    campaign
        Where its results are; default campaigns/PAPER.
    cost
        Count the operations of training for all papers, in half a minute. Those of one paper are counted anyway.
    """
    if item is not None and ":" in item:
        _papers_item(item, scale, campaign, as_json=as_json)
        return
    names = list(paper_files()) if item is None else [item]
    root = {name: campaign or CAMPAIGNS / name for name in names}
    count = cost or item is not None
    with slow_notice("counting operations: every cell of every grid") if count else nullcontext():
        states = [each for name in names for each in item_states(name, scale, root[name], count=count)]
    if as_json:
        write_json("papers", [each._asdict() for each in states])
    else:
        write_states(states, scale)


def _papers_item(item: str, scale: PaperScale, campaign: Path | None, *, as_json: bool) -> None:
    """Show a table with your results beside the printed values, or the printed values alone."""
    from dashboards.papers.paper_tables import read_beside
    from store.store import Store

    paper, _, name = item.partition(":")
    grids = load_paper(paper)
    grids.item(name)  # an unknown one raises here, not below
    number = int(name.removeprefix("table")) if name.startswith("table") else None
    try:
        grid, root = grids.grid_name(name, scale), campaign or CAMPAIGNS / paper
    except NotFoundError as error:
        if number is None:
            raise
        _write_printed(grids.number, number, as_json=as_json)
        tell(str(error))
        return
    if number is None:
        figure = f"{item} is drawn from grid {grid} on the page Published of `ablate dash {root}`"
        own = f"{item} is no item of the paper; `ablate table --campaign {root} --grid {grid}` shows its verdicts"
        tell(figure if name.startswith("figure") else own)
        return
    if Layout(root).exists():
        with Store.open(root) as store:
            if grid in store.grids():
                warnings = read_warnings(store, grid, quiet=as_json)
                found = read_beside(store, grid, grids.number, number)
                if as_json:
                    write_frame("papers", found, as_json=True, warnings=warnings)
                else:
                    write_beside(found)
                return
    _write_printed(grids.number, number, as_json=as_json)
    published = f"{PUBLISHED / paper / grid}.parquet has runs of it; " if _is_published(paper, grid) else ""
    tell(f"{root} has no results of {grid}; {published}`ablate run {item} --scale {scale}` trains it")


def _write_printed(paper: str, table: int, *, as_json: bool) -> None:
    """Write the printed values of a table."""
    from store.published.tables import chosen

    cells = chosen(paper, str(table))
    if as_json:
        write_frame("papers", flat(cells), as_json=True)
    else:
        write_cells(cells)


def _is_published(paper: str, grid: str) -> bool:
    return all((PUBLISHED / paper / f"{grid}.{end}").exists() for end in ("json", "parquet"))


PUBLISHED: Final = Path("results")
"""Where a repository keeps the results of its grids, as `docs/results.md` shows them."""


class ItemState(NamedTuple):
    """A line of `ablate papers`."""

    paper: str
    item: str
    state: str
    """planned, published (not run here, but in `results/`), other settings (run with overrides), running, done, failed,
    "with <item>", or no grid.
    """
    cells: int | None
    trials: int | None
    finished: int | None
    flops: float | None
    """Floating-point operations of all of its training steps; None if they were not counted."""
    about: str


def item_states(name: str, scale: PaperScale, root: Path, *, count: bool) -> list[ItemState]:
    """Return the state of every item of a paper in the campaign at `root`, which need not exist.

    `count` counts floating-point operations, which takes about a second per table.
    """
    found = load_paper(name)
    return [_state(name, found, item, scale, root, count=count) for item in found.items]


def _state(name: str, found: PaperGrids, item: PaperItem, scale: PaperScale, root: Path, *, count: bool) -> ItemState:
    if item.reason:
        return ItemState(name, item.name, "no grid", None, None, None, None, item.reason)
    if item.of:
        return ItemState(name, item.name, f"with {item.of}", None, None, None, None, "")
    if scale not in item.scales:
        return ItemState(name, item.name, f"not at {scale}", None, None, None, None, item.title)
    grid, layout = found.grids[found.grid_name(item.name, scale)], Layout(root)
    keys = (planned.key for planned in grid.enumerate())
    states: Counter[str] = Counter(trial_state(layout, key).status if layout.exists() else "pending" for key in keys)
    flops = _count_flops(grid) if count else None
    cells, trials = grid.header()["cells"], states.total()
    word = _word(states)
    header = layout.grid_header(grid.name)
    if word == "planned" and header.exists() and read_json(header).get("overrides"):
        word = "other settings"
    elif word == "planned" and _is_published(name, grid.name):
        word = "published"
    return ItemState(name, item.name, word, cells, trials, states["ok"], flops, item.title)


def _word(states: Counter[str]) -> str:
    if states["ok"] == states.total():
        return "done"
    if states["running"] or (states["ok"] and states["pending"]):
        return "running"
    return "failed" if states["failed"] else "planned"


def _count_flops(grid: "Grid") -> float | None:
    """Count the FLOPs of all trials; None if those of one cannot be counted."""
    from runners.planning.duration import training_flops

    try:
        cells = [training_flops(planned.trial) for planned in grid.cells()]
    except (RuntimeError, TypeError, ValueError):  # an operator that reads tensor values; meta tensors have none
        return None
    return sum(each or 0.0 for each in cells) * len(tuple(grid.seeds))


def write_states(states: list[ItemState], scale: PaperScale) -> None:
    """Write a line per item, then how to go on."""
    counted = any(each.flops is not None for each in states)
    several = len({each.paper for each in states}) > 1
    rows = [
        [
            f"{each.paper}:{each.item}",
            each.state if not each.finished or each.state == "done" else f"{each.state}, {each.finished} done",
            each.cells,
            each.trials,
            *([each.flops and f"{each.flops:.1e}"] if counted else []),
            each.about,
        ]
        for each in states
        if each.cells is not None or not each.state.startswith("with ") or not several
    ]
    write_table(["item", "state", "cells", "trials", *(["FLOP"] if counted else []), "about"], rows, brief=several)
    grids = sum(each.cells is not None for each in states)
    views = sum(each.state.startswith("with ") for each in states)
    other = len(states) - grids - views
    tell(
        f"at scale {scale}: {format_count(grids, 'grid')}, {format_count(views, 'view')}, "
        f"{format_count(other, 'item')} without a grid{'; `ablate papers PAPER` lists all items' if several else ''}; "
        "`ablate plan PAPER:ITEM --calibrate` measures the time of one"
    )


def write_beside(frame: "pl.DataFrame") -> None:
    """Write a line per printed cell with your own result, then the doubts about printed values."""
    headings = ("row", "column", "printed", "ours", "±", "seeds", "band", "claim", "cell", "note")
    rows = [
        (
            *(row["row"], row["column"], row["printed"], round_value(row["mean"]), round_value(row["spread"])),
            *(row["n"] or None, row["band"], row["word"], row["cell"], row["note"] or row["why"]),
        )
        for row in frame.iter_rows(named=True)
    ]
    write_table(headings, rows)
    differences = dict.fromkeys(row for row in frame["differs"].drop_nulls() if row)
    for line in (*doubts(number for numbers in frame["notes"] for number in numbers), *differences):
        write_prose(f"  {line}")
