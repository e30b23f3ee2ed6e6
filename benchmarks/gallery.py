"""Draws docs/gallery.md and its pictures from the synthetic campaign of the tests: `python -m benchmarks.gallery`."""

import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from gallery_campaign import figure_grids, grid_of, table_grids, write_gallery  # noqa: E402

from dashboards.data.formatting import count  # noqa: E402
from dashboards.data.grid_context import campaign_styles, grid_context  # noqa: E402
from dashboards.data.user_errors import catch_user_error  # noqa: E402
from dashboards.figures.table import Sheet  # noqa: E402
from dashboards.html.blocks import FigureBlock, key_legend, picture, state  # noqa: E402
from dashboards.html.document import document  # noqa: E402
from dashboards.html.markup import tag, text  # noqa: E402
from dashboards.papers.item import Drawn, Item  # noqa: E402
from dashboards.papers.items import ITEMS  # noqa: E402
from dashboards.theme.styles import REST, Style  # noqa: E402
from store import Store  # noqa: E402
from store.published.tables import papers  # noqa: E402

WIDTH = 1000
SYNTHETIC: Final = "Synthetic data: no model was trained for this, and no number of a paper is shown."


def main(chromium: str = "/usr/bin/chromium") -> None:
    """Write the page and a picture per item; `chromium` is a browser's path."""
    docs = ROOT / "docs"
    with TemporaryDirectory() as folder:
        root = write_gallery(Path(folder) / "synthetic", figure_grids() | table_grids())
        with Store.open(root) as store:
            found = gallery(store, {item.key: grid_of(item.key) for item in ITEMS})
        page = Path(folder) / "gallery.html"
        page.write_text(gallery_html(found), encoding="utf-8")
        (docs / "gallery.md").write_text(gallery_markdown(found), encoding="utf-8")
        shoot(page, docs / "gallery", chromium)
    size = sum(path.stat().st_size for path in (docs / "gallery").iterdir())
    print(f"{len(found.drawn)} items, pictures of {size / 1e6:.2f} MB")


def shoot(page: Path, out: Path, chromium: str) -> None:
    """A picture of every item of the page."""
    out.mkdir(exist_ok=True)
    for old in out.glob("*.png"):
        old.unlink()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-drawn]", state="attached")
        tab.add_style_tag(content=".scroll { max-height: none !important; overflow: visible !important; }")
        tab.add_style_tag(content="figure > details, figure > h3 { display: none; } thead th { position: static; }")
        for item in ITEMS:
            shot = tab.locator(f"[id='{item.key}']").screenshot(scale="css")
            save_picture(shot, out / f"{item.key}.png")
        browser.close()


def save_picture(shot: bytes, path: Path) -> None:
    """Write a PNG with at most 256 colours, which takes a third of the bytes."""
    with Image.open(io.BytesIO(shot)) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


class Gallery(NamedTuple):
    """Every item with its drawing."""

    drawn: Sequence[tuple[Item, Drawn]]
    styles: Sequence[Style]
    """All that its figures use."""


def gallery(store: Store, grids: Mapping[str, str]) -> Gallery:
    """Draw all items from grids of an open store; `grids` has the name of the grid by the key of the item."""
    operators = campaign_styles(store)
    drawn, styles = [], [REST, *operators.values()]
    contexts = {grid: grid_context(store, grid, operators) for grid in dict.fromkeys(grids.values())}
    for each in ITEMS:
        about = contexts[grids[each.key]]
        found, problem = catch_user_error(lambda each=each, about=about: each.make(about))  # type: ignore[misc]
        shown = found if found is not None else Drawn(message=problem or "")
        drawn.append((each, shown))
        styles += [*about.look.styles.values(), *(entry.style for entry in shown.legend.values())]
    return Gallery(drawn, styles)


def gallery_html(found: Gallery) -> str:
    """All items in one offline HTML document."""
    body = tag("p", text(SYNTHETIC), class_="lead")
    for paper, title in papers().items():
        items = [_block(item, drawn) for item, drawn in found.drawn if item.paper == paper]
        body += tag("section", tag("h2", text(f"{paper} {title}")) + "".join(items))
    return document("Gallery · ablate", tag("h1", "Gallery") + body, found.styles)


def _block(item: Item, drawn: Drawn) -> str:
    title = f"{item.paper}, {item.name}: {item.title}"
    message = state(drawn.message) if drawn.message else ""
    if drawn.figure is not None:
        legend = key_legend([(key, each.name, each.style) for key, each in drawn.legend.items()])
        return (
            picture(FigureBlock(item.key, title, drawn.caption, [(None, drawn.figure)], drawn.data, legend)) + message
        )
    inner = tag("h3", text(title)) + tag("p", text(drawn.caption), class_="caption") + message
    inner += _table(drawn.sheet) if drawn.sheet is not None else ""
    return tag("figure", inner, id=item.key, aria_label=title)


def _table(sheet: Sheet) -> str:
    heads = tag("td", text(sheet.corner)) + "".join(tag("th", text(name), scope="col") for name in sheet.columns)
    body = ""
    for name, entries in zip(sheet.rows, sheet.entries, strict=True):
        cells = tag("th", text(name), scope="row")
        for each in entries:
            mean, _, spread = each.words.partition(" ± ")
            small = [words for words in (spread and f"± {spread}", each.note) if words]
            shown = tag("strong", text(mean)) if each.best else text(mean)
            shown += "".join("<br>" + tag("small", text(words)) for words in small)
            cells += tag("td", shown, title=each.hint or None)
        body += tag("tr", cells)
    inner = tag("thead", tag("tr", heads)) + tag("tbody", body)
    return tag("div", tag("table", inner, class_="plain"), class_="scroll", tabindex="0")


def gallery_markdown(found: Gallery) -> str:
    """The page of the documentation; pictures lie in `gallery/`."""
    figures = sum(item.kind == "figure" for item, _ in found.drawn)
    lines = [
        "# Gallery",
        "Generated by `python -m benchmarks.gallery`; edit the code, not this page.",
        f"Every one of the {count(figures, 'figure')} and {count(len(found.drawn) - figures, 'table')} of the five "
        "papers, drawn by the code that draws them from a campaign. Your own results stand in the same places on the "
        "page Published of `ablate dash`, beside what the papers print.",
        f"**{SYNTHETIC}**",
    ]
    for paper, title in papers().items():
        lines.append(f"## {paper} {title}")
        for item, drawn in found.drawn:
            if item.paper == paper:
                needs = ", ".join(f"`{name}`" for name in item.needs) or "nothing: it is drawn from formulas"
                lines.append(f"### {item.name.capitalize()}: {item.title}")
                lines.append(f"{item.shows[:1].upper()}{item.shows[1:]}. Needs {needs}.")
                lines += [f"A spec that has something of it: `{item.spec}`."] if item.spec else []
                lines.append(drawn.message or f"![{item.title}, synthetic data](gallery/{item.key}.png)")
                lines.append(drawn.caption)
    return "\n\n".join(lines) + "\n"


if __name__ == "__main__":
    main(*sys.argv[1:])
