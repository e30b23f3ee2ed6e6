"""Every page of the app in a real browser: quiet, legible in both themes, by keyboard alone, downloads as drawn."""

import io
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from contrasts import CONTRASTS
from dashboard_site import ServeSite, Site, in_this_process
from playwright.sync_api import Page, TimeoutError
from synthetic import write_campaign

from ablate.dashboards.app.pages import app_pages
from ablate.dashboards.app.query_runner import QueryRunner

pytestmark = pytest.mark.browser

PAGES = app_pages()
HOSTILE = "<img src=x onerror=window.hacked=1>"
NAMES = ("softmax", "SSA", HOSTILE)
PICTURES = Path(__file__).parents[2] / "artefacts" / "dashboard"
"""If this folder is there, pictures of every page go into it, to be looked at."""
LISTED = [page for page in PAGES if page.listed]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, serve_site: ServeSite) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("reach") / "runs"
    write_campaign(
        root,
        operators=NAMES,
        factors={"depth": (1, 2)},
        seeds=range(3),
        failed={(f"SSA · {depth}", 1): "diverged" for depth in (1, 2)},
        pending={(f"{HOSTILE} · 1", 2)},
        steps=24,
        sigma_f=(1, 5),
        sigma_x=(1, 2),
    )
    with serve_site([root]) as found:
        yield found


def at(page: Page, site: Site, path: str) -> None:
    """Go there and wait until it is drawn."""
    page.goto(f"{site.url}/runs/{path}")
    page.wait_for_selector("#page h1")
    wait_until_drawn(page)


def turn_to(page: Page, title: str) -> None:
    """Click on the name of another page; plotly is not loaded again."""
    page.get_by_role("navigation", name="Pages").get_by_text(title, exact=True).click()
    page.wait_for_function(f"() => document.querySelector('#page h1')?.textContent === '{title}'")


def wait_until_drawn(page: Page) -> None:
    page.wait_for_function(
        "() => [...document.querySelectorAll('.plot')].every((each) => each.querySelector('.main-svg'))"
    )


OPEN_FIRST = (
    "() => document.querySelectorAll('.slot:first-of-type .files details').forEach((one) => { one.open = true; })"
)
UNNAMED = """() => [...document.querySelectorAll('button, input:not([type=hidden]), textarea, a[href], select')]
  .filter((each) => each.getClientRects().length && !each.closest('.ag-root-wrapper, .modebar'))
  .filter((each) => !(each.textContent.trim() || each.getAttribute('aria-label') || each.title
    || each.closest('label')?.textContent.trim() || each.labels?.length
    || document.getElementById(each.getAttribute('aria-labelledby'))))
  .map((each) => each.outerHTML.slice(0, 200))"""


def check_legible(page: Page, name: str, scheme: str) -> None:
    """Check the contrast of every text, once the page follows the scheme."""
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    with suppress(TimeoutError):  # figures follow a moment later
        page.wait_for_function(f"() => ({CONTRASTS})()[0][0] >= 4.5", polling=250)
    found = page.evaluate(CONTRASTS)
    assert len(found) > 10, name
    assert found[0][0] >= 4.5, (name, found[:5])
    if PICTURES.is_dir():
        page.screenshot(path=PICTURES / f"{name}-{scheme}.png", full_page=True)


