"""Pages are made once, and an address is checked once, while nothing is new."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ablate.dashboards.app.campaigns import Campaigns
from ablate.dashboards.app.engine import Engine
from ablate.dashboards.app.page import Control, PageView, Slot, SlotContent
from ablate.dashboards.app.pages import app_pages
from ablate.dashboards.app.pages.curves import CURVES
from ablate.dashboards.data.user_errors import Unknown
from ablate.store import Layout

PAGES = app_pages()


def test_an_address_is_not_found_after_its_page_was_made_too(runs: Path) -> None:
    campaigns = Campaigns([runs])
    with campaigns.reading("runs"):
        pass
    engine = Engine(campaigns, PAGES)
    engine.show("/runs/curves", "?metric=nope", "light")
    with pytest.raises(Unknown, match="page Curves has no metrics 'nope'"):
        engine.begin("runs", engine.page_named("curves"), "?metric=nope")
    engine.show("/runs/runs", "?sort=zzz", "light")
    with pytest.raises(Unknown, match="has no column 'zzz'"):
        engine.begin("runs", engine.page_named("runs"), "?sort=zzz")


def test_a_page_with_an_address_of_its_own_is_made_once_from_the_first_request_on(runs: Path) -> None:
    made: list[str] = []

    def note(view: PageView) -> SlotContent:
        made.append("slot")
        return SlotContent(message=view.address.band)

    def note_controls(view: PageView) -> Sequence[Control]:
        made.append("controls")
        return CURVES.controls(view)

    page = CURVES._replace(slots=[CURVES.slots[0]._replace(make=note)], controls=note_controls)
    campaigns = Campaigns([runs])
    with campaigns.reading("runs"):
        pass
    engine = Engine(campaigns, [page])
    engine.begin("runs", page, "?band=range")
    for _ in range(2):
        shown, *_ = engine.show("/runs/curves", "?band=range", "light")
        assert "range" in str(shown)
    assert sorted(made) == ["controls", "slot"]


def test_a_page_of_a_grid_is_made_once_while_nothing_is_new(runs: Path) -> None:
    made = []

    def make(view: PageView) -> SlotContent:
        made.append(view.address)
        return SlotContent(message="here")

    page = PAGES[0]._replace(slots=(Slot("one", "One", make, "words"),))
    campaigns = Campaigns([runs])
    with campaigns.reading("runs"):  # the first reader brings in the results
        pass
    engine = Engine(campaigns, [page])
    for search in ("", "", "?hide=a", ""):
        assert "here" in str(engine.show("/runs/overview", search, "dark")[0])
    assert len(made) == 2
    os.utime(Layout(runs).snapshot)
    engine.show("/runs/overview", "", "light")
    assert len(made) == 3


def test_an_address_is_checked_once_while_nothing_is_new(runs: Path) -> None:
    checked = []
    page = PAGES[0]._replace(slots=(), check=lambda view: checked.append(view.address))
    campaigns = Campaigns([runs])
    with campaigns.reading("runs"):
        pass
    engine = Engine(campaigns, [page])
    engine.show("/runs/overview", "?hide=a", "light")  # the page is made, and its address is not checked
    for _ in range(2):
        engine.begin("runs", page, "?hide=a")
    assert len(checked) == 1
    os.utime(Layout(runs).snapshot)
    engine.begin("runs", page, "?hide=a")
    assert len(checked) == 2
