"""A grid with a nuisance axis is compared at each cell's own best level, wherever verdicts are shown."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy import stats
from tuned_campaign import RATES, tuned

from ablate.grid.errors import SpecError
from ablate.runners.planning.power import noise_of
from ablate.store.analysis.effects import analysis, effects, levels_of
from ablate.store.analysis.explain_verdict import why
from ablate.store.analysis.judge import judge
from ablate.store.analysis.learning_curves import compare_learning, curve_points
from ablate.store.analysis.noise_caution import noise_caution
from ablate.store.analysis.noise_floor import noise_floor
from ablate.store.analysis.pareto import pareto
from ablate.store.analysis.verdicts import baseline_rows, compared_runs, measure_of, runs, tune_over, verdicts
from ablate.store.export.tables import rows
from ablate.store.statistics import select_then_report
from ablate.store.store import Store


@pytest.fixture(scope="module", params=[False, True], ids=["one baseline", "a baseline at each rate"])
def store(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    with Store.open(tuned(tmp_path_factory.mktemp("tuned"), matched=request.param).root) as opened:
        yield opened


def test_every_setting_is_one_row_at_its_best_level(store: Store, tmp_path: Path) -> None:
    found = verdicts(store, "quickstart")
    assert found.select("label", "selected", "among", "family", "verdict").rows() == [
        ("SSA", "rate=0.4", 5, 2, "better"),
        ("Integral", "rate=0.5", 5, 2, "equivalent"),
    ]
    with Store.open(tuned(tmp_path, axis="").root) as plain:
        asked = verdicts(tune_over(plain, "quickstart", ["rate"]), "quickstart")
        assert verdicts(plain, "quickstart").height == 14
    assert_frame_equal(found, asked)  # without an option what --best-over does
    assert_frame_equal(found, verdicts(tune_over(store, "quickstart", ["rate"]), "quickstart"))


def test_best_over_an_axis_is_judged_as_a_nuisance_axis_is(store: Store, tmp_path: Path) -> None:
    with Store.open(tuned(tmp_path, axis="").root) as plain:
        over = tune_over(plain, "quickstart", ["rate"])
        assert_frame_equal(judge(store, "quickstart").rows, judge(over, "quickstart").rows)
        assert noise_caution(store, "quickstart").sentences == noise_caution(over, "quickstart").sentences
        assert verdicts(plain, "quickstart").height == 14, "the store itself is as it was"
        with pytest.raises(SpecError, match="did you mean 'rate'"):
            tune_over(plain, "quickstart", ["rat"])


def test_a_plan_knows_the_noise_of_what_verdicts_compare(store: Store) -> None:
    noise, rows = noise_of(store.layout, store.grid("quickstart")), verdicts(store, "quickstart")
    values = compared_runs(store, "quickstart", measure_of(store, "quickstart", None)).values
    base = np.log(values.filter(cell=rows["baseline"][0])["value"].to_numpy())
    assert noise.seed_sd == pytest.approx(base.std(ddof=1))
    assert (noise.pairs, noise.basis) == (int(rows["pairs"].sum()), "pairs")
    assert {*rows["pairs"]} == {6}
    assert noise.sd == pytest.approx(math.sqrt(6 * (rows["error"] ** 2).mean()))  # with the error of choosing levels


def test_other_measures_and_baselines_are_tuned_too(store: Store) -> None:
    other = verdicts(store, "quickstart", baseline="SSA · 0.1")
    assert other.select("label", "verdict").rows() == [("softmax", "worse"), ("Integral", "worse")]
    assert set(verdicts(store, "quickstart", measure={"name": "loss", "point": {}})["family"]) == {2}


def test_why_takes_any_level_and_explains_the_setting(store: Store) -> None:
    (row,) = verdicts(store, "quickstart").filter(label="SSA").rows(named=True)
    for level in ("SSA", "SSA · 0.1", "SSA · 0.4"):
        found = why(store, "quickstart", level)
        assert {name: found[name] for name in row if name in found} == {
            name: value for name, value in row.items() if name in found
        }
    assert found["pairs"] == 6


def test_the_noise_floor_and_exports_are_of_the_same_rows(store: Store) -> None:
    assert noise_floor(store, "quickstart").family == 2
    assert_frame_equal(rows(store, "quickstart", "verdicts"), judge(store, "quickstart").rows)
    assert store.sql("SELECT name, tune FROM axis ORDER BY position").rows() == [("operator", None), ("rate", True)]


def test_a_nuisance_axis_has_no_effect_of_its_own(store: Store, tmp_path: Path) -> None:
    assert set(effects(store, "quickstart").effects["factor"]) == {"all variants", "operator"}
    with Store.open(tuned(tmp_path, axis="").root) as plain:
        assert "rate" in effects(plain, "quickstart").effects["factor"]


def test_the_pareto_set_is_of_the_runs_that_verdicts_compare(store: Store) -> None:
    measure = measure_of(store, "quickstart", None)
    expected = {
        row["cell"]: row["value"] for row in baseline_rows(compared_runs(store, "quickstart", measure), measure)
    }
    expected |= dict(verdicts(store, "quickstart").select("cell", "value").iter_rows())
    found = pareto(store, "quickstart", ["loss"])
    assert dict(found.select("cell", "mse").iter_rows()) == pytest.approx(expected)
    assert found.select((pl.col("low") < pl.col("mse")) & (pl.col("mse") < pl.col("high"))).to_series().all()
    assert found["n"].to_list() == [6, 6, 6]


def test_learning_curves_are_of_the_runs_that_verdicts_compare(store: Store) -> None:
    compared = compared_runs(store, "quickstart", measure_of(store, "quickstart", None)).values
    last = curve_points(store, "quickstart", "loss", "steps").group_by("trial").agg(pl.col("value").last())
    expected = compared.select("trial", "cell").join(last, on="trial").group_by("cell").agg(pl.col("value").mean())
    rows = compare_learning(store, "quickstart", "loss", "steps").filter(question="value at")
    assert rows["cell"].to_list() == verdicts(store, "quickstart")["cell"].to_list()
    values = dict(expected.iter_rows())
    assert rows["value"].to_list() == pytest.approx([values[cell] for cell in rows["cell"]])
    assert rows["p_holm"].null_count() == 0


COLUMNS = ("low", "high", "p", "detectable")


def test_effects_are_of_the_runs_that_verdicts_compare(store: Store) -> None:
    judged, rows = verdicts(store, "quickstart"), effects(store, "quickstart").effects
    levels = rows.filter(factor="operator").sort("level")
    ours = judged.with_columns(level=pl.col("operator")).sort("level")
    assert levels["level"].to_list() == ours["level"].to_list() == ["Integral", "SSA"]
    assert_frame_equal(levels.select("effect", *COLUMNS), ours.select(pl.col("difference").alias("effect"), *COLUMNS))
    together = rows.filter(factor="all variants")
    assert together["effect"].item() == pytest.approx(ours["difference"].mean())
    tests = analysis(store, "quickstart", interactions=True)
    assert tests.terms.is_empty()  # the noise of a run lacks what choosing adds
    assert tests.means.is_empty()


def test_effects_average_over_other_axes_at_the_best_level_of_each_setting(tmp_path: Path) -> None:
    axes = {"rate": RATES, "width": (8, 16), "depth": (1, 2)}
    with Store.open(tuned(tmp_path, factors=axes, noise=0.5).root) as store:
        found, header = effects(store, "quickstart").effects, store.grid("quickstart")
        values = runs(store, "quickstart", by := measure_of(store, "quickstart", None))
    levels = levels_of(header, values["axes"].to_list())
    named = values.with_columns(pl.Series(name, of) for name, of in levels.items())
    within = [name for name in levels if name != "rate"]
    chosen = select_then_report(named, over=["rate"], within=within, scale=by.scale, better=by.better).values
    logs = chosen.with_columns(pl.col("value").log(), pl.col("chosen").log())
    of_seeds = logs.group_by("operator", "seed").agg(pl.col("value").mean(), pl.col("chosen").mean()).sort("seed")
    ours, theirs = (of_seeds.filter(operator=name) for name in ("SSA", "softmax"))
    left_out, of_all = ((ours[name] - theirs[name]).to_numpy() for name in ("value", "chosen"))
    n, b = len(left_out), left_out.mean() - of_all.mean()
    error = math.hypot(max(left_out.std(ddof=1), of_all.std(ddof=1)) / math.sqrt(n), b)
    row = found.filter(factor="operator", level="SSA").row(0, named=True)
    half = stats.t.ppf(0.975, n - 1) * error
    assert (row["effect"], row["n"]) == (pytest.approx(left_out.mean()), 6)
    assert (row["low"], row["high"]) == (pytest.approx(row["effect"] - half), pytest.approx(row["effect"] + half))
    assert b != 0
    assert set(found["factor"]) == {"all variants", "operator", "width", "depth"}


def test_a_query_leaves_levels_to_choose_from(store: Store) -> None:
    values = runs(store, "quickstart", measure_of(store, "quickstart", None))
    low = pl.col("axes").str.json_path_match("$.rate").cast(pl.Float64) < 0.3
    kept = values.filter((pl.col("operator") == "SSA") & low).select("cell", "seed")
    rows = effects(store, "quickstart", only=kept).effects
    assert rows.is_empty() or rows["effect"].null_count() == rows.height  # one setting and no axis
    kept = values.filter(low).select("cell", "seed")
    found = effects(store, "quickstart", only=kept).effects.filter(level="SSA")
    assert found["effect"].item() > effects(store, "quickstart").effects.filter(level="SSA")["effect"].item() + 0.3
    several = values.filter(pl.col("operator") != "softmax").select("cell", "seed")
    together = effects(store, "quickstart", only=several).effects.filter(factor="all variants")
    assert together["effect"].item() == pytest.approx(verdicts(store, "quickstart")["difference"].mean())


def test_one_level_leaves_nothing_to_choose(tmp_path: Path) -> None:
    campaign = tuned(tmp_path, factors={"rate": (0.2,)})
    with Store.open(campaign.root) as store:
        found = verdicts(store, "quickstart")
    assert "selected" not in found.columns
    assert found.height == 2


def test_lines_of_the_baselines_level_may_be_lost(tmp_path: Path) -> None:
    campaign = tuned(tmp_path)
    path = campaign.layout.grid_trials("quickstart")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"label":"SSA \xc2\xb7 0.4"' not in line))
    with Store.open(campaign.root) as store:
        found = verdicts(store, "quickstart")
    assert found.filter(pl.col("label").str.starts_with("SSA"))["among"].to_list() == [4]
