"""Tables and figures of the papers as commands: `ablate papers`, and addresses such as ssa:table1."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from grid.errors import NotFoundError, SpecError
from grid.paper import PaperGrids, PaperItem, PaperScale
from grid.suggestions import suggest_name
from runners.cli.options import Json
from runners.cli.published import doubts, flat, write_cells
from runners.cli.resolve import CAMPAIGNS
from runners.output import format_count, round_value, say, write, write_frame, write_json, write_table

if TYPE_CHECKING:
    import polars as pl

    from grid import Grid

_NOT_PAPERS: Final = ("corpora",)
"""Modules of the folder that the papers' files import."""
_ADDRESS: Final = re.compile(r"(?P<paper>\w+):(?P<item>\w*)")


def papers(
    item: str | None = None,
    /,
    *,
    scale: PaperScale = "cpu",
    campaign: Path | None = None,
    as_json: Json = False,
) -> int:
    """List tables and figures of the papers and their grids, those of one paper, or one table with your results.

    Parameters
    ----------
    item
        A paper, such as ssa, or one of its items, such as ssa:table1.
    scale
        paper: the paper's own setting; gpu: an hour of one accelerator per table; cpu: ten minutes of two cores.
    campaign
        Where its results are; default campaigns/PAPER.
    """
    if item is not None and ":" in item:
        return _papers_item(item, scale, campaign, as_json=as_json)
    names = list(paper_files()) if item is None else [item]
    root = {name: campaign or CAMPAIGNS / name for name in names}
    states = [each for name in names for each in item_states(name, scale, root[name], count=item is not None)]
    if as_json:
        write_json("papers", [each._asdict() for each in states])
    else:
        write_states(states, scale)
    return 0


def _papers_item(item: str, scale: PaperScale, campaign: Path | None, *, as_json: bool) -> int:
    """Show a table with your results beside the printed values, or the printed values alone."""
    from dashboards.papers.paper_tables import read_beside
    from store.files.layout import Layout
    from store.published.tables import chosen
    from store.store import Store

    paper, _, name = item.partition(":")
    grids = load_paper(paper).registry
    grid, root = grids.grid_name(name, scale), campaign or CAMPAIGNS / paper
    if not name.startswith("table"):
        say(f"ablate: {item} is drawn from grid {grid} on the page Published of `ablate dash {root}`")
        return 0
    number = int(name.removeprefix("table"))
    if Layout(root).exists():
        with Store.open(root) as store:
            if grid in store.grids():
                found = read_beside(store, grid, grids.number, number)
                if as_json:
                    write_frame("papers", found, as_json=True)
                else:
                    write_beside(found)
                return 0
    cells = chosen(grids.number, str(number))
    if as_json:
        write_frame("papers", flat(cells), as_json=True)
    else:
        write_cells(cells)
    say(f"ablate: {root} has no results of {grid}; `ablate run {item} --scale {scale}` trains it")
    return 0


class PaperFile(NamedTuple):
    """A spec file of `specs/papers` and its registry."""

    path: Path
    registry: PaperGrids


class ItemState(NamedTuple):
    """A line of `ablate papers`."""

    paper: str
    item: str
    state: str
    """planned, running, done, failed, "with <item>", or no grid."""
    cells: int | None
    trials: int | None
    finished: int | None
    flops: float | None
    """Floating-point operations of all of its training steps; None if they were not counted."""
    about: str


