"""The model of a finished trial, made again from the weights that it kept."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import torch
from pydantic import ValidationError
from torch import Tensor

from grid import spec_error
from grid.errors import NotFoundError, SpecError
from runners.checkpoint import load_checkpoint
from runners.evaluations import Judge
from runners.execution.repro_values import ValueAddress, ValueDifference, differences
from runners.provenance.code import Codes, made_by
from runners.tasks.task import Items, Measurements
from runners.training.rank_launcher import device_of
from runners.trial import Trial, build_model
from store.files.atomic import is_temporary
from store.files.layout import Layout
from store.files.trial_status import AttemptState, TrialState, trial_state
from variants.model.transformer import Transformer

if TYPE_CHECKING:
    from store.store import Store

Device = Literal["auto", "cpu", "cuda"]


@final
@dataclass(frozen=True)
class Kept:
    """A finished trial whose weights are there: what its files say, before anything is loaded."""

    key: str
    attempt: AttemptState
    state: TrialState
    weights: Path

    @property
    def number(self) -> int:
        """Of the attempt that is its result."""
        return self.attempt.attempt


@final
@dataclass(frozen=True)
class TrainedModel:
    """A finished trial with its model, ready to be judged."""

    kept: Kept
    trial: Trial
    step: int
    model: Transformer
    device: torch.device
    sources: Mapping[str, str]
    """The code that is here, as `runners.provenance.code` has it."""

    def predict(self, inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        """Outputs as training computes them when it evaluates: on the device, in the precision of the training."""
        inputs = inputs.to(self.device)
        visible = None if visible is None else visible.to(self.device)
        if self.trial.training.precision == "float32":
            return self.model(inputs, visible)  # type: ignore[no-any-return]
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            return self.model(inputs, visible).float()  # type: ignore[no-any-return]

    @contextmanager
    def judged(self) -> Iterator[None]:
        """As training has it while it evaluates: no gradients, as many threads, random numbers of its own."""
        before = torch.get_num_threads()
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode())
            stack.enter_context(torch.random.fork_rng(devices=[0] if self.device.type == "cuda" else []))
            stack.callback(torch.set_num_threads, before)
            torch.set_num_threads(self.trial.execution.threads)
            yield

    def of(self, trial: Trial, sources: Mapping[str, str]) -> "TrainedModel":
        """The same model as that of `trial`, which has other evaluations and their code."""
        return replace(self, trial=trial, sources=sources)

    def measured(self, judge: Judge) -> tuple[list[Measurements | Items], Mapping[str, Any] | None]:
        """What `judge`, of the one evaluation of the trial, finds, and what it has read."""
        (spec,) = self.trial.evaluations
        with self.judged(), self.model.use_positions(spec.positions(self.trial.model)):
            return list(judge.evaluate(self.predict)), judge.record


def find_kept(layout: Layout, key: str) -> Kept:
    """The weights of the trial `key`, of the attempt that is its result.

    Raises:
        NotFoundError: it has no result, or kept no weights.
    """
    state = trial_state(layout, key)
    done = [each for each in state.attempts if each.end is not None and each.end.get("status") == "ok"]
    if not done:
        raise NotFoundError(f"a trained model is judged, and trial {key[:8]} is {state.status}; run it first")
    directory = layout.weights(key, done[-1].attempt)
    files = sorted(path for path in directory.glob("step-*.pt") if not is_temporary(path))
    if not files:
        raise NotFoundError(
            f"trial {key[:8]} kept no weights when it ended, so there is no model to judge; put "
            "execution=Execution(keep_weights=True) into the spec, which changes no key, and train it with `ablate run "
            "SPEC --campaign ANOTHER`: in its own campaign a finished trial is trained again only by --again, where "
            "its code has changed"
        )
    return Kept(key, done[-1], state, files[-1])


def rebuilt(kept: Kept, device: Device | None, codes: Codes) -> TrainedModel:
    """The model with its weights; `device` None is where the trial asks to be trained.

    Raises:
        StoreError: the weights were torn or altered.
        SpecError: a class of its spec is not known here, or the spec has another key with the code that is here.
        EnvironmentProblem: the device is not there.
    """
    step, state = load_checkpoint(kept.weights, kept.key)
    trial = _trial(kept.key, state["spec"])
    where = device_of(device or trial.execution.device)
    model = build_model(trial)
    try:
        model.load_state_dict(state["model"])
    except RuntimeError as error:
        raise SpecError(
            f"the code that is here makes another model of trial {kept.key[:8]} than the weights are of: "
            f"{' '.join(str(error).split())[:300]}; use the code that it was trained with"
        ) from error
    model.to(where).eval()
    return TrainedModel(kept, trial, step, model, where, codes.sources(trial))


def _trial(key: str, spec: Mapping[str, Any]) -> Trial:
    try:
        trial = Trial.model_validate(spec)
    except ValidationError as error:
        said = spec_error(error, "Trial")
        raise SpecError(
            f"the spec of trial {key[:8]} cannot be read here: {said}; if a class is missing, name the spec file that "
            "defines it with --spec FILE"
        ) from error
    if trial.key != key:
        raise SpecError(
            f"the code that is here gives trial {key[:8]} another key, so it is another trial: the fields of its specs "
            "have changed since; use the code that it was trained with"
        )
    return trial


def changed_code(trained: TrainedModel) -> list[str]:
    """Definitions of the trial that are not what it was trained with, by name; ["everything"] where nobody knows."""
    found = made_by(trained.kept.state, trained.kept.number)
    if not found or None in found:
        return ["everything"]
    known = [each for each in found if each is not None]
    names = sorted({name for each in (*known, trained.sources) for name in each})
    return [name for name in names if any(each.get(name) != trained.sources.get(name) for each in known)]


def unlike_before(trained: TrainedModel, store: "Store") -> Sequence[ValueDifference]:
    """Where what the task measures is not the same bits as at the end of the training, largest difference first.

    Empty where they are: the model that was rebuilt computes what the one that was trained computed.
    """
    with trained.judged():
        measured = [
            each for each in trained.trial.task.open().evaluate(trained.predict) if isinstance(each, Measurements)
        ]
    now = {_where(trained.step, each.name, each.point): each.value for each in measured}
    rows = store.sql(
        "SELECT name, CAST(to_json(point) AS VARCHAR), value FROM v_evaluation "
        "WHERE trial = $trial AND step = $step AND later IS NULL AND list_contains($names, name)",
        {"trial": trained.kept.key, "step": trained.step, "names": sorted({each.name for each in measured})},
    ).rows()
    before = {_where(trained.step, name, json.loads(point)): value for name, point, value in rows}
    return differences(before, now)


def _where(step: int, name: str, point: Mapping[str, float]) -> ValueAddress:
    written = ", ".join(f"{axis}={float(value)!r}" for axis, value in sorted(point.items()))
    return ValueAddress("evaluation", step, name, point=written or None)
