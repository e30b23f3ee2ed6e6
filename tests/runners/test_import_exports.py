"""Exports of a campaign come back by `import`: values, steps, config, seeds and states are those of before."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tracked_campaign import write_tracked_campaign
from tracker_files import import_, stored

from ablate import Campaign
from ablate.runners.cli.app import execute
from ablate.store.export.tracker_runs import flatten, read_configs
from ablate.store.store import Store

Rounded = Callable[[float], float]
TRACKERS: dict[str, Rounded] = {"tensorboard": lambda each: float(np.float32(each)), "wandb": float, "csv": float}


def export(root: Path, tracker: str, place: Path) -> None:
    if tracker != "csv":
        assert execute(["export", tracker, str(place), "--campaign", str(root)]) == 0
        return
    for table in ("metrics", "evaluations", "trials"):
        assert execute(["export", table, str(place / f"{table}.csv"), "--campaign", str(root)]) == 0


def configs(root: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """The config and the levels of each run that has begun, by label and seed."""
    with Store.open(root) as store:
        (grid,) = store.sql("SELECT DISTINCT grid FROM grid_trial")["grid"]
        begun = store.sql("SELECT g.label, g.seed, trial FROM grid_trial g JOIN trial USING (trial) WHERE attempts > 0")
        known = read_configs(store, grid)
        return {(label, seed): dict(flatten(known[trial])) for label, seed, trial in begun.iter_rows()}


def imported_configs(root: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """The config of each run, by label and seed."""
    query = "SELECT g.label, g.seed, (spec->'$.config')::VARCHAR FROM grid_trial g JOIN trial USING (trial)"
    rows = Campaign(root).sql(query).iter_rows()
    return {(label, seed): json.loads(config) for label, seed, config in rows}


def write_logged_campaign(root: Path) -> None:
    """Log runs with all that a config, a value and a name may be."""
    with Campaign(root) as campaign:
        for label, width in (("plain", 8), ('\'=a/b, "c" · ' + "long " * 60 + "end", 2**60 + 1), ("=1+1", None)):
            for seed in (0, 2**60 + 1):
                config = {
                    "seed": seed,
                    "label": "mine",
                    "state": "new",
                    "text": "1.0",
                    "on": True,
                    "rate": 1e-300,
                    "model": {"width": width, "deep": {"list": [1, "a", None], "none": None}},
                    "empty": {},
                    "a.b": 3,
                }
                axes = {"width": width, "fast": label == "plain"}
                with campaign.start("hard", label=label, seed=seed, config=config, axes=axes) as run:
                    for step, value in ((0, math.nan), (3, math.inf), (4, -math.inf), (2**40, 0.1 + 0.2)):
                        run.log(step, {"loss": value, "train/a.b-c d": 1e-300, "_mine": -0.5})
                    run.evaluate(0, "before", 0.7)
                    run.evaluate(7, "accuracy", 1 / 3, point={"length": 1_000_001, "sigma": 0.123456789012345})
                    run.evaluate(7, "accuracy", 2 / 3, point={"length": 1_000_002, "sigma": 1e-30})
                    run.evaluate(2**40, "loss/final", 0.25)
                    if seed:
                        run.fail("it was stopped")


@pytest.mark.parametrize("write", [write_tracked_campaign, write_logged_campaign])
@pytest.mark.parametrize("tracker", TRACKERS)
def test_an_export_comes_back_value_by_value(tracker: str, write: Callable[[Path], object], tmp_path: Path) -> None:
    write(tmp_path / "c")
    export(tmp_path / "c", tracker, tmp_path / "runs")
    assert import_(tmp_path / "d", str(tmp_path / "runs")) == 0
    wanted, states = stored(tmp_path / "c", TRACKERS[tracker])
    begun = {key: state for key, state in states.items() if state in ("done", "failed")}
    assert stored(tmp_path / "d") == (wanted, begun)
    assert imported_configs(tmp_path / "d") == configs(tmp_path / "c")
    assert import_(tmp_path / "d", str(tmp_path / "runs")) == 0  # again, and nothing is added
    assert stored(tmp_path / "d") == (wanted, begun)


@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_run_that_has_not_ended_does_not_come_back_as_done(tracker: str, tmp_path: Path) -> None:
    run = Campaign(tmp_path / "c").start("g", label="a", seed=0)
    run.log(1, loss=0.5)
    run.flush()
    export(tmp_path / "c", tracker, tmp_path / "runs")
    assert import_(tmp_path / "d", str(tmp_path / "runs")) == 0
    assert stored(tmp_path / "d")[1] == {("a", 0): "failed"}
    run.finish()


def test_exported_tables_come_back_with_their_times_and_without_the_other_tables(tmp_path: Path) -> None:
    write_tracked_campaign(tmp_path / "c")
    export(tmp_path / "c", "csv", tmp_path / "runs")
    assert import_(tmp_path / "d", str(tmp_path / "runs" / "metrics.csv")) == 0
    query = "SELECT label, seed, m.step, m.name, m.value, wall_s FROM v_metric m JOIN grid_trial USING (trial)"
    before, after = (sorted(map(repr, Campaign(tmp_path / each).sql(query).rows())) for each in "cd")
    assert after == before
    assert len(after) > 50


def test_a_table_that_is_of_no_values_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tracked_campaign(tmp_path / "c")
    export(tmp_path / "c", "csv", tmp_path / "runs")
    assert execute(["export", "probes", str(tmp_path / "p" / "probes.csv"), "--campaign", str(tmp_path / "c")]) == 0
    capsys.readouterr()
    assert import_(tmp_path / "d", str(tmp_path / "runs" / "trials.csv")) == 2
    assert import_(tmp_path / "d", str(tmp_path / "p"), str(tmp_path / "runs" / "metrics.csv")) == 0
    said = capsys.readouterr().err
    assert "no values" in said
    assert "probes.csv: the table is left out" in said


def test_the_config_of_exported_trials_is_json(tmp_path: Path) -> None:
    write_logged_campaign(tmp_path / "c")
    execute(["export", "trials", str(tmp_path / "t.parquet"), "--campaign", str(tmp_path / "c")])
    import polars as pl

    texts = pl.read_parquet(tmp_path / "t.parquet")["config"]
    assert {json.loads(text)["model"]["width"] for text in texts} == {8, 2**60 + 1, None}
