"""A campaign in Python: frames as the store has them, names that are found or suggested, nothing written unasked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from synthetic import Campaign as Written, write_campaign

from ablate.grid.errors import AblateError, NotFoundError, SpecError
from ablate.store import Campaign, Store
from ablate.store.analysis.effects import effects
from ablate.store.analysis.judge import judge


def tree(root: Path) -> dict[str, int]:
    """Every file below `root` with the time of its change."""
    return {str(path): path.stat().st_mtime_ns for path in sorted(root.rglob("*"))}


@pytest.fixture
def asked(shared: Written) -> Any:
    """The shared campaign, closed at the end of the test."""
    with Campaign(shared.root) as campaign:
        yield campaign


def test_a_campaign_without_refresh_writes_nothing(campaign: Written) -> None:
    before = tree(campaign.root)
    with pytest.raises(NotFoundError, match="no snapshot yet"):
        Campaign(campaign.root, refresh=False).grids()
    assert tree(campaign.root) == before
    with Campaign(campaign.root) as refreshing:
        refreshing.compare()
    before = tree(campaign.root)
    with Campaign(campaign.root, refresh=False) as named:
        named.compare()
        named._repr_html_()
    assert tree(campaign.root) == before


def test_where_no_campaign_is_everything_says_so_and_makes_none(tmp_path: Path) -> None:
    named = Campaign(tmp_path / "none")
    assert "there is no campaign yet" in repr(named)
    assert "there is no campaign in" in named._repr_html_()
    for question in (named.grids, named.compare, named.trials, named.refresh, lambda: named.sql("select 1")):
        with pytest.raises(NotFoundError, match="there is no campaign"):
            question()
    assert not (tmp_path / "none").exists()


def test_trials_are_those_of_the_plan_and_end_with_the_measure(
    asked: Campaign, reading: Store, shared: Written
) -> None:
    found = asked.trials()
    told = found.select("trial", "cell", "label", "seed", "operator", "width").rows()
    assert told == [
        (line["trial"], line["cell"], line["label"], line["seed"], *line["axes"].values()) for line in shared.lines
    ]
    assert found.schema["width"] == pl.Int64
    states = reading.sql("SELECT trial, state, reason, attempts FROM trial")
    assert_frame_equal(found.select(states.columns), states, check_row_order=False)
    header = reading.grid("quickstart")["measure"]
    expected = reading.final("quickstart", header["name"], header["point"])
    assert_frame_equal(found.select("trial", "value"), expected.select("trial", "value"))
    assert (found["value"].is_null() == (found["state"] != "done")).all()


@pytest.mark.parametrize("name", ["state", "value"])
def test_an_axis_keeps_its_own_name_beside_the_other_columns(tmp_path: Path, name: str) -> None:
    write_campaign(tmp_path, operators=("softmax",), factors={name: (8, 16)}, seeds=(0,), steps=2, sigma_f=(1, 5))
    with Campaign(tmp_path) as campaign:
        found = campaign.trials()
    assert sorted(found[name]) == [8, 16]
    assert found["value_2" if name == "value" else "value"].dtype == pl.Float64


def test_compare_effects_and_progress_say_what_the_commands_say(asked: Campaign, reading: Store) -> None:
    found = asked.compare()
    assert found.columns[:2] == ["label", "verdict"]
    assert_frame_equal(found, judge(reading, "quickstart").rows, check_column_order=False)
    assert_frame_equal(asked.effects(), effects(reading, "quickstart").effects)
    assert_frame_equal(asked.progress(), reading.progress("quickstart"), check_column_order=False)
    assert_frame_equal(asked.failures(), reading.failures())
    other = "softmax · 16"
    assert other not in asked.compare(baseline=other)["label"]


def test_curves_evaluations_and_probes_hold_what_was_recorded(asked: Campaign, reading: Store) -> None:
    assert_frame_equal(asked.curves("loss"), reading.curves("quickstart", "loss"), check_column_order=False)
    assert asked.evaluations()["sigma_f"].unique().sort().to_list() == [1.0, 5.0]
    assert asked.evaluations(where={"sigma_f": 5})["sigma_f"].unique().to_list() == [5.0]
    name = reading.sql("SELECT min(name) AS name FROM v_probe")["name"][0]
    expected = reading.sql("SELECT count(*) AS n, sum(value) AS total FROM v_probe WHERE name = $n", {"n": name})
    found = asked.probes(name)
    assert (found.height, found["value"].sum()) == pytest.approx(expected.row(0))
    assert found.columns[:6] == ["label", "seed", "state", "step", "layer", "head"]


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda c: c.trials("quickstrat"), "'quickstrat'; it has 'quickstart'; did you mean 'quickstart'"),
        (lambda c: c.curves("los"), "has no metric 'los'; .*did you mean 'loss'"),
        (lambda c: c.evaluations("mes"), "has no evaluation 'mes'; it has 'mse'"),
        (lambda c: c.probes("nothing like it"), "has no probe 'nothing like it'; it has"),
        (lambda c: c.compare(baseline="sofmax · 8"), "no cell 'sofmax · 8'.*did you mean 'softmax · 8'"),
        (lambda c: c.compare(measure={"nmae": "mse"}), "'nmae' is no field of a measure; .*did you mean 'name'"),
        (lambda c: c.compare(measure="los"), "has 'los'.*did you mean 'loss'"),
        (lambda c: c.sql("select labl from v_final"), "label"),
        (lambda c: c.sql("delete from metric"), "the store is read-only"),
        (lambda c: c.failures("quick"), "there is no grid 'quick'"),
    ],
)
def test_a_name_that_is_not_there_is_told_with_the_nearest(
    asked: Campaign, ask: Callable[[Campaign], object], told: str
) -> None:
    with pytest.raises(AblateError, match=told):
        ask(asked)


def test_answers_stay_as_they_were_until_refresh(campaign: Written) -> None:
    with Campaign(campaign.root) as named, Campaign(campaign.root) as other:
        assert named.grids() == ["quickstart"]
        write_campaign(campaign.root, grid="another", seeds=(7,), steps=2, sigma_f=(1, 5))
        assert other.grids() == ["another", "quickstart"]
        assert named.grids() == ["quickstart"]
        assert named.refresh().grids() == ["another", "quickstart"]
        with pytest.raises(SpecError, match="several grids"):
            named.trials()


def test_a_notebook_shows_the_grids_and_no_markup_of_theirs(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    root = tmp_path / "<b>runs"
    write_campaign(root, operators=(hostile, "SSA"), seeds=(0, 1), pending=[("SSA", 1)], steps=2, sigma_f=(1, 5))
    with Campaign(root) as named:
        shown = named._repr_html_()
    assert "<script>" not in shown
    assert "<b>" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown  # the baseline
    assert (
        "<td>quickstart</td><td>2</td><td>4</td><td>3</td><td>0</td><td>0</td><td>0</td><td>0</td><td>1</td>" in shown
    )
