"""Removed trials and grids count nowhere, the rest is untouched, and moving the files back restores them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_campaign import run_quietly, tables, toy_grid

from ablate.grid.errors import StoreError
from ablate.runners.cli.app import execute
from ablate.runners.monitoring.integrity import REMOVAL, check_campaign
from ablate.store import Campaign
from ablate.store.files.layout import Layout
from ablate.store.files.removals import next_attempt, read_removals
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.rebuild import rebuild
from ablate.store.store import Store

Ablate = Callable[..., Any]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two grids of finished trials; those of seed 1 are in both."""
    root = tmp_path_factory.mktemp("trained") / "c"
    run_quietly(root, toy_grid("first", seeds=(0, 1)))
    run_quietly(root, toy_grid("second", seeds=(1, 2)))
    ingest(root)
    return root


@pytest.fixture
def campaign(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "c"))


def keys(root: Path, grid: str, seed: int) -> set[str]:
    lines = map(json.loads, Layout(root).grid_trials(grid).read_text().splitlines())
    return {line["trial"] for line in lines if line["seed"] == seed}


def mentions(root: Path, trials: set[str]) -> list[str]:
    """Tables and views with a row of any of `trials`, apart from those of removals and submissions."""
    with Store.open(root) as store:
        named = store.sql(
            "SELECT DISTINCT table_name FROM duckdb_columns() WHERE column_name = 'trial' AND NOT internal"
        )
        queries = [
            f"SELECT '{name}' AS name WHERE EXISTS (FROM \"{name}\" WHERE list_contains($t, trial))"
            for name in sorted(set(named["table_name"]) - {"removal", "left_out", "planned"})
        ]
        return store.sql(" UNION ALL ".join(queries), {"t": list(trials)})["name"].to_list()


def content(root: Path) -> str:
    rebuild(root)
    with Store.open(root) as store:
        return store.content_hash()


def restore(root: Path) -> None:
    """Move all files back, the latest removal first: a plan comes back as it was before its removal."""
    for place in sorted((root / "trash").iterdir(), key=lambda place: place.stat().st_ctime_ns, reverse=True):
        shutil.copytree(place, root, dirs_exist_ok=True)
        shutil.rmtree(place)


def test_removed_trials_count_nowhere_and_the_others_as_before(campaign: Path, ablate: Ablate) -> None:
    gone = keys(campaign, "first", 0)
    before = tables(campaign)
    assert "v_final" in mentions(campaign, gone)
    assert execute(["rm", "seed=0", "--campaign", str(campaign)]) == 0
    assert mentions(campaign, gone) == []
    shown = ablate("status", "--campaign", campaign, "--json").out
    assert not any(key[:8] in shown for key in gone)
    after = tables(campaign)
    for name in ("metric", "evaluation", "probe"):
        assert after[name] == [row for row in before[name] if row[0] not in gone]
    assert after["final"] == [row for row in before["final"] if row[4] not in gone]
    with Store.open(campaign) as store:
        now = store.content_hash()
        assert store.warnings() == []
    assert content(campaign) == now
    assert mentions(campaign, gone) == []
    assert check_campaign(campaign) == []


@pytest.mark.parametrize("words", [["seed=0"], ["grid=second", "seed=1"]])
def test_moving_the_files_back_restores_everything(campaign: Path, words: list[str]) -> None:
    with Store.open(campaign, refresh=False) as store:
        before = store.content_hash()
    assert execute(["rm", *words, "--campaign", str(campaign)]) == 0
    with Store.open(campaign) as store:
        assert store.content_hash() != before
    restore(campaign)
    with Store.open(campaign) as store:
        assert store.content_hash() == before
    assert check_campaign(campaign) == []


def test_trials_of_two_grids_stay_while_one_needs_them(campaign: Path) -> None:
    shared, own = keys(campaign, "first", 1), keys(campaign, "first", 0)
    second = [row for row in tables(campaign)["final"] if row[0] == "second"]
    assert execute(["rm", "--grid", "first", "--campaign", str(campaign)]) == 0
    assert Campaign(campaign).grids() == ["second"]
    assert tables(campaign)["final"] == second
    assert shared <= set(Layout(campaign).trial_keys())
    assert own.isdisjoint(Layout(campaign).trial_keys())
    assert execute(["rm", "--grid", "second", "--campaign", str(campaign)]) == 0
    assert list(Layout(campaign).trial_keys()) == []
    assert mentions(campaign, shared | own) == []
    assert check_campaign(campaign) == []


def test_a_removed_trial_is_trained_anew_under_a_higher_number_and_does_not_mix_with_what_comes_back(
    campaign: Path, tmp_path: Path
) -> None:
    before, layout, trash = tables(campaign), Layout(campaign), campaign / "trash"
    assert execute(["rm", "seed=0", "--campaign", str(campaign)]) == 0
    trash.rename(tmp_path / "trash")
    run_quietly(campaign, toy_grid("first", seeds=(0, 1)))
    assert {tuple(layout.attempts(key)) for key in keys(campaign, "first", 0)} == {(2,)}
    assert tables(campaign) == before
    with Store.open(campaign, refresh=False) as store:
        assert store.sql("SELECT count(*) FROM recorded r ANTI JOIN attempt USING (trial, attempt)").item() == 0
    assert check_campaign(campaign) == []
    (tmp_path / "trash").rename(trash)
    restore(campaign)
    assert tables(campaign) == before
    assert {tuple(layout.attempts(key)) for key in keys(campaign, "first", 0)} == {(1, 2)}
    assert check_campaign(campaign) == []


UNREADABLE = (None, "{", '{"schema": 1}', '{"schema": 1, "trials": {"x": 1}}', '{"schema": 99, "trials": {}}')


