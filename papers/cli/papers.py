"""The command `papers`: tables and figures of the papers, their grids, and your results beside printed values."""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ablate.grid.errors import NotFoundError, StoreError
from ablate.grid.paper import PaperGrids, PaperItem, PaperScale
from ablate.papers.cli.published import doubts, flat, write_cells
from ablate.papers.paper_grids import load_paper, paper_names
from ablate.papers.results.result_files import read_summary, result_file
from ablate.runners.cli.options import Flag, Json
from ablate.runners.cli.resolve import CAMPAIGNS, read_warnings
from ablate.runners.output import (
    format_count,
    round_value,
    slow_notice,
    tell,
    write_frame,
    write_json,
    write_prose,
    write_table,
)
from ablate.store.files.atomic import read_json
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state
from ablate.store.state import State

if TYPE_CHECKING:
    import polars as pl

    from ablate.grid import Grid
    from ablate.store.store import Store


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
    names = paper_names() if item is None else [item]
    root = {name: campaign or CAMPAIGNS / name for name in names}
    count = cost or item is not None
    with slow_notice("counting operations: every cell of every grid") if count else nullcontext():
        states = [each for name in names for each in item_states(name, scale, root[name], count=count)]
    if as_json:
        write_json("papers", [each.data() for each in states])
    else:
        write_states(states, scale)


def _papers_item(item: str, scale: PaperScale, campaign: Path | None, *, as_json: bool) -> None:
    """Show a table with your results beside the printed values, or the printed values alone."""
    from ablate.papers.figures.paper_tables import read_beside
    from ablate.store.store import Store

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
        shown = f"`ablate table --campaign {root} --grid {grid}` shows its verdicts"
        own = f"{item} is a grid of its own, no table of the paper; {shown}"
        tell(figure if name.startswith("figure") else own)
        return
    if Layout(root).exists():
        with Store.open(root) as store:
            if grid in store.grids():
                warnings = read_warnings(store, grid, quiet=as_json)
                _write_own(read_beside(store, grid, grids.number, number), as_json=as_json, warnings=warnings)
                return
    how = f"{root} has no results of {grid}; `ablate run {item} --scale {scale}` trains it"
    place = result_file(paper, grid)
    if place is None:
        _write_printed(grids.number, number, as_json=as_json)
        tell(how)
        return
    seeds = _write_published(place, grids, grids.item(name), grid, as_json=as_json)
    tell(f"ours: {format_count(seeds, 'seed')} of {place.with_suffix('.parquet')}; {how}")


def _write_published(place: Path, grids: PaperGrids, item: PaperItem, grid: str, *, as_json: bool) -> int:
    """Write the result of a grid beside a table, or below it where nothing is comparable; return how many seeds."""
    from ablate.papers.figures.paper_tables import list_needs, read_beside
    from ablate.papers.results.grid_results import open_result

    table = int(item.name.removeprefix("table"))
    specs = {planned.cell: planned.trial.data() for planned in grids.grids[grid].cells()}
    with open_result(place.parent, grid, specs) as store:
        beside = read_beside(store, grid, grids.number, table)
        if as_json or not beside["mean"].is_null().all():
            _write_own(beside, as_json=as_json, warnings=[])
        else:
            _write_printed(grids.number, table, as_json=False)
            why = Counter(beside["why"]).most_common(1)[0][0]
            recorded = store.sql("SELECT DISTINCT name FROM v_probe")["name"].to_list()
            names = [name for name in list_needs(grids.number, table) if name in recorded]
            said = f"no value of ours stands beside a printed one: {why}"
            if names or not item.of:
                tell(f"{said}; what ours has follows")
                _write_means(store, grid, names, own=not item.of)
            else:
                tell(f"{said}; docs/results.md has what {item.of} measured")
        return len(store.grid(grid)["seeds"])


def _write_own(frame: "pl.DataFrame", *, as_json: bool, warnings: Sequence[str]) -> None:
    if as_json:
        write_frame("papers", frame, as_json=True, warnings=warnings)
    else:
        write_beside(frame)


def _write_means(store: "Store", grid: str, names: Sequence[str], *, own: bool) -> None:
    """Write means over seeds, by cell: of each point of probes over layers and heads; of the grid's `own` measure."""
    from ablate.dashboards.data.captions import describe_measure
    from ablate.dashboards.data.grid_context import averages
    from ablate.store.analysis.row_labels import unit_of
    from ablate.store.analysis.verdicts import measure_of

    measure = measure_of(store, grid, None)
    unit = unit_of(store.grid(grid), measure.name)
    columns = {describe_measure(measure, unit): averages(store, grid, measure).rename({"value": "mean"})} if own else {}
    probes = store.sql(
        "SELECT cell, name, point::JSON::VARCHAR AS point, avg(value) AS mean FROM v_probe JOIN grid_trial "
        "USING (trial) WHERE grid = $grid AND list_contains($names, name) GROUP BY ALL ORDER BY name, point",
        {"grid": grid, "names": list(names)},
    )
    for (name, point), part in probes.group_by("name", "point", maintain_order=True):
        at = ", ".join(f"{axis}={value:g}" for axis, value in json.loads(str(point)).items())
        columns[f"{name} {at}".rstrip()] = part
    means = [dict(part.select("cell", "mean").iter_rows()) for part in columns.values()]
    rows = [
        (row["label"], row["done"], *(round_value(each.get(row["cell"])) for each in means))
        for row in store.progress(grid).iter_rows(named=True)
    ]
    write_table(("cell", "seeds", *columns), rows, labels=1)


