"""The app in a real browser: addresses say all, new results keep the zoom, nothing leaves the machine."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page
from synthetic import write_campaign
from werkzeug.serving import make_server

from dashboards.app.campaigns import Campaigns
from dashboards.app.pages import PAGES
from dashboards.app.server import HERE, make_app, refuse_other_hosts

pytestmark = pytest.mark.browser

NAMES = ("softmax", "SSA", "Integral")


class Site:
    """The app over one campaign, served on loopback."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.campaigns = Campaigns([root])
        app = make_app(self.campaigns, PAGES)
        refuse_other_hosts(app.server, HERE)
        self._server = make_server("127.0.0.1", 0, app.server, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("app") / "runs"
    write_campaign(root, operators=NAMES, seeds=range(3), pending={("SSA", 2)}, steps=24)
    found = Site(root)
    yield found
    found.close()


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    """A fresh page; whatever its console complains about, and whatever asks another machine, fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    found = context.new_page()
    complaints: list[str] = []
    found.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    found.on("pageerror", lambda error: complaints.append(str(error)))
    found.on(
        "request",
        lambda asked: None if asked.url.startswith((site.url, "data:", "blob:")) else complaints.append(asked.url),
    )
    yield found
    context.close()
    assert complaints == []


HIDDEN = "() => document.querySelector('.js-plotly-plot').data.filter((trace) => trace.visible === false).length"


def hidden(page: Page) -> Any:
    return page.evaluate(HIDDEN)


def ranges(page: Page) -> Any:
    return page.evaluate(
        "() => { const g = document.querySelector('.js-plotly-plot'); return [g.layout.xaxis.range, g.data.length]; }"
    )


def test_an_address_says_all_and_controls_write_it(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/runs/curves")
    page.wait_for_selector(".js-plotly-plot .scatterlayer")
    assert page.url == f"{site.url}/runs/curves"
    page.get_by_text("Linear axis").click()
    page.wait_for_url("**/curves?linear=1")
    page.wait_for_function("() => document.querySelector('.js-plotly-plot').layout.yaxis.type === 'linear'")
    page.reload()
    page.wait_for_function("() => document.querySelector('.js-plotly-plot')?.layout?.yaxis?.type === 'linear'")
    page.go_back()


def test_new_results_keep_the_zoom_and_what_the_legend_hides(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/runs/curves")
    page.wait_for_selector(".js-plotly-plot .scatterlayer")
    box = page.locator(".js-plotly-plot .nsewdrag").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.8 * box["height"], steps=5)
    page.mouse.up()
    zoomed, traces = ranges(page)
    page.locator(".slot .legend button").nth(1).click()
    page.wait_for_url("**/curves?hide=SSA")
    assert hidden(page) == 2  # a line and its band
    assert "n up to 3" in page.locator(".slot .caption").inner_text()
    write_campaign(site.root, operators=NAMES, seeds=range(4), steps=24)
    site.campaigns.look()
    page.wait_for_function(
        "() => document.querySelector('.slot .caption').innerText.includes('n up to 4')", timeout=20000
    )
    assert hidden(page) == 2
    assert ranges(page) == [zoomed, traces]
