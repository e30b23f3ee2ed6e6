"""Draws the pictures of docs/gallery/ that docs/gallery.md shows, which `python docs/generate/all.py` writes.

python -m benchmarks.gallery                 # from synthetic data and formulas, unless a picture is measured
python -m benchmarks.gallery PAPER=CAMPAIGN  # from the runs of a paper's campaign, such as ssa=campaigns/ssa

Afterwards, `python docs/generate/all.py` writes on the page which pictures are measured.
"""

import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from gallery_campaign import figure_grids, grid_of, write_gallery  # noqa: E402

from dashboards.data.grid_context import GridContext, campaign_styles, grid_context  # noqa: E402
from dashboards.data.user_errors import catch_user_error  # noqa: E402
from dashboards.html.blocks import FigureBlock, key_legend, picture  # noqa: E402
from dashboards.html.document import document  # noqa: E402
from dashboards.html.markup import tag  # noqa: E402
from dashboards.papers.item import Drawn, Item  # noqa: E402
from dashboards.papers.items import ITEMS  # noqa: E402
from dashboards.papers.reading import split_cells  # noqa: E402
from dashboards.theme.styles import REST, Style  # noqa: E402
from grid import Grid  # noqa: E402
from grid.errors import AblateError, NotFoundError, SpecError  # noqa: E402
from runners.cli.resolve import load_paper  # noqa: E402
from store import Store  # noqa: E402

DOCS = ROOT / "docs"
CHROMIUM: Final = "/usr/bin/chromium"
WIDTH = 1000
BADGE: Final = 132, 26
"""Width and height of the words "synthetic data" in the upper right corner of a picture."""
_MARGIN: Final = 12
MOST_CELLS: Final = 10
"""Cells of a grid that are drawn. If there are more, those of the last model are."""


def main(*campaigns: str) -> None:
    """Draw the items of the page that have no measured picture, or the figures that `campaigns` have measured."""
    out, count = DOCS / "gallery", 0
    out.mkdir(exist_ok=True)
    for paper, equals, campaign in (each.partition("=") for each in campaigns):
        if not equals:
            sys.exit(f"a campaign is given as PAPER=CAMPAIGN, such as ssa=campaigns/ssa; got {paper!r}")
        try:
            with Store.open(Path(campaign)) as store:
                grids = measured_grids(store, paper)
                found = gallery(store, {key: grid for key, (grid, _) in grids.items()}, _few_cells)
        except AblateError as error:
            sys.exit(str(error))
        count += shoot(found, out, {key: origin for key, (_, origin) in grids.items()})
    if not campaigns:
        keys = shown_keys((DOCS / "gallery.md").read_text(encoding="utf-8"))
        for old in out.glob("*.png"):
            if old.stem not in keys:
                old.unlink()
        with TemporaryDirectory() as folder:
            root = write_gallery(Path(folder) / "synthetic", figure_grids())
            with Store.open(root) as store:
                found = gallery(store, {key: grid_of(key) for key in keys if origin_of(out / f"{key}.png") is None})
        count = shoot(found, out, {})
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"{count} items, pictures of {size / 1e6:.2f} MB")


def measured_grids(store: Store, paper: str) -> dict[str, tuple[str, str]]:
    """Map the paper's figures to their grid in `store` at its largest scale, and to scale and seeds.

    Raises NotFoundError if the store has no grid of the paper, and SpecError if one is another grid or not finished.
    """
    found, there, grids = {}, store.grids(), load_paper(paper)
    for item in (each for each in ITEMS if each.paper == grids.number and each.needs):
        planned = grids.item(f"{item.kind}{item.number}")
        scales = () if planned.reason or item.kind != "figure" else grids.grid_item(planned.name).scales
        for scale in scales:
            grid = grids.grid_name(planned.name, scale)
            if grid in there:
                require_finished(store, grids.grids[grid])
                found[item.key] = grid, f"scale {scale}, a grid of {len(store.grid(grid)['seeds'])} seeds"
                break
    if not found:
        raise NotFoundError(f"the campaign has no grid of {paper}; it has {', '.join(there) or 'none'}")
    return found


