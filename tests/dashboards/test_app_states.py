"""Messages instead of content: wrong addresses, and campaigns that are empty, torn, newer or gone."""

import gzip
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

import brotli
import plotly.graph_objects as go
import pytest
from plotly.utils import PlotlyJSONEncoder
from synthetic import write_campaign

from ablate import Campaign, dashboard_figure
from ablate.dashboards.app.address import MOVED, Address, read, replace_fields, save, saved_views, write_query
from ablate.dashboards.app.campaigns import Campaigns
from ablate.dashboards.app.engine import Engine
from ablate.dashboards.app.frame import Display, change_figure, figure_of, identify_axes
from ablate.dashboards.app.page import PageView, Slot, SlotContent
from ablate.dashboards.app.pages import app_pages
from ablate.dashboards.app.server import make_app
from ablate.dashboards.data.user_errors import Unknown
from ablate.store.files.atomic import write_json

PAGES = app_pages()
NAMES = ("softmax", "SSA")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("states") / "runs"
    factors = {"depth": (2, 4)}
    write_campaign(root, operators=NAMES, factors=factors, seeds=range(2), steps=4, sigma_f=(1, 5), sigma_x=(1,))
    return root


@pytest.fixture(scope="module")
def campaigns(runs: Path) -> Campaigns:
    """The campaign, for tests that leave it as it is."""
    return Campaigns([runs])


def texts(component: Any) -> list[str]:
    """Every text of a component, in order."""
    plain = json.loads(json.dumps(component, cls=PlotlyJSONEncoder))
    found: list[str] = []

    def walk(part: Any) -> None:
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, list):
            for each in part:
                walk(each)
        elif isinstance(part, dict):
            walk(part.get("props", {}).get("children"))

    walk(plain)
    return found


def show(roots: Sequence[Path], address: str, campaigns: Campaigns | None = None) -> str:
    engine = Engine(campaigns or Campaigns(roots), PAGES)
    content, *_ = engine.show(*address.partition("?")[::2], "light")
    return " | ".join(texts(content))


def test_a_path_without_page_is_the_first_page_of_the_first_campaign(campaigns: Campaigns) -> None:
    assert show([], "/", campaigns).startswith("Overview")
    assert "Traceback" not in show([], "/")  # with no campaign


def test_an_empty_campaign_opens_on_every_page(tmp_path: Path) -> None:
    (tmp_path / "bare" / "grids").mkdir(parents=True)
    campaigns = Campaigns([tmp_path / "bare"])
    for page in PAGES:
        found = show([], f"/bare/{page.name}", campaigns)
        assert found.startswith((page.title, "This page cannot be shown")), page.name


def test_a_campaign_of_a_newer_version_says_so(runs: Path, tmp_path: Path) -> None:
    root = shutil.copytree(runs, tmp_path / "newer")
    path = root / "grids" / "quickstart.json"
    write_json(path, {**json.loads(path.read_text()), "schema": 99})
    found = show([root], "/newer/overview")
    assert "schema version 99" in found


def test_a_damaged_database_says_what_to_do(runs: Path, tmp_path: Path) -> None:
    root = shutil.copytree(runs, tmp_path / "torn")
    show([root], "/torn/overview")
    snapshot = root / "store" / "snapshot.duckdb"
    snapshot.write_bytes(b"\0" * 4096)
    found = show([root], "/torn/overview")
    assert "cannot be shown" in found
    assert "ablate check --rebuild" in found


def test_a_campaign_that_goes_away_while_it_is_open_says_so(runs: Path, tmp_path: Path) -> None:
    root = shutil.copytree(runs, tmp_path / "gone")
    campaigns = Campaigns([root])
    assert "Trials" in show([], "/gone/overview", campaigns)
    shutil.rmtree(root)
    assert "There is no campaign in" in show([], "/gone/overview", campaigns)
    campaigns.ingest()
    assert "There is no campaign in" in str(campaigns.describe("gone").problem)
    assert not root.exists()


