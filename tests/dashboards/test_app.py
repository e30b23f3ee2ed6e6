"""The app in a real browser: addresses say all, new results keep the zoom, nothing leaves the machine."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from dashboard_site import ServeSite, Site
from playwright.sync_api import Page, TimeoutError
from synthetic import write_campaign

pytestmark = pytest.mark.browser

NAMES = ("softmax", "SSA", "Integral")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, serve_site: ServeSite) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("app") / "runs"
    write_campaign(root, operators=NAMES, seeds=range(4), pending={("SSA", 3)}, steps=24)
    with serve_site([root]) as found:
        yield found


HIDDEN = "() => document.querySelector('.js-plotly-plot').data.filter((trace) => trace.visible === false).length"


def hidden(page: Page) -> Any:
    return page.evaluate(HIDDEN)


def ranges(page: Page) -> Any:
    return page.evaluate(
        "() => { const g = document.querySelector('.js-plotly-plot'); return [g.layout.xaxis.range, g.data.length]; }"
    )


def test_an_address_says_all_controls_write_it_and_a_button_copies_its_python(page: Page, site: Site) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{site.url}/runs/curves")
    page.wait_for_selector(".js-plotly-plot .scatterlayer")
    assert page.url == f"{site.url}/runs/curves"
    page.get_by_text("More", exact=True).click()
    page.get_by_text("Linear axis").click()
    page.wait_for_url("**/curves?linear=1")
    page.wait_for_function("() => document.querySelector('.js-plotly-plot').layout.yaxis.type === 'linear'")
    page.reload()
    page.wait_for_function("() => document.querySelector('.js-plotly-plot')?.layout?.yaxis?.type === 'linear'")
    page.get_by_role("button", name="Copy Python").click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert f"dashboard_figure(Campaign('{site.roots[0]}'), 'curves/curves?linear=1')" in copied
    page.go_back()


def test_new_results_keep_the_zoom_and_what_the_legend_hides(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/runs/curves?band=spread")
    page.wait_for_selector(".js-plotly-plot .scatterlayer")
    box = page.locator(".js-plotly-plot .nsewdrag").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.8 * box["height"], steps=5)
    page.mouse.up()
    zoomed, traces = ranges(page)
    page.locator(".slot .legend button").nth(1).click()
    page.wait_for_url("**/curves?hide=SSA&band=spread")
    assert hidden(page) == 3  # a line, its band and its name
    assert "n up to 4" in page.locator(".slot .caption").inner_text()
    for seeds in (5, 6):
        finished = set(product(NAMES, range(seeds - 1)))
        write_campaign(site.roots[0], operators=NAMES, seeds=range(seeds), pending=finished, steps=24)
        site.campaigns.ingest()
        page.wait_for_function(
            "(n) => document.querySelector('.slot .caption').innerText.includes(`n up to ${n}`)", arg=seeds
        )
        assert hidden(page) == 3
        assert ranges(page) == [zoomed, traces]


@pytest.mark.parametrize(("place", "shift", "axis"), [(0, -14, "operator"), (-1, 0, "mse")])
def test_a_straight_drag_along_a_parallel_axis_becomes_a_filter_of_that_axis(
    page: Page, site: Site, place: int, shift: int, axis: str
) -> None:
    page.goto(f"{site.url}/runs/compare?grid=quickstart&against=loss")
    plot = page.locator("#slot-parallel .js-plotly-plot")
    page.wait_for_selector("#slot-parallel .main-svg")
    for _ in range(20):  # parts that arrive later move the figure under the pointer, or out of the window
        plot.scroll_into_view_if_needed()
        x, top, middle = plot.evaluate(
            """(plot, place) => { const box = plot.querySelector('.nsewdrag').getBoundingClientRect();
            const { xaxis, yaxis } = plot._fullLayout; const axis = (place + plot.layout.meta.axes.length) %
            plot.layout.meta.axes.length;
            return [box.x + xaxis.d2p(axis), box.y + yaxis.d2p(1.05), box.y + yaxis.d2p(0.4)]; }""",
            place,
        )
        page.mouse.move(x + shift, top)
        page.mouse.down()
        page.mouse.move(x + shift, middle, steps=5)
        page.mouse.up()
        with suppress(TimeoutError):
            page.wait_for_url(f"**/compare?*brush={axis}%3D*..*", timeout=5000)
            break
    assert f"brush={axis}%3D" in page.url
    page.locator("#slot-parallel .state", has_text="of 3 cells with").wait_for()
    assert plot.evaluate("(plot) => plot.layout.selections.length") == 0


def test_plotly_is_loaded_once_and_text_is_in_the_shipped_font(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/runs/runs")
    page.wait_for_selector(".ag-row")
    loaded = "(name) => performance.getEntriesByType('resource').filter((each) => each.name.includes(name)).length"
    font = "(each) => getComputedStyle(document.querySelector(each)).fontFamily"
    assert page.evaluate(font, ".ag-header-cell").startswith("Inter")
    assert page.evaluate(loaded, "plotly-cartesian") == 1  # before any figure asks for it
    page.goto(f"{site.url}/runs/overview?grid=quickstart")
    page.wait_for_selector("#slot-differences .main-svg")
    assert page.evaluate(loaded, "plotly-cartesian") == 1
    assert all(page.evaluate(font, each).startswith("Inter") for each in ("h1", "svg text"))
    assert page.evaluate("() => document.fonts.check('14px Inter')")
