"""Verdicts with their checks: what SQL holds is what commands say, and both follow the results."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from ablate.store import Store
from ablate.store.analysis.judge import conclude, judge
from ablate.store.analysis.verdicts import verdicts
from ablate.store.files.atomic import read_json, write_json
from ablate.store.files.layout import Layout
from ablate.store.ingest.rebuild import rebuild
from ablate.store.statistics.check import CHECK_NAMES, Answer, Check
from tests.known_campaign import Line, Planted, plant

NAMES = ("softmax", "SSA", "Cog")


def value(line: Line) -> float:
    return 1.0 + NAMES.index(line["operator"]) + int(line["trial"][:4], 16) / 1e7


def campaign(root: Path) -> Path:
    """Each operator is worse than the one before, by much more than the noise."""
    return plant(root, NAMES, range(4), Planted(value))


def stored(root: Path, *, judging: bool = True) -> tuple[pl.DataFrame, pl.DataFrame]:
    with Store.open(root, conclude=conclude if judging else None) as store:
        return store.sql("FROM verdict ORDER BY grid, cell"), store.sql("FROM verdict_check ORDER BY ALL")


def test_sql_holds_what_the_commands_say(tmp_path: Path) -> None:
    root = campaign(tmp_path / "runs")
    rows, checks = stored(root)
    with Store.open(root, refresh=False) as store:
        judged = judge(store, "grid")
    expected = judged.rows.sort("cell")
    shared = [name for name in rows.columns if name in expected.columns]
    assert len(shared) == len(rows.columns) - 2  # grid and digest
    assert_frame_equal(rows.select(shared), expected.select(shared))
    told = {(cell, each.name): each for cell, own in judged.checks.items() for each in own}
    assert len(told) == checks.height == 2 * len(CHECK_NAMES)
    for row in checks.iter_rows(named=True):
        assert {name: row[name] for name in ("answer", "word", "reason", "number")} == {
            name: each for name, each in told[row["cell"], row["check"]]._asdict().items() if name != "name"
        }


def test_new_results_and_a_changed_measure_are_judged_again_and_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(store: Store, grid: str) -> object:
        asked.append(grid)
        return judge(store, grid)

    monkeypatch.setattr("ablate.store.analysis.judge.judge", counted)
    root = campaign(tmp_path / "runs")
    with Store.open(root, conclude=None) as store:
        late = store.sql("SELECT trial FROM trial WHERE seed = 3")["trial"].to_list()
    ends = {Layout(root).end(trial, 1): Layout(root).end(trial, 1).read_bytes() for trial in late}
    for end in ends:
        end.unlink()
    first, _ = stored(root)
    again, _ = stored(root)
    assert (asked, first.equals(again)) == (["grid"], True)
    for end, content in ends.items():
        end.write_bytes(content)
    assert stored(root, judging=False)[0].is_empty()  # no verdict stands beside results that it is not about
    second, _ = stored(root)
    assert (second["pairs"].to_list(), len(asked)) == ([4, 4], 2)
    header = Layout(root).grid_header("grid")
    write_json(header, {**(was := read_json(header)), "measure": {**was["measure"], "rope": 5.0}})
    third, _ = stored(root)
    assert set(third["verdict"]) == {"equivalent"} != set(second["verdict"])
    write_json(header, {**was, "measure": None})
    assert stored(root)[0].is_empty()


def test_other_rules_judge_again_without_new_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = campaign(tmp_path / "runs")
    first, _ = stored(root)
    monkeypatch.setattr("ablate.store.analysis.judge.rules", lambda: "others")
    second, _ = stored(root)
    assert (first["digest"] != second["digest"]).all()
    assert first.drop("digest").equals(second.drop("digest"))


def test_a_rebuilt_database_holds_the_same_verdicts(tmp_path: Path) -> None:
    root = campaign(tmp_path / "runs")
    first = stored(root)
    rebuild(root, conclude)
    for one, other in zip(first, stored(root, judging=False), strict=True):
        assert one.equals(other)


def test_what_was_off_has_no_verdict_of_equality(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = campaign(tmp_path / "runs")
    with Store.open(root) as store:
        plain = verdicts(store, "grid").rows_by_key("cell", named=True, unique=True)
    off = Check("on", "no", "leaving it out changes nothing", 0.0, "off")
    monkeypatch.setattr("ablate.store.analysis.judge.on_checks", lambda *_, **__: dict.fromkeys(plain, off))
    with Store.open(root) as store:
        rows = judge(store, "grid", measure={"rope": 5.0}).rows
        worse = judge(store, "grid").rows
    assert set(rows["verdict"]) == {"off"}
    assert rows["reason"].str.starts_with(off.reason).all()
    assert (set(worse["verdict"]), set(worse["on"])) == ({"worse"}, {"no"})  # a difference stays one
    assert not worse["headline"].any()
    assert worse["doubt"].str.starts_with("on: ").all()


@pytest.mark.parametrize(("limit", "noise", "verdict"), [(0.5, "no", "no verdict"), (9.0, "yes", "equivalent")])
def test_cells_that_learned_nothing_are_not_equivalent(tmp_path: Path, limit: float, noise: str, verdict: str) -> None:
    root = campaign(tmp_path / "runs")
    header = Layout(root).grid_header("grid")
    plan = read_json(header)
    rule = {"name": plan["measure"]["name"], "point": {}, "limit": limit, "better": "lower"}
    write_json(header, {**plan, "learned": rule})
    with Store.open(root) as store:
        rows = judge(store, "grid", measure={"rope": 5.0}).rows
        apart = judge(store, "grid").rows
    assert (set(rows["verdict"]), set(rows["noise"])) == ({verdict}, {noise})
    assert not rows["headline"].any()
    assert (set(apart["verdict"]), set(apart["noise"])) == ({"worse"}, {noise})  # a difference stays one


ALL_PASS = {
    "on": Check("on", "yes", "on", 0.5, "on"),
    "tuned": Check("tuned", "yes", "inside"),
    "finished": Check("finished", "yes", "stays"),
}


@pytest.fixture
def passing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pl.DataFrame]:
    """Judge a campaign whose cells are worse than the baseline, with the checks of other modules as given."""
    root = campaign(tmp_path / "runs")
    header = Layout(root).grid_header("grid")
    write_json(header, {**read_json(header), "controls": {"cells": {}, "of": {}, "missing": {}}})

    def judged(**answers: Answer) -> pl.DataFrame:
        for name, passed in ALL_PASS.items():
            each = dict.fromkeys(cells, passed._replace(answer=answers.get(name, "yes")))
            monkeypatch.setattr(f"ablate.store.analysis.judge.{name}_checks", lambda *_, each=each, **__: each)
        with Store.open(root) as store:
            return judge(store, "grid").rows

    with Store.open(root) as store:
        cells = verdicts(store, "grid")["cell"].to_list()
    return judged


def test_a_claim_that_passes_every_check_is_a_headline(passing: Callable[..., pl.DataFrame]) -> None:
    rows = passing()
    assert rows["headline"].all()
    assert rows["doubt"].is_null().all()


@pytest.mark.parametrize("name", ALL_PASS)
@pytest.mark.parametrize("answer", ["no", "unknown"])
def test_one_open_check_makes_it_none(passing: Callable[..., pl.DataFrame], name: str, answer: Answer) -> None:
    rows = passing(**{name: answer})
    assert not rows["headline"].any()
    assert rows["doubt"].str.starts_with(f"{name}: ").all()


def test_a_no_is_told_before_an_unknown(passing: Callable[..., pl.DataFrame]) -> None:
    assert passing(on="unknown", tuned="no")["doubt"].str.starts_with("tuned: ").all()


@pytest.mark.parametrize(
    ("header", "asked"),
    [
        ({"logged": True}, {}),
        ({"controls": None}, {}),
        ({}, {"baseline": "SSA"}),
        ({}, {"measure": {"name": "other", "point": {}}}),
    ],
)
def test_controls_of_another_question_answer_nothing(
    tmp_path: Path, header: dict[str, Any], asked: dict[str, Any]
) -> None:
    root = plant(tmp_path / "runs", NAMES, range(4), Planted(value, more=lambda line: {"other": value(line)}))
    place = Layout(root).grid_header("grid")
    write_json(place, {**read_json(place), "controls": {"cells": {}, "of": {}, "missing": {}}, **header})
    with Store.open(root) as store:
        assert set(judge(store, "grid", **asked).rows["control"]) == {"unknown"}
        assert set(judge(store, "grid").rows["control"]) == ({"unknown"} if header else {"-"})


def test_an_error_in_one_grid_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root = campaign(tmp_path / "runs")

    def broken(*_: object, **__: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr("ablate.store.analysis.judge.on_checks", broken)
    rows, _ = stored(root)
    assert rows.is_empty()
    assert "grid" in caplog.text