def paper_files() -> Mapping[str, Path]:
    """Find the files of the papers by name: in specs/papers here, else in this package's repository.

    Raises:
        NotFoundError: there is no such folder.
    """
    import runners

    home = Path(runners.__file__).parent.parent
    for folder in (Path("specs/papers"), home / "specs" / "papers"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.py")) if path.stem not in _NOT_PAPERS}
    raise NotFoundError(
        f"the grids of the papers are in specs/papers of the repository; there is none here nor in {home}; "
        "call ablate in a clone"
    )


def load_paper(name: str) -> PaperFile:
    """Load the registry of a paper.

    Raises:
        NotFoundError: no paper is called so.
    """
    from runners.provenance.specfile import import_spec_file

    files = paper_files()
    if name not in files:
        known = list(files)
        raise NotFoundError(f"there is no paper {name!r}; there are {', '.join(known)}{suggest_name(name, known)}")
    found = [each for each in vars(import_spec_file(files[name])).values() if isinstance(each, PaperGrids)]
    if len(found) != 1:
        raise SpecError(f"the file of a paper assigns one PaperGrids; {files[name]} has {len(found)}")
    return PaperFile(files[name], found[0])


def locate_spec(spec: Path, grid: str | None, scale: PaperScale | None) -> tuple[Path, str | None]:
    """Return the file and the grid that a command means by `spec`: a path, or an item such as ssa:table1.

    Raises:
        SpecError: --scale without an item, or --grid with one.
        NotFoundError: there is no such paper, item or scale, or the item is no grid.
    """
    address = _ADDRESS.fullmatch(str(spec))
    if address is None or spec.exists():
        if scale is not None:
            raise SpecError(f"--scale is for an item of a paper, such as ssa:table1; got {spec}: leave it out")
        return spec, grid
    if grid is not None:
        raise SpecError(f"{spec} is one grid already; got --grid {grid}: leave it out")
    found = load_paper(address["paper"])
    return found.path, found.registry.grid_name(address["item"], scale or "cpu")


def item_states(name: str, scale: PaperScale, root: Path, *, count: bool) -> list[ItemState]:
    """Return the state of every item of a paper in the campaign at `root`, in the order of the file.

    Args:
        name: of the paper's file.
        scale: of the grids.
        root: the campaign, which need not exist.
        count: True counts floating-point operations, about a second per table.
    """
    found = load_paper(name).registry
    return [_state(name, found, item, scale, root, count=count) for item in found.items]


def _state(name: str, found: PaperGrids, item: PaperItem, scale: PaperScale, root: Path, *, count: bool) -> ItemState:
    if item.reason:
        return ItemState(name, item.name, "no grid", None, None, None, None, item.reason)
    if item.of:
        return ItemState(name, item.name, f"with {item.of}", None, None, None, None, "")
    if scale not in item.scales:
        return ItemState(name, item.name, f"not at {scale}", None, None, None, None, item.title)
    grid = found.grids[found.grid_name(item.name, scale)]
    states = Counter(_statuses(grid, root))
    flops = _flops(grid) if count else None
    cells, trials = grid.header()["cells"], states.total()
    return ItemState(name, item.name, _word(states), cells, trials, states["ok"], flops, item.title)


def _statuses(grid: "Grid", root: Path) -> Iterator[str]:
    from store.files.layout import Layout
    from store.files.trial_status import trial_state

    layout = Layout(root)
    there = layout.exists()
    for planned in grid.enumerate():
        yield trial_state(layout, planned.key).status if there else "pending"


def _word(states: Counter[str]) -> str:
    if states["ok"] == states.total():
        return "done"
    if states["running"] or (states["ok"] and states["pending"]):
        return "running"
    return "failed" if states["failed"] else "planned"


def _flops(grid: "Grid") -> float | None:
    """Count the FLOPs of all trials; None if those of one cannot be counted."""
    from runners.training.cost import flops
    from runners.training.flops import Shape
    from runners.trial import Trial

    total = 0.0
    for planned in grid.cells():
        trial = planned.trial
        assert isinstance(trial, Trial)
        counted = flops(trial, {Shape(trial.task.batch, trial.task.length): trial.training.steps})
        if counted is None:
            return None
        total += counted
    return total * len(tuple(grid.seeds))


def write_states(states: list[ItemState], scale: PaperScale) -> None:
    """Write a line per item, then how to go on."""
    headings = ["item", "state", "cells", "trials", "FLOP", "about"]
    rows = [
        [
            f"{each.paper}:{each.item}",
            each.state if not each.finished or each.state == "done" else f"{each.state}, {each.finished} done",
            each.cells,
            each.trials,
            None if each.flops is None else f"{each.flops:.1e}",
            each.about,
        ]
        for each in states
    ]
    if all(each.flops is None for each in states):
        del headings[4]
        for row in rows:
            del row[4]
    write_table(headings, rows)
    grids = sum(each.cells is not None for each in states)
    other = sum(each.state == "no grid" for each in states)
    views = format_count(len(states) - grids - other, "view")
    say(
        f"ablate: at scale {scale}: {format_count(grids, 'grid')}, {views}, "
        f"{format_count(other, 'item')} without a grid; `ablate plan PAPER:ITEM --calibrate` measures the time of one"
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
        write(f"  {line}")
