"""Runs: a row per trial with its choices, state and values; columns that are not there are told."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from dashboard_site import ServeSite
from known_campaign import Line, Planted, open_view, plant, seen, show_slot
from playwright.sync_api import Page as Tab, Route
from synthetic import Campaign, write_campaign

from ablate import Campaign as Logged
from ablate.dashboards.app.page import PageView, SlotContent, grid_of
from ablate.dashboards.app.pages.runs import RUNS
from ablate.dashboards.data.run_keys import key_of, shorten_keys
from ablate.store import Store
from ablate.store.files.annotations import annotate
from ablate.store.ingest.ingest import ingest

OPERATORS = ("softmax", "SSA", "<b>%{x}'\"")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return write_campaign(
        tmp_path_factory.mktemp("runs") / "runs",
        operators=OPERATORS,
        factors={"state": ["a", "b"], "depth": [3]},
        seeds=range(3),
        failed={("SSA · a · 3", 1): "diverged"},
        pending={("SSA · a · 3", 2)},
        grid="of-runs",
        steps=6,
        sigma_f=(1, 5),
        sigma_x=(1,),
    )


@pytest.fixture(scope="module")
def view(campaign: Campaign) -> Iterator[PageView]:
    with open_view(campaign.root, RUNS) as found:
        yield found


def show(view: PageView, search: str = "") -> SlotContent:
    return show_slot(view, RUNS, "runs", search)


def test_every_planned_trial_is_a_row_with_its_choices_and_its_state(view: PageView, campaign: Campaign) -> None:
    found = show(view)
    rows = {(row["label"], row["seed"]): row for row in found.data.rows(named=True)}
    assert {who: row["trial"] for who, row in rows.items()} == {
        (line["label"], line["seed"]): line["trial"] for line in campaign.lines
    }
    assert (rows["SSA · a · 3", 1]["state"], rows["SSA · a · 3", 1]["reason"]) == ("failed", "diverged")
    assert rows["SSA · a · 3", 2]["state"] == "pending"
    assert rows["SSA · b · 3", 0]["state (axis)"] == "b"
    assert rows["SSA · b · 3", 0]["run"] == rows["SSA · b · 3", 0]["trial"][:8]
    best = found.data.sort("mse@sigma_f=5,sigma_x=1", nulls_last=True).row(0, named=True)
    assert found.answer.startswith("18 trials: 16 done, 1 failed and 1 pending. Lowest mse: ")
    assert found.answer.splitlines()[0].endswith(f", of {best['label']}, seed {best['seed']}.")


def test_the_measure_is_a_column_and_empty_for_what_has_not_finished(view: PageView) -> None:
    data, name = show(view).data, "mse@sigma_f=5,sigma_x=1"
    values = dict(
        view.store.sql(
            "SELECT trial, value FROM v_final WHERE name = 'mse' AND point['sigma_f'] = 5 AND point['sigma_x'] = 1"
        ).iter_rows()
    )
    assert {trial: value for trial, value in data.select("trial", name).iter_rows() if value is not None} == values
    assert data.filter(pl.col(name).is_null())["state"].sort().to_list() == ["failed", "pending"]


def test_any_measurement_can_be_picked_and_what_varies_stands_first(view: PageView) -> None:
    control = next(control for control in RUNS.controls(view) if control.field == "columns")
    names = list(control.options)
    assert names[:2] == ["operator", "state (axis)"]
    assert names.index("mse@sigma_f=1,sigma_x=1") < names.index("depth")
    found = show(view, "?columns=mse@sigma_f=1,sigma_x=1&columns=depth&columns=loss")
    assert [column["field"] for column in found.columns][4:] == ["mse@sigma_f=1,sigma_x=1", "depth", "loss"]
    assert found.data["loss"].null_count() == 2
    assert json.loads(json.dumps(list(found.columns))) == list(found.columns)


def test_measurements_may_be_called_like_columns_and_what_is_no_number_is_counted(tmp_path: Path) -> None:
    def more(line: Line) -> dict[str, float]:
        return {"seed": 10.0 + line["seed"], "trial": 1.0, "depth": math.inf if line["seed"] else 2.0}

    planted = Planted(lambda _: 1.0, more=more)
    found = seen(
        plant(tmp_path / "runs", ["softmax"], range(3), planted, factors={"depth": [4]}),
        RUNS,
        "?columns=depth&columns=seed (value)&columns=trial (value)&columns=depth (value)",
    )
    frame = found.frame("runs")
    assert frame["depth"].to_list() == [4, 4, 4]
    assert frame.select("seed", "seed (value)").rows() == [(seed, 10.0 + seed) for seed in range(3)]
    assert frame["depth (value)"].to_list() == [2.0, math.inf, math.inf]
    assert "2 trials with a value that is no finite number, shown as –." in found.slots["runs"].caption
    assert {"seed (value)", "trial (value)"} <= set(found.controls["columns"].options)


def test_rows_are_filtered_and_sorted_as_the_address_says(view: PageView) -> None:
    whole = show(view).data
    found = show(view, "?filter=seed=1 state=done&sort=-mse@sigma_f=5,sigma_x=1")
    values = whole.filter(pl.col("seed") == 1, pl.col("state") == "done")["mse@sigma_f=5,sigma_x=1"]
    assert found.data["mse@sigma_f=5,sigma_x=1"].to_list() == sorted(values, reverse=True)
    assert found.data.equals(show(view, "?filter=seed=1 state=done&sort=-mse").data)
    assert found.caption.startswith(f"{len(values)} of {whole.height} trials fit the filter.")
    assert "has no column 'colour'" in show(view, "?sort=colour").message


def test_the_answer_speaks_of_the_rows_shown(view: PageView) -> None:
    name = "mse@sigma_f=5,sigma_x=1"
    for search in ("?filter=operator=SSA seed=1", "?filter=operator=SSA seed=1&by=seed"):
        assert show(view, search).answer.startswith("2 trials: 1 done and 1 failed. Lowest mse: ")
    best = show(view, f"?filter=operator=SSA&sort={name}").data.row(0, named=True)
    first = show(view, "?filter=operator=SSA").answer.splitlines()[0]
    assert first.endswith(f", of {best['label']}, seed {best['seed']}.")


def test_figures_tables_and_filters_have_one_name_of_a_cell(tmp_path: Path) -> None:
    campaign = Logged(tmp_path / "runs").grid("grid")
    for rate in (1, 2):
        with campaign.start("grid", label=f"SSA · lr={rate}", seed=0, config={"lr": rate}, axes={"lr": rate}) as run:
            run.log(1, loss=1.0)
    with open_view(tmp_path / "runs", RUNS) as view:
        assert list(grid_of(view).appearance.names.values()) == ["SSA · lr=1", "SSA · lr=2"]
        for condition in ("cell='SSA · lr=1'", "cell~lr=1", "cell!='SSA · lr=2'"):
            assert show(view, f"?filter={condition}").data["label"].to_list() == ["SSA · lr=1"]


def test_selected_runs_are_named_by_the_beginnings_of_their_keys(view: PageView, campaign: Campaign) -> None:
    chosen = campaign.line("SSA · b · 3", 0)["trial"]
    assert show(view, f"?selected={chosen[:8]}").selected == [chosen]
    lost = show(view, f"?selected=0000000000&selected={chosen}")
    assert lost.selected == [chosen]


def test_keys_are_as_short_as_tells_them_apart(tmp_path: Path) -> None:
    one = write_campaign(tmp_path / "c", operators=("softmax",), seeds=range(2), steps=2, sigma_f=(5,))
    with Store.open(one.root) as store:
        keys = [line["trial"] for line in one.lines]
        assert shorten_keys(store, keys) == [key[:8] for key in keys]
        twin = keys[0][:10] + ("0" if keys[0][10] != "0" else "1") + "0" * 21
        assert shorten_keys(store, [keys[0], twin]) == [keys[0][:11], twin[:11]]
        assert key_of(store, keys[1][:5]) == keys[1]


@pytest.mark.browser
def test_what_is_selected_is_taken_to_other_pages_and_outlives_new_results(
    page: Tab, serve_site: ServeSite, tmp_path: Path
) -> None:
    root = tmp_path / "live"
    write_campaign(root, operators=("softmax", "SSA"), seeds=range(2), pending={("SSA", 1)}, steps=4)
    with serve_site([root]) as site:
        page.goto(f"{site.url}/live/runs")
        page.wait_for_selector(".ag-row[row-index='3']")
        for row in (0, 2):
            page.locator(f".ag-row[row-index='{row}'] .ag-selection-checkbox input").click()
        chosen = page.locator(".picked a", has_text="What differs between these (2)")
        before = chosen.get_attribute("href")
        write_campaign(root, operators=("softmax", "SSA"), seeds=range(2), steps=4)
        site.campaigns.ingest()
        page.wait_for_function("() => document.querySelector('.slot .answer').innerText.includes('4 done')")
        assert page.locator(".ag-row-selected[row-index]").count() >= 2
        assert chosen.get_attribute("href") == before
        page.wait_for_url("**/live/runs?selected=*&selected=*")
        ticked = page.locator(".ag-row-selected .ag-checkbox-input-wrapper").first
        fill = ticked.evaluate("(box) => getComputedStyle(box).backgroundColor")
        assert fill == page.locator(".ag-row a").first.evaluate("(link) => getComputedStyle(link).color")
        page.reload()
        page.wait_for_selector(".ag-row-selected[row-index]")
        assert chosen.get_attribute("href") == before
        chosen.click()
        page.wait_for_selector("#slot-spec .ag-row")
        assert page.locator("#slot-spec .caption").inner_text().startswith("2 fields of the spec of 2 runs differ")


def test_tags_and_notes_are_columns_once_somebody_wrote_any(tmp_path: Path) -> None:
    found = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(2))
    with open_view(tmp_path, RUNS) as plain:
        assert not {"tags", "note"} & set(show(plain).data.columns)
    annotate(found.layout, [(found.line("SSA", 1)["trial"], None)], add=["odd"], note="loss spikes")
    ingest(tmp_path)
    with open_view(tmp_path, RUNS) as view:
        rows = {(row["label"], row["seed"]): (row["tags"], row["note"]) for row in show(view).data.rows(named=True)}
    assert rows.pop(("SSA", 1)) == ("odd", "loss spikes")
    assert set(rows.values()) == {(None, None)}


def test_pinned_runs_stay_on_top_whatever_is_filtered(view: PageView, campaign: Campaign) -> None:
    pinned = campaign.line("softmax · a · 3", 0)["trial"]
    found = show(view, f"?filter=operator=SSA&pin={pinned[:8]}")
    assert found.pinned["trial"].to_list() == [pinned]
    assert pinned not in found.data["trial"]
    assert "no run of this campaign has a key" in show(view, "?pin=0000000000").message.lower()


def test_rows_are_averaged_by_a_column(view: PageView) -> None:
    name = "mse@sigma_f=5,sigma_x=1"
    whole, found = show(view).data, show(view, f"?by=operator&sort={name}").data
    means = {row["operator"]: row for row in found.rows(named=True)}
    assert found[name].is_sorted()
    assert (means["SSA"]["trials"], means["SSA"]["done"]) == (6, 4)
    assert means["SSA"][name] == pytest.approx(whole.filter(pl.col("operator") == "SSA")[name].mean())
    assert means["SSA"]["± SD"] == pytest.approx(whole.filter(pl.col("operator") == "SSA")[name].std())
    assert not {"depth", "attempts", "seed"} & set(found.columns)  # a mean of levels says nothing
    assert found.equals(show(view, "?by=operator&sort=mse").data)
    for search in ("?by=colour", "?by=seed&sort=colour"):
        assert "has no column 'colour'" in show(view, search).message


def test_means_are_sorted_by_any_of_their_columns_until_rows_are_trials_again(campaign: Campaign) -> None:
    found = seen(campaign.root, RUNS, "?by=operator&sort=-± SD")
    assert found.frame("runs")["± SD"].is_sorted(descending=True, nulls_last=True)
    assert {"-± SD", "± SD", "-done"} <= {*found.controls["sort"].options}
    assert found.controls["by"].resets == ("sort",)  # a trial has no spread
    assert "± SD" not in seen(campaign.root, RUNS, "?by=operator&columns=step").controls["sort"].options
    heads = {each["field"]: each for each in found.slots["runs"].columns}
    assert "~" in heads["step"]["valueFormatter"]["function"]  # 60, not 60.00


@pytest.mark.parametrize(
    ("former", "now"),
    [("sort=-status", "sort=-state"), ("by=status", "by=state"), ("by=seed&sort=ok", "by=seed&sort=done")],
)
def test_an_address_of_an_earlier_release_names_columns_as_they_were(view: PageView, former: str, now: str) -> None:
    assert show(view, f"?{former}").data.equals(show(view, f"?{now}").data)


def test_names_of_cells_are_left_out_where_columns_of_axes_say_the_same(view: PageView) -> None:
    def shown(search: str) -> bool:
        return not next(column for column in show(view, search).columns if column["field"] == "label").get("hide")

    assert shown("")  # no column says depth, which does not vary
    assert not shown("?columns=operator&columns=state (axis)&columns=depth")
    assert shown("?columns=operator")


@pytest.mark.browser
def test_a_click_on_a_heading_sorts_and_the_address_keeps_it(
    page: Tab, serve_site: ServeSite, campaign: Campaign
) -> None:
    name = "mse@sigma_f=5,sigma_x=1"
    heading, chosen = f".ag-header-cell[col-id='{name}']", campaign.line("SSA · b · 3", 0)["trial"]
    with serve_site([campaign.root]) as site:
        page.goto(f"{site.url}/runs/runs?selected={chosen[:8]}")
        links = page.locator(".picked a", has_text="Curves of these (1)")
        links.wait_for()
        assert links.bounding_box()["y"] < page.locator(".ag-root-wrapper").bounding_box()["y"]  # type: ignore[index]
        page.locator(f"{heading} .ag-header-cell-label").click()
        page.wait_for_url("**sort=mse*")
        page.locator(f"{heading} .ag-header-cell-label").click()
        page.wait_for_url("**sort=-mse*")
        page.reload()
        page.locator(f"{heading}[aria-sort='descending']").wait_for()
        cells = f".ag-row[row-index='{{}}'] [col-id='{name}']"
        assert page.locator(cells.format(17)).inner_text() == "–"
        first, second = (float(page.locator(cells.format(row)).inner_text()) for row in (0, 1))
        assert first >= second


@pytest.mark.browser
def test_a_pinned_run_is_part_of_every_comparison_and_no_late_answer_undoes_it(
    page: Tab, serve_site: ServeSite, campaign: Campaign
) -> None:
    late: list[Route] = []

    def hold_first(route: Route) -> None:
        if late or '"output":"..page.children' not in (route.request.post_data or ""):
            route.continue_()
        else:
            late.append(route)

    with serve_site([campaign.root]) as site:
        page.goto(f"{site.url}/runs/runs?filter=operator%3DSSA")
        page.wait_for_load_state("networkidle")
        page.route("**/_dash-update-component*", hold_first)
        page.locator(".ag-row[row-index='1'] .ag-selection-checkbox input").click()
        page.locator(".picked a", has_text="Pin on top (1)").click()
        page.locator(".ag-row-pinned").first.wait_for()
        with page.expect_response(lambda answer: answer.request == late[0].request) as answer:
            late[0].continue_()
        assert "pinnedTopRowData" in answer.value.text()
        page.wait_for_timeout(500)
        assert page.locator(".ag-row-pinned").count() > 0
        assert "filter=operator" in page.url
        page.locator(".ag-row[row-index='3'] .ag-selection-checkbox input").click()
        page.locator(".picked a", has_text="What differs between these (").wait_for()
        assert "pin=" in page.url


@pytest.mark.browser
def test_paper_has_every_row_of_a_table_that_scrolls(page: Tab, serve_site: ServeSite, tmp_path: Path) -> None:
    write_campaign(tmp_path / "tall", operators=("softmax",), seeds=range(60), steps=2, sigma_f=(5,), sigma_x=(1,))
    with serve_site([tmp_path / "tall"]) as site:
        page.goto(f"{site.url}/tall/runs")
        page.wait_for_selector(".ag-row[row-index='3']")
        rows = "document.querySelectorAll('.ag-center-cols-container .ag-row').length"
        page.emulate_media(media="print")
        assert page.evaluate(f"() => {{ dispatchEvent(new Event('beforeprint')); return {rows}; }}") == 60
        page.evaluate("() => dispatchEvent(new Event('afterprint'))")
        page.emulate_media(media="screen")
        page.wait_for_function(f"() => {rows} < 60")
