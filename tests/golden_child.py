"""Trains the trials of standard input with the code on the import path, also that of another commit.

Each line of the output has the name, the sources and paths of the trial and all recorded values in hexadecimal, or the
error.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import torch

from ablate import Trial
from ablate.runners.processes.training_context import TrainingContext
from ablate.runners.provenance.code import Codes
from ablate.training.loop.train import train


class Recorder(TrainingContext):
    """Keeps the latest values of a training by name."""

    def __init__(self) -> None:
        self.path, self.latest = "", dict[str, tuple[int, list[float]]]()

    def begins(self, *given: Any) -> None:
        self.path = given[1]

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            if not name.endswith(("_s", "_second")):
                self._add(step, name, value)

    def evaluation(self, step: int, name: str, value: float, **_: Any) -> None:
        self._add(step, name, value)

    def probe(self, step: int, name: str, value: float, **_: Any) -> None:
        self._add(step, name, value)

    def _add(self, step: int, name: str, value: float) -> None:
        if self.latest.get(name, (step,))[0] != step:
            del self.latest[name]
        self.latest.setdefault(name, (step, []))[1].append(float(value))


def main() -> None:
    torch.set_num_threads(1)
    codes = Codes()
    for line in sys.stdin:
        name, data = json.loads(line)
        recorder = Recorder()
        try:
            trial = Trial.model_validate(data)
            train(trial, recorder)
            values = {each: [value.hex() for value in found] for each, (_, found) in recorder.latest.items()}
            told = [name, codes.sources(trial), recorder.path, json.dumps(values, sort_keys=True)]
        except Exception as error:  # noqa: BLE001  # compared as the outcome
            told = [name, {}, "", f"{type(error).__name__}: {error}"]
        sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