def require_finished(store: Store, planned: Grid) -> None:
    """Raise SpecError if the grid of this name in `store` has other axes, or a trial that is not ok."""
    header = store.grid(planned.name)
    if header["axes"] != planned.header()["axes"]:
        raise SpecError(f"grid {planned.name!r} of the campaign is not that of the paper; its axes differ")
    query = "SELECT count(*) FROM grid_trial JOIN trial USING (trial) WHERE grid = $grid AND status = 'ok'"
    done = store.sql(query, {"grid": planned.name}).item()
    if done != header["trials"]:
        raise SpecError(f"{done} of {header['trials']} trials of grid {planned.name!r} are done; finish it first")


def origin_of(picture: Path) -> str | None:
    """Return the scale and seeds of a measured picture; None for others, and if there is none."""
    if not picture.exists():
        return None
    with Image.open(picture) as drawing:
        return drawing.info.get("Measured")


def shown_keys(page: str) -> list[str]:
    """The items whose drawings the page shows."""
    return re.findall(r"\]\(gallery/([\w-]+)\.png\)", page)


def shoot(found: "Gallery", out: Path, origins: Mapping[str, str]) -> int:
    """Write a picture of every figure and count them. `origins` are those of measured ones, by key."""
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
            origin = origins.get(item.key)
            is_synthetic = bool(item.needs) and origin is None
            save_picture(shot, out / f"{item.key}.png", caption, origin, synthetic=is_synthetic)
        browser.close()
    return len(shown)


def save_picture(shot: bytes, path: Path, caption: str, origin: str | None, *, synthetic: bool) -> None:
    """Write a PNG with at most 256 colours, which takes a third of the bytes; `origin` is that of a measured one."""
    top = _MARGIN + (BADGE[1] if synthetic else 0)
    with Image.open(io.BytesIO(shot)) as drawing:
        picture = Image.new("RGB", (drawing.width + 2 * _MARGIN, drawing.height + top + _MARGIN), "white")
        picture.paste(drawing.convert("RGB"), (_MARGIN, top))
    if synthetic:
        picture.paste(draw_badge(), (picture.width - BADGE[0], 0))
    about = PngInfo()
    about.add_itxt("Description", caption)
    if origin is not None:
        about.add_itxt("Measured", origin)
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True, pnginfo=about)


def draw_badge() -> Image.Image:
    """The words "synthetic data"."""
    badge = Image.new("RGB", BADGE, "#b45309")
    centre = BADGE[0] / 2, BADGE[1] / 2
    ImageDraw.Draw(badge).text(centre, "synthetic data", "white", ImageFont.load_default(16), anchor="mm")
    return badge


class Gallery(NamedTuple):
    """Items with their drawings."""

    drawn: Sequence[tuple[Item, Drawn]]
    styles: Sequence[Style]
    """All that its figures use."""


MakeContext = Callable[[Store, str, Mapping[str, Style]], GridContext]


def gallery(store: Store, grids: Mapping[str, str], make_context: MakeContext = grid_context) -> Gallery:
    """Draw items from grids of an open store; `grids` has the name of the grid by the key of the item."""
    operators = campaign_styles(store)
    drawn, styles = [], [REST, *operators.values()]
    contexts = {grid: make_context(store, grid, operators) for grid in dict.fromkeys(grids.values())}
    for each in (item for item in ITEMS if item.key in grids):
        about = contexts[grids[each.key]]
        found, problem = catch_user_error(lambda each=each, about=about: each.make(about))  # type: ignore[misc]
        shown = found if found is not None else Drawn(message=problem or "")
        drawn.append((each, shown))
        styles += [*about.look.styles.values(), *(entry.style for entry in shown.legend.values())]
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
