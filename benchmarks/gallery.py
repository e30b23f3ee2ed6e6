"""Draws docs/gallery.md and its pictures from the synthetic campaign of the tests: `python -m benchmarks.gallery`."""

import base64
import struct
import sys
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from playwright.sync_api import Page, sync_playwright

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
            (out / f"{item.key}.png").write_bytes(indexed(*pixels(tab, shot)))
        browser.close()


def pixels(tab: Page, shot: bytes) -> tuple[int, bytes]:
    """The width of a picture and its pixels, 4 bytes each, as the browser reads them."""
    width, encoded = tab.evaluate(_READ, base64.b64encode(shot).decode())
    return width, base64.b64decode(encoded)


def indexed(width: int, raw: bytes) -> bytes:
    """The same picture as PNG with its 256 most frequent colours, which takes a third of the bytes."""
    rgb = np.frombuffer(raw, np.uint8).reshape(-1, 4)[:, :3]
    colors, index, counts = np.unique(rgb, axis=0, return_inverse=True, return_counts=True)
    kept = colors[np.argsort(-counts, kind="stable")[:256]]
    away = (colors[:, None].astype(np.int32) - kept[None].astype(np.int32)) ** 2
    rows = away.sum(-1).argmin(1).astype(np.uint8)[index].reshape(-1, width)
    body = zlib.compress(np.pad(rows, ((0, 0), (1, 0))).tobytes(), 9)
    palette = kept.tobytes()
    header = struct.pack(">IIBBBBB", width, len(rows), 8, 3, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", body), (b"IEND", b""))
    )


_READ = """async (encoded) => {
  const bytes = Uint8Array.from(atob(encoded), (c) => c.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const data = context.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let i = 0; i < data.length; i += 32768) text += String.fromCharCode(...data.subarray(i, i + 32768));
  return [image.width, btoa(text)];
}"""


if __name__ == "__main__":
    main(*sys.argv[1:])
