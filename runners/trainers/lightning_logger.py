"""A logger for Lightning; see `ablate.runners.trainers`."""

from collections.abc import Mapping
from typing import Any, final

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers.logger import Logger

from ablate.grid.run import RunRecorder
from ablate.runners.trainers.own_checkpoints import OwnCheckpoints


@final
class LightningLogger(Logger, Callback):
    """Logs what modules log; what they log while the trainer evaluates is an evaluation.

    As a callback it saves if the trial is to stop, and raises the stop once the values of the step are logged. After
    the last batch of an epoch it saves at the end of the epoch. From the end of that batch, Lightning would lose count
    of epochs and train too long.
    """

    name, version = "lightning", "0"

    def __init__(self, run: RunRecorder) -> None:
        self._run, self._own, self._stops = run, OwnCheckpoints(run), False
        self._trainer: Trainer | None = None
        self._logged: dict[str, int] = {}

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint from which the trial goes on; None at its beginning."""
        return self._own.latest

    def log_graph(self, model: LightningModule, _: Any = None) -> None:
        """Take the trainer, which calls this before the first step, and look for stops from now on."""
        self._trainer = model.trainer
        self._trainer.callbacks += [self] if self not in self._trainer.callbacks else []

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Leave them out: the config of a run is that of its spec, or of `Campaign.start`."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:  # noqa: ARG002
        """Record values of the optimiser step at work; `step`, Lightning's count, shifts when a training goes on."""
        at = 0 if self._trainer is None else self._trainer.global_step
        if self._trainer is not None and self._trainer.evaluating:
            for name, value in metrics.items():
                if name != "epoch":
                    self._run.evaluate(at, name, value)
            return
        new = {name: value for name, value in metrics.items() if self._logged.get(name) != at}
        self._run.log(at, new)
        self._logged |= dict.fromkeys(new, at)

    def after_save_checkpoint(self, checkpoint_callback: ModelCheckpoint) -> None:
        """Take a checkpoint that was saved; the values of its step may follow."""
        if self._trainer is not None:
            self._own.record(self._trainer.global_step, checkpoint_callback._last_checkpoint_saved)

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self._own.note_step(trainer.global_step, max(int(trainer.estimated_stepping_batches), trainer.global_step))
        self._stops = self._stops or self._own.stop_requested
        if not trainer.is_last_batch:
            self.on_train_epoch_end(trainer)

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        if self._stops:
            place = self._own.directory / f"step-{trainer.global_step}.ckpt"
            trainer.save_checkpoint(place)
            self._own.record(trainer.global_step, place)

    def on_train_batch_start(self, *_: Any) -> None:
        self._own.record_again()
        if self._stops:
            self._own.stop()

    def on_train_end(self, trainer: Trainer, *_: Any) -> None:
        self._own.finish(trainer.global_step)
