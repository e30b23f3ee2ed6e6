"""Rebuild the model of a finished trial from its kept weights."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import torch
from pydantic import ValidationError

from ablate.grid import spec_error
from ablate.grid.errors import NotFoundError, SpecError
from ablate.runners.attempts.experiments import experiment_class
from ablate.runners.checkpoint import load_checkpoint
from ablate.runners.execution.repro import ValueAddress, ValueDifference, differences
from ablate.runners.processes.process_state import contain, use_threads
from ablate.runners.processes.rank_launcher import device_of
from ablate.runners.provenance.code import Codes, changed_since
from ablate.store.files.atomic import is_temporary
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import AttemptState, TrialState, trial_state
from ablate.store.store import Store
from ablate.training.evaluations import Evaluator
from ablate.training.evaluations.evaluation import open_evaluations
from ablate.training.evaluations.knockout import Knockout
from ablate.training.loop.knockout import Subject, knock_out
from ablate.training.loop.model_predict import ModelPredict
from ablate.training.tasks.task import Items, Measurements
from ablate.training.trial import Trial, build_model
from ablate.variants.model.foreign import Model
from ablate.variants.model.transformer import Transformer

Device = Literal["auto", "cpu", "cuda"]


class Kept(NamedTuple):
    """A finished trial with kept weights: the facts in its files, before anything is loaded."""

    key: str
    attempt: AttemptState
    state: TrialState
    weights: Path

    @property
    def number(self) -> int:
        return self.attempt.attempt


@final
@dataclass(frozen=True)
class TrainedModel:
    """A finished trial with its model, ready for evaluations."""

    kept: Kept
    trial: Trial
    step: int
    model: Model
    device: torch.device
    sources: Mapping[str, str]
    """The present code, as in `ablate.runners.provenance.code`."""

    @property
    def predict(self) -> ModelPredict:
        return ModelPredict(self.model, self.device, self.trial.training.precision)

    @contextmanager
    def evaluation_context(self) -> Iterator[None]:
        cuda = [0] if self.device.type == "cuda" else []
        threads = use_threads(self.trial.execution.threads)
        apart = contain(self.trial.seed, self.device.type)
        with apart, torch.inference_mode(), torch.random.fork_rng(devices=cuda), threads:
            yield

    def evaluate(self, evaluator: Evaluator) -> tuple[list[Measurements | Items], Mapping[str, Any] | None]:
        (spec,) = self.trial.evaluations
        with self.evaluation_context(), self.model.use_positions(spec.positions(self.trial.model)):
            return list(evaluator.evaluate(self.predict)), evaluator.record

    def knock_out(self, asked: Knockout) -> list[Measurements | Items]:
        """Measure the knock-outs; empty if nothing of the trial yields their measure."""
        trial = self.trial.changed(execution=self.trial.execution.changed(knockout=asked))
        assert isinstance(self.model, Transformer)
        with self.evaluation_context():
            evaluators = open_evaluations(trial.task, trial.evaluations)
            subject = Subject(trial, self.model, trial.task.open(), evaluators, self.predict)
            return list(knock_out(subject, lambda _: None))


def find_kept(layout: Layout, key: str) -> Kept:
    """Find the kept weights of the trial's result; NotFoundError if it has no result, or kept no weights."""
    state = trial_state(layout, key)
    done = [each for each in state.attempts if each.end is not None and each.end.get("status") == "ok"]
    if not done:
        raise NotFoundError(f"trial {key[:8]} is {state.state} and has no trained model; run it first")
    directory = layout.weights(key, done[-1].attempt)
    files = sorted(path for path in directory.glob("step-*.pt") if not is_temporary(path))
    if not files:
        raise NotFoundError(
            f"trial {key[:8]} kept no weights, so there is no model to evaluate; put "
            "execution=Execution(keep_weights=True) into the spec, which changes no key, and train it with `ablate run "
            "SPEC --campaign ANOTHER`"
        )
    return Kept(key, done[-1], state, files[-1])


def no_trial(key: str, kind: str) -> SpecError:
    """Describe a trial of another class, whose model nobody can build later."""
    return SpecError(
        f"trial {key[:8]} is of {kind!r} and has no model of a Trial, which a later evaluation needs; record the value "
        "in its train, by run.evaluate(...)"
    )


def rebuild_model(kept: Kept, device: Device | None, codes: Codes) -> TrainedModel:
    """Rebuild the model on `device`, else where the trial trains; SpecError if the code makes another one."""
    step, state = load_checkpoint(kept.weights, kept.key)
    kind = state["spec"].get("kind")
    trial_class = experiment_class(kind)
    if not issubclass(trial_class, Trial):
        raise no_trial(kept.key, kind)
    try:
        trial = trial_class.model_validate(state["spec"])
    except ValidationError as error:
        reason = spec_error(error, "Trial")
        raise SpecError(
            f"the spec of trial {kept.key[:8]} cannot be read: {reason}; name missing files with --spec"
        ) from error
    if trial.key != kept.key:
        raise SpecError(f"the present code gives trial {kept.key[:8]} another key; use the code of its training")
    where = device_of(device or trial.execution.device)
    with contain(trial.seed, where.type):
        model = build_model(trial)
    try:
        model.load_state_dict(state["model"])
    except RuntimeError as error:
        raise SpecError(
            f"the weights of trial {kept.key[:8]} do not fit the model of the present code: "
            f"{' '.join(str(error).split())[:300]}; use the code of its training"
        ) from error
    model.to(where).eval()
    return TrainedModel(kept, trial, step, model, where, codes.sources(trial))


def find_changed_code(trained: TrainedModel) -> list[str]:
    """List the definitions of the trial that changed since its training, or ["everything"] if that is unknown."""
    changed = changed_since(trained.kept.state, trained.kept.number, trained.sources)
    return ["everything"] if changed is None else changed


def compare_with_training(trained: TrainedModel, store: Store) -> Sequence[ValueDifference]:
    """Compare the task's measurements with those of the training; empty if the model is the same function."""
    with trained.evaluation_context():
        rows = list(trained.trial.task.open().evaluate(trained.predict))
    measured = [each for each in rows if isinstance(each, Measurements)]
    now = {_value_address(trained.step, each.name, each.point): each.value for each in measured}
    recorded = store.sql(
        "SELECT name, CAST(to_json(point) AS VARCHAR), value FROM v_evaluation "
        "WHERE trial = $trial AND step = $step AND later IS NULL AND list_contains($names, name)",
        {"trial": trained.kept.key, "step": trained.step, "names": sorted({each.name for each in measured})},
    ).rows()
    before = {_value_address(trained.step, name, json.loads(point)): value for name, point, value in recorded}
    return differences(before, now)


def _value_address(step: int, name: str, point: Mapping[str, float]) -> ValueAddress:
    text = ", ".join(f"{axis}={float(value)!r}" for axis, value in sorted(point.items()))
    return ValueAddress("evaluation", step, name, point=text or None)
