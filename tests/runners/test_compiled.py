"""Training as one compiled graph is the same training, up to rounding."""

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from batch_in_parts import GENTLE, apart, numbers
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.compilers import nop
from warm import real_server

from ablate.grid import Grid
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.execution import Local
from ablate.runners.execution.run import run_campaign
from ablate.store.files.atomic import read_json
from ablate.store.files.layout import Layout
from ablate.store.store import Store
from ablate.training.loop import compilation
from ablate.training.loop.compilation import LONG, compiles
from ablate.training.loop.train import train
from ablate.training.optimisers import AdamW, Training
from ablate.training.tasks import Curriculum
from ablate.training.trial import Trial
from ablate.variants import Backbone, Transformer, affine_scaled, entmax15, gpt2, llama2, ssa

ONE = gpt2(layers=1, heads=1, width=4, max_positions=16)
EXACT = 1e-6
"""Relative: a compiler may add up in another order. Operations that it does not rewrite give the same bits."""


CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Graphs are made and run as they are: the C++ compiler would take a second for each kernel."""
    monkeypatch.setattr(compilation, "BACKEND", "eager")
    compilation._copy_function.cache_clear()
    trace = logging.getLogger("torch.__trace")
    level = trace.level
    trace.setLevel(logging.WARNING)  # else pytest keeps every word of it
    yield
    trace.setLevel(level)


def on(trial: Trial, **fields: Any) -> Trial:
    return trial.changed(execution={**trial.execution.data(), "compile": "on"}, **fields)


def many_lengths(trial: Trial, model: Backbone) -> Trial:
    task = trial.task.changed(points=8, batch=4, curriculum=Curriculum(start=3, every=2, increment=1))
    return trial.changed(task=task, model=model)


@pytest.mark.usefixtures("traced")
def test_losses_are_equal_also_after_a_stop(tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it draws, too; evaluations compile nothing."""
    monkeypatch.setattr(compilation, "BACKEND", "aot_eager")  # the backward is a graph, too
    model = gpt2(layers=1, heads=2, width=8, max_positions=16).changed(dropout=0.2, attention_dropout=0.2)
    trial = tiny.changed(operator=affine_scaled(), model=model, training=GENTLE.changed(steps=6, evaluate_every=3))
    plain, fused, parts = memory(), memory(), memory(stop_at=[4])
    assert "graphs" not in train(trial, plain).cost
    found = train(on(trial), fused).cost
    assert found["graphs"] == 1
    assert 0 < found["compile_s"] < found["train_s"]
    assert apart(numbers(plain), numbers(fused)) < EXACT
    assert train(on(trial), parts).stopped
    parts.stop_at.clear()
    train(on(trial), parts)
    assert numbers(parts) == numbers(fused)


@pytest.mark.usefixtures("traced")
def test_trials_that_differ_by_seed_or_rate_share_a_graph(tiny: Trial, memory: Callable) -> None:
    """A worker trains all cells with one seed before the next seed, so other models come in between."""
    first = on(tiny, model=ONE, training=Training(steps=2))
    seed, rate, other = (
        first.changed(seed=1),
        first.changed(training=Training(steps=3, optimiser=AdamW(lr=0.01))),
        on(first, operator=ssa()),
    )
    graphs = []
    for trial in (first, other, seed, rate, other.changed(seed=1)):
        plain, fused = memory(), memory()
        graphs.append(train(trial, fused).cost.get("graphs", 0))
        train(trial.changed(execution={"compile": "off"}), plain)
        assert apart(numbers(plain), numbers(fused)) < EXACT
    assert graphs == [1, 1, 0, 0, 0]


@pytest.mark.usefixtures("traced")
def test_a_curriculum_of_many_lengths_needs_two_graphs(tiny: Trial, memory: Callable) -> None:
    trial = many_lengths(tiny, llama2(layers=1, heads=2, width=8, feedforward_width=8))
    plain, fused = memory(), memory()
    train(trial, plain)
    assert train(on(trial), fused).cost["graphs"] == 2
    assert apart(numbers(plain), numbers(fused)) < EXACT


def refuse(*_: object) -> None:
    raise RuntimeError("no kernel for this")


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_what_the_compiler_refuses(
    tiny: Trial,
    memory: Callable,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    backward: bool,
) -> None:
    """With "on" it is an error. With "auto" training goes on without, before any running mean has moved."""
    trial = tiny.changed(operator=affine_scaled() if backward else entmax15(), model=ONE)
    if backward:
        monkeypatch.setattr(compilation, "BACKEND", aot_autograd(fw_compiler=nop, bw_compiler=refuse))
    said = r"the model with .* cannot be compiled \(\w+: .*\); use execution.compile='off'"
    with pytest.raises(SpecError, match=said):
        train(on(trial), memory())
    monkeypatch.setattr(compilation, "compiles", lambda *_: True)
    plain, fallen = memory(), memory()
    assert "graphs" not in train(trial, fallen).cost
    assert capsys.readouterr().err.count("cannot be compiled (") == 1
    monkeypatch.undo()
    train(trial, plain)
    assert numbers(plain) == numbers(fallen)


