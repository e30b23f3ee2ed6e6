"""Load of the machine: sampled in intervals, with a GPU if one is in use, and never part of a comparison of results."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from known_campaign import Planted, plant

from ablate.runners.attempts import system_load
from ablate.runners.attempts.attempt import Attempt, Watch
from ablate.runners.attempts.claims import Claim, claim
from ablate.runners.attempts.system_load import SystemLoad
from ablate.runners.execution.repro import values_of
from ablate.store import Store
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer


def test_a_sample_is_due_after_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    load = SystemLoad()
    assert load.sample() == {}
    monkeypatch.setattr(system_load, "SAMPLE_S", 0.0)
    found = load.sample()
    assert 0 <= found["system.cpu_cores"] < 1000
    assert found["system.memory_bytes"] > 2**20


def test_a_gpu_in_use_tells_how_busy_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent() -> int:
        raise pynvml.NVMLError_NotSupported

    monkeypatch.setattr(system_load, "SAMPLE_S", 0.0)
    cuda = SimpleNamespace(is_initialized=lambda: True, memory_reserved=lambda: 512, utilization=lambda: 40)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    found = SystemLoad().sample()
    assert (found["system.gpu_utilisation"], found["system.gpu_memory_bytes"]) == (0.4, 512.0)
    cuda.utilization = silent
    assert "system.gpu_utilisation" not in SystemLoad().sample()


def test_it_is_logged_with_the_metrics_and_not_compared_by_repro(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_load, "SAMPLE_S", 0.0)
    trial, submission = "ab" * 16, "20260101T000000-abcdef"
    layout, buffer = Layout(tmp_path), ShardBuffer(Layout(tmp_path), submission=submission, worker=0)
    about = {"submission": submission, "worker": 0, "path": None, "device": None, "threads": 1, "code": None}
    mine = claim(layout, trial, about, retry=False)
    assert isinstance(mine, Claim)
    Attempt(layout, mine, buffer, 20.0, Watch(lambda: False, lambda *_: None)).metrics(3, {"loss": 1.0})
    names = [row[3] for row in buffer.pending(trial, 1)["metric"]]
    assert names[:2] == ["loss", "system.cpu_cores"]
    planted = Planted(lambda _: 1.0, metrics=lambda _: dict.fromkeys(names, 1.0))
    with Store.open(plant(tmp_path / "runs", ["softmax"], [0], planted)) as store:
        key = store.sql("SELECT trial FROM trial")["trial"][0]
        assert {each.name for each in values_of(store, key)} == {"loss", "mse"}
