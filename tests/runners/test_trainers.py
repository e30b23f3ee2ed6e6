"""Trainers of other libraries log by a run, and a trial that is stopped goes on from their own checkpoints."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from ablate import Campaign, EnvironmentProblem, Run, accelerate_tracker, lightning_logger, transformers_callback
from ablate.grid import Experiment
from ablate.runners import trainers
from ablate.runners.attempts.experiments import train_experiment
from ablate.runners.processes.process_state import ProcessState
from ablate.runners.processes.training_context import TrainingStopped, UnfitCheckpoint

pytestmark = pytest.mark.filterwarnings("ignore")
STEPS = 12


def test_each_is_short_enough_to_be_read_at_once() -> None:
    for path in Path(trainers.__path__[0]).glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 80


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(-1, 1, 24)[:, None]
    return x, 3 * x


def with_transformers(run: Run, place: Path, seed: int) -> None:
    transformers = pytest.importorskip("transformers")

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            out = self.layer(x)
            return {"loss": (out - labels).square().mean(), "logits": out}

    rows = [{"x": x, "labels": y} for x, y in zip(*inputs(), strict=True)]
    arguments = transformers.TrainingArguments(
        output_dir=str(place),
        max_steps=STEPS,
        per_device_train_batch_size=6,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=5,
        save_steps=4,
        learning_rate=0.1,
        seed=seed,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    callback = transformers_callback(run)
    trainer = transformers.Trainer(Line(), arguments, train_dataset=rows, eval_dataset=rows, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.checkpoint)
    run.evaluate(STEPS, "end", trainer.model.layer.weight.detach())


def with_lightning(run: Run, place: Path, seed: int) -> None:
    lightning = pytest.importorskip("lightning.pytorch")

    class Line(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            loss = (self.layer(batch[0]) - batch[1]).square().mean()
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("eval_loss", (self.layer(batch[0]) - batch[1]).square().mean())

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.1)

    loader = DataLoader(TensorDataset(*inputs()), batch_size=6)
    logger = lightning_logger(run)
    trainer = lightning.Trainer(
        logger=logger,
        max_epochs=STEPS // 4,
        log_every_n_steps=1,
        default_root_dir=place,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Line()
    trainer.fit(model, loader, loader, ckpt_path=logger.checkpoint)
    run.evaluate(STEPS, "end", model.layer.weight.detach())


def with_accelerate(run: Run, place: Path, seed: int) -> None:
    accelerate = pytest.importorskip("accelerate")
    model = torch.nn.Linear(1, 1)
    tracker = accelerate_tracker(run, lambda folder: accelerator.save_state(folder))
    accelerator = accelerate.Accelerator(log_with=tracker, cpu=True)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    model, optimiser = accelerator.prepare(model, optimiser)
    accelerator.init_trackers("line", config={"lr": 0.1})
    first = 1
    if (checkpoint := tracker.checkpoint) is not None:
        accelerator.load_state(checkpoint)
        first = int(checkpoint.rpartition("-")[2]) + 1
    x, y = inputs()
    for step in range(first, STEPS + 1):
        loss = (model(x + 0.1 * torch.randn(x.shape)) - y).square().mean()
        optimiser.zero_grad()
        accelerator.backward(loss)
        optimiser.step()
        if step % 5 == 0:
            accelerator.log({"eval_loss": loss.item()}, step=step, log_kwargs={"ablate": {"evaluation": True}})
        accelerator.log({"loss": loss.item(), "note": "text"}, step=step)
        if step % 4 == 0:
            tracker.save(step)
    accelerator.end_training()
    run.evaluate(STEPS, "end", model.weight.detach())


TRAINERS = {"transformers": with_transformers, "lightning": with_lightning, "accelerate": with_accelerate}
Train = Callable[[Run, Path, int], None]


class Adapted(Experiment):
    kind: Literal["tests_adapted"] = "tests_adapted"
    library: str = "transformers"

    def train(self, run: Any) -> None:
        try:
            TRAINERS[self.library](run, run.directory, self.seed)
        except TrainingStopped:  # the stop is raised, and again by every call
            with pytest.raises(TrainingStopped):
                run.evaluate(1, "unfinished", 0.0)
            raise


def trained(library: str, context: Any, place: Path) -> list[int]:
    """Train until no stop is left; the steps of the results."""
    steps = []
    while True:
        with ProcessState().isolate(0):
            result = train_experiment(Adapted(library=library), context, place)
        steps.append(result.step)
        if not result.stopped:
            return steps
        context.stop_at -= {result.step}


def compare(whole: Any, parts: Any) -> None:
    assert parts.logged == whole.logged
    assert parts.evaluations == whole.evaluations
    assert {name for _, name in whole.evaluations} == {"eval_loss", "end"}
    assert [*whole.logged] == [*range(1, STEPS + 1)]


# In the midst of an epoch, Lightning goes on with other batches unless the loader keeps its place.
STOPS = [(name, stops) for name in ("transformers", "accelerate") for stops in ((4, 10), (1, 2), (11, 12))]
STOPS += [("lightning", stops) for stops in ((4, 8), (4,), (8,))]


@pytest.mark.parametrize(("library", "stops"), STOPS)
def test_a_stopped_trial_goes_on_from_the_trainers_own_checkpoint(
    library: str, stops: tuple[int, ...], memory: Any, tmp_path: Path
) -> None:
    whole, parts = memory(), memory(stop_at=stops)
    assert trained(library, whole, tmp_path / "whole") == [STEPS]
    assert trained(library, parts, tmp_path / "parts") == [*stops, STEPS]
    compare(whole, parts)


def test_lightning_makes_all_steps_wherever_it_stops(memory: Any, tmp_path: Path) -> None:
    for stops in ((3, 7), (1, 2), (6, 8), (11,)):
        context = memory(stop_at=stops)
        assert trained("lightning", context, tmp_path / f"{stops[0]}") == [*stops, STEPS]
        assert [*context.logged] == [*range(1, STEPS + 1)]
        assert {step for step, name in context.evaluations if name == "eval_loss"} == {4, 8, 12}


@pytest.mark.parametrize("library", TRAINERS)
def test_a_lost_trial_goes_on_from_the_checkpoint_before(
    library: str, memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts, died = memory(), memory(), list[int]()
    assert trained(library, whole, tmp_path / "whole") == [STEPS]
    progress = parts.progress

    def die(step: int, *rest: Any) -> None:
        if step == 7 and not died:
            died.append(step)
            raise RuntimeError
        progress(step, *rest)

    monkeypatch.setattr(parts, "progress", die)
    with pytest.raises(RuntimeError):
        trained(library, parts, tmp_path / "parts")
    assert trained(library, parts, tmp_path / "parts") == [STEPS]
    compare(whole, parts)


@pytest.mark.parametrize("library", TRAINERS)
def test_a_logged_run_takes_the_same_values(library: str, memory: Any, tmp_path: Path) -> None:
    context = memory()
    assert trained(library, context, tmp_path / "t") == [STEPS]
    with Campaign(tmp_path / "c") as campaign:
        with ProcessState().isolate(0), campaign.start("line", label=library, seed=0) as run:
            TRAINERS[library](run, tmp_path / "logged", 0)
        rows = campaign.sql("SELECT step, name, value FROM v_metric").rows()
        evaluations = campaign.sql("SELECT step, name, value FROM v_evaluation").rows()
    assert {*rows} == {(step, *each) for step, values in context.logged.items() for each in values.items()}
    assert {*evaluations} == {(step, name, value) for (step, name), (value, *_) in context.evaluations.items()}


def test_a_checkpoint_whose_files_are_gone_gives_way_to_the_one_before(memory: Any, tmp_path: Path) -> None:
    context = memory(stop_at=[4])
    with ProcessState().isolate(0):
        train_experiment(Adapted(library="accelerate"), context, tmp_path / "t")
    (tmp_path / "t" / "step-4").rename(tmp_path / "elsewhere")
    context.stop_at.clear()
    with ProcessState().isolate(0), pytest.raises(UnfitCheckpoint):
        train_experiment(Adapted(library="accelerate"), context, tmp_path / "t")


@pytest.mark.parametrize(
    ("package", "adapt"),
    [
        ("transformers", transformers_callback),
        ("lightning", lightning_logger),
        ("accelerate", accelerate_tracker),
    ],
)
def test_nothing_is_imported_before_it_is_used_and_a_missing_package_is_named(
    package: str, adapt: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "accelerate_tracker, lightning_logger, transformers_callback"
    wanted = "{'transformers', 'lightning', 'accelerate'}"
    program = f"import sys; from ablate import {names}; print(sorted({wanted} & {{*sys.modules}}))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(EnvironmentProblem) as raised:
        adapt(None)
    assert f"ablate[{package}]" in str(raised.value)