def test_a_saved_view_is_the_page_as_it_was(runs: Path, tmp_path: Path) -> None:
    root = shutil.copytree(runs, tmp_path / "kept")
    save(root, "noise", "curves", "?metric=loss&hide=SSA")
    save(root, "Noise: früher/später", "runs", "?filter=seed<3")
    assert saved_views(root) == [("Noise: früher/später", "runs"), ("noise", "curves")]
    engine = Engine(Campaigns([root]), PAGES)
    address = engine.address("kept", engine.pages["curves"], "?view=noise")
    assert address.hide == ("SSA",)
    named = urlencode({"view": "Noise: früher/später"})
    assert engine.address("kept", engine.pages["runs"], f"?{named}").filter == "seed<3"
    with pytest.raises(Unknown, match="0 characters; give it 1 to 100"):
        save(root, " ", "runs", "")
    assert "is one of the page 'curves'" in show([root], "/kept/overview?view=noise")


def test_an_old_address_leads_to_the_page_that_has_taken_its_place(runs: Path, tmp_path: Path) -> None:
    root = shutil.copytree(runs, tmp_path / "runs")
    client = make_app(Campaigns([root]), PAGES).server.test_client()
    for old, new in MOVED.items():
        answer = client.get(f"/runs/{old}?grid=quickstart&better=higher&cell=a%26b")
        assert answer.status_code == 308
        assert answer.headers["Location"] == f"/runs/{new}?grid=quickstart&better=higher&cell=a%26b"
    twice = client.get("/", environ_overrides={"PATH_INFO": "//attention"})
    assert "Location" not in twice.headers  # it would name a host
    assert client.get("/runs/operators?operator=ssa").status_code == 404
    asked = {"against": "loss"}
    old, new = (client.get(f"/files/runs/{page}/scatter.csv", query_string=asked) for page in ("trade-offs", "compare"))
    assert old.data == new.data != b""
    assert dashboard_figure(Campaign(root), "trade-offs/scatter?against=loss").data
    save(root, "cheap", "trade-offs", "?against=loss")
    assert saved_views(root) == [("cheap", "compare")]
    engine = Engine(Campaigns([root]), PAGES)
    assert engine.address("runs", engine.pages["compare"], "?view=cheap").against == "loss"


def test_a_torn_view_is_named(runs: Path, tmp_path: Path) -> None:
    root = shutil.copytree(runs, tmp_path / "torn-view")
    (root / "views").mkdir()
    for text in ("", "{}", "[1]", '{"page": "curves"}', '{"page": 1, "search": "?"}', "{"):
        (root / "views" / "one.json").write_text(text)
        assert "views/one.json is no saved view" in show([root], "/torn-view/curves?view=one").lower(), text
    assert show([root], "/torn-view/curves").startswith("Curves")


def test_no_saved_text_outside_the_campaign_is_read(runs: Path, tmp_path: Path) -> None:
    root = shutil.copytree(runs, tmp_path / "linked")
    (tmp_path / "secret").write_text("SELECT 'a secret'")
    (root / "queries").mkdir()
    (root / "queries" / "one.sql").symlink_to(tmp_path / "secret")
    for page in ("sql", "sql?saved=one"):
        found = show([root], f"/linked/{page}")
        assert "a link that leads out of the campaign; it is not read" in found
    (root / "queries" / "two.sql").write_text("SELECT 'mine'")
    (root / "queries" / "one.sql").unlink()
    (root / "queries" / "one.sql").symlink_to("two.sql")
    assert "leads out" not in show([root], "/linked/sql?saved=one")


WRONG = """
other/overview runs/nowhere runs/overview?grid=nope runs/sql?grid=nope runs/curves?grid=nope runs/overview?view=nope
runs/curves?show=nope runs/curves?metric=nope runs/curves?by=nope.here runs/curves?run=zz runs/run?run=zzzz
runs/compare?cell=nope runs/compare?measure=nope runs/compare?better=sideways runs/factors?x=nope
runs/factors?pair=nope runs/compare?against=nope runs/compare?brush=nope runs/mechanism?probe=nope
runs/runs?sort=nope runs/runs?by=nope runs/runs?filter=nope=1 runs/runs?by=seed&sort=nope
runs/runs?columns=x'%3BDROP runs/published?paper=7 runs/published?paper=002&item=nope runs/factors?fix=depth%3D9
runs/curves?smooth=1 runs/mechanism?at=queer=1 runs/curves/more runs/curves?colour=red runs/curves?grid=a&grid=b
runs/overview?view=../../etc/passwd runs/overview?grid=quickstart&view=a
runs/factors?x=depth&y=depth runs/compare?brush=mse=0..nope
"""
LONG = f"runs/curves?metric={'x' * 5000}"
LATE = ("runs/mechanism?layer=77", "runs/compare?cell=softmax%20·%202")
"""Addresses of slots that say what is wrong, on pages that are found."""


