"""Other libraries' trainers as training code: each logs by a run, and its own checkpoints are the state of the run."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.grid.optional_packages import require_package
from ablate.grid.run import RunRecorder

if TYPE_CHECKING:
    from ablate.runners.trainers.accelerate_tracker import AccelerateTracker
    from ablate.runners.trainers.lightning_logger import LightningLogger
    from ablate.runners.trainers.transformers_callback import TransformersCallback


def transformers_callback(run: RunRecorder) -> "TransformersCallback":
    """Return a callback for `transformers.Trainer`, which logs by `run`.

    When the trial is to stop, the trainer saves a checkpoint and `train` raises the stop. `callback.checkpoint` is
    where a trial goes on: `trainer.train(resume_from_checkpoint=callback.checkpoint)`. The trainer's `output_dir` is
    `run.directory`, and `save_steps` says how often it saves besides.
    """
    require_package("transformers", by="transformers_callback", extra="transformers")
    from ablate.runners.trainers.transformers_callback import TransformersCallback

    return TransformersCallback(run)


def lightning_logger(run: RunRecorder) -> "LightningLogger":
    """Return a logger for Lightning's `Trainer`, which logs by `run`.

    When the trial is to stop, a checkpoint is saved after the step at work, and `fit` raises the stop.
    `logger.checkpoint` is where a trial goes on: `trainer.fit(model, ckpt_path=logger.checkpoint)`. A checkpoint of
    `ModelCheckpoint` counts, too. In the midst of an epoch, Lightning goes on with the same batches only if the
    loader has `state_dict`.
    """
    require_package("lightning", by="lightning_logger", extra="lightning")
    from ablate.runners.trainers.lightning_logger import LightningLogger

    return LightningLogger(run)


def accelerate_tracker(run: RunRecorder, save: Callable[[Path], object] | None = None) -> "AccelerateTracker":
    """Return a tracker for `Accelerator(log_with=tracker)`, which logs by `run`.

    A loop of `run.steps` stops by itself. Another one gives `save=lambda place: accelerator.save_state(place)`. Then
    `accelerator.log` saves the state and raises the stop when the trial is to stop. So the metrics of a step are logged
    in one call, after its evaluations. `tracker.save(step)` saves the state besides. `tracker.checkpoint` is where a
    trial goes on, for `accelerator.load_state`.
    """
    require_package("accelerate", by="accelerate_tracker", extra="accelerate")
    from ablate.runners.trainers.accelerate_tracker import AccelerateTracker

    return AccelerateTracker(run, save)
