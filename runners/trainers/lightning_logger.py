"""A logger for Lightning; see `ablate.runners.trainers`."""

from collections.abc import Mapping
from typing import Any, final

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers.logger import Logger

from ablate.grid.run import RunRecorder
from ablate.runners.trainers.lightning_stop import StopCallback
from ablate.runners.trainers.own_checkpoints import OwnCheckpoints


@final
class LightningLogger(Logger):
    """Logs what modules log; what they log while the trainer evaluates is an evaluation."""

    name, version = "lightning", "0"

    def __init__(self, run: RunRecorder) -> None:
        self._run, self._own = run, OwnCheckpoints(run)
        self._trainer: Trainer | None = None
        self._logged: dict[str, int] = {}

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint from which the trial goes on; None at its beginning."""
        return self._own.latest

    def log_graph(self, model: LightningModule, _: Any = None) -> None:
        """Take the trainer, which calls this before the first step, and look for stops from now on."""
        self._trainer = model.trainer
        if not any(isinstance(each, StopCallback) for each in self._trainer.callbacks):
            self._trainer.callbacks.append(StopCallback(self._own))

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
