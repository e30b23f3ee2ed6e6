"""Training as a spec, and the optimisers."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from grid.spec import Choice, Spec
from runners.schedules import Constant, Schedule

Beta = Annotated[float, Field(ge=0, lt=1)]


class Optimiser(Choice):
    """An elementwise rule: it sees the parameters as two long vectors, those under weight decay and the others.

    Under decay are weight matrices and embeddings; not under decay are biases, norms and the operators' numbers, whose
    neutral point is not zero.
    """

    lr: PositiveFloat
    """The peak learning rate."""

    @abstractmethod
    def build(self, decayed: Sequence[Tensor], kept: Sequence[Tensor]) -> torch.optim.Optimizer:
        """An optimiser over the vectors; its rate is set before every step."""


class AdamW(Optimiser):
    """Adam with decoupled weight decay; without decay, plain Adam."""

    kind: Literal["adamw"] = "adamw"
    lr: PositiveFloat = 1e-3
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.0

    def build(self, decayed: Sequence[Tensor], kept: Sequence[Tensor]) -> torch.optim.Optimizer:
        groups = [
            {"params": list(decayed), "weight_decay": self.weight_decay},
            {"params": list(kept), "weight_decay": 0.0},
        ]
        filled = [group for group in groups if group["params"]]
        return torch.optim.AdamW(filled, lr=self.lr, betas=self.betas, eps=self.eps, fused=True)


class Training(Spec):
    """How long and how a model is trained. Evaluation is at the end, and every `evaluate_every` steps before it."""

    steps: PositiveInt
    optimiser: Optimiser = AdamW()
    schedule: Schedule = Constant()
    clip: PositiveFloat | None = None
    """The gradient is scaled down to this norm where it is longer."""
    evaluate_every: PositiveInt | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of matrix products in training and evaluation; weights, their updates and what attention sums are float32."""

    @model_validator(mode="after")
    def _meaning_is_unique(self) -> Self:
        if self.evaluate_every is not None and self.evaluate_every >= self.steps:
            object.__setattr__(self, "evaluate_every", None)  # the end is evaluated anyway
        return self

    @model_validator(mode="after")
    def _warms_up_in_time(self) -> Self:
        if self.schedule.warmup > self.steps:
            raise ValueError(
                f"the warm-up ends within training; got schedule.warmup {self.schedule.warmup} of {self.steps} steps"
            )
        return self

    def lr(self, step: int) -> float:
        """The learning rate of `step`, counted from 1."""
        return self.optimiser.lr * self.schedule.factor(step - 1, self.steps)

    def evaluates(self, step: int) -> bool:
        """Whether the model is judged after `step` steps."""
        return step == self.steps or (self.evaluate_every is not None and step > 0 and step % self.evaluate_every == 0)
