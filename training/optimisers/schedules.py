"""Learning-rate schedules: the factor on the peak rate at each step. All warm up linearly first.

With w warm-up steps, s steps in all and f the floor (a share of the peak), for step t = 0, 1, ..., s - 1:

    warm-up    (t + 1) / w                                               while t < w
    constant   1
    linear     f + (1 - f) (s - t) / (s - w)
    cosine     f + (1 - f) (1 + cos(pi (t - w) / (s - w))) / 2
    wsd        1 until the last d steps, then f + (1 - f) g(x)           warm-up, stable, decay; w + d <= s

where x = (t - s + d) / d is the part of the decay that is over, and g is

    linear     1 - x
    cosine     (1 + cos(pi x)) / 2
    1-sqrt     1 - sqrt(x)                                               Hagele et al. (2024)
"""

import math
from abc import abstractmethod
from typing import Annotated, Literal, final

from pydantic import Field, NonNegativeInt

from ablate.grid.spec import Added, Choice

Share = Annotated[float, Field(ge=0, le=1)]


class Schedule(Choice):
    """Schedule of the learning rate; `warmup` steps rise linearly to the peak."""

    warmup: NonNegativeInt = 0
    """Steps that rise linearly to the peak."""

    @final
    def factor(self, step: int, steps: int) -> float:
        """Return the share of the peak learning rate at `step` of `steps`, counted from 0."""
        return (step + 1) / self.warmup if step < self.warmup else self.after_warmup(step, steps)

    def longest_warmup(self, steps: int) -> int:
        """Return how many of `steps` steps may be warm-up; by default all."""
        return steps

    @abstractmethod
    def after_warmup(self, step: int, steps: int) -> float:
        """Return the share of the peak at a step after the warm-up."""


class Constant(Schedule):
    """The peak rate throughout."""

    kind: Literal["constant"] = "constant"

    def after_warmup(self, step: int, steps: int) -> float:  # noqa: ARG002  (the family's signature)
        return 1.0


class Linear(Schedule):
    """A line from the peak to `floor` times the peak.

    With floor 0 it is the schedule of transformers' Trainer but for the warm-up, which is one step ahead here: that
    one's first step has the rate 0. Past the warm-up the two are equal, so that here two steps have the peak.
    """

    kind: Literal["linear"] = "linear"
    floor: Share = 0.0
    """Share of the peak at the end."""

    def after_warmup(self, step: int, steps: int) -> float:
        return self.floor + (1 - self.floor) * (steps - step) / (steps - self.warmup)


class Cosine(Schedule):
    """Half a cosine from the peak to `floor` times the peak."""

    kind: Literal["cosine"] = "cosine"
    floor: Share = 0.1
    """Share of the peak at the end."""

    def after_warmup(self, step: int, steps: int) -> float:
        done = (step - self.warmup) / (steps - self.warmup)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2


class WSD(Schedule):
    """Warm-up, stable, decay: the last `decay` share of all steps falls to `floor` times the peak.

    The share is rounded to whole steps, none of which may be warm-up.
    """

    kind: Literal["wsd"] = "wsd"
    decay: Share = 0.2
    """Share of the steps in which the rate falls."""
    floor: Share = 0.0
    """Share of the peak at the end."""
    shape: Annotated[Literal["linear", "cosine", "1-sqrt"], Added()] = "linear"
    """Shape of the decay."""

    def after_warmup(self, step: int, steps: int) -> float:
        falling, left = self._falling(steps), steps - step
        if left >= falling:
            return 1.0
        if self.shape == "linear":
            return self.floor + (1 - self.floor) * left / falling
        done = (falling - left) / falling
        height = (1 + math.cos(math.pi * done)) / 2 if self.shape == "cosine" else 1 - math.sqrt(done)
        return self.floor + (1 - self.floor) * height

    def longest_warmup(self, steps: int) -> int:
        return steps - self._falling(steps)

    def _falling(self, steps: int) -> int:
        return round(self.decay * steps)
