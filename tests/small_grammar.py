"""A trial on a small grammar that takes milliseconds, and what training records of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ablate import AdamW, Cosine, Grammar, Training, Trial
from ablate.runners.processes.training_context import TrainingContext
from ablate.training.evaluations.knockout import Knockout
from ablate.training.loop.train import train
from ablate.variants import fox, gpt2

GRAMMAR = Grammar(
    nouns=8,
    verbs=4,
    names=4,
    prepositions=2,
    topics=2,
    context=16,
    batch=8,
    validation_windows=24,
    agreement_pairs=4,
)
TRIAL = Trial(
    task=GRAMMAR,
    model=gpt2(layers=2, heads=2, width=16, max_positions=64).changed(positions={"kind": "rotary"}),
    operator=fox(),
    training=Training(steps=6, optimiser=AdamW(lr=5e-3), schedule=Cosine(warmup=2), clip=1.0),
)


class Recorder(TrainingContext):
    def __init__(self, stops: int = 0) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.logged: list[tuple[int, Mapping[str, float]]] = []
        self.kept: list[tuple[int, dict[str, Any]]] = []
        self.weights: Mapping[str, Tensor] = {}
        self._stops = stops

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.logged.append((step, dict(values)))

    def evaluation(
        self, step: int, name: str, value: float, *, point: Mapping[str, float], items: int, se_items: float | None
    ) -> None:
        self.rows.append((step, name, value, tuple(sorted(point.items())), items, se_items))

    def keep(self, step: int, state: Mapping[str, Any]) -> None:
        del step
        self.weights = state["model"]

    def stop_requested(self) -> bool:
        self._stops -= 1
        return self._stops == 0

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        self.kept.append((step, dict(state)))

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        return self.kept[-1] if self.kept else None

    def knocked(self) -> dict[str, tuple[Any, ...]]:
        return {row[1]: row for row in self.rows if row[1].startswith("knockout.")}

    def others(self) -> list[tuple[Any, ...]]:
        return [row for row in self.rows if not row[1].startswith("knockout.")]


def asking(trial: Trial, name: str = "loss", *sets: Sequence[str], **point: float) -> Trial:
    asked = Knockout(name=name, point=point, sets=tuple(map(tuple, sets)))
    return trial.changed(execution=trial.execution.changed(knockout=asked))


def run(trial: Trial) -> Recorder:
    found = Recorder()
    train(trial.changed(execution=trial.execution.changed(keep_weights=True)), found)
    return found