def test_every_page_is_legible_fits_a_narrow_window_and_names_its_parts(
    page: Page, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages are drawn in both schemes in turn, since every change of the scheme draws all figures again."""
    monkeypatch.setattr("ablate.dashboards.app.pages.sql.QUESTIONS", QueryRunner(in_this_process))
    schemes = ["dark", "light"]
    page.emulate_media(color_scheme="dark")
    at(page, site, LISTED[0].name)
    for each in LISTED:
        turn_to(page, each.title)
        wait_until_drawn(page)
        page.evaluate(OPEN_FIRST)
        page.wait_for_function("() => !document.body.textContent.includes('Loading …')")
        for scheme in schemes:
            check_legible(page, each.name, scheme)
        schemes.reverse()
        assert page.evaluate("() => window.hacked") is None
        assert page.locator("h1").count() == 1
        assert page.title() == f"{each.title} · {page.url.split('/')[3]} · ablate"
        assert page.locator("#top [aria-current=page]").inner_text() == each.title
        assert page.evaluate(UNNAMED) == [], each.name
        page.set_viewport_size({"width": 400, "height": 900})
        page.wait_for_function("() => document.documentElement.scrollWidth <= 400")
        page.set_viewport_size({"width": 1280, "height": 900})


def get_focus(page: Page) -> str:
    found: str = page.evaluate("() => document.activeElement.textContent || document.activeElement.tagName")
    return found


def test_a_walk_by_keyboard_alone(page: Page, site: Site) -> None:
    at(page, site, "runs")
    page.keyboard.press("Tab")
    assert get_focus(page) == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("() => location.hash") == "#page"
    page.keyboard.press("g")
    page.keyboard.press("u")
    page.wait_for_url("**/runs/curves*")
    page.wait_for_function("() => document.querySelector('#page h1').textContent === 'Curves'")
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()
    page.keyboard.press("p")
    assert page.locator("#pause").inner_text() == "Go on"
    page.keyboard.press("p")
    reached: set[str] = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(get_focus(page))
        if "SVG" in reached:
            break
    assert {"Data", "SQL", "CSV", "PNG", "SVG"} <= reached
    assert any(name.startswith("SSA · 1") for name in reached)
    assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") != "none"
    background = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    page.wait_for_function(f"() => getComputedStyle(document.body).backgroundColor !== '{background}'")
    page.wait_for_function("() => document.querySelector('.plot .main-svg')")
    page.keyboard.press("t")


def test_back_and_forward_go_through_pages(page: Page, site: Site) -> None:
    at(page, site, "runs")
    heading = page.locator("#page h1")
    titles = ["Runs", "Curves", "Mechanism", "Factors"]
    for title in titles[1:]:
        turn_to(page, title)
    for title in reversed(titles[:3]):
        page.go_back()
        heading.get_by_text(title, exact=True).wait_for()
    page.go_forward()
    heading.get_by_text(titles[1], exact=True).wait_for()


def test_a_download_holds_what_is_drawn(page: Page, site: Site) -> None:
    at(page, site, "overview")
    with page.expect_download() as waited:
        page.locator("#slot-verdicts").get_by_text("CSV").click()
    found = pl.read_csv(io.BytesIO(waited.value.path().read_bytes()))
    rows = page.locator("#slot-verdicts .ag-center-cols-container [role=row]").count()
    assert found.height == rows == 5
    with page.expect_download() as waited:
        page.locator("#slot-progress").get_by_text("SVG").click()
    assert waited.value.suggested_filename == "progress.svg"
    assert "<svg" in waited.value.path().read_text()


def test_a_view_is_saved_and_opened_again(page: Page, site: Site) -> None:
    at(page, site, "curves?linear=1")
    page.get_by_text("Views", exact=True).click()
    page.locator("#view-name").fill("mine")
    page.locator("#save").click()
    page.get_by_text("Saved as mine.").wait_for()
    at(page, site, "curves")
    page.wait_for_function("() => document.querySelector('.js-plotly-plot')?.layout?.yaxis?.type === 'log'")
    page.get_by_text("Views", exact=True).click()
    page.locator("#views a").get_by_text("mine").click()
    page.wait_for_url("**/curves?view=mine")
    page.wait_for_function("() => document.querySelector('.js-plotly-plot')?.layout?.yaxis?.type === 'linear'")
    page.get_by_text("Views", exact=True).click()
    page.locator("#view-name").fill("Third try, α = 1!")
    page.locator("#save").click()
    page.locator("#views a").get_by_text("Third try, α = 1!").click()
    page.wait_for_url("**/curves?view=Third+try*")


def test_a_server_that_goes_away_is_told(browser: Any, serve_site: ServeSite, site: Site) -> None:
    with serve_site(site.roots) as second:
        page = browser.new_page()
        at(page, second, "curves")
        second.close()
        page.get_by_text("The server has not answered since").wait_for()
        assert "Curves" in page.locator("#page").inner_text()
        page.close()
