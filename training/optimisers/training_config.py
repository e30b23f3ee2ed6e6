"""The training configuration as a spec."""

from typing import Literal, Self

from pydantic import PositiveFloat, PositiveInt, model_validator

from ablate.grid.spec import Spec
from ablate.training.optimisers.adamw import AdamW
from ablate.training.optimisers.optimiser import Optimiser
from ablate.training.optimisers.schedules import Constant, Schedule


class Training(Spec):
    """How long and how a model is trained. Evaluation is at the end, and every `evaluate_every` steps before it.

    A field that is added later is `Annotated[..., Added()]`, so that trials without it keep their keys.
    """

    steps: PositiveInt
    """Updates of the weights."""
    optimiser: Optimiser = AdamW()
    """The rule of an update, with its peak learning rate."""
    schedule: Schedule = Constant()
    """Share of that rate at each step."""
    clip: PositiveFloat | None = None
    """Largest norm of the gradient."""
    evaluate_every: PositiveInt | None = None
    """Steps between evaluations during training; the end is always evaluated."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products in training and evaluation; weights, updates and attention sums are float32."""

    @model_validator(mode="after")
    def _meaning_is_unique(self) -> Self:
        if self.evaluate_every is not None and self.evaluate_every >= self.steps:
            self.set_normal_form(evaluate_every=None)  # the end is evaluated anyway
        return self

    @model_validator(mode="after")
    def _warms_up_in_time(self) -> Self:
        warmup, longest = self.schedule.warmup, self.schedule.longest_warmup(self.steps)
        if warmup > self.steps:
            raise ValueError(
                f"schedule.warmup {warmup} is more than the {self.steps} steps; end the warm-up within training"
            )
        if warmup > longest:
            raise ValueError(
                f"schedule.warmup {warmup} does not end before the decay of {self.steps - longest} steps; lower one of "
                "them"
            )
        return self

    def lr(self, step: int) -> float:
        return self.optimiser.lr * self.schedule.factor(step - 1, self.steps)

    def evaluates(self, step: int) -> bool:
        return step == self.steps or (self.evaluate_every is not None and step > 0 and step % self.evaluate_every == 0)
