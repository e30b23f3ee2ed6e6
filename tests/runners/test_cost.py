"""The cost of an attempt and the load of its machine: sums over its own steps; what cannot be measured is missing."""

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch
from known_campaign import Planted, plant

from ablate.runners.attempts import system_load
from ablate.runners.attempts.attempt import Attempt, Watch
from ablate.runners.attempts.claims import Claim, claim
from ablate.runners.attempts.system_load import SystemLoad
from ablate.runners.execution.repro import values_of
from ablate.store import Store
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.training.loop import cost as costs, energy
from ablate.training.loop.cost import flops
from ablate.training.loop.energy import Energy, processors, rapl
from ablate.training.loop.flops import Shape, count_flops
from ablate.training.loop.train import train
from ablate.training.tasks import Curriculum
from ablate.training.trial import Trial
from ablate.variants import T5, Tokens, gpt2, llama2, principled, softmax, ssa

EXACT = ("steps", "tokens", "flops")


@pytest.fixture
def growing(tiny: Trial) -> Trial:
    """A point more every two steps: six lengths in twelve steps."""
    task = tiny.task.changed(points=8, curriculum=Curriculum(start=3, every=2, increment=1))
    return tiny.changed(task=task, model=gpt2(layers=2, heads=2, width=8, max_positions=80))


@pytest.mark.parametrize("parts", [1, 3])
def test_a_run_costs_what_its_steps_do(tiny: Trial, memory: Callable, parts: int) -> None:
    """6 N T for the weights that multiply tokens, and attention's two products by hand."""
    trial = tiny.changed(execution={"path": "reference", "accumulate": parts})
    found = train(trial, memory()).cost
    batch, length, layers, width, heads = 8, 9, 2, 8, 2
    assert (found["steps"], found["tokens"]) == (12, 12 * batch * length)
    weights = layers * (3 * width * width + width * width + 8 * width * width) + width  # and the read-out of one number
    maps = layers * 2 * heads * 2 * batch * length * length * (width // heads)
    read_in = 2 * batch * length * width * 2  # forward, and the weight's gradient: inputs have none
    assert found["flops"] == 12 * (6 * weights * batch * length + 3 * maps + read_in)
    assert {"train_s", "evaluate_s", "probe_s", "peak_memory_bytes"} <= found.keys()
    assert all(value > 0 for value in found.values())


@pytest.mark.parametrize("operator", [softmax(), ssa(), principled(gate_width=4)], ids=lambda operator: operator.label)
def test_operations_are_those_of_the_definition(tiny: Trial, monkeypatch: pytest.MonkeyPatch, operator: Any) -> None:
    """A fused attention computes its logits anew on the way back: work for the device, and none of the model's."""
    shapes = {Shape(8, 9): 3}
    trials = [tiny.changed(operator=operator, execution={"path": path}) for path in ("auto", "reference")]
    assert flops(trials[0], shapes) == flops(trials[1], shapes)
    if operator == softmax():
        of = (trials[0].model, trials[0].operators(), trials[0].task.inputs)
        assert 3 * count_flops(*of, "auto", Shape(8, 9), training=True) > float(flops(trials[0], shapes) or 0)


def test_a_learned_position_bias_adds_no_products() -> None:
    """The fused kernel refuses a mask with a gradient."""
    model = llama2(layers=1, heads=2, width=8, feedforward_width=16)
    rotary, learned = (
        count_flops(model.changed(positions=each), (softmax(),), Tokens(9), "auto", Shape(2, 6), training=True)
        for each in (model.positions, T5())
    )
    assert rotary == learned > 0


def test_two_attempts_add_up_to_one(growing: Trial, memory: Callable) -> None:
    whole = train(growing, memory()).cost
    world = memory(stop_at=[5, 12])
    attempts = []
    for stop in (5, 12, None):  # the last takes no step: what is left is to evaluate
        attempts.append(train(growing, world).cost)
        world.stop_at.discard(stop)
    for name in EXACT:
        first, second, last = (each[name] for each in attempts)
        assert first + second == whole[name] > first > 0
        assert last == 0


def test_lengths_that_are_not_counted_follow_from_three_that_are(growing: Trial) -> None:
    trial = growing.changed(operator=principled(gate_width=4))
    lengths = {Shape(8, 2 * points - 1): points for points in range(3, 9)}
    each = [flops(trial, {shape: steps}) for shape, steps in lengths.items()]
    assert flops(trial, lengths) == sum(value for value in each if value is not None)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failed_training_tells_what_it_took(tiny: Trial, memory: Callable, error: type[BaseException]) -> None:
    told: list[Any] = []

    def failing(step: int, *_: object) -> None:
        if step == 5:
            raise error

    world = memory()
    world.took, world.progress = told.append, failing
    with pytest.raises(error):
        train(tiny, world)
    whole = train(tiny, memory()).cost
    assert [{name: each[name] * 12 / 5 for name in EXACT} for each in told] == [{name: whole[name] for name in EXACT}]
    assert told[0].keys() == whole.keys()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "peak_memory_bytes", lambda: 1 / 0)  # a cost that cannot be told hides no failure
        with pytest.raises(error):
            train(tiny, world)


