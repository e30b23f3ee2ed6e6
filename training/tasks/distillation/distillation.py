"""Distillation: a model learns the predictions of a trained model, its teacher.

    p = softmax(t / tau), q = softmax(s / tau)                   t, s: logits of teacher and student, tau: temperature
    kl = sum_v p_v log(p_v / q_v)                                nats per token, over the whole vocabulary
    soft cross-entropy = -sum_v p_v log q_v = kl + H(p)
    loss = tau^2 mean kl + lambda * (loss of the task itself)    mean over the tokens that the task's loss asks for

Source: Affine-Scaled Attention (paper 000), which trains on predictions of larger models and does not name its loss.
This is the forward divergence of Hinton, Vinyals and Dean (2015). Its tau^2 keeps the size of gradients: as tau grows,
tau^2 kl tends to half the variance over the vocabulary of t - s. The paper's losses of 2.6 to 2.8 look like soft
cross-entropy, so both are recorded. Their difference, the teacher's entropy, is the same for all students.

The teacher predicts one part of a batch at a time, so micro-batches take less memory. A part needs about six float32
numbers per token and entry of the vocabulary; cross-entropy without a teacher needs four.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, final

import torch
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from torch.nn import functional as F

from ablate.grid.row_info import RowInfo
from ablate.training.tasks.counter_rng import CPU
from ablate.training.tasks.distillation.teacher import Teacher, Teaching, require_sound
from ablate.training.tasks.task import UNSCORED, Batch, Data, Items, Measurements, Predict, Task, over_items
from ablate.variants import Backbone, Tokens
from ablate.variants.model.mixer import Layers

_NUMBERS = 1 << 24
"""Logits of one forward pass of an evaluation."""
_ROWS = 32
"""Sequences of one forward pass of an evaluation, at most."""

_ALSO_SAID = ("encoder", "spelled", "windows", "class_names", "token_classes")
"""Attributes of a task's tokens that its distillation has too."""


class Distillation(Task):
    """Another task's sequences, with a teacher's predictions as targets.

    Metrics of a step are `kl` and `soft_cross_entropy` at the training temperature, without the factor tau^2, and
    `cross_entropy`, the task's own loss, if it has a weight. Evaluations are the task's own, the same of the teacher as
    `teacher.<name>`, and `validation_kl` and `validation_soft_cross_entropy` at temperature 1.
    """

    units: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("validation_kl", "validation_soft_cross_entropy"), "nats per token"
    )
    kind: Literal["distillation"] = "distillation"
    if TYPE_CHECKING:
        batch: PositiveInt = 1
    else:
        batch: ClassVar[Any] = property(lambda self: self.task.batch)  # the task's own, and no second field
    task: Task
    """A causal task of tokens: its sequences and evaluation."""
    teacher: Teacher
    """The model whose predictions are learned."""
    temperature: PositiveFloat = 1.0
    """tau: above 1, unlikely tokens count more."""
    cross_entropy_weight: NonNegativeFloat = 0.0
    """lambda: weight of the task's own loss."""
    validation_sequences: Annotated[int, Field(ge=2)] = 256
    """Number of the task's examples on which student and teacher are compared."""

    @model_validator(mode="after")
    def _can_be_taught(self) -> Self:
        if not isinstance(self.task.inputs, Tokens):
            raise ValueError(  # noqa: TRY004  (a rule of the spec)
                f"{self.task.label!r} has {self.task.inputs}, and a teacher predicts tokens; distil a task of tokens"
            )
        if self.task.sees_ahead or isinstance(self.task, Distillation):
            why = "has a teacher already" if isinstance(self.task, Distillation) else "sees what comes next"
            raise ValueError(
                f"{self.task.label!r} {why}, and a teacher predicts what comes next in a task; use another"
            )
        self.teacher.check(self.task)
        for name in _ALSO_SAID:
            if hasattr(self.task, name):
                self.__dict__[name] = getattr(self.task, name)  # protocols such as `Encodes` then hold here, too
        return self

    @property
    def inputs(self) -> Tokens:
        assert isinstance(self.task.inputs, Tokens)
        return self.task.inputs

    @property
    def length(self) -> int:
        return self.task.length

    @property
    def trained_length(self) -> int:
        return self.task.trained_length

    def measured_length(self, point: Mapping[str, float]) -> int:
        return self.task.measured_length(point)

    @property
    def unscored(self) -> int:
        return self.task.unscored

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]] | None:
        own = self.task.measures()
        if own is None:
            return None
        taught = {f"teacher.{name}": points for name, points in own.items() if "." not in name}
        return {**own, **taught, "validation_kl": [{}], "validation_soft_cross_entropy": [{}]}

    def row_infos(self) -> tuple[RowInfo, ...]:
        return (*super().row_infos(), *self.task.row_infos())

    def teachers(self) -> Sequence[tuple[Backbone, Layers]]:
        return self.teacher.models()

    def open(self) -> "DistillationData":
        inner, teaching = self.task.open(), self.teacher.open(self.task)
        require_sound(self.teacher.name(), teaching, self.task, inner.examples(1))
        return DistillationData(self, inner, teaching)


def divergence(
    student: Float[Tensor, "batch tokens vocabulary"],
    teacher: Float[Tensor, "batch tokens vocabulary"],
    temperature: float,
) -> tuple[Float[Tensor, "batch tokens"], Float[Tensor, "batch tokens"]]:
    """Compute the divergence of the student's logits, and the teacher's entropy: nats by token."""
    logits = student.float()
    kl, entropy = _Forward.apply(logits, teacher.to(logits.dtype), temperature)  # type: ignore[no-untyped-call]
    return kl, entropy


