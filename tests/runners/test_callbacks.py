"""Functions of a spec file are called during training; they see all that is recorded, and change nothing."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from real_spec import real_spec
from toy_campaign import tables
from warm import real_server

from ablate.runners.cli.app import execute
from ablate.runners.execution import Local
from ablate.store.files.layout import Layout
from ablate.store.store import Store

CALLBACKS = """
import json
import random
import torch


def _write(run, *words):
    torch.manual_seed(7)
    torch.rand(3)
    random.seed(7)
    with open({seen!r}, "a") as file:
        file.write(json.dumps([run.key, run.grid, run.label, run.seed, run.attempt, run.trial.key, *words]) + "\\n")


def on_step(run, step, values):
    _write(run, "step", step, values)
    values["loss"] = 0.0


def on_evaluation(run, step, name, value, point):
    _write(run, "evaluation", step, name, value, point)
    point["sigma_f"] = -1.0
"""

FAILING = """
def on_step(run, step, values):
    if step == 2:
        raise RuntimeError("my logging is down")
    print("step", step)
"""


def run(place: Path, after: str, *words: str, on: str = "inline") -> Path:
    """Run a spec that ends with `after` in the campaign "c" of `place`."""
    spec = place / "spec.py"
    spec.write_text(
        real_spec("grid", training="steps=6, evaluate_every=3", operators="softmax()", seeds=2, after=after)
    )
    assert execute(["run", str(spec), "--campaign", str(place / "c"), "--on", on, *words]) == 0
    return place / "c"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The campaign without functions."""
    return run(tmp_path_factory.mktemp("plain"), "")


@pytest.fixture(autouse=True)
def _workers_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Local.__init__.__kwdefaults__, "start", real_server)


@pytest.mark.parametrize("on", ["inline", "local"])
def test_they_see_all_that_is_recorded_and_change_nothing(plain: Path, tmp_path: Path, on: str) -> None:
    seen = tmp_path / "seen"
    called = run(tmp_path, CALLBACKS.format(seen=str(seen)), on=on)
    found = tables(called)
    assert found == tables(plain)
    calls: list[list[Any]] = [json.loads(line) for line in seen.read_text().splitlines()]
    logged = {
        (key, step, name, value)
        for key, *_, kind, step, values in (c for c in calls if c[6] == "step")
        for name, value in values.items()
        if kind
    }
    assert logged == set(found["metric"])
    with Store.open(called) as store:
        query = "SELECT trial, step, name, value, point::JSON::VARCHAR AS point FROM v_evaluation"
        wanted = {(t, s, n, v, tuple(sorted(json.loads(p).items()))) for t, s, n, v, p in store.sql(query).iter_rows()}
        planned = set(store.sql("SELECT trial, grid, label, seed, 1, trial FROM grid_trial").rows())
    evaluated = {(c[0], c[7], c[8], c[9], tuple(sorted(c[10].items()))) for c in calls if c[6] == "evaluation"}
    assert evaluated == wanted
    assert {tuple(call[:6]) for call in calls} == planned


def test_adding_them_makes_no_other_code(plain: Path, tmp_path: Path) -> None:
    shutil.copytree(plain, tmp_path / "c")
    layout = Layout(run(tmp_path, CALLBACKS.format(seen=str(tmp_path / "seen")), "--rerun-stale"))
    assert not (tmp_path / "seen").exists()
    assert {tuple(layout.attempts(key)) for key in layout.trial_keys()} == {(1,)}


def test_one_that_raises_is_reported_once_and_training_goes_on(plain: Path, tmp_path: Path) -> None:
    root = run(tmp_path, FAILING, on="local")
    assert tables(root) == tables(plain)
    layout = Layout(root)
    for key in layout.trial_keys():
        log = layout.log(key, 1).read_text()
        assert log.count("is not called again") == 1
        assert "step 1" in log
        assert "step 3" not in log
