"""docs/gallery.md shows what was measured, and its drawings of synthetic data say so."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from PIL import Image

from benchmarks.gallery import BADGE, draw_badge, shown_keys
from dashboards.papers.item import Item
from dashboards.papers.items import ITEMS
from grid import PaperItem
from runners.cli.resolve import load_paper, paper_files

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
PICTURES = {path.stem: path for path in (ROOT / "docs" / "gallery").glob("*.png")}
REMEDY = "run `python docs/generate/all.py`, then `python -m benchmarks.gallery`, and commit docs/"


class Entry(NamedTuple):
    """An item, its section of the page, and the result file of its grid."""

    item: Item
    planned: PaperItem
    section: str
    file: Path | None


def entries() -> Iterator[Entry]:
    for folder in paper_files():
        grids = load_paper(folder).registry
        part = PAGE.partition(f"\n## {grids.number} ")[2].partition("\n## ")[0]
        for item in (each for each in ITEMS if each.paper == grids.number):
            planned = grids.item(f"{item.kind}{item.number}" if item.number else "design")
            section = part.partition(f"\n### {item.name.capitalize()}: {item.title}\n")[2].partition("\n### ")[0]
            names = [f"{planned.of or planned.name}-{scale}.json" for scale in planned.scales]
            files = [ROOT / "results" / folder / name for name in names]
            yield Entry(item, planned, section, next((file for file in files if file.exists()), None))


ENTRIES = list(entries())


def test_every_item_has_a_section() -> None:
    assert len(ENTRIES) == len(ITEMS)
    assert [entry.item.key for entry in ENTRIES if not entry.section] == []


@pytest.mark.parametrize("entry", [each for each in ENTRIES if each.file], ids=lambda entry: entry.item.key)
def test_what_has_run_is_shown_as_measured(entry: Entry) -> None:
    assert entry.file is not None
    measured = set(pl.read_parquet(entry.file.with_suffix(".parquet"))["name"])
    drawing = f"(gallery/{entry.item.key}.png)"
    if entry.planned.of and entry.item.kind == "figure" and not measured.issuperset(entry.item.needs):
        assert drawing in entry.section
        return
    picture = f"(results/{entry.file.parent.name}-{entry.file.stem}.svg)"
    seeds = json.loads(entry.file.read_text(encoding="utf-8"))["header"]["seeds"]
    assert drawing not in entry.section, REMEDY
    assert picture in entry.section
    assert f"![{entry.item.title}, measured]{picture}" in entry.section or entry.planned.of
    assert all(words in entry.section for words in ("Measured", "scale", f"{len(seeds)} seeds", "(results.md)"))


@pytest.mark.parametrize("entry", [each for each in ENTRIES if not each.file], ids=lambda entry: entry.item.key)
def test_what_has_not_run_is_drawn_and_says_from_what(entry: Entry) -> None:
    assert "(results/" not in entry.section
    origin = "synthetic data" if entry.item.needs else "by formulas"
    drawing = f"![{entry.item.title}, {origin}](gallery/{entry.item.key}.png)"
    assert drawing in entry.section or (entry.item.kind == "table" and "Not drawn: public" in entry.section)


def test_pictures_are_those_of_the_page() -> None:
    assert sorted(PICTURES) == sorted(shown_keys(PAGE)), REMEDY
    assert sum(path.stat().st_size for path in PICTURES.values()) <= 3_000_000


@pytest.mark.parametrize("key", sorted(PICTURES))
def test_a_picture_says_synthetic_data_in_its_corner_unless_it_is_a_formula(key: str) -> None:
    needs = next(each.needs for each in ITEMS if each.key == key)
    with Image.open(PICTURES[key]) as picture:
        corner = picture.convert("RGB").crop((picture.width - BADGE[0], 0, picture.width, BADGE[1]))
    difference = np.abs(np.asarray(corner, dtype=float) - np.asarray(draw_badge(), dtype=float)).mean()
    assert (difference < 10) == bool(needs), REMEDY
