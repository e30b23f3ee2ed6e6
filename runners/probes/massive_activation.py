"""How much larger the residual stream is at the first token than elsewhere.

    ratio_d = mean over sequences of |h_1|  /  mean over t > 1 and sequences of |h_t|

"When Attention Sink Emerges", figures 4 and 8. The depth d counts layers: 0 is what enters the first, l what leaves the
l-th. The stream of a post-norm model is what its last norm gives, which hides most of the ratio. The first token is the
first key: in a model with sink tokens, the first of these. A sequence of one token has no ratio.
"""

from typing import Literal

from torch import Tensor

from runners.probes.probe import Found, Probe, Probed, Seen
from runners.probes.rows import Rows, mean
from variants.transformer import Watched


class MassiveActivation(Probe):
    """`activation_ratio`, and the norms `activation_first` and `activation_others`, at {"depth": d} of each layer."""

    kind: Literal["massive_activation"] = "massive_activation"

    def of_layer(self, layer: Watched, seen: Seen) -> Found:  # noqa: ARG002
        real = Rows(layer).real[:, 0]
        if layer.layer == 0:
            yield from _compared(layer.entering, real, 0, 0)
        yield from _compared(layer.leaving, real, layer.layer, layer.layer + 1)


def _compared(stream: Tensor, real: Tensor, layer: int, depth: int) -> Found:
    norms, there = mean(stream.float().norm(dim=-1), real, (0,))
    others, any_other = mean(norms[1:], there[1:], (0,))
    if not (there[0] and any_other):
        return
    point, first, rest = {"depth": depth}, norms[0].item(), others.item()
    yield Probed("activation_first", first, layer, point=point)
    yield Probed("activation_others", rest, layer, point=point)
    if rest != 0:
        yield Probed("activation_ratio", first / rest, layer, point=point)
