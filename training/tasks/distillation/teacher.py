"""The family of teachers: trained models whose predictions a student learns.

The hash of a teacher's weights is part of the key, their path is not.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ablate.grid.errors import SpecError
from ablate.grid.spec import Choice
from ablate.training.tasks.counter_rng import CPU
from ablate.training.tasks.task import Batch, Task
from ablate.training.tasks.text.encoder import Encoder, Encodes
from ablate.variants import Backbone, Tokens
from ablate.variants.axes import Ids, Visibility
from ablate.variants.model.mixer import Layers

_TRIED = 8
"""Number of predicted tokens that a teacher is tried on."""

_ROUNDING = 1e-3
"""Largest difference of two passes over the same tokens, as a share of the logits' spread."""

_SAMPLE = (
    "The quick brown fox jumps over 13 lazy dogs; isn't it 1.5 \u00d7 as na\u00efve?\n\n"
    "\tdef f(x_1): return {'\u03b1': x_1 ** 2}"
)


class Teacher(Choice):
    """A trained model that `Distillation` learns from."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of its matrix products; its logits are float32."""

    @abstractmethod
    def check(self, task: Task) -> None:
        """Refuse a task that it cannot teach, without reading its weights; ValueError if it cannot teach the task."""

    @abstractmethod
    def open(self, task: Task) -> "Teaching":
        """Read the weights; SpecError if they are missing, differ from the spec, or cannot teach the task."""

    def models(self) -> Sequence[tuple[Backbone, Layers]]:
        """Return its model, if known without its weights, with the operator of each layer."""
        return ()

    def name(self) -> str:
        return f"the teacher {self.label}"


class Teaching(ABC):
    """A teacher with its weights, which move to the device of the first inputs."""

    def __init__(self, model: nn.Module, record: Mapping[str, Any]) -> None:
        self.model = model.eval().requires_grad_(requires_grad=False)
        self._device = CPU
        self.record = record

    @abstractmethod
    def forward(self, inputs: Ids, visible: Visibility | None) -> Float[Tensor, "batch tokens vocabulary"]:
        """Compute logits of any precision."""

    @torch.inference_mode()
    def logits(self, inputs: Ids, visible: Visibility | None = None) -> Float[Tensor, "batch tokens vocabulary"]:
        """Map token ids and visibility as in `Batch` to logits in float32 on their device."""
        if inputs.device != self._device:
            self.model.to(inputs.device)
            self._device = inputs.device
        return self.forward(inputs, visible).float()

    def predict(self, inputs: Ids, visible: Visibility | None = None) -> Float[Tensor, "batch tokens vocabulary"]:
        return self.logits(inputs.to(self._device), None if visible is None else visible.to(self._device))

    def require_finite(self, name: str) -> None:
        for where, weights in self.model.named_parameters():
            if not bool(weights.isfinite().all()):
                raise SpecError(f"{where} of {name} has numbers that are not finite; use another teacher")


def require_tokens(name: str, teacher: int | None, task: Task) -> None:
    """Raise ValueError unless the task has `teacher` tokens."""
    vocabulary = task.inputs.vocabulary if isinstance(task.inputs, Tokens) else 0
    if teacher != vocabulary:
        padded = f"; if the teacher's table is padded, set tokenizer vocabulary={teacher}"
        raise ValueError(
            f"{name} has {teacher or 'no'} tokens and the task {task.label!r} has {vocabulary or 'none'}; use the "
            f"teacher's tokenizer{padded if isinstance(task, Encodes) and teacher else ''}"
        )


def require_positions(name: str, teacher: int | None, task: Task) -> None:
    """Raise ValueError if the task's sequences exceed the teacher's positions; None is unlimited."""
    if teacher is not None and teacher < task.length:
        raise ValueError(
            f"{name} has {teacher} positions, and the task's sequences up to {task.length} tokens; shorten the task or "
            "use another teacher"
        )


def require_tokenizer(name: str, teacher: Encoder, task: Task) -> None:
    """Raise SpecError if task and teacher tokenize a sample differently."""
    if not isinstance(task, Encodes):
        return
    own = task.encoder()
    if dict(own.record) == dict(teacher.record):
        return
    tokens = (list(teacher.encode(_SAMPLE).ids), list(own.encode(_SAMPLE).ids))
    if tokens[0] != tokens[1]:
        at = next((at for at, (one, two) in enumerate(zip(*tokens, strict=False)) if one != two), min(map(len, tokens)))
        theirs, ours = (ids[at : at + 1] for ids in tokens)
        raise SpecError(f"{name} has token {at} as {theirs}, the task {ours}; give teacher and student one tokenizer")


def require_sound(name: str, teaching: Teaching, task: Task, example: Batch) -> None:
    """Try a teacher; SpecError if logits have another shape, are not finite, or depend on later tokens."""
    tried = task.unscored + _TRIED
    inputs = example.inputs[:1, :tried]
    visible = None if example.visible is None else example.visible[:1, :tried, :tried]
    logits = teaching.logits(inputs, visible)
    wanted = task.inputs.vocabulary if isinstance(task.inputs, Tokens) else 0
    if logits.shape != (*inputs.shape, wanted):
        raise SpecError(
            f"{name} gives logits {tuple(logits.shape)} for tokens {tuple(inputs.shape)} of a vocabulary of {wanted}, "
            "and not one per token of the task; use another"
        )
    if not bool(logits.isfinite().all()):
        raise SpecError(f"{name} gives logits that are not finite; use another")
    first = inputs.shape[1] - 1
    if first <= task.unscored:
        return
    changed = inputs.clone()
    changed[:, -1] = (changed[:, -1] + 1) % wanted
    seen = (teaching.logits(changed, visible) - logits)[:, task.unscored : first].abs().max()
    if seen > _ROUNDING * logits.std():
        raise SpecError(
            f"{name} reads ahead, and a teacher predicts what comes next without having seen it; use another"
        )
