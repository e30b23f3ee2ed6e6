"""Norm of the residual stream at the first token, relative to other tokens.

    ratio_d = mean over sequences of |h_1|  /  mean over t > 1 of the mean over sequences of |h_t|

"When Attention Sink Emerges", figures 4 and 8. The depth d counts layers: 0 is the input of the first, l the output of
the l-th. The stream of a post-norm model is the output of its last norm, which hides most of the ratio; such a model
also has rows of the norm's input. The first token is the first key: in a model with sink tokens, the first of these.
Every position has the same weight; with padding, the mean at a position is over the sequences that reach it. First
tokens of later documents in a sequence are among the others. A sequence of one token has no ratio.
"""

from typing import ClassVar, Literal

from jaxtyping import Bool, Float
from torch import Tensor

from ablate.training.probes.attention_rows import AttentionRows, mean
from ablate.training.probes.probe import Found, Probe, Probed, ProbeInput, RowInfo
from ablate.variants.model.transformer import LayerTrace


class MassiveActivation(Probe):
    """`activation_ratio`, and the norms `activation_first` and `activation_others`, at {"depth": d} of each layer.

    A post-norm model also has `unnormed_activation_ratio` and so on, from depth 1 on, before the norm that ends a
    layer.
    """

    rows: ClassVar[tuple[RowInfo, ...]] = tuple(
        RowInfo(f"{stream}_{name}", unit, "layer", ("depth",))
        for stream in ("activation", "unnormed_activation")
        for name, unit in (("first", "length of a vector"), ("others", "length of a vector"), ("ratio", "ratio"))
    )

    kind: Literal["massive_activation"] = "massive_activation"

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        real, depth = AttentionRows(layer).real[:, 0], layer.layer + 1
        if layer.layer == 0:
            yield from _compare_norms("activation", layer.entering, real, 0, 0)
        yield from _compare_norms("activation", layer.leaving, real, layer.layer, depth)
        if layer.unnormed is not None:
            yield from _compare_norms("unnormed_activation", layer.unnormed, real, layer.layer, depth)


def _compare_norms(
    name: str, stream: Float[Tensor, "batch tokens width"], real: Bool[Tensor, "batch tokens"], layer: int, depth: int
) -> Found:
    norms, there = mean(stream.float().norm(dim=-1), real, (0,))
    others, any_other = mean(norms[1:], there[1:], (0,))
    if not (there[0] and any_other):
        return
    point, first, rest = {"depth": depth}, norms[0].item(), others.item()
    yield Probed(f"{name}_first", first, layer, point=point)
    yield Probed(f"{name}_others", rest, layer, point=point)
    if rest != 0:
        yield Probed(f"{name}_ratio", first / rest, layer, point=point)
