"""Tables in a window of 400 pixels: what decides is in view without a scroll to the right."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dashboard_site import ServeSite
from playwright.sync_api import Page

from ablate.dashboards import write_report

pytestmark = pytest.mark.browser

HEADS = """(slot) => [...document.querySelectorAll(`#slot-${slot} .ag-header-cell`)]
  .map((head) => [head.getBoundingClientRect(), head.getAttribute("col-id")])
  .filter(([box]) => box.left < innerWidth).sort(([one], [other]) => one.left - other.left).map(([, name]) => name)"""


def test_label_and_verdict_stand_first_and_the_difference_beside_them(
    page: Page, serve_site: ServeSite, runs: Path
) -> None:
    page.set_viewport_size({"width": 400, "height": 900})
    with serve_site([runs]) as site:
        page.goto(f"{site.url}/{runs.name}/overview")
        cell = page.locator("#slot-verdicts .ag-cell[col-id=variant]").first
        cell.wait_for()
        assert cell.inner_text().split("\n")[0] == "SSA"
        assert "no verdict" in cell.inner_text()
        assert page.evaluate(HEADS, "verdicts")[:2] == ["variant", "difference"]
        page.goto(f"{site.url}/{runs.name}/runs")
        page.locator("#slot-runs .ag-cell").first.wait_for()
        heads = [name for name in page.evaluate(HEADS, "runs") if not name.startswith("ag-Grid")]
    assert heads[0] == "operator"
    assert heads[1].startswith("mse@")


def test_the_report_has_the_interval_and_p_of_each_verdict(look: Callable[..., Any], runs: Path) -> None:
    heads = look(write_report(runs), width=400).page.locator(".verdicts .sortable thead th")
    shown = {head.inner_text().strip() for head in heads.all() if head.is_visible()}
    assert {"95 % interval", "Holm p"} <= shown
