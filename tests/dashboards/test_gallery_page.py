"""docs/gallery.md shows what was measured, and its drawings of synthetic data say so."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.gallery import BADGE, draw_badge, origin_of, shown_keys
from dashboards.papers.items import ITEMS
from runners.cli.resolve import load_paper, paper_files

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
FOLDER = ROOT / "docs" / "gallery"
PICTURES = {path.stem: path for path in FOLDER.glob("*.png")}
UNDRAWN = ("000-table-4", "000-table-5", "002-table-5", "002-table-7", "003-table-5")
"""Tables whose grid has run with another measure, or without their models."""
REMEDY = "run `python docs/generate/all.py`, then `python -m benchmarks.gallery`, and commit docs/"


def test_every_item_is_measured_drawn_or_not_drawn_for_a_reason() -> None:
    """A picture of `results/` stands where a grid has run; another drawing says from what it is."""
    for folder in paper_files():
        grids = load_paper(folder)
        part = PAGE.partition(f"\n## {grids.number} ")[2].partition("\n## ")[0]
        for item in (each for each in ITEMS if each.paper == grids.number):
            planned = grids.item(f"{item.kind}{item.number}" if item.number else "design")
            section = part.partition(f"\n### {item.name.capitalize()}: {item.title}\n")[2].partition("\n### ")[0]
            names = [f"{planned.of or planned.name}-{scale}" for scale in planned.scales]
            ran = [name for name in names if (ROOT / "results" / folder / f"{name}.json").exists()]
            origin = (
                "by formulas"
                if not item.needs
                else "measured"
                if origin_of(FOLDER / f"{item.key}.png")
                else "synthetic data"
            )
            drawn = f"![{item.title}, {origin}](gallery/{item.key}.png)" in section
            measured = bool(ran) and f"(results/{folder}-{ran[0]}.svg)" in section and "Measured" in section
            left_out = item.kind == "table" and not ran and "Not drawn: " in section
            if item.key in UNDRAWN:
                left_out = f"Not drawn; its grid `{ran[0]}` has run" in section and "Measured" not in section
            assert drawn != measured or left_out, (item.key, REMEDY)
            assert not measured or ran, item.key


def test_pictures_are_those_of_the_page() -> None:
    assert sorted(PICTURES) == sorted(shown_keys(PAGE)), REMEDY
    assert sum(path.stat().st_size for path in PICTURES.values()) <= 3_000_000


@pytest.mark.parametrize("key", sorted(PICTURES))
def test_a_picture_says_synthetic_data_in_its_corner_unless_it_is_a_formula(key: str) -> None:
    needs = next(each.needs for each in ITEMS if each.key == key)
    with Image.open(PICTURES[key]) as picture:
        corner = picture.convert("RGB").crop((picture.width - BADGE[0], 0, picture.width, BADGE[1]))
    difference = np.abs(np.asarray(corner, dtype=float) - np.asarray(draw_badge(), dtype=float)).mean()
    assert (difference < 10) == (bool(needs) and origin_of(PICTURES[key]) is None), REMEDY