def test_the_path_without_compilation_is_recorded(
    tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiled model computes SSA by the definition, and others by tiles."""
    monkeypatch.setattr(compilation, "BACKEND", aot_autograd(fw_compiler=refuse))
    monkeypatch.setattr(compilation, "compiles", lambda *_: True)
    task = tiny.task.changed(points=40, batch=1)
    world, began = memory(), []
    monkeypatch.setattr(world, "begins", lambda *given: began.append(given[:2]))
    train(tiny.changed(operator=ssa(), task=task, model=gpt2(layers=1, heads=1, width=4, max_positions=80)), world)
    assert began == [("cpu", "reference"), ("cpu", "cpu")]


@pytest.mark.usefixtures("traced")
def test_a_recompile_limit_is_reported(
    tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second length of a curriculum needs a second graph; by default the compiler would silently run eagerly."""
    trial, plain, fallen = many_lengths(tiny, ONE), memory(), memory()
    message = r"cannot be compiled \(FailOnRecompileLimitHit: .*\); use execution.compile='off'"
    with torch._dynamo.config.patch(recompile_limit=1):
        with pytest.raises(SpecError, match=message):
            train(on(trial), memory())
        monkeypatch.setattr(compilation, "compiles", lambda *_: True)
        assert train(trial, fallen).cost["graphs"] == 1
    assert capsys.readouterr().err.count("cannot be compiled (FailOnRecompileLimitHit: ") == 1
    monkeypatch.setattr(compilation, "compiles", lambda *_: False)
    train(trial, plain)
    assert apart(numbers(plain), numbers(fallen)) < EXACT


def test_auto_is_long_training_on_a_gpu(tiny: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "_missing", lambda _: None)
    long = tiny.changed(training=Training(steps=LONG))
    assert compiles(long, CUDA)
    assert not compiles(long, CPU)
    assert not compiles(tiny.changed(training=Training(steps=LONG - 1)), CUDA)
    assert not compiles(long.changed(execution={"compile": "off"}), CUDA)
    assert compiles(on(tiny), CPU)
    monkeypatch.setattr(compilation, "_missing", lambda _: "a compiler")
    assert not compiles(long, CUDA)
    assert on(tiny).key == tiny.key
    with pytest.raises(SpecError, match=r"execution.compile.*'auto', 'off' or 'on'"):
        tiny.changed(execution={"compile": True})


def test_the_recorded_path_is_that_of_the_precision(
    tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[torch.dtype | None]()

    def paths(_: Transformer, _length: int, dtype: torch.dtype | None, *, compiled: bool) -> list[str]:
        assert not compiled
        asked.append(dtype)
        return ["sdpa"]

    monkeypatch.setattr(Transformer, "paths", paths)
    for precision in ("bfloat16", "float32"):
        train(tiny.changed(training=Training(steps=1, precision=precision)), memory())
    assert asked == [torch.bfloat16, None]


def test_on_needs_a_compiler(tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    world = memory()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(EnvironmentProblem, match="the one that CXX names"):
        compiles(on(tiny), CPU)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.delenv("CXX")
    with pytest.raises(EnvironmentProblem, match=r"compile is 'on', which needs a C\+\+ compiler \(.*\); install"):
        train(on(tiny), world)
    assert world.began is None
    with pytest.raises(EnvironmentProblem, match="needs a C compiler"):
        compiles(on(tiny), CUDA)


def test_a_forked_worker_compiles_with_the_real_compiler(
    tiny: Trial, memory: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process that has compiled nothing; the losses are those of this one, where nothing is compiled."""
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")  # else it starts an interpreter of its own to try that
    trial = on(tiny, training=Training(steps=3), model=ONE)
    run_campaign(
        tmp_path, [Grid(name="g", base=trial, seeds=[3])], Local(1, start=real_server), RunRequest(progress=False)
    )
    end = read_json(Layout(tmp_path).end(trial.key, 1))
    assert (end["status"], end["cost"]["graphs"]) == ("ok", 1)
    plain = memory()
    train(trial.changed(execution={"compile": "off"}), plain)
    with Store.open(tmp_path) as store:
        losses = store.sql("SELECT value FROM v_metric WHERE name = 'loss' ORDER BY step")["value"].to_list()
    assert losses == pytest.approx(plain.losses(), rel=EXACT)
