"""Curves: what is drawn equals an average in plain Python; groups, gaps, spikes and wild values are told."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, geometric_mean, stdev

import polars as pl
import pytest
from dashboard_site import ServeSite
from known_campaign import open_view, show_slot
from playwright.sync_api import Page
from synthetic import plan_header, plan_lines, publish_grid, write_end, write_start

from ablate import Campaign
from ablate.dashboards.app.page import PageView, SlotContent
from ablate.dashboards.app.pages import curves
from ablate.dashboards.app.pages.curves import CURVES
from ablate.dashboards.data.formatting import number
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer

STEPS = 1000
SEEDS = range(3)
OPERATORS = ("softmax", "SSA", "<script>%{x}")


def value(operator: str, depth: int, seed: int, step: int) -> float:
    """Values of "loss"."""
    return (1 + OPERATORS.index(operator) + 10 * depth + seed) * math.exp(-step / STEPS)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    layout = Layout(tmp_path_factory.mktemp("curves") / "runs")
    lines = plan_lines(OPERATORS, list(SEEDS), "known", {"depth": [1, 2]})
    for line in lines:
        if line["label"] == "SSA · 2":
            del line["axes"]["depth"]
    publish_grid(layout, plan_header(lines, "known", {"depth": [1, 2]}, OPERATORS), lines)
    buffer = ShardBuffer(layout, submission="20260921T141320-0a1b2c", worker=0)
    for line in lines:
        key, seed, operator = line["trial"], line["seed"], line["operator"]
        depth = int(line["label"][-1])
        rows = [(key, 1, t, "loss", value(operator, depth, seed, t), 0.5 * t) for t in range(STEPS)]
        signed = [(key, 1, t, "signed", seed - 1.0, 0.5 * t) for t in range(0, STEPS, 100)]
        spiky = [(key, 1, t, "spiky", 1.0, 0.5 * t) for t in range(STEPS)]
        once = [(key, 1, 0, "once", 1.0, 0.0)]
        wild = [(key, 1, t, "wild", 1.0 + seed, 0.5 * t) for t in range(STEPS)]
        if (line["label"], seed) == ("softmax · 1", 1):
            spiky[333] = (key, 1, 333, "spiky", 50.0, 0.0)
            wild[500] = (key, 1, 500, "wild", 1e30, 0.0)
            wild[700] = (key, 1, 700, "wild", math.nan, 0.0)
        buffer.extend("metric", rows + signed + spiky + wild + once)
        failed = (line["label"], seed) == ("SSA · 1", 2)
        write_start(layout, key, 1)
        cost = {"steps": STEPS, "tokens": 64 * STEPS}
        write_end(layout, key, 1, step=STEPS, status="failed" if failed else "ok",
                  reason="diverged" if failed else None, cost=cost)  # fmt: skip
    buffer.flush()
    return layout.root


@pytest.fixture(scope="module")
def view(root: Path) -> Iterator[PageView]:
    with open_view(root, CURVES) as found:
        yield found


def show(view: PageView, search: str = "") -> SlotContent:
    return show_slot(view, CURVES, "curves", search)


def test_the_answer_names_the_group_that_ends_best(view: PageView) -> None:
    shown = show(view)
    last = shown.data.filter(pl.col("step") == pl.col("step").max()).sort("value")
    assert shown.answer.startswith(str(last["group"][0]))
    assert number(last["value"][0]) in shown.answer
    assert "geometric mean loss" in shown.answer
    assert "geometric" not in show(view, "?linear=1").answer
    assert "Overview tests those of the grid's measure, mse" in shown.answer


def test_a_line_is_the_geometric_mean_over_seeds_of_the_means_of_buckets(view: PageView) -> None:
    data = show(view).data.filter(pl.col("group") == "softmax · 1")
    assert data.height == 333  # 3 steps each, the last bucket one more
    for step in (0, 3, 600):
        means = [fmean(value("softmax", 1, seed, t) for t in range(step, step + 3)) for seed in SEEDS]
        row = data.filter(pl.col("step") == step).row(0, named=True)
        half = 4.302653 * stdev(map(math.log, means)) / math.sqrt(3)
        assert row["n"] == 3
        assert row["value"] == pytest.approx(geometric_mean(means))
        assert (row["low"], row["high"]) == pytest.approx(
            tuple(geometric_mean(means) * math.exp(sign * half) for sign in (-1, 1)), rel=1e-5
        )


@pytest.mark.parametrize(
    ("band", "low", "high"),
    [("spread", lambda v: fmean(v) - stdev(v), lambda v: fmean(v) + stdev(v)), ("range", min, max)],
)
def test_a_band_is_what_was_asked_for(
    view: PageView, band: str, low: Callable[[list[float]], float], high: Callable[[list[float]], float]
) -> None:
    data = show(view, f"?linear=1&band={band}").data.filter(pl.col("group") == "softmax · 1")
    means = [fmean(value("softmax", 1, seed, t) for t in range(3)) for seed in SEEDS]
    row = data.row(0, named=True)
    assert (row["value"], row["low"], row["high"]) == pytest.approx((fmean(means), low(means), high(means)))


def test_groups_are_levels_of_an_axis_and_runs_that_lack_it_are_undefined(view: PageView) -> None:
    found = show(view, "?by=depth&linear=1")
    assert {key.name for key in found.legend} == {"1", "2", "undefined"}
    first = found.data.filter((pl.col("group") == "undefined") & (pl.col("step") == 0))
    means = [fmean(value("SSA", 2, seed, t) for t in range(3)) for seed in SEEDS]
    assert first["value"].to_list() == pytest.approx([fmean(means)])


def test_groups_by_several_axes_leave_out_what_does_not_apply_and_name_such_levels(view: PageView) -> None:
    names = {key.name for key in show(view, "?by=operator&by=depth&show=*").legend}
    assert names == {"SSA", *(f"{operator} · depth={depth}" for operator in OPERATORS for depth in (1, 2))} - {
        "SSA · depth=2"
    }


def test_runs_can_stand_alone(view: PageView) -> None:
    trial = view.store.sql("SELECT trial FROM grid_trial WHERE label = 'SSA · 1' AND seed = 2")["trial"][0]
    found = show(view, f"?run={trial[:8]}")
    assert [key.name for key in found.legend] == ["SSA · 1 · seed 2"]
    assert found.data["value"][0] == pytest.approx(fmean(value("SSA", 1, 2, t) for t in range(3)))


def test_the_legend_says_how_many_seeds_and_a_sentence_that_groups_differ(view: PageView) -> None:
    found = show(view)
    notes = {key.name: key.note for key in found.legend}
    assert (notes["SSA · 1"], notes["SSA · 2"]) == ("2 of 3 seeds", "3 of 3 seeds")
    assert "Groups differ in size: 2 to 3 runs. 1 failed run left out." in found.message
    whole = show(view, "?failed=1")
    assert {key.note for key in whole.legend} == {"3 of 3 seeds"}
    assert whole.message == ""


def test_a_spike_in_one_step_of_one_seed_is_seen(view: PageView) -> None:
    found = show(view, "?metric=spiky")
    spike = found.data.filter(pl.col("greatest") == 50)
    assert spike.select("group", "step").rows() == [("softmax · 1", 333)]
    assert found.figure is not None
    strokes = [
        trace
        for trace in found.figure.data
        if trace.fill is None and trace.mode == "lines" and not trace.name and len(trace.y)
    ]
    assert [set(trace.x) for trace in strokes] == [{333}]
    assert 50 in strokes[0].y
    assert 10 ** found.figure.layout.yaxis.range[1] > 50


@pytest.mark.parametrize("axis", ["", "&linear=1"])
def test_a_wild_value_is_marked_and_leaves_the_axis_to_the_others(view: PageView, axis: str) -> None:
    found = show(view, f"?metric=wild{axis}")
    assert "1 value of wild could not be averaged. 1 point of wild beyond the axis (▲ ▼)." in found.message
    assert found.figure is not None
    high = found.figure.layout.yaxis.range[1]
    assert (high if axis else 10**high) < 1e8


def test_values_without_a_logarithm_are_drawn_on_a_linear_axis(view: PageView) -> None:
    found = show(view, "?metric=signed")
    assert found.figure is not None
    assert found.figure.layout.yaxis.type == "linear"
    assert found.data.filter(pl.col("group") == "softmax · 1")["value"].to_list() == pytest.approx([0.0] * 10)


@pytest.mark.parametrize(("along", "per_step"), [("seconds", 0.5), ("tokens", 64.0)])
def test_curves_run_along_seconds_and_tokens(view: PageView, along: str, per_step: float) -> None:
    data = show(view, f"?x={along}&linear=1").data.filter(pl.col("group") == "softmax · 1")
    assert data.height <= 400
    assert data[along].max() <= per_step * (STEPS - 1)  # type: ignore[operator]
    steps = [round(at / per_step) for at in data[along]][:2]
    means = [fmean(value("softmax", 1, seed, t) for t in range(*steps)) for seed in SEEDS]
    assert data["value"][0] == pytest.approx(fmean(means))


def test_a_metric_of_one_step_stands_beside_one_of_many(view: PageView) -> None:
    found = show(view, "?metric=loss&metric=once")
    assert found.data.filter(metric="once")["value"].unique().to_list() == [1.0]
    assert found.data.filter(metric="loss").height > 100


def test_a_log_axis_has_finer_buckets_at_its_beginning(view: PageView) -> None:
    data = show(view, "?logx=1").data.filter(pl.col("group") == "softmax · 1")
    assert data["step"].to_list()[:4] == [1, 2, 3, 4]
    assert data["n"].unique().to_list() == [3]


def test_a_former_address_is_read_without_what_is_gone(view: PageView) -> None:
    found = show(view, "?smooth=exponential&amount=0.5&quiet=1&by=depth")
    assert {key.name for key in found.legend} == {"1", "2", "undefined"}


def test_smoothing_is_labelled_and_what_was_before_stays(view: PageView) -> None:
    found = show(view, "?smooth=0.5&linear=1")
    kept = found.data.filter(pl.col("group") == "softmax · 1")
    first, second = kept["raw"][:2]
    assert kept["value"][1] == pytest.approx((0.5 * first + second) / 1.5)


def plot_logged(root: Path, *metrics: tuple[int, int, str, float, float]) -> SlotContent:
    """Curves along seconds, on a linear axis, of one run with `metrics` (attempt, step, name, value, wall_s).

    Its second attempt went on from step 6 of the first one.
    """
    layout = Layout(root)
    (line,) = lines = plan_lines(["softmax"], [0], "known", {})
    publish_grid(layout, plan_header(lines, "known", {}, ["softmax"]), lines)
    buffer, key = ShardBuffer(layout, submission="20260921T141320-0a1b2c", worker=0), line["trial"]
    buffer.extend("metric", [(key, *each) for each in metrics])
    buffer.flush()
    write_start(layout, key, 1)
    write_end(layout, key, 1, step=8, status="stopped")
    write_start(layout, key, 2, resumed_from={"attempt": 1, "step": 6})
    write_end(layout, key, 2, step=10)
    with open_view(root, CURVES) as view:
        return show(view, "?x=seconds&linear=1")


def test_seconds_of_a_run_that_went_on_come_after_those_that_it_went_on_from(tmp_path: Path) -> None:
    first = [(1, step, "loss", 100.0 + step, 2.0 * step) for step in range(8)]  # two steps more than are kept
    then = [(2, step, "loss", 200.0 + step, 3.0 * (step - 5)) for step in range(6, 10)]
    data = plot_logged(tmp_path / "runs", *first, *then).data
    assert data["seconds"].to_list() == pytest.approx([0, 2, 4, 6, 8, 10, 13, 16, 19, 22])
    assert data["value"].to_list() == [*(100.0 + step for step in range(6)), *(200.0 + step for step in range(6, 10))]


def test_parts_of_a_second_are_averages_too_and_their_extremes_are_of_finite_values(tmp_path: Path) -> None:
    wild = {3: math.inf, 5: -math.inf, 7: math.nan}
    points = [(1, 0, "loss", 1.0, 0.0)]
    points += [(2, step, "loss", wild.get(step % 10, 1.0 + step % 4), 0.001 * step) for step in range(6, 4000)]
    found = plot_logged(tmp_path / "runs", *points)
    data = found.data
    assert data["least"].min() == 1.0
    assert data["greatest"].max() == 4.0
    assert data["lost"].sum() == sum(step % 10 in wild for step in range(6, 4000))


@pytest.mark.parametrize(
    ("losses", "words"),
    [((1.8031, 1.7996), "1.800 (a: 1.803)"), ((1.9, 1.8), "1.8 (a: 1.9)"), ((1.80001, 1.8), "1.8 (a: 1.8)")],
)
def test_the_answer_has_digits_that_tell_two_values_apart(
    tmp_path: Path, losses: tuple[float, float], words: str
) -> None:
    campaign = Campaign(tmp_path / "runs").grid("grid", baseline="a")
    for label, loss in zip("ab", losses, strict=True):
        with campaign.start("grid", label=label, seed=0, config={"label": label}) as run:
            run.log(1, loss=loss)
    with open_view(tmp_path / "runs", CURVES) as view:
        assert words in show(view).answer


@pytest.mark.browser
def test_the_value_of_a_slider_is_no_box_over_the_page(page: Page, serve_site: ServeSite, root: Path) -> None:
    with serve_site([root]) as site:
        page.goto(f"{site.url}/{root.name}/curves")
        value = page.locator(".dash-slider-tooltip")
        value.wait_for(state="attached")
        assert value.evaluate("(box) => getComputedStyle(box).boxShadow") == "none"


def test_bands_are_drawn_at_first_unless_there_are_too_many_curves(
    view: PageView, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bands(found: SlotContent) -> int:
        assert found.figure is not None
        return sum(trace.fill == "toself" for trace in found.figure.data)

    usual = show(view)
    assert bands(usual) == usual.data.filter(pl.col("n") >= 3)["group"].n_unique() > 1
    assert bands(show(view, "?band=none")) == 0
    monkeypatch.setattr(curves, "MOST_CURVES", len(usual.legend) - 1)
    assert bands(show(view)) == 0
    assert {"band", "smooth"} <= {*(CURVES.main or ())}
