"""A teacher from a campaign: a finished trial that kept its weights, computed in the teacher's own `precision`."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, final

import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt, ValidationError, model_validator
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.grid.spec import OutsideKey, Spec
from ablate.grid.validation import spec_error
from ablate.runners.checkpoint import Saved, read_checkpoint
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state
from ablate.training.tasks.distillation.teacher import (
    Teacher,
    Teaching,
    require_positions,
    require_tokenizer,
    require_tokens,
)
from ablate.training.tasks.model_fit import require_model_fits, require_operator_fits
from ablate.training.tasks.task import Task
from ablate.training.tasks.text.encoder import Encodes
from ablate.training.tasks.user_files import absolute_path, require_hash
from ablate.variants import Backbone, Operator, Placement, Transformer
from ablate.variants.axes import Ids, Visibility
from ablate.variants.model.mixer import Layers, OperatorOrMixer

Hash = Annotated[str | None, Field(pattern="^[0-9a-f]{32}$")]

_WEIGHTS = re.compile(r"step-[0-9]+\.([0-9a-f]{32})\.pt")


@final
class Architecture(Spec):
    """The architecture of a trained model."""

    model: Backbone
    """Backbone."""
    operator: OperatorOrMixer
    """Operator or mixer."""
    placement: Placement
    """Layers with that operator."""
    vocabulary: PositiveInt
    """Number of tokens."""

    def operators(self) -> Layers:
        return self.placement.operators(self.operator, self.model.layers)


@final
class FinishedTrial(Teacher):
    """A finished trial, given by its `campaign` and key, or by the file of its `weights`; the rest is filled in."""

    kind: Literal["finished_trial"] = "finished_trial"
    campaign: Annotated[str | None, OutsideKey()] = None
    """Directory of its campaign."""
    weights: Annotated[str | None, OutsideKey()] = None
    """Instead of a campaign, the file: trials/<..>/<key>/<attempt>/weights/step-<step>.<hash>.pt, or a copy of it."""
    trial: Hash = None
    """Key of the trial; by default the key in the file of weights."""
    content_hash: Hash = None
    """Hash of the weights; by default those of the latest successful attempt."""
    architecture: Annotated[Architecture | None, OutsideKey()] = None
    """Architecture of the trial, filled in."""

    @model_validator(mode="after")
    def _is_what_was_trained(self) -> Self:
        """Fill in hash and architecture; a complete spec does not need the weights to be present."""
        if (self.campaign is None) == (self.weights is None) or (self.weights is None and self.trial is None):
            raise ValueError(
                "the finished trial has neither campaign and trial nor weights, or both; give campaign and trial, or "
                "the file of its weights"
            )
        for name in ("campaign", "weights"):
            if (path := getattr(self, name)) is not None:
                object.__setattr__(self, name, absolute_path(name, path))
        place = Path(str(self.campaign or self.weights))
        if self.content_hash is not None and self.architecture is not None and not place.exists():
            return self
        try:
            path = self._file()
            if self.content_hash is None or self.architecture is None or self.trial is None:
                kept = _read_kept(str(path))
                require_hash(self.trial or kept.trial, kept.trial, path, "trial")
                self.set_normal_form(trial=kept.trial, content_hash=_hash_of(path), architecture=kept.architecture)
        except SpecError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def label(self) -> str:
        what = "trial" if self.architecture is None else self.architecture.operator.label
        return f"{what} {str(self.trial)[:8]}"

    def models(self) -> Sequence[tuple[Backbone, Layers]]:
        known = self.known_architecture()
        return [(known.model, known.operators())]

    def check(self, task: Task) -> None:
        known = self.known_architecture()
        require_tokens(self.name(), known.vocabulary, task)
        table = known.model.positions.table
        require_positions(self.name(), table - known.model.sink_tokens if table else None, task)
        try:
            require_model_fits(task, known.model, task.length)
            for operator in dict.fromkeys(known.operators()):
                if isinstance(operator, Operator):
                    require_operator_fits(task, known.model, operator, task.length, "auto")
        except ValueError as error:
            raise ValueError(f"{self.name()} cannot learn the task itself: {error}") from error

    def open(self, task: Task) -> Teaching:
        path = self._file()
        saved = read_checkpoint(path)
        kept = _kept_trial(saved, path)
        if (kept.trial, kept.architecture.key) != (self.trial, self.known_architecture().key):
            raise SpecError(
                f"{path} holds trial {kept.trial} with another model or key than the spec names; leave trial, "
                "content_hash and architecture out to take it as it is"
            )
        _require_same_tokens(self.name(), kept, task)
        model = Transformer(
            kept.architecture.model, kept.architecture.operators(), inputs=task.inputs, seed=0, path="auto"
        )
        try:
            model.load_state_dict(dict(saved.state["model"]))
        except RuntimeError as error:
            raise SpecError(f"the weights of {self.name()} do not fit its model: {error}; train it anew") from error
        record = {"kind": self.kind, "trial": self.trial, "content_hash": self.content_hash, "step": saved.step}
        teaching = _Trained(model, record, lower=self.precision == "bfloat16")
        teaching.require_finite(self.name())
        return teaching

    def known_architecture(self) -> Architecture:
        assert self.architecture is not None
        return self.architecture

    def _file(self) -> Path:
        """Find the file of the weights; SpecError if there is none, or the trial has not finished."""
        if self.weights is None:
            return _find_weights(Layout(Path(str(self.campaign))), str(self.trial), self.content_hash)
        path = Path(self.weights)
        if _WEIGHTS.fullmatch(path.name) is None:
            raise SpecError(
                f"{path} is not named step-<step>.<hash>.pt, as kept weights are; give it as it was written"
            )
        if not path.is_file():
            raise SpecError(f"there is no file of weights {path}; give one from a trial with execution.keep_weights")
        if self.content_hash is not None:
            require_hash(self.content_hash, _hash_of(path), path)
        return path


@final
class _Trained(Teaching):
    def __init__(self, model: Transformer, record: Mapping[str, Any], *, lower: bool) -> None:
        super().__init__(model, record)
        self._lower = lower

    def forward(self, inputs: Ids, visible: Visibility | None) -> Float[Tensor, "batch tokens vocabulary"]:
        with torch.autocast(inputs.device.type, dtype=torch.bfloat16, enabled=self._lower):
            return self.model(inputs, visible)  # type: ignore[no-any-return]


class _KeptTrial(NamedTuple):
    """Description of a trial in its file of weights."""

    trial: str
    architecture: Architecture
    task: Mapping[str, Any]
    """Its task as data; for a student, the inner task."""
    tokenizer: Mapping[str, Any] | None
    """Record of its tokenizer, if any."""


@lru_cache(maxsize=64)  # the file name contains the content hash
def _read_kept(path: str) -> _KeptTrial:
    return _kept_trial(read_checkpoint(Path(path)), Path(path))


def _kept_trial(saved: Saved, path: Path) -> _KeptTrial:
    spec, weights = saved.state.get("spec"), saved.state.get("model")
    if not isinstance(spec, dict) or not isinstance(weights, dict):
        raise SpecError(f"{path} is a checkpoint of a trial at work; give kept weights, which come with their trial")
    if "read_in.bias" in weights:
        raise SpecError(f"trial {saved.trial} in {path} predicts numbers, and a teacher tokens; use another")
    if "read_in.weight" not in weights:
        raise SpecError(f"trial {saved.trial} in {path} has a model of its own, and a teacher a Backbone; use another")
    vocabulary = len(weights["read_in.weight"])
    parts = {name: spec[name] for name in ("model", "operator", "placement")}
    try:
        architecture = Architecture.model_validate({**parts, "vocabulary": vocabulary})
    except ValidationError as error:
        raise SpecError(f"the trial in {path} is none of this version: {spec_error(error, 'its spec')}") from error
    task = spec["task"]
    while task["kind"] == "distillation":
        task = task["task"]
    return _KeptTrial(saved.trial, architecture, task, (saved.state.get("data") or {}).get("tokenizer"))


def _require_same_tokens(name: str, kept: _KeptTrial, task: Task) -> None:
    known = kept.tokenizer
    if isinstance(task, Encodes) and known is not None and dict(known) == dict(task.encoder().record):
        return  # none of the teacher's files is needed
    what = "tokenizer" if isinstance(task, Encodes) else "vocabulary"
    rule = f"teacher and student have one {what}"
    try:
        own = Task._choose(dict(kept.task))
        assert isinstance(own, Task)
        encoder = own.encoder() if isinstance(own, Encodes) else None
    except (SpecError, ValueError) as error:
        why = spec_error(error, "its task") if isinstance(error, ValidationError) else str(error)
        raise SpecError(f"what {name} learned cannot be known here: {why}; {rule}, load its spec file") from error
    if encoder is not None and isinstance(task, Encodes):
        require_tokenizer(name, encoder, task)
        return
    if type(own) is not type(task) or isinstance(task, Encodes):
        raise SpecError(f"{name} learned the task {own.label!r} and the student's is {task.label!r}; {rule}")
    fields = {field: getattr(own, field) for field in type(own).model_fields}
    for field, value in fields.items():  # a field that changes the number of tokens
        wanted = getattr(task, field)
        if value != wanted and type(own).model_construct(**{**fields, field: wanted}).inputs != own.inputs:
            raise SpecError(f"{name} learned {field}={value}, the student's task {wanted}; {rule}, use the teacher's")


def _hash_of(path: Path) -> str:
    named = _WEIGHTS.fullmatch(path.name)
    assert named is not None
    return named[1]


def _find_weights(layout: Layout, trial: str, content_hash: str | None) -> Path:
    """Find the weights of the latest successful attempt, or the weights with this hash."""
    where = f"trial {trial} in {layout.root}"
    if not layout.exists():
        raise SpecError(f"{layout.root} holds no campaign; give the directory of one, a trial of which is the teacher")
    state = trial_state(layout, trial)
    if not state.attempts:
        raise SpecError(f"there is no {where}; `ablate status` lists those there are")
    ended = [each.attempt for each in reversed(state.attempts) if each.end and each.end.get("status") == "ok"]
    if not ended:
        raise SpecError(f"{where} is {state.state}, and no teacher before it has finished; run it to its end first")
    for attempt in ended[:1] if content_hash is None else ended:
        files = sorted(layout.weights(trial, attempt).glob("step-*.pt"))
        named = [path for path in files if _WEIGHTS.fullmatch(path.name)]
        chosen = [path for path in named if content_hash in (None, _hash_of(path))]
        if chosen:
            return chosen[-1]
    which = "" if content_hash is None else f" with content_hash {content_hash}"
    raise SpecError(f"{where} has no kept weights{which}; train it with execution.keep_weights=True")