def test_a_short_attempt_measures_no_device_and_a_long_one_does_once(
    tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    products: list[Any] = []
    monkeypatch.setattr(costs, "_known", {})
    monkeypatch.setattr(costs, "_measure", lambda *what: products.append(what) or 5e9)
    assert "peak_flops_per_s" not in train(tiny, memory()).cost
    assert products == []
    with monkeypatch.context() as long:
        long.setattr(costs, "LONG_S", 0.0)
        for _ in range(2):
            assert train(tiny, memory()).cost["peak_flops_per_s"] == 5e9
    assert products == [(torch.device("cpu"), "float32")]
    assert train(tiny, memory()).cost["peak_flops_per_s"] == 5e9  # known by now
    lower = tiny.changed(training=tiny.training.changed(precision="bfloat16"))
    assert "peak_flops_per_s" not in train(lower, memory()).cost


def zone(root: Path, name: str, text: str, used: int, limit: int = 1000) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    for file, value in {"name": text, "energy_uj": used, "max_energy_range_uj": limit}.items():
        (folder / file).write_text(f"{value}\n")
    return folder


def test_a_counter_that_begins_anew_is_counted_on(tmp_path: Path) -> None:
    """Packages are counted, and not their parts or the whole machine."""
    folder = zone(tmp_path, "intel-rapl:0", "package-0", used=900)
    meter = rapl(folder)
    seen = []
    for used in (950, 40, 40, 999, 0):
        (folder / "energy_uj").write_text(f"{used}\n")
        seen.append(round(meter.joules() * 1e6))
    assert seen == [50, 50 + 90, 140, 140 + 959, 1099 + 1]
    zones = {"intel-rapl:0": "package-0", "intel-rapl:1": "package-1", "intel-rapl:2": "psys", "intel-rapl:0:0": "core"}
    folders = [zone(tmp_path / "all", name, text, used=0, limit=10**6) for name, text in zones.items()]
    counted = Energy(processors(tmp_path / "all"))
    for folder in folders:
        (folder / "energy_uj").write_text("500000\n")
    assert counted.joules() == pytest.approx(1.0)


def test_a_counter_that_cannot_be_read_is_none_and_not_zero(tmp_path: Path) -> None:
    assert processors(tmp_path) is None
    assert Energy(None).joules() is None
    folder = zone(tmp_path, "intel-rapl:0", "package-0", used=5)
    (folder / "energy_uj").write_text("")
    assert processors(tmp_path) is None
    (folder / "energy_uj").write_text("5")
    counted = Energy(processors(tmp_path))
    assert counted.joules() == 0
    (folder / "energy_uj").unlink()
    assert counted.joules() is None
    (folder / "energy_uj").write_text("9")
    assert counted.joules() is None, "what was missed meanwhile is unknown"


def test_an_attempt_tells_its_joules(tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count(1)
    monkeypatch.setattr(energy, "processors", lambda: [SimpleNamespace(joules=lambda: float(next(ticks)))])
    assert train(tiny, memory()).cost["joules"] == 1
    monkeypatch.setattr(energy, "LOOK_S", 0.0)
    assert train(tiny, memory()).cost["joules"] == 1 + 12 + 1, "after every step, and at the end"
    monkeypatch.setattr(energy, "processors", lambda: None)
    assert "joules" not in train(tiny, memory()).cost


def test_a_gpu_counts_from_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: 7 if uuid == "GPU-1" else fail())
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", {7: 12_000_000_000}.__getitem__)
    meter = Energy(energy.gpus(["GPU-1"]))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", {7: 12_000_002_500}.__getitem__)
    assert meter.joules() == 2.5
    assert energy.gpus(["GPU-1", "GPU-2"]) is None, "half of the devices would be half of the energy"
    with monkeypatch.context() as patch:
        patch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", fail)
        assert meter.joules() is None
        assert energy.gpus(["GPU-1"]) is None
    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert energy.gpus(["GPU-1"]) is None


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