@pytest.mark.parametrize("address", [*WRONG.split(), *LATE, LONG], ids=lambda address: address[:40])
def test_a_wrong_address_is_answered_with_what_is_wrong(campaigns: Campaigns, address: str) -> None:
    found = show([], f"/{address}", campaigns)
    field, value = re.split(r"[/=&?]", unquote(address))[-2:]
    assert address == LONG or (field if field in ("other", "colour", "queer") else value) in found
    assert "Traceback" not in found


def test_an_address_that_names_what_is_missing_is_not_found_before_a_slot_is_made(campaigns: Campaigns) -> None:
    made: list[PageView] = []

    def note(view: PageView) -> SlotContent:
        made.append(view)
        return SlotContent()

    noting = [page._replace(slots=[slot._replace(make=note) for slot in page.slots]) for page in PAGES]
    client = make_app(campaigns, noting).server.test_client()
    with campaigns.reading("runs"):  # the first reader brings in the results
        pass
    for address in WRONG.split():
        assert client.get(f"/{address}").status_code == 404, address
    assert made == []
    for address in ("", "runs/overview", "runs/sql", "runs/run", "runs/curves?metric=loss", "runs/compare?measure=mse"):
        assert client.get(f"/{address}").status_code == 200, address


def test_texts_travel_compressed_and_are_the_same(campaigns: Campaigns) -> None:
    client = make_app(campaigns, PAGES).server.test_client()
    scripts = re.findall(r'"(/_dash-component-suites/[^"]+)"', client.get("/").text)
    assert scripts
    for address in ("/_dash-dependencies", "/files/runs/curves/curves.csv", *scripts):
        smallest = client.get(address, headers={"Accept-Encoding": "gzip, br"})
        small = client.get(address, headers={"Accept-Encoding": "gzip"})
        whole = client.get(address)
        assert "Content-Encoding" not in whole.headers
        if len(whole.data) > 1000:
            assert small.headers["Content-Encoding"] == "gzip", address
            assert smallest.headers["Content-Encoding"] == "br", address
            assert brotli.decompress(smallest.data) == whole.data, address
            assert len(small.data) < len(whole.data)
            assert gzip.decompress(small.data) == whole.data, address


def test_a_picture_has_title_and_legend_of_its_own_and_hides_what_the_page_hides(campaigns: Campaigns) -> None:
    client = make_app(campaigns, PAGES).server.test_client()
    figure = client.get("/files/runs/curves/curves.json", query_string={"hide": "softmax · 2"}).json
    assert figure["layout"]["title"]["text"] == "Training curves"
    assert figure["layout"]["showlegend"]
    assert sorted({trace["visible"] for trace in figure["data"]}) == [False, True]


def test_a_bug_of_one_part_leaves_the_others_standing(campaigns: Campaigns, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: PageView) -> SlotContent:
        raise AttributeError("partially initialized module")

    overview = next(page for page in PAGES if page.name == "overview")
    broken = overview._replace(slots=(Slot("broken", "Broken", fail), *overview.slots))
    content, *_ = Engine(campaigns, [broken]).show("/runs/overview", "", "light")
    found = " | ".join(texts(content))
    assert "AttributeError" in found
    assert "What to do next" in found
    assert "partially initialized" in caplog.text


def test_a_reason_that_several_parts_share_is_told_once(campaigns: Campaigns) -> None:
    assert show([], "/runs/mechanism", campaigns).count("keeps attention maps") == 1


