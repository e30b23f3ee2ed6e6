"""Statistics of the gradient norm over all weights before clipping, at the first 500 steps.

    mean, sd, variance (over n, not n - 1), cv = sd / mean
    spikes at k:  number of steps with  norm > median + k MAD,   MAD = median |norm - median|, not scaled

"Affine-Scaled Attention", tables 4 and 5. The window includes the warm-up, whose large norms count as spikes. With a
MAD of 0 no spikes are counted. Norms that are not finite are counted separately.
"""

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import PositiveFloat

from ablate.grid.validation import INCREASING
from ablate.training.probes.probe import Found, Probe, Probed, ProbeInput, RowInfo


class GradientNorms(Probe):
    """`gradient_norm_mean`, `_sd`, `_variance` and `_cv`, and `gradient_spikes` at {"k": k}, of the whole model.

    `gradient_norm_not_finite` counts norms that are left out, if there are any.
    """

    at_divergence: ClassVar[bool] = True
    rows: ClassVar[tuple[RowInfo, ...]] = (
        RowInfo("gradient_norm_mean", "norm of the gradient", "model"),
        RowInfo("gradient_norm_variance", "norm of the gradient, squared", "model"),
        RowInfo("gradient_norm_sd", "norm of the gradient", "model"),
        RowInfo("gradient_norm_cv", "ratio", "model"),
        RowInfo("gradient_spikes", "steps", "model", ("k",)),
        RowInfo("gradient_norm_not_finite", "steps", "model"),
    )
    cost: ClassVar[str] = "numbers that training has anyway"

    kind: Literal["gradient_norms"] = "gradient_norms"
    k: Annotated[tuple[PositiveFloat, ...], INCREASING] = (6, 9)
    """Distances of spikes from the median, in MADs, rising."""

    def of_model(self, seen: ProbeInput) -> Found:
        norms = np.array([norm for norm in seen.norms if math.isfinite(norm)])
        if len(norms) < len(seen.norms):
            yield Probed("gradient_norm_not_finite", len(seen.norms) - len(norms))
        if not len(norms):
            return
        mean, variance = float(norms.mean()), float(norms.var())
        yield Probed("gradient_norm_mean", mean)
        yield Probed("gradient_norm_variance", variance)
        yield Probed("gradient_norm_sd", math.sqrt(variance))
        if mean > 0:
            yield Probed("gradient_norm_cv", math.sqrt(variance) / mean)
        median = np.median(norms)
        mad = np.median(np.abs(norms - median))
        for k in self.k if mad > 0 else ():
            yield Probed("gradient_spikes", int((norms > median + k * mad).sum()), point={"k": k})