def test_the_trash_says_what_was_removed_if_the_record_cannot(campaign: Path, tmp_path: Path) -> None:
    gone, layout, trash = keys(campaign, "first", 0), Layout(campaign), campaign / "trash"
    assert execute(["rm", "seed=0", "--campaign", str(campaign)]) == 0
    before = tables(campaign)
    (record,) = layout.removals.glob("*.json")
    expected = [(f"removals/{record.name}", REMOVAL)]
    for text in UNREADABLE:
        record.unlink() if text is None else record.write_text(text)
        removals = read_removals(layout)
        assert (removals.last, removals.lost) == (dict.fromkeys(gone, 1), []), text
        assert [file for file, _ in removals.problems] == [f"removals/{record.name}"], text
        if text is not None:
            trash.rename(tmp_path / "trash")
            with pytest.raises(StoreError, match=record.name):
                next_attempt(layout, min(gone))
            (tmp_path / "trash").rename(trash)
    for text in (UNREADABLE[-1], None):  # as those in between, which are read in one place
        record.unlink() if text is None else record.write_text(text)
        assert tables(campaign) == before, text
        rebuild(campaign)
        assert tables(campaign) == before, text
        assert mentions(campaign, gone) == [], text
        with Store.open(campaign, refresh=False) as store:
            assert any(record.name in warning for warning in store.warnings()), text
        assert [(each.file, each.remedy) for each in check_campaign(campaign)] == expected, text
        assert {next_attempt(layout, key) for key in gone} == {2}, text


def test_a_trial_that_runs_is_not_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Campaign(tmp_path / "c") as logged:
        run = logged.start("widths", label="wide", seed=0)
        try:
            assert execute(["rm", "--grid", "widths", "--campaign", str(logged.root)]) == 2
            assert execute(["rename", "widths", "sizes", "--campaign", str(logged.root)]) == 2
            assert "running" in capsys.readouterr().err
            assert not (logged.root / "trash").exists()
        finally:
            run.finish()
        assert execute(["rm", "--grid", "widths", "--campaign", str(logged.root)]) == 0


def log(root: Path, grid: str, label: str, seed: int, loss: float) -> None:
    with Campaign(root) as campaign, campaign.start(grid, label=label, seed=seed, config={"label": label}) as run:
        run.log(1, loss=loss)


def test_logged_runs_are_removed_with_their_submissions(tmp_path: Path) -> None:
    for grid, seed in (("sizes", 0), ("sizes", 1), ("others", 1)):
        log(tmp_path, grid, "small", seed, 2.0)
    gone = keys(tmp_path, "sizes", 0)
    before = content(tmp_path)
    assert execute(["rm", "grid=sizes", "seed=0", "--campaign", str(tmp_path)]) == 0
    assert mentions(tmp_path, gone) == []
    assert check_campaign(tmp_path) == []
    shared = keys(tmp_path, "others", 1)
    assert execute(["rm", "--grid", "sizes", "--campaign", str(tmp_path)]) == 0
    assert Campaign(tmp_path).grids() == ["others"]
    assert Campaign(tmp_path).trials("others")["state"].to_list() == ["done"]
    assert shared <= set(Layout(tmp_path).trial_keys())
    assert check_campaign(tmp_path) == []
    restore(tmp_path)
    assert content(tmp_path) == before


@pytest.mark.parametrize("is_logged", [True, False])
def test_a_renamed_grid_keeps_every_result(tmp_path: Path, is_logged: bool) -> None:
    if is_logged:
        log(tmp_path, "old", "small", 0, 2.0)
        log(tmp_path, "old", "large", 0, 1.0)
        Campaign(tmp_path).grid("old", baseline="small", measure={"name": "loss"})
    else:
        run_quietly(tmp_path, toy_grid("old", seeds=[0]))
    before = [row[1:] for row in tables(tmp_path)["final"]]
    with Store.open(tmp_path) as store:
        header = store.grid("old")
    assert execute(["rename", "old", "new", "--campaign", str(tmp_path)]) == 0
    assert tables(tmp_path)["final"] == [("new", *row) for row in before]
    with Store.open(tmp_path) as store:
        assert store.grids() == ["new"]
        assert store.grid("new") == header | {"grid": "new"}
    assert check_campaign(tmp_path) == []
    if is_logged:
        log(tmp_path, "new", "small", 1, 2.0)
        assert Campaign(tmp_path).trials("new").height == 3


def test_a_name_that_is_taken_is_refused(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["rename", "first", "second", "--campaign", str(campaign)]) == 2
    assert "already has a grid 'second'" in capsys.readouterr().err
    assert Campaign(campaign).grids() == ["first", "second"]
    assert execute(["rename", "third", "fourth", "--campaign", str(campaign)]) == 3
    assert execute(["rm", "seed=0", "--grid", "first", "--campaign", str(campaign)]) == 2
    assert execute(["rm", "--campaign", str(campaign)]) == 2


def test_cells_whose_baseline_is_removed_have_none(tmp_path: Path) -> None:
    grid = toy_grid("toy", fates=("ok", "raises"), seeds=[0])
    run_quietly(tmp_path, grid.named("toy", baseline={"operator": "falling"}))
    assert execute(["rm", "operator=falling", "fate=ok", "--campaign", str(tmp_path)]) == 0
    with Store.open(tmp_path) as store:
        header = store.grid("toy")
        found = store.sql("SELECT DISTINCT label, baseline IS NULL FROM grid_trial ORDER BY label").rows()
    assert [header["baseline"]] == list(header["baselines"].values())
    assert dict(found) == {"falling · raises": True, "rising · ok": True, "rising · raises": False}
