"""Draws the figures of docs/gallery.md from the runs of papers' campaigns.

python -m benchmarks.gallery PAPER=CAMPAIGN ...  # such as ssa=campaigns/ssa
"""

import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import sync_playwright

from ablate.dashboards.data.grid_context import GridContext, campaign_styles, grid_context
from ablate.dashboards.data.user_errors import catch_user_error
from ablate.dashboards.html.blocks import FigureBlock, key_legend, picture
from ablate.dashboards.html.document import document
from ablate.dashboards.html.markup import tag
from ablate.dashboards.theme.styles import REST, Style
from ablate.grid import Grid
from ablate.grid.errors import AblateError, NotFoundError, SpecError
from ablate.papers.figures.item import Drawn, Item
from ablate.papers.figures.items import ITEMS
from ablate.papers.figures.reading import split_cells
from ablate.papers.paper_grids import load_paper
from ablate.store import Store

OUT: Final = Path(__file__).parent.parent / "docs" / "gallery"
CHROMIUM: Final = "/usr/bin/chromium"
WIDTH: Final = 1000
_MARGIN: Final = 12
MOST_CELLS: Final = 10
"""Cells of a grid that are drawn. If there are more, those of the last model are."""


def main(*campaigns: str) -> None:
    """Draw the figures that `campaigns` have measured."""
    count = 0
    for paper, equals, campaign in (each.partition("=") for each in campaigns):
        if not equals:
            sys.exit(f"a campaign is given as PAPER=CAMPAIGN, such as ssa=campaigns/ssa; got {paper!r}")
        try:
            with Store.open(Path(campaign)) as store:
                grids = measured_grids(store, paper)
                found = gallery(store, {key: grid for key, (grid, _) in grids.items()})
        except AblateError as error:
            sys.exit(str(error))
        count += shoot(found, {key: origin for key, (_, origin) in grids.items()})
    print(f"{count} figures")


def measured_grids(store: Store, paper: str) -> dict[str, tuple[str, str]]:
    """Map the paper's figures to their grid in `store` at its largest scale, and to scale and seeds.

    Raises NotFoundError if the store has no grid of the paper, and SpecError if one is another grid or not finished.
    """
    found, there, grids = {}, store.grids(), load_paper(paper)
    for item in (each for each in ITEMS if (each.paper, each.kind) == (grids.number, "figure")):
        planned = grids.item(f"{item.kind}{item.number}")
        for scale in grids.grid_item(planned.name).scales:
            grid = grids.grid_name(planned.name, scale)
            if grid in there:
                require_finished(store, grids.grids[grid])
                found[item.key] = grid, f"scale {scale}, a grid of {len(store.grid(grid)['seeds'])} seeds"
                break
    if not found:
        raise NotFoundError(f"the campaign has no grid of {paper}; it has {', '.join(there) or 'none'}")
    return found


def require_finished(store: Store, planned: Grid) -> None:
    """Raise SpecError if the grid of this name in `store` has other axes, or a trial that is not done."""
    header = store.grid(planned.name)
    if header["axes"] != planned.header()["axes"]:
        raise SpecError(f"grid {planned.name!r} of the campaign is not that of the paper; its axes differ")
    query = "SELECT count(*) FROM grid_trial JOIN trial USING (trial) WHERE grid = $grid AND state = 'done'"
    done = store.sql(query, {"grid": planned.name}).item()
    if done != header["trials"]:
        raise SpecError(f"{done} of {header['trials']} trials of grid {planned.name!r} are done; finish it first")


def shoot(found: "Gallery", origins: Mapping[str, str]) -> int:
    """Write a picture of every figure and count them. `origins` have scale and seeds by key."""
    shown = [(item, drawn.caption) for item, drawn in found.drawn if drawn.figure is not None]
    for item, drawn in found.drawn:
        if drawn.figure is None:
            print(f"{item.key}: {drawn.message}")
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "gallery.html"
        page.write_text(gallery_html(found), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-drawn]", state="attached")
        tab.add_style_tag(content="figure > details, figure > h3 { display: none; }")
        for item, caption in shown:
            shot = tab.locator(f"[id='{item.key}']").screenshot(scale="css")
            save_picture(shot, OUT / f"{item.key}.png", caption, origins[item.key])
        browser.close()
    return len(shown)


def save_picture(shot: bytes, path: Path, caption: str, origin: str) -> None:
    """Write a PNG with at most 256 colours, which takes a third of the bytes."""
    with Image.open(io.BytesIO(shot)) as drawing:
        picture = Image.new("RGB", (drawing.width + 2 * _MARGIN, drawing.height + 2 * _MARGIN), "white")
        picture.paste(drawing.convert("RGB"), (_MARGIN, _MARGIN))
    about = PngInfo()
    about.add_itxt("Description", caption)
    about.add_itxt("Measured", origin)
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True, pnginfo=about)


class Gallery(NamedTuple):
    """Items with their drawings."""

    drawn: Sequence[tuple[Item, Drawn]]
    styles: Sequence[Style]
    """All that its figures use."""


def gallery(store: Store, grids: Mapping[str, str]) -> Gallery:
    """Draw items from grids of an open store; `grids` has the name of the grid by the key of the item."""
    operators = campaign_styles(store)
    drawn, styles = [], [REST, *operators.values()]
    contexts = {grid: _few_cells(store, grid, operators) for grid in dict.fromkeys(grids.values())}
    for each in (item for item in ITEMS if item.key in grids):
        context = contexts[grids[each.key]]
        found, problem = catch_user_error(lambda each=each, context=context: each.make(context))  # type: ignore[misc]
        shown = found if found is not None else Drawn(message=problem or "")
        drawn.append((each, shown))
        styles += [*context.appearance.styles.values(), *(entry.style for entry in shown.legend.values())]
    return Gallery(drawn, styles)


def _few_cells(store: Store, grid: str, operators: Mapping[str, Style]) -> GridContext:
    """Draw all cells, or those of the last model if models have several and there are more than `MOST_CELLS`."""
    about = grid_context(store, grid, operators, sys.maxsize)
    models = split_cells(about, "model")
    if len(about.drawn) <= MOST_CELLS or models["level"].is_unique().all():
        return about
    last = set(models.filter(level=models["level"].to_list()[-1])["series"])
    return about._replace(drawn=[cell for cell in about.drawn if cell in last])


def gallery_html(found: Gallery) -> str:
    """All figures in one offline HTML document."""
    body = ""
    for item, drawn in found.drawn:
        if drawn.figure is not None:
            title = f"{item.paper}, {item.name}: {item.title}"
            legend = key_legend([(key, each.name, each.style) for key, each in drawn.legend.items()])
            panels = [(None, drawn.figure)]
            body += picture(FigureBlock(item.key, title, drawn.caption, panels, drawn.data, legend))
    return document("Gallery · ablate", tag("section", body), found.styles)


if __name__ == "__main__":
    main(*sys.argv[1:])
