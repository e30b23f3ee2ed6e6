"""Stretch a trained model's rotary positions over longer sequences during an evaluation."""

from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from grid.spec import Spec
from variants import Backbone, Positions, Rotary, Yarn


class Stretch(Spec):
    """YaRN, with base and share of the model's own rotary positions; `variants.stages.positions.yarn` has the
    formula.
    """

    factor: Annotated[float, Field(gt=1)]
    """Factor by which sequences become longer."""
    original: PositiveInt
    """Length of the training sequences, in tokens."""
    beta_fast: PositiveFloat = 32.0
    """Frequencies with at least this many turns in the original length stay as they are."""
    beta_slow: PositiveFloat = 1.0
    """Frequencies with at most this many turns in the original length are fully interpolated."""

    def of(self, own: Rotary) -> Yarn:
        """Return the stretched positions of a model that was trained with `own`; ValueError if impossible."""
        return Yarn(base=own.base, share=own.share, **self.data())


def stretch_positions(model: Backbone, scaling: Stretch | None) -> Positions:
    """Return the positions of `model` under `scaling`; ValueError if its positions are not rotary."""
    own = model.positions
    if scaling is None:
        return own
    if not isinstance(own, Rotary):
        raise ValueError(  # noqa: TRY004  (a rule of the spec)
            f"scaling stretches rotary positions; the model has {own.label!r}: leave scaling out"
        )
    return scaling.of(own)


def factor_of(scaling: Stretch | None) -> float:
    """Return the factor of a scaling, 1 without."""
    return 1.0 if scaling is None else scaling.factor
