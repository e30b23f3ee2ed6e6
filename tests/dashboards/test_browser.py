"""The page in a real browser: offline, quiet, sortable, copyable, legible in both themes."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from contrasts import CONTRASTS
from playwright.sync_api import Browser, Locator, Page
from synthetic import write_campaign

from ablate.dashboards import write_report
from ablate.store import Store
from ablate.store.analysis.judge import judge

pytestmark = pytest.mark.browser

Look = Callable[..., Any]

UPLOADS = """() => [...document.querySelectorAll('.modebar-btn')].map(
  (button) => (button.dataset.title || '') + ' ' + (button.getAttribute('aria-label') || '')
).filter((words) => /share|cloud|chart studio|upload|edit/i.test(words))"""


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign in which one variant has no verdict, and so no p."""
    root = tmp_path_factory.mktemp("browser") / "runs"
    names = ("softmax", "SSA", "Integral", "Principled")
    write_campaign(
        root, operators=names, seeds=range(4), failed={("SSA", seed): "diverged" for seed in range(4)}, steps=24
    )
    return root


@pytest.fixture(scope="module")
def page(judged: Path) -> Path:
    """Its report."""
    return write_report(judged)


@pytest.fixture(scope="module")
def hostile(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report full of labels that want to be code."""
    return write_report(finished, tmp_path_factory.mktemp("hostile") / "page.html")


COLUMN = """(place) => [...document.querySelectorAll('.verdicts tbody.sorted tr')].map(
  (row) => row.children[place].dataset.value ?? null
)"""


@pytest.fixture(scope="module")
def opened_once(browser: Browser, page: Path) -> Iterator[Page]:
    """The report, opened once for the tests that leave it as it was."""
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    shown = context.new_page()
    shown.goto(page.as_uri())
    shown.wait_for_selector("html[data-drawn]", state="attached")
    yield shown
    context.close()


@pytest.fixture
def shown(opened_once: Page) -> Page:
    """The open report, with no column sorted."""
    opened_once.evaluate("() => document.querySelectorAll('th[aria-sort]').forEach((th) => { th.ariaSort = 'none'; })")
    return opened_once


def column(shown: Page, place: int) -> list[str | None]:
    """The values that a column of the verdict table sorts by, from top to bottom."""
    found: list[str | None] = shown.evaluate(COLUMN, place)
    return found


def head(shown: Page, place: int) -> Locator:
    """The title of a column of the verdict table."""
    return shown.locator(".verdicts thead th").nth(place)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_legible_asks_for_nothing_complains_about_nothing_and_runs_no_label(
    hostile: Path, look: Look, scheme: str
) -> None:
    seen = look(hostile, scheme=scheme)
    assert seen.requests == [hostile.as_uri()]
    assert seen.complaints == []
    assert seen.page.locator(".plot .main-svg").count() >= 6
    assert seen.page.evaluate("() => window.hacked") is None
    labels = "() => [...document.querySelectorAll('.ytick text')].map((text) => text.textContent)"
    ticks = " ".join(seen.page.evaluate(labels))
    assert "<script>window.hacked=1</script>" in ticks
    assert "&lt" not in ticks
    assert "%{x}<b>&amp;\"'" in ticks
    assert seen.page.locator("main img").count() == 0
    seen.page.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    found = seen.page.evaluate(CONTRASTS)
    assert len(found) > 100
    assert found[0][0] >= 4.5, found[:5]


def test_a_request_and_a_complaint_would_be_noticed(look: Look, tmp_path: Path) -> None:
    (tmp_path / "c" / "grids").mkdir(parents=True)  # without a grid, so that nothing is drawn
    page, altered = write_report(tmp_path / "c"), tmp_path / "altered.html"
    leak = "<img src='https://example.invalid/pixel.png'><script>console.warn('loud')</script></main>"
    altered.write_text(page.read_text(encoding="utf-8").replace("</main>", leak, 1), encoding="utf-8")
    seen = look(altered)
    assert any("loud" in complaint for complaint in seen.complaints)
    # the page's own policy stops the request before it is made, and says so
    assert any("Content Security Policy" in complaint for complaint in seen.complaints)


def test_there_is_no_upload_button(shown: Page) -> None:
    assert shown.locator(".modebar-btn").count() > 0
    assert shown.evaluate(UPLOADS) == []
    assert shown.locator(".plotlyjsicon, .modebar-btn--logo").count() == 0


def test_a_click_sorts_and_a_second_click_turns_the_order(shown: Page) -> None:
    head(shown, 3).locator("button").click()
    rising = [float(value) for value in column(shown, 3) if value is not None]
    assert rising == sorted(rising)
    assert head(shown, 3).get_attribute("aria-sort") == "ascending"
    head(shown, 3).locator("button").click()
    falling = [float(value) for value in column(shown, 3) if value is not None]
    assert falling == rising[::-1]
    assert len(set(falling)) > 1
    assert head(shown, 3).get_attribute("aria-sort") == "descending"
    assert head(shown, 0).get_attribute("aria-sort") == "none"
    assert "softmax" in shown.locator(".verdicts tbody tr").first.inner_text()  # the baseline stays on top
    for _ in range(2):
        head(shown, 5).locator("button").click()
        values = column(shown, 5)  # missing values are last both ways
        assert values[-1] is None
        assert None not in values[:-1]


def test_copy_csv_yields_the_whole_table(judged: Path, shown: Page) -> None:
    shown.locator(".verdicts button.copy").click()
    shown.wait_for_function("() => document.getElementById('status').textContent === 'Copied'")
    copied = shown.evaluate("() => navigator.clipboard.readText()")
    with Store.open(judged) as store:
        expected = judge(store, "quickstart").rows
    found = pl.read_csv(io.StringIO(copied), schema=expected.schema)
    assert found.sort("cell").equals(expected.sort("cell"))


def test_figures_follow_a_change_of_the_theme(shown: Page) -> None:
    fill = "getComputedStyle(document.querySelector('.ytick text')).fill"
    light = shown.evaluate(f"() => {fill}")
    shown.emulate_media(color_scheme="dark")
    shown.wait_for_function(f"() => {fill} !== '{light}'")
    shown.emulate_media(color_scheme="light")
    shown.wait_for_function(f"() => {fill} === '{light}'")


def test_paper_is_white_in_a_dark_system_too(shown: Page) -> None:
    background = "() => getComputedStyle(document.body).backgroundColor"
    shown.emulate_media(color_scheme="dark")
    assert shown.evaluate(background) != "rgb(255, 255, 255)"
    shown.emulate_media(media="print", color_scheme="dark")
    assert shown.evaluate(background) == "rgb(255, 255, 255)"
    shown.emulate_media(media="screen", color_scheme="light")


def test_two_figures_fit_on_a_page_of_paper_and_contents_lead_to_them(shown: Page) -> None:
    rows = "plot.layout.yaxis?.ticktext?.length || 0"
    heights = f"() => [...document.querySelectorAll('.plot')].map((plot) => [plot.offsetHeight, {rows}])"
    contents = shown.locator("nav.contents a")
    assert not contents.first.is_visible()
    shown.emulate_media(media="print")
    shown.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    assert all(height <= max(380, 60 + 12 * rows) for height, rows in shown.evaluate(heights))
    assert contents.first.is_visible()
    assert contents.count() == shown.locator("section h2, section h3").count()
    leads = "(link) => document.querySelector(link.hash)"
    assert shown.evaluate(f"() => [...document.querySelectorAll('.contents a')].every({leads})")
    shown.evaluate("() => dispatchEvent(new Event('afterprint'))")
    shown.emulate_media(media="screen")


def test_nothing_is_wider_than_the_window(shown: Page) -> None:
    try:
        for width in (360, 480, 800):
            shown.set_viewport_size({"width": width, "height": 900})
            # figures follow the window a moment later
            shown.wait_for_function("(width) => document.documentElement.scrollWidth <= width", arg=width)
    finally:
        shown.set_viewport_size({"width": 1280, "height": 900})


# Panels side by side are in a part of the page that scrolls.
OUTSIDE = """(width) => [...document.querySelectorAll('.xtitle, .verdicts .why, .annotation-text')].filter((each) => {
  if (each.closest('.wide')) return false;
  const { left, right } = each.getBoundingClientRect();
  return right > width || left < 0;
}).map((each) => each.textContent)"""


def test_nothing_is_cut_on_a_narrow_screen(tmp_path: Path, look: Look) -> None:
    factors = dict.fromkeys(("strength", "threshold", "amplification", "value"), ("constant", "per query and head"))
    write_campaign(tmp_path / "c", operators=("Principled",), factors=factors, seeds=range(3), steps=4)
    seen = look(write_report(tmp_path / "c"), width=390)
    assert seen.page.evaluate(OUTSIDE, 390) == []
    assert seen.page.evaluate(OUTSIDE, 60) != []


def test_a_folded_figure_is_drawn_when_its_title_or_a_link_opens_it(shown: Page) -> None:
    page = shown.context.new_page()
    page.goto(shown.url.partition("#")[0])
    page.wait_for_selector("html[data-drawn]")
    folded = page.locator("figure:has(> details.fold)")
    assert folded.count() > 3
    assert folded.locator(".main-svg").count() == 0
    folded.first.locator("summary").first.click()
    folded.first.locator(".main-svg").first.wait_for()
    last = folded.last.get_attribute("id")
    page.evaluate("(id) => { location.hash = id; }", last)
    folded.last.locator(".main-svg").first.wait_for()
    page.close()


def test_the_legend_hides_and_shows_a_variant(shown: Page) -> None:
    figure = shown.locator("#grid-1-by-sigma_f")
    figure.locator("details.fold").evaluate("(fold) => { fold.open = true; }")
    figure.locator(".main-svg").first.wait_for()
    lines = figure.locator(".scatterlayer .trace")
    before = lines.count()
    button = figure.locator(".legend button").first
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert lines.count() == before - 2  # its line and its band
    button.click()
    assert lines.count() == before
