"""Run: what is known of one trial; logs are bounded, visible, and never read outside the campaign."""

import math
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from known_campaign import Planted, open_view, plant, show_slot
from synthetic import Campaign, write_campaign

from ablate.dashboards.app.address import read
from ablate.dashboards.app.page import PageView, SlotContent
from ablate.dashboards.app.pages.run import RUN, RunAddress, log_tail
from ablate.dashboards.data.formatting import duration
from ablate.dashboards.theme.styles import MUTED

HOSTILE = "<script>%{x}"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return write_campaign(
        tmp_path_factory.mktemp("run") / "it's here",
        operators=("softmax", "SSA", HOSTILE),
        seeds=range(2),
        failed={("SSA", 0): "error"},
        pending={("SSA", 1)},
        resumed={(HOSTILE, 1)},
        steps=10,
        sigma_f=(1, 5),
        sigma_x=(1,),
    )


@pytest.fixture(scope="module")
def view(campaign: Campaign) -> Iterator[PageView]:
    with open_view(campaign.root, RUN) as found:
        yield found


def at(view: PageView, key: str, more: str = "") -> PageView:
    return view._replace(address=read(RunAddress, f"?run={key}{more}"))


def show(view: PageView, slot: str, key: str, more: str = "") -> SlotContent:
    return show_slot(view, RUN, slot, f"?run={key}{more}")


def words(found: SlotContent) -> str:
    return " ".join(str(part.to_plotly_json()) for part in found.parts)


def test_what_it_is_and_how_to_do_it_again(view: PageView, campaign: Campaign) -> None:
    line = campaign.line("SSA", 0)
    found = show(view, "what", line["trial"][:8])
    told = words(found)
    for part in (line["trial"], "✗ failed", "quickstart", "ValueError: signals must divide", "Traceback", "SSA"):
        assert part in told
    command = found.parts[-1].children
    assert shlex.split(command) == ["ablate", "repro", line["trial"][:8], "--campaign", str(campaign.root)]


def test_links_lead_to_its_cell_and_to_all_seeds_of_the_cell(view: PageView, campaign: Campaign) -> None:
    lines = {seed: campaign.line("SSA", seed) for seed in (0, 1)}
    keys = [lines[seed]["trial"][:8] for seed in (0, 1)]
    told = words(show(view, "what", keys[0]))
    assert f"/it%27s%20here/curves?grid=quickstart&run={keys[0]}&run={keys[1]}'" in told
    assert f"/it%27s%20here/compare?grid=quickstart&cell={lines[0]['cell']}'" in told


def test_its_curves_are_its_own_values(view: PageView, campaign: Campaign) -> None:
    key = campaign.line(HOSTILE, 0)["trial"]
    found = show(view, "curves", key, "&metric=loss")
    values = view.store.sql("SELECT value FROM v_metric WHERE trial = $k AND name = 'loss' ORDER BY step", {"k": key})
    assert found.data["value"].to_list() == pytest.approx(values["value"].to_list())
    assert found.figure is not None
    assert "has no logged metric 'x'; it has loss" in show(view, "curves", key, "&metric=x").message


def test_attempts_stand_in_order_with_what_they_went_on_from(view: PageView, campaign: Campaign) -> None:
    rows = show(view, "attempts", campaign.line(HOSTILE, 1)["trial"]).data
    assert rows.select("attempt", "status", "resumed_step").rows() == [(1, "stopped", None), (2, "ok", 5)]


