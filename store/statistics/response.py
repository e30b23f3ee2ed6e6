"""The values of runs in analysis units, for models that need every one of them."""

from grid.errors import SpecError
from store.statistics.paired import Floats
from store.statistics.scales import Scale, fits, forward


def response(y: Floats, scale: Scale) -> Floats:
    """`y` on the scale, of the same shape. Raises SpecError for a value that the scale cannot take."""
    if fits(y, scale):
        return forward(y, scale)
    if scale == "logit":
        wrong = y[(y <= 0) | (y >= 1)][0]
        raise SpecError(f"the logit scale needs values between 0 and 1; got {wrong:g}; give the measure scale='linear'")
    raise SpecError(f"the log scale needs values above 0; got {y.min():g}; give the measure scale='linear'")
