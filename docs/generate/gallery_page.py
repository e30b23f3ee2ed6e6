"""docs/gallery.md: every figure and table of the papers, measured where `results/` has its grid.

A table that is a view of another item's grid leads to the picture of that grid, unless that shows another quantity. So
does such a figure if the result files have its measurements. `python -m benchmarks.gallery` draws the other pictures.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from markdown import fill_template
from PIL import Image
from results_page import RESULTS, draw, name_measure, name_picture

from dashboards.data.formatting import join_words
from dashboards.papers.item import Item
from dashboards.papers.items import ITEMS
from grid import PaperGrids, PaperItem
from runners.cli.resolve import load_paper, paper_files
from store.analysis.grid_results import GridResult, read
from store.published.tables import papers

_PICTURES: Final = Path(__file__).parent.parent / "gallery"
_ACCURACIES: Final = ("lm_eval.", "multiple_choice_acc_full.", "minimal_pairs.")
"""Names of accuracies, instead of which small models are compared by their losses."""
_OF_OTHERS: Final = {"002-table-7": "TinyLlama and cosmo are models of others, which nothing here measures."}
_SMALL: Final = {"paper": "", "gpu": "small models, ", "cpu": "small models, "}


class Published(NamedTuple):
    """A grid that `results/` has."""

    grid: str
    scale: str
    result: GridResult
    picture: str

    @property
    def origin(self) -> str:
        """How it was measured."""
        seeds = len(self.result.header["seeds"])
        return f"{_SMALL[self.scale]}scale {self.scale}, {seeds} seeds; see [results](results.md)"


def make_gallery_page() -> dict[str, str]:
    """Write the page and a picture of each published grid, by path below docs/."""
    specs = {found.number: (name, found) for name in paper_files() for found in [load_paper(name)]}
    pictures: dict[str, str] = {}
    sections = []
    for number, title in papers().items():
        sections.append(f"## {number} {title}")
        name, grids = specs[number]
        for item in (each for each in ITEMS if each.paper == number):
            planned = grids.item(f"{item.kind}{item.number}" if item.number is not None else "design")
            published = _find(name, grids, planned)
            shown = _show(item, planned, published)
            if published is not None and any(f"]({published.picture})" in part for part in shown):
                pictures[published.picture] = draw(published.result, published.result.measure())
            sections += [*_introduce(item), *shown]
    return {"gallery.md": fill_template("gallery", {"sections": "\n\n".join(sections)}), **pictures}


def _find(paper: str, grids: PaperGrids, planned: PaperItem) -> Published | None:
    """Find the grid of an item, or the grid that it is a view of, at the largest published scale."""
    for scale in () if planned.reason else grids.grid_item(planned.name).scales:
        grid = grids.grid_name(planned.name, scale)
        if (RESULTS / paper / f"{grid}.json").exists():
            return Published(grid, scale, read(RESULTS / paper, grid), name_picture(paper, grid))
    return None


def _introduce(item: Item) -> list[str]:
    needs = _list_code(item.needs) or "nothing: it is drawn from formulas"
    about = [f"### {item.name.capitalize()}: {item.title}"]
    about.append(f"{item.shows[:1].upper()}{item.shows[1:]}. Needs {needs}.")
    return [*about, *([f"A spec that has something of it: `{item.spec}`."] if item.spec else [])]


def _show(item: Item, planned: PaperItem, published: Published | None) -> list[str]:
    """Show what was measured; else a drawing of synthetic data or of formulas."""
    picture = f"gallery/{item.key}.png"
    if not item.needs:
        return [f"![{item.title}, by formulas]({picture})"]
    synthetic = f"![{item.title}, synthetic data]({picture})"
    if (origin := _measured_origin(item)) is not None:
        return [f"![{item.title}, measured]({picture})", f"Measured: small models, {origin}."]
    if published is None and item.kind == "table":
        return [f"Not drawn: {planned.reason or 'its grid has not run yet'}."]
    if published is None:
        return [synthetic]
    lacking = sorted({*item.needs} - {*published.result.rows["name"]})
    if lacking and planned.of and item.kind == "figure":
        names = _list_code(lacking)
        return [synthetic, f"Its grid has run ([results](results.md)), but the result files do not have {names}."]
    measure = published.result.measure()
    name, origin = name_measure(measure), published.origin
    also = sorted({*item.needs} - {*lacking}) if measure.name not in item.needs else []
    if planned.of and item.kind == "table" and _is_of_another_quantity(item, measure.name):
        files = (
            f"The result files have {_list_code(also)}." if also else f"The result files lack {_list_code(lacking)}."
        )
        ran = f"Not drawn; its grid `{published.grid}` has run: {origin}."
        return [f"{ran} {_OF_OTHERS.get(item.key, files)}"]
    origin += f". The result files have {_list_code(also)}, too" if also else ""
    if planned.make is not None:
        return [f"![{item.title}, measured]({published.picture})", f"Measured: {name}; {origin}."]
    other = re.sub(r"(\d+)", r" \1", planned.of)
    return [f"Measured with {other}: [{name}]({published.picture}) of the grid `{published.grid}`; {origin}."]


def _is_of_another_quantity(item: Item, measured: str) -> bool:
    """Return True if a picture of what was measured shows nothing of the item's models or its quantity."""
    accuracies = all(name.startswith(_ACCURACIES) for name in item.needs)
    return item.key in _OF_OTHERS or (measured not in item.needs and not accuracies)


def _measured_origin(item: Item) -> str | None:
    """Return the scale and seeds of the runs that the item's own picture was drawn from."""
    picture = _PICTURES / f"{item.key}.png"
    if not picture.exists():
        return None
    with Image.open(picture) as drawing:
        return drawing.info.get("Measured")


def _list_code(names: Sequence[str]) -> str:
    return join_words([f"`{name}`" for name in names])