def test_a_page_has_the_first_probes_and_a_file_all(
    view: PageView, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = campaign.line(HOSTILE, 0)["trial"]
    for most, told in ((3, True), (4, False)):
        monkeypatch.setattr("ablate.dashboards.app.pages.run._MOST_ROWS", most)
        found = show(view, "probes", key)
        assert (found.data.height, "files have all" in found.caption) == (most, told)
        assert show(view._replace(whole=True), "probes", key).data.height == 4


def test_evaluations_and_probes_are_those_of_the_last_step(view: PageView, campaign: Campaign) -> None:
    key = campaign.line(HOSTILE, 0)["trial"]
    rows = show(view, "evaluations", key).data
    assert rows["step"].unique().to_list() == [10]
    assert rows["point"].to_list() == ["sigma_f 1, sigma_x 1", "sigma_f 5, sigma_x 1"]
    expected = view.store.sql(
        "SELECT value FROM v_final WHERE trial = $k AND name = 'mse' ORDER BY point['sigma_f']", {"k": key}
    )
    assert rows["value"].to_list() == pytest.approx(expected["value"].to_list())
    assert show(view, "probes", key).data.select("layer", "head").rows() == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_knock_out_is_said_to_be_a_change(tmp_path: Path) -> None:
    names = ("none.a.loss", "gate+model.window.a.loss", "uniform.a.loss", "gate.loss")  # the last has no level
    rows = {f"knockout.{name}": 1.0 for name in names} | {"a.loss": 1.0}
    root = plant(tmp_path / "runs", ["softmax"], [0], Planted(lambda _: 1.0, more=lambda _: rows))
    with open_view(root, RUN) as found:
        key = found.store.sql("SELECT trial FROM trial")["trial"][0]
        told = dict(show(found, "evaluations", key).data.drop_nulls("meaning").select("name", "meaning").iter_rows())
    assert told == {
        "knockout.gate+model.window.a.loss": "change without gate+model.window",
        "knockout.uniform.a.loss": "change with uniform",
    }


def test_the_spec_is_listed_by_path_and_whole(view: PageView, campaign: Campaign) -> None:
    found = show(view, "spec", campaign.line(HOSTILE, 1)["trial"], "&all=1")
    fields = {row[0]: row[-1] for row in found.data.iter_rows()}
    assert (fields["seed"], fields["operator.kind"]) == ("1", HOSTILE)
    assert '\'{\\n  "operator"' in words(found)


def log(campaign: Campaign, data: bytes) -> tuple[str, Path]:
    key = campaign.line("softmax", 0)["trial"]
    path = campaign.layout.log(key, 1)
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return key, path


def test_the_end_of_a_log_is_shown(view: PageView, campaign: Campaign) -> None:
    key, _ = log(campaign, b"".join(b"line %d\n" % i for i in range(1000)))
    found = show(view, "log", key)
    assert "line 800\\nline 801" in words(found)
    assert "line 999" in words(found)
    assert "line 799" not in words(found)


def test_characters_that_act_are_seen_instead(campaign: Campaign) -> None:
    key, _ = log(campaign, "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x7f\u202eab\té<b>".encode())
    assert log_tail(campaign.layout, key, 1)[0] == r"red \u001b]0;title\u0007 \u007f\u202eab" + "\té<b>"


def test_a_huge_or_binary_log_is_bounded(campaign: Campaign) -> None:
    key, _ = log(campaign, os.urandom(2_000_000))
    text, _ = log_tail(campaign.layout, key, 1)
    assert len(text) < 200 * 2100 * 9
    assert "\x1b" not in text
    key, _ = log(campaign, b"x" * 3_000_000)
    assert len(log_tail(campaign.layout, key, 1)[0]) == 2001


def test_no_log_outside_the_campaign_is_read(view: PageView, campaign: Campaign, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret words")
    key, path = log(campaign, b"")
    path.unlink()
    path.symlink_to(secret)
    found = show(view, "log", key)
    assert "leads out of the campaign" in found.message
    assert "secret words" not in words(found)
    path.unlink()
    os.mkfifo(path)
    assert "cannot be read" in show(view, "log", key).message
    path.unlink()
    path.write_text("fine")
    assert log_tail(campaign.layout, key, 1)[0] == "fine"


def test_the_page_begins_with_the_run_its_log_and_its_speed(view: PageView, campaign: Campaign) -> None:
    assert [slot.name for slot in RUN.slots][:3] == ["curves", "log", "system"]
    key = campaign.line(HOSTILE, 1)["trial"]
    assert show(view, "curves", key).answer.startswith(f"{HOSTILE}, seed 1: done, mse (sigma_f 5, sigma_x 1) ")
    found = show(view, "system", key)  # 10 steps in two attempts, 0.01 s each
    assert set(found.data["attempt"]) == {1, 2}
    assert found.data["value"].to_list() == pytest.approx([100.0] * found.data.height)
    assert set(found.data["quantity"]) == {"steps per second"}
    assert found.figure is not None
    assert (found.figure.layout.yaxis.range or (0,))[0] == 0
    assert {trace.line.color for trace in found.figure.data} == {MUTED}  # blue is better
    assert show(view, "system", campaign.line("SSA", 1)["trial"]).figure is None


def test_load_of_the_machine_is_drawn_over_the_time_of_the_run(tmp_path: Path) -> None:
    load = {"system.gpu_utilisation": 0.5, "system.cpu_cores": 3.0, "system.memory_bytes": 2.0**31, "loss": 1.0}
    root = plant(tmp_path / "runs", ["softmax"], [0], Planted(lambda _: 1.0, metrics=lambda _: load))
    with open_view(root, RUN) as found:
        key = found.store.sql("SELECT trial FROM trial")["trial"][0]
        shown = show(found, "system", key)
    values = dict(shown.data.select("quantity", "value").iter_rows())
    assert values == {"GPU in use (%)": 50.0, "processor cores in use": 3.0, "memory (GiB)": 2.0}
    assert shown.figure is not None
    axes = [axis for name, axis in shown.figure.to_dict()["layout"].items() if name.startswith("yaxis")]
    assert [axis["rangemode"] for axis in axes] == ["tozero"] * 3


def test_the_heading_names_each_run_and_the_seconds_of_its_parts(view: PageView, campaign: Campaign) -> None:
    one, other = (campaign.line(*of)["trial"] for of in ((HOSTILE, 0), ("softmax", 1)))
    heading, _, times = show(view, "curves", one, f"&run={other}").answer.partition("\n")
    assert f"{HOSTILE}, seed 0: done" in heading
    assert "softmax, seed 1: done" in heading
    spent = "SELECT train_s, evaluate_s FROM attempt WHERE trial = $k"
    train, evaluate = view.store.sql(spent, {"k": one}).row(0)
    assert f"{HOSTILE}, seed 0: training {duration(train)} (" in times
    assert f"evaluation {duration(evaluate)} (" in times


def test_a_metric_without_a_finite_value_has_no_panel(tmp_path: Path) -> None:
    logged = {"loss": math.nan, "grad_norm": 2.0, "system.cpu_cores": 1.0}
    root = plant(tmp_path / "runs", ["softmax"], [0], Planted(lambda _: 1.0, metrics=lambda _: logged))
    with open_view(root, RUN) as found:
        key = found.store.sql("SELECT trial FROM trial")["trial"][0]
        shown, bare = show(found, "curves", key), show(found, "curves", key, "&metric=loss")
    assert shown.data["metric"].unique().to_list() == ["grad_norm"]
    assert "loss" in shown.message
    assert bare.figure is None
    assert "loss" in bare.message