def test_what_plotly_asks_for_is_imported_before_anything_is_served() -> None:
    code = "import sys; from ablate.dashboards.app.server import make_app; make_app(None, ()); "
    code += "print('pandas' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == str(importlib.util.find_spec("pandas") is not None)


def test_what_is_opened_in_a_page_has_no_markup_of_its_own(campaigns: Campaigns) -> None:
    """The page puts it in as HTML, be it a result or the sentence of an error."""
    client = make_app(campaigns, PAGES).server.test_client()
    result, error = "SELECT '<img src=x>'", 'SELECT "<img src=x>"'
    for end, query in (("table", result), ("table", error), ("sql", result)):
        answer = client.get(f"/files/runs/sql/result.{end}", query_string={"query": query})
        assert answer.status_code == 200
        assert "img src" in answer.text
        assert "<img" not in answer.text


def test_an_axis_follows_new_results_until_the_reader_zooms() -> None:
    figure = go.Figure(go.Scatter(x=[1, 2], y=[1, 100])).update_layout(xaxis={"type": "linear", "range": [0, 3]})
    figure.update_layout(yaxis={"type": "log", "range": [0, 2]})
    layout = figure_of(SlotContent(figure), Display(None))["layout"]
    assert [layout[axis]["autorangeoptions"]["include"] for axis in ("xaxis", "yaxis")] == [(0, 3), (1, 100)]
    assert "range" not in layout["xaxis"]
    changed = change_figure({"data": [], "layout": {**layout, "yaxis": {"range": [3, -1]}}}).to_plotly_json()
    sent = {tuple(each["location"]): each["params"]["value"] for each in changed["operations"]}
    assert sent["layout", "yaxis", "range"] == [3, -1]  # rows that were added are shown
    assert ("layout", "xaxis", "range") not in sent
    assert sent["layout", "annotations"] == []
    before = identify_axes(SlotContent(figure))
    assert before != identify_axes(SlotContent(figure.update_xaxes(title_text="seconds")))  # others take the zoom back


class Numbered(Address):
    """A state with entries."""

    numbers: tuple[str, ...] = ()
    by: str = "cell"


def test_an_entry_is_set_and_taken_back_without_touching_the_others() -> None:
    first = replace_fields(Numbered(), {"numbers:beta": 0.5, "numbers:alpha": "2"})
    assert write_query(first) == "?numbers=beta%3D0.5&numbers=alpha%3D2"
    assert read(Numbered, write_query(first)) == first
    assert replace_fields(first, {"numbers:beta": None}).numbers == ("alpha=2",)
    assert replace_fields(first, {"numbers:beta": 0.25}).numbers == ("beta=0.25", "alpha=2")


def test_one_value_of_a_list_and_a_list_of_one_fit_their_fields() -> None:
    assert replace_fields(Address(), {"hide": "1"}).hide == ("1",)
    assert replace_fields(Numbered(), {"by": ("seed",)}).by == "seed"
    with pytest.raises(Unknown, match="name=value"):
        replace_fields(Numbered(numbers=("beta",)), {"numbers:alpha": 1.0})


def test_an_error_in_one_look_is_told_and_the_next_look_goes_on(
    runs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    campaigns = Campaigns([runs])
    with monkeypatch.context() as broken:
        broken.setattr("ablate.dashboards.app.campaigns.ingest", lambda *_, **__: {}["a bug"])
        campaigns.follow(every_s=0.01)
        try:
            while campaigns.describe("runs").problem is None:
                time.sleep(0.01)
            assert "itself failed to bring in new results (KeyError)" in str(campaigns.describe("runs").problem)
            broken.undo()
            while campaigns.describe("runs").problem is not None:
                time.sleep(0.01)
        finally:
            campaigns.close()
    assert "cannot bring in what is new" in caplog.text


def test_the_page_on_the_dashboard_lists_every_page_with_its_key() -> None:
    text = (Path(__file__).parents[2] / "docs" / "dashboard.md").read_text(encoding="utf-8")
    for page in PAGES:
        if page.listed:
            assert f"| {page.title} | `g {page.letter}` |" in text, page.title
