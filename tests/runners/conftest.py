"""Surroundings in memory, and trials small enough to train in a test."""

import io
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pretend_slurm import Fake, PretendSlurm, pretended
from program_scripts import Script

from ablate import Command
from ablate.runners.cli.app import execute
from ablate.runners.processes.training_context import TrainingContext
from ablate.runners.rerun import rerun
from ablate.store.files.layout import Layout
from ablate.training.tasks import LinearFunctions, ShiftGrid, Text
from ablate.training.trial import Trial
from ablate.variants import gpt2, softmax


class Memory(TrainingContext):
    """Keeps what a trial says. It asks for a stop at the steps `stop_at` and for checkpoints at `save_at`."""

    def __init__(self, stop_at: Collection[int] = (), save_at: Collection[int] = ()) -> None:
        self.stop_at, self.save_at = set(stop_at), set(save_at)
        self.step = 0
        self.logged: dict[int, dict[str, float]] = {}
        self.evaluations: dict[tuple[Any, ...], tuple[float, int, float | None]] = {}
        self.single: dict[tuple[Any, ...], dict[str, float]] = {}
        self.probes: dict[tuple[Any, ...], float] = {}
        self.artefacts: dict[tuple[int, str], dict[str, Any]] = {}
        self.kept: tuple[int, dict[str, Any]] | None = None
        self.checkpoints: list[tuple[int, bytes]] = []
        self.began: tuple[str, str, Mapping[str, Any] | None] | None = None

    def begins(self, device: str, path: str, data: Mapping[str, Any] | None) -> None:
        self.began = (device, path, data)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.logged[step] = dict(values)

    def evaluation(
        self, step: int, name: str, value: float, *, point: Mapping[str, float], items: int, se_items: float | None
    ) -> None:
        self.evaluations[step, name, *sorted(point.items())] = (value, items, se_items)

    def items(
        self, step: int, name: str, *, point: Mapping[str, float], items: Sequence[str], values: Sequence[float]
    ) -> None:
        self.single[step, name, *sorted(point.items())] = dict(zip(items, values, strict=True))

    def probe(
        self, step: int, name: str, value: float, *, layer: int | None, head: int | None, point: Mapping[str, float]
    ) -> None:
        self.probes[step, name, layer, head, *sorted(point.items())] = value

    def artefact(self, step: int, name: str, arrays: Mapping[str, Any]) -> None:
        self.artefacts[step, name] = dict(arrays)

    def keep(self, step: int, state: Mapping[str, Any]) -> None:
        self.kept = (step, dict(state))

    def progress(self, step: int, steps: int | None, loss: float) -> None:
        assert 0 < step <= (step if steps is None else steps)
        assert isinstance(loss, float)
        self.step = step

    def stop_requested(self) -> bool:
        return self.step in self.stop_at

    def checkpoint_due(self) -> bool:
        return self.step in self.save_at

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        sink = io.BytesIO()
        torch.save(dict(state), sink)
        self.checkpoints.append((step, sink.getvalue()))

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        if not self.checkpoints:
            return None
        step, data = self.checkpoints[-1]
        return step, torch.load(io.BytesIO(data), weights_only=True)

    def losses(self) -> list[float]:
        """The loss of every logged step, in order."""
        return [self.logged[step]["loss"] for step in sorted(self.logged)]


@pytest.fixture
def memory() -> Callable[..., Memory]:
    """Makes surroundings; the arguments are the steps to stop at and to checkpoint at."""
    return Memory


@pytest.fixture
def tiny() -> Trial:
    """Softmax on short linear functions, one layer, twelve steps."""
    evaluation = ShiftGrid(sigma_x=(1,), sigma_f=(1, 3), functions=6, sequences=3, points=5)
    return Trial.model_validate(
        {
            "task": LinearFunctions(points=5, batch=8, evaluation=evaluation),
            "model": gpt2(layers=2, heads=2, width=8, max_positions=16),
            "operator": softmax(),
            "training": {"steps": 12, "evaluate_every": 5},
            "seed": 3,
        }
    )


@pytest.fixture
def task(tmp_path: Path) -> Text:
    """A short text of two sentences, again and again."""
    (tmp_path / "text.txt").write_text("one two three\nfour five six.\n" * 100)
    return Text(source=str(tmp_path / "text.txt"), context=8, batch=2, validation_windows=3)


@pytest.fixture
def ablate(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command that ends with the exit status `code`; returns what it printed: `out` and `err`."""

    def run(*words: object, code: int = 0) -> Any:
        capsys.readouterr()
        assert execute([str(word) for word in words]) == code
        return capsys.readouterr()

    return run


@pytest.fixture
def repro_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ablate repro` trains in this process, with this package and the snapshot's spec files."""
    run = "ablate.runners.execution.repro._run"
    monkeypatch.setattr(run, lambda request, _variables: rerun({**request, "tree": None}))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A campaign without a file."""
    return Layout(tmp_path / "campaign")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendSlurm:
    """A cluster that takes jobs and never runs them."""
    return pretended(tmp_path, monkeypatch)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Puts a command on a PATH that has nothing of SLURM's; it notes its arguments in a file, which is returned."""
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("sh", "bash", "sleep", "cat", "mkfifo"):
        (place / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(place))

    def make(name: str, body: str) -> Path:
        said = tmp_path / f"{name}.calls"
        said.touch()
        path = place / name
        path.write_text(f'#!/bin/sh\necho "$*" >> {said}\n{body}\n')
        path.chmod(0o755)
        return said

    return make


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Write a script, and make its command; `*` in `arguments` follow the script."""
    monkeypatch.chdir(tmp_path)

    def make(text: str, *arguments: str, name: str = "code/train.py", **fields: Any) -> Command:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return Command(argv=["python", name, *arguments], **fields)

    return make
