"""A page that is left open shows what comes, and takes back what was wrong, without being loaded again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_site import ServeSite, Site
from playwright.sync_api import Page
from synthetic import Campaign, write_campaign

pytestmark = pytest.mark.browser


class Live:
    """A campaign that is served while it is written."""

    def __init__(self, site: Site, root: Path) -> None:
        self.site, self.root = site, root
        self.url = f"{site.url}/{root.name}"

    def write(self, seeds: int = 2, **how: Any) -> Campaign:
        given = {"operators": ("softmax", "SSA"), "seeds": range(seeds), "steps": 4} | how
        written = write_campaign(self.root, **given)
        self.site.campaigns.ingest()
        return written


@pytest.fixture(scope="module")
def unused(serve_site: ServeSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[Live]]:
    """Empty campaigns of one site, each to be taken by one test."""
    roots = [tmp_path_factory.mktemp("live") / f"runs-{number}" for number in range(12)]
    for root in roots:
        (root / "grids").mkdir(parents=True)
    with serve_site(roots) as site:
        yield (Live(site, root) for root in roots)


@pytest.fixture
def live(unused: Iterator[Live]) -> Live:
    return next(unused)


def test_a_page_that_could_not_be_shown_is_shown_once_it_can_be(page: Page, live: Live) -> None:
    live.write()
    snapshot = live.root / "store" / "snapshot.duckdb"
    whole = snapshot.read_bytes()
    snapshot.write_bytes(b"\0" * 4096)
    page.goto(f"{live.url}/curves")
    page.get_by_role("heading", name="This page cannot be shown").wait_for()
    snapshot.write_bytes(whole)
    page.locator("#slot-curves").wait_for()


def test_the_first_grid_of_a_campaign_brings_its_controls(page: Page, live: Live) -> None:
    page.goto(f"{live.url}/curves")
    page.get_by_text("no grid yet").first.wait_for()
    live.write()
    page.locator(".controls").get_by_text("Metrics").wait_for()
    page.wait_for_selector(".js-plotly-plot .scatterlayer")


def test_a_choice_that_fits_no_address_is_refused_until_it_is_taken_back(page: Page, live: Live) -> None:
    live.write()
    hide = "(names) => dash_clientside.set_props({type: 'control', field: 'hide'}, {value: names})"
    page.goto(f"{live.url}/curves")
    page.wait_for_selector(".js-plotly-plot .scatterlayer")
    page.evaluate(hide, ["x" * 5000])
    page.get_by_text("does not fit into an address").wait_for()
    assert page.url.endswith("/curves")
    page.evaluate(hide, [])
    page.get_by_text("does not fit into an address").wait_for(state="detached")


def test_no_script_moves_the_cursor_of_a_field_in_which_a_reader_types(page: Page, live: Live) -> None:
    live.write()
    page.goto(f"{live.url}/runs")
    field = page.locator(".control.text input")
    field.focus()
    page.keyboard.type("operator=S")
    page.evaluate("() => document.activeElement.setSelectionRange(2, 2)")  # as the script of the field does, too late
    page.keyboard.type("SA")
    assert field.input_value() == "operator=SSA"


def test_what_a_reader_opened_stays_open_while_it_says_the_same(page: Page, live: Live) -> None:
    live.write()
    page.goto(f"{live.url}/sql?query=SELECT%20count(*)%20AS%20n%20FROM%20trial")
    shown = page.locator("#slot-result .ag-cell").first
    shown.get_by_text("4").wait_for()
    page.locator("#slot-schema summary").first.click()
    live.write(seeds=3)
    shown.get_by_text("6").wait_for()
    assert page.locator("#slot-schema details").first.evaluate("(one) => one.open")


def test_what_is_shown_unless_the_reader_chooses_follows_new_results(page: Page, live: Live) -> None:
    shifts = {"softmax": 0.0, "SSA": -0.2, "Cog": -3.0}

    def write(*others: str) -> None:
        pending = [(other, seed) for other in others for seed in range(4)]
        live.write(4, operators=tuple(shifts), effect=lambda axes: shifts[axes["operator"]], pending=pending)

    write("Cog")
    page.goto(f"{live.url}/compare")
    chosen = page.locator(".control", has_text="Look closely at")
    chosen.get_by_text("SSA").wait_for()
    write("softmax", "SSA")
    page.locator("#slot-why .caption", has_text="Cog against softmax").wait_for()
    chosen.get_by_text("Cog").wait_for()
    for _ in range(2):  # the page asks again for new results
        page.wait_for_event("response", lambda answer: answer.request.method == "POST")
    assert page.url.endswith("/compare")  # the reader has not chosen
    chosen.get_by_text("Cog").wait_for()


def test_what_a_reader_closed_stays_so_while_the_words_around_it_change(page: Page, live: Live) -> None:
    campaign = live.write(1, failed={("SSA", 0): "error"})
    page.goto(f"{live.url}/run?run={campaign.line('SSA', 0)['trial']}")
    trace = page.locator("#slot-what details")
    trace.get_by_text("Traceback").first.click()
    live.write(3, pending=[("SSA", 0), ("softmax", 0)])
    page.locator("#slot-what").get_by_text("Curves of all seeds of its cell").first.wait_for()
    assert not trace.evaluate("(one) => one.open")


def test_a_table_that_had_nothing_to_show_is_shown_once_it_has(page: Page, live: Live) -> None:
    live.write()
    table = page.locator("#slot-failures .ag-theme-quartz")
    page.goto(f"{live.url}/overview")
    table.wait_for(state="attached")
    assert table.is_hidden()
    live.write(failed={("SSA", seed): "error" for seed in range(2)})
    page.locator("#slot-failures .caption", has_text="2 failed trials of 1 kind").wait_for()
    table.locator(".ag-row").first.wait_for()
    assert "reason" in table.locator(".ag-header-cell-text").all_inner_texts()


def test_columns_that_come_later_leave_what_a_reader_did_to_the_others(page: Page, live: Live) -> None:
    live.write(pending=[(name, seed) for name in ("softmax", "SSA") for seed in range(2)])
    heads = page.locator("#slot-runs .ag-header-cell-text")
    seed = page.locator("#slot-runs .ag-header-cell[col-id=seed]")
    page.goto(f"{live.url}/runs")
    heads.get_by_text("seed", exact=True).click()
    heads.get_by_text("seed", exact=True).click()
    page.locator("#slot-runs .ag-row .ag-checkbox-input").first.click()
    usual = seed.evaluate("(one) => one.offsetWidth")
    edge = seed.locator(".ag-header-cell-resize").bounding_box() or {"x": 0, "y": 0}
    page.mouse.move(edge["x"] + 2, edge["y"] + 10)
    page.mouse.down()
    page.mouse.move(edge["x"] + 62, edge["y"] + 10, steps=4)
    page.mouse.up()
    wide = seed.evaluate("(one) => one.offsetWidth")
    assert wide > usual
    assert "seconds" not in heads.all_inner_texts()
    live.write()
    heads.get_by_text("seconds").wait_for()
    assert seed.get_attribute("aria-sort") == "descending"
    assert seed.evaluate("(one) => one.offsetWidth") == wide
    page.locator("#slot-runs .picked a").first.wait_for()
    assert page.locator("#slot-runs .ag-row-selected").count() > 0