@final
class _Forward(torch.autograd.Function):
    """Keeps one tensor [B, T, V] for the gradient; autograd would keep three."""

    @staticmethod
    def forward(
        ctx: Any,
        student: Float[Tensor, "batch tokens vocabulary"],
        teacher: Float[Tensor, "batch tokens vocabulary"],
        temperature: float,
    ) -> tuple[Float[Tensor, "batch tokens"], Float[Tensor, "batch tokens"]]:
        log_q, log_p = (
            F.log_softmax(each if temperature == 1 else each / temperature, -1) for each in (student, teacher)
        )
        p = log_p.exp()
        entropy = -torch.linalg.vecdot(p, log_p)
        kl = torch.linalg.vecdot(p, log_p.sub_(log_q))
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(log_q.exp_().sub_(p))
            ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy)
        return kl, entropy

    @staticmethod
    def backward(
        ctx: Any, of_kl: Float[Tensor, "batch tokens"], _: Tensor
    ) -> tuple[Float[Tensor, "batch tokens vocabulary"], None, None]:
        """d kl / ds = (q - p) / tau."""
        (apart,) = ctx.saved_tensors
        return apart * (of_kl / ctx.temperature)[..., None], None, None


@final
class DistillationData(Data):
    """A task's sequences and a teacher with its weights."""

    def __init__(self, task: Distillation, inner: Data, teaching: Teaching) -> None:
        self._task, self._inner, self._teaching = task, inner, teaching
        self._of_teacher: list[Measurements] | None = None

    @property
    def record(self) -> Mapping[str, Any]:
        return {**(self._inner.record or {}), "teacher": dict(self._teaching.record)}

    @property
    def constant_loss(self) -> float:
        """Loss of a uniform prediction for a certain teacher, the worst case of the best constant prediction."""
        own = self._task.cross_entropy_weight * self._inner.constant_loss
        return self._task.temperature**2 * math.log(self._task.inputs.vocabulary) + own

    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        return self._inner.batch(seed, step, device)

    def examples(self, count: int) -> Batch:
        return self._inner.examples(count)

    def complete_batch(self, part: Batch) -> Batch:
        """Set targets float32 [B, T, vocabulary + 1]: the teacher's logits, then the token itself."""
        logits = self._teaching.logits(part.inputs, part.visible)
        return part._replace(targets=torch.cat((logits, part.targets[..., None].to(logits.dtype)), -1))

    def terms(self, targets: Sequence[Int[Tensor, "_ tokens"]]) -> list[int]:
        return self._inner.terms(targets)

    @property
    def logged(self) -> Sequence[str]:
        return "kl", "soft_cross_entropy", *(("cross_entropy",) if self._task.cross_entropy_weight else ())

    def loss(
        self, outputs: Float[Tensor, "batch tokens vocabulary"], targets: Float[Tensor, "batch tokens vocabulary+1"]
    ) -> Float[Tensor, ""]:
        return self.losses(outputs, targets)[0]

    def losses(
        self, outputs: Float[Tensor, "batch tokens vocabulary"], targets: Float[Tensor, "batch tokens vocabulary+1"]
    ) -> Sequence[Float[Tensor, ""]]:
        tau, weight = self._task.temperature, self._task.cross_entropy_weight
        labels = targets[..., -1].long()
        asked = labels != UNSCORED
        divergences = divergence(outputs, targets[..., :-1], tau)
        kl, entropy = ((each * asked).sum() / asked.sum() for each in divergences)
        if not weight:
            return tau**2 * kl, kl, kl + entropy
        own = self._inner.loss(outputs, labels)
        return tau**2 * kl + weight * own, kl, kl + entropy, own

    def evaluate(self, predict: Predict) -> Iterator[Measurements]:
        """Yield measurements of the student and the teacher, and their divergence."""
        yield from self._inner.evaluate(predict)
        yield from self._compare(predict)
        if self._of_teacher is None:  # at the device of the student by now
            rows = (row for row in self._inner.evaluate(self._teaching.predict) if not isinstance(row, Items))
            self._of_teacher = [row._replace(name=f"teacher.{row.name}") for row in rows if "." not in row.name]
        yield from self._of_teacher

    def _compare(self, predict: Predict) -> Iterator[Measurements]:
        examples = self._inner.examples(self._task.validation_sequences)
        count, length = examples.inputs.shape
        rows = max(1, min(_ROWS, _NUMBERS // (length * self._task.inputs.vocabulary)))
        kl, soft = [], []
        for part in examples.split(-(-count // rows)):
            hidden = () if part.visible is None else (part.visible,)
            outputs = predict(part.inputs, *hidden)
            teacher = self._teaching.logits(*(each.to(outputs.device) for each in (part.inputs, *hidden)))
            divergences = divergence(outputs, teacher, 1.0)
            asked = part.targets != UNSCORED
            asks = asked.any(1)
            each, entropy = (
                (values.to("cpu", torch.float64) * asked).sum(1)[asks] / asked.sum(1)[asks] for values in divergences
            )
            kl.append(each)
            soft.append(each + entropy)
        yield over_items("validation_kl", torch.cat(kl))
        yield over_items("validation_soft_cross_entropy", torch.cat(soft))
