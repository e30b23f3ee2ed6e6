"""The stop of a trial that Lightning trains."""

from typing import Any, final

from lightning.pytorch import Callback, Trainer

from ablate.runners.trainers.own_checkpoints import OwnCheckpoints


@final
class StopCallback(Callback):
    """Saves if the trial is to stop, and raises the stop once the values of the step are logged.

    After the last batch of an epoch it saves at the end of the epoch. From the end of that batch, Lightning would lose
    count of epochs and train too long.
    """

    def __init__(self, own: OwnCheckpoints) -> None:
        self._own, self._stops = own, False

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        step = trainer.global_step
        self._own.note_step(step, max(int(trainer.estimated_stepping_batches), step))
        self._stops = self._stops or self._own.stop_requested
        if self._stops and not trainer.is_last_batch:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, _: Any) -> None:
        if self._stops:
            self._save(trainer)

    def on_train_batch_start(self, *_: Any) -> None:
        self._own.record_again()
        if self._stops:
            self._own.stop()

    def on_train_end(self, trainer: Trainer, _: Any) -> None:
        self._own.finish(trainer.global_step)

    def _save(self, trainer: Trainer) -> None:
        place = self._own.directory / f"step-{trainer.global_step}.ckpt"
        trainer.save_checkpoint(place)
        self._own.record(trainer.global_step, place)