def _write_printed(paper: str, table: int, *, as_json: bool) -> None:
    """Write the printed values of a table."""
    from ablate.store.published.tables import chosen

    cells = chosen(paper, str(table))
    if as_json:
        write_frame("papers", flat(cells), as_json=True)
    else:
        write_cells(cells)


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
    title: str
    """Its title, or why it has no grid."""
    published_hours: float | None = None
    """Wall time of the runs in `results/`; None if it has none that this version reads."""

    def data(self) -> dict[str, Any]:
        """Convert to plain data."""
        return {"about" if name == "title" else name: value for name, value in self._asdict().items()}


def item_states(name: str, scale: PaperScale, root: Path, *, count: bool) -> list[ItemState]:
    """Return the state of every item of a paper in the campaign at `root`, which need not exist.

    `count` counts floating-point operations, which takes about a second per table.
    """
    paper = load_paper(name)
    return [_state(name, paper, item, scale, root, count=count) for item in paper.items]


def _state(name: str, paper: PaperGrids, item: PaperItem, scale: PaperScale, root: Path, *, count: bool) -> ItemState:
    if item.reason:
        return ItemState(name, item.name, "no grid", None, None, None, None, item.reason)
    if item.of:
        return ItemState(name, item.name, f"with {item.of}", None, None, None, None, "")
    if scale not in item.scales:
        return ItemState(name, item.name, f"not at {scale}", None, None, None, None, item.title)
    grid, layout = paper.grids[paper.grid_name(item.name, scale)], Layout(root)
    keys = (planned.key for planned in grid.enumerate())
    states = Counter(trial_state(layout, key).state if layout.exists() else State.PENDING for key in keys)
    flops = _count_flops(grid) if count else None
    cells, trials = grid.header()["cells"], states.total()
    word, hours = _word(states), _published_hours(name, grid.name)
    if word == "planned" and _has_overrides(layout, grid.name):
        word = "other settings"
    elif word == "planned" and hours is not None:
        word = "published"
    return ItemState(name, item.name, word, cells, trials, states[State.DONE], flops, item.title, hours)


def _has_overrides(layout: Layout, grid: str) -> bool:
    """Return True if the campaign has a grid that overrides of `grid` made; earlier releases kept its name."""
    for name in layout.grid_names():
        with suppress(StoreError):
            header = read_json(layout.grid_header(name))
            overrides = [text for text in header.get("overrides", ()) if not text.startswith("seeds=")]
            if overrides and header.get("of", name) == grid:
                return True
    return False


def _published_hours(paper: str, grid: str) -> float | None:
    """Return the wall time of the runs in `results/`; None if it has none that this version reads."""
    place = result_file(paper, grid)
    if place is None or not place.with_suffix(".parquet").exists():
        return None
    with suppress(StoreError):
        return float(read_summary(place)["cost"]["hours"])
    return None


def _word(states: Counter[State]) -> str:
    ended = states[State.DONE] + states[State.FAILED]
    if states[State.RUNNING]:
        return "running"
    if ended < states.total():
        return "partly done" if states[State.PENDING] < states.total() else "planned"
    return "failed" if states[State.FAILED] else "done"


def _count_flops(grid: "Grid") -> float | None:
    """Count the FLOPs of all trials; None if those of one cannot be counted."""

    try:
        cells = [planned.trial.flops() for planned in grid.cells()]
    except (RuntimeError, TypeError, ValueError):  # an operator that reads tensor values; meta tensors have none
        return None
    return sum(each or 0.0 for each in cells) * len(tuple(grid.seeds))


def write_states(states: list[ItemState], scale: PaperScale) -> None:
    """Write a line per item, or a paragraph per item of one paper, then how to go on."""
    counted = any(each.flops is not None for each in states)
    several = len({each.paper for each in states}) > 1
    headings = ["item", "state", "cells", "trials", *(["FLOP"] if counted else []), "about"]
    rows = [
        [
            f"{each.paper}:{each.item}",
            _describe_state(each),
            each.cells,
            each.trials,
            *([each.flops and f"{each.flops:.1e}"] if counted else []),
            each.title,
        ]
        for each in states
        if each.cells is not None or not each.state.startswith("with ") or not several
    ]
    if several:
        write_table(headings, rows, spare=(3, 2), overflow="ellipsis")
    else:
        for item, state, *numbers, title in rows:
            counts = [f"{n} {heading}" for n, heading in zip(numbers, headings[2:], strict=False) if n]
            write_prose(f"{item} ({', '.join([str(state), *counts])}){f': {title}' if title else ''}")
    grids = sum(each.cells is not None for each in states)
    views = sum(each.state.startswith("with ") for each in states)
    other = len(states) - grids - views
    tell(
        f"at scale {scale}: {format_count(grids, 'grid')}, {format_count(views, 'view')}, "
        f"{format_count(other, 'item')} without a grid{'; `ablate papers PAPER` lists all items' if several else ''}; "
        "`ablate plan PAPER:ITEM --calibrate` measures the time of one"
    )


def _describe_state(each: ItemState) -> str:
    hours = each.published_hours
    if each.state == "published" and hours is not None:
        return f"published, {f'{hours:.2g} h' if hours >= 1 else f'{60 * hours:.0f} min'}"
    return each.state if not each.finished or each.state == "done" else f"{each.state}, {each.finished} done"


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
