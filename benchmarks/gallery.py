"""Draws docs/gallery.md and its pictures from the synthetic campaign of the tests: `python -m benchmarks.gallery`."""

import io
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from gallery_campaign import figure_grids, grid_of, table_grids, write_gallery  # noqa: E402

from dashboards.papers.items import ITEMS  # noqa: E402
from dashboards.papers.page import gallery, gallery_html, gallery_markdown  # noqa: E402
from store import Store  # noqa: E402

WIDTH = 1000


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


if __name__ == "__main__":
    main(*sys.argv[1:])
