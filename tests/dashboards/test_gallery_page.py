"""docs/gallery.md shows the pictures of docs/gallery, with the runs that they were drawn from."""

import re
from pathlib import Path

from PIL import Image

from ablate.papers.figures.items import ITEMS

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_every_figure_is_on_the_page_with_the_runs_of_its_picture() -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    shown = re.findall(r"^### (.+)\n\n(.+)\.\n\n!\[(.+)\]\(gallery/([\w-]+)\.png\)$", page, re.MULTILINE)
    figures = [item for item in ITEMS if item.kind == "figure"]
    assert [key for *_, key in shown] == [item.key for item in figures]
    assert sorted(path.stem for path in (DOCS / "gallery").iterdir()) == sorted(item.key for item in figures)
    for item, (heading, origin, title, key) in zip(figures, shown, strict=True):
        assert (heading, title) == (f"{item.name.capitalize()}: {item.title}", item.title)
        with Image.open(DOCS / "gallery" / f"{key}.png") as picture:
            assert picture.info["Measured"].casefold() == origin.casefold()
