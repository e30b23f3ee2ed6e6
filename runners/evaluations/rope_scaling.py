"""Stretching a trained model's rotary positions over longer sequences, while it is judged."""

from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from grid.spec import Spec
from variants import Backbone, Positions, Rotary, Yarn


class Stretch(Spec):
    """YaRN, with base and share of the model's own rotary positions; `variants.stages.positions.yarn` has the
    formula.
    """

    factor: Annotated[float, Field(gt=1)]
    """How many times longer sequences become."""
    original: PositiveInt
    """The length, in tokens, that the model was trained at."""
    beta_fast: PositiveFloat = 32.0
    """Turns within the original length from which on a frequency stays as it is."""
    beta_slow: PositiveFloat = 1.0
    """Turns within the original length up to which a frequency is interpolated in full."""

    def of(self, own: Rotary) -> Yarn:
        """The positions of a model that was trained with `own`; ValueError where these cannot be stretched so."""
        return Yarn(
            base=own.base,
            share=own.share,
            factor=self.factor,
            original=self.original,
            beta_fast=self.beta_fast,
            beta_slow=self.beta_slow,
        )


def stretched(model: Backbone, scaling: Stretch | None) -> Positions:
    """How `model` knows order under `scaling`.

    Raises:
        ValueError: it does not have rotary positions, which alone can be stretched.
    """
    own = model.positions
    if scaling is None:
        return own
    if not isinstance(own, Rotary):
        raise ValueError(  # noqa: TRY004  (a rule of the spec)
            f"scaling stretches rotary positions; the model has {own.label!r}: leave scaling out"
        )
    return scaling.of(own)


def factor_of(scaling: Stretch | None) -> float:
    """What is told of it beside what was measured; 1 without."""
    return 1.0 if scaling is None else scaling.factor
