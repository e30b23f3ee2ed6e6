"""A callback for `transformers.Trainer`; see `ablate.runners.trainers`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ablate.grid.run import RunRecorder
from ablate.runners.trainers.own_checkpoints import OwnCheckpoints

_SPEEDS = ("_runtime", "_per_second", "_compilation_time")
"""Ends of names of what an evaluation took."""


@final
class TransformersCallback(TrainerCallback):
    """Logs what the trainer logs, and records what it evaluates, with its names."""

    def __init__(self, run: RunRecorder) -> None:
        self._run, self._own, self._stops = run, OwnCheckpoints(run), False
        self._logged: dict[str, int] = {}
        self._evaluated: dict[tuple[int, str], float] = {}

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint from which the trial goes on; None at its beginning."""
        return self._own.latest

    def on_step_end(
        self, _: TrainingArguments, state: TrainerState, control: TrainerControl, **__: Any
    ) -> TrainerControl:
        self._own.note_step(state.global_step, state.max_steps)
        if self._own.stop_requested:
            self._stops = control.should_save = control.should_training_stop = True
        return control

    def on_epoch_end(
        self, _: TrainingArguments, state: TrainerState, control: TrainerControl, **__: Any
    ) -> TrainerControl:
        if self._stops:  # an evaluation of a whole epoch goes into the checkpoint, one of a part is made later
            is_whole = float(state.epoch or 0).is_integer()
            control.should_save, control.should_evaluate = is_whole, control.should_evaluate and is_whole
        return control

    def on_log(
        self, _: TrainingArguments, state: TrainerState, __: TrainerControl, logs: Mapping[str, Any], **___: Any
    ) -> None:
        if not any(name.endswith("_runtime") for name in logs):  # an evaluation, or what a training took
            step = state.global_step
            new = {name: value for name, value in logs.items() if self._logged.get(name) != step}
            self._run.log(step, new)
            self._logged |= dict.fromkeys(new, step)

    def on_evaluate(
        self, _: TrainingArguments, state: TrainerState, __: TrainerControl, metrics: Mapping[str, Any], **___: Any
    ) -> None:
        for name, value in metrics.items():
            place = state.global_step, name
            if name != "epoch" and not name.endswith(_SPEEDS) and self._evaluated.get(place) != value:
                self._run.evaluate(state.global_step, name, value)
                self._evaluated[place] = value

    def on_save(self, args: TrainingArguments, state: TrainerState, _: TrainerControl, **__: Any) -> None:
        self._own.record(state.global_step, Path(str(args.output_dir)) / f"checkpoint-{state.global_step}")

    def on_train_end(self, _: TrainingArguments, state: TrainerState, __: TrainerControl, **___: Any) -> None:
        if self._stops:
            self._own.stop()
        self._own.finish(state.global_step)
