"""Signed weight of the first token, and the share of negative weights.

    mean over i > 1 of w_i1            "Affine-Scaled Attention", figure 4; "Integral Transformer", figure 1
    share of i > 1 with w_i1 < 0       "Integral Transformer", figure 5

The first token is the first key: in a model with sink tokens, the first of these. The first query, padding, and queries
of later documents, from which the task hides the first token, are left out.
"""

from typing import ClassVar, Literal

from ablate.training.probes.attention_rows import AttentionRows, by_head, mean
from ablate.training.probes.probe import Found, Probe, ProbeInput, RowInfo
from ablate.variants.model.transformer import LayerTrace


class FirstToken(Probe):
    """`first_token_weight` and `first_token_negative` by head, over queries and sequences of two tokens or more."""

    rows: ClassVar[tuple[RowInfo, ...]] = (
        RowInfo("first_token_weight", "weight, signed"),
        RowInfo("first_token_negative", "share of 1"),
        RowInfo("first_token_weight", "weight, signed", "layer and head", ("query",)),
    )

    kind: Literal["first_token"] = "first_token"
    by_query: bool = False
    """Record `first_token_weight` also at the point {"query": i}, i from 2, as a mean over sequences."""

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        rows = AttentionRows(layer)
        weight, counted = rows.weights[..., 1:, 0], rows.visible(1)[..., 1:]
        negative = (weight < 0).to(weight.dtype)
        yield from by_head("first_token_weight", layer.layer, mean(weight, counted, (0, 2)))
        yield from by_head("first_token_negative", layer.layer, mean(negative, counted, (0, 2)))
        if not self.by_query:
            return
        by_query = zip(*(each.unbind(1) for each in mean(weight, counted, (0,))), strict=True)
        for query, means in enumerate(by_query, start=2):
            yield from by_head("first_token_weight", layer.layer, means, {"query": query})
