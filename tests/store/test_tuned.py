"""A grid with a nuisance axis is compared at each cell's own best level, wherever verdicts are shown."""

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tuned_campaign import tuned

from ablate.store.analysis.effects import effects
from ablate.store.analysis.explain_verdict import why
from ablate.store.analysis.judge import judge
from ablate.store.analysis.noise_floor import noise_floor
from ablate.store.analysis.verdicts import verdicts
from ablate.store.export.tables import rows
from ablate.store.store import Store


@pytest.fixture(scope="module", params=[False, True], ids=["one baseline", "a baseline at each rate"])
def store(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    with Store.open(tuned(tmp_path_factory.mktemp("tuned"), matched=request.param).root) as opened:
        yield opened


def test_every_setting_is_one_row_at_its_best_level(store: Store, tmp_path: Path) -> None:
    found = verdicts(store, "quickstart")
    assert found.select("label", "selected", "among", "family", "verdict").rows() == [
        ("SSA · 0.4", "rate=0.4", 5, 2, "better"),
        ("Integral · 0.5", "rate=0.5", 5, 2, "equivalent"),
    ]
    with Store.open(tuned(tmp_path, axis="").root) as plain:
        asked = verdicts(plain, "quickstart", over=["rate"])
        assert verdicts(plain, "quickstart").height == 14
    assert_frame_equal(found, asked)  # without an option what --best-over does
    assert_frame_equal(found, verdicts(store, "quickstart", over=["rate"]))


def test_other_measures_and_baselines_are_tuned_too(store: Store) -> None:
    other = verdicts(store, "quickstart", baseline="SSA · 0.1")
    assert other.select("label", "verdict").rows() == [("softmax · 0.2", "worse"), ("Integral · 0.5", "worse")]
    assert set(verdicts(store, "quickstart", measure={"name": "loss", "point": {}})["family"]) == {2}


def test_why_takes_any_level_and_explains_the_setting(store: Store) -> None:
    (row,) = verdicts(store, "quickstart").filter(label="SSA · 0.4").rows(named=True)
    for level in ("SSA · 0.1", "SSA · 0.4"):
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
