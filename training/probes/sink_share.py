"""Share of heads with an attention sink, and the importance of positions.

    alpha_k = mean over the queries i >= k of A_ik            importance score of position k
    Sink_k  = mean over sequences of 1[alpha_k > eps]         sink share, per head

A_ik is the share of key k in the row of query i (`ablate.training.probes.attention_rows`). "When Attention Sink
Emerges", section 3 and appendix D.6, with eps = 0.3. The paper's number for a model is the mean of these rows over
layers and heads. Position 0 is the learned key of a key bias. The released code also counts a row for the bias itself,
which does not exist here. In an encoder every query sees key k, and alpha_k is a mean over all of them.

Uniform causal attention has importance H_T / T at position 1: 0.34 for 8 tokens, a sink by eps = 0.3, and 0.07 for 64.
Values of different lengths are not comparable. So only sequences without hidden tokens count: none with padding, and
none of several documents that do not see one another. For texts of short documents set `Probing.length` to a length
that some of them have.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt

from ablate.grid.validation import INCREASING
from ablate.training.probes.attention_rows import AttentionRows, by_head, mean
from ablate.training.probes.probe import Found, Probe, Probed, ProbeInput, RowInfo
from ablate.training.tasks.task import Task
from ablate.variants import Operator
from ablate.variants.model.foreign import AnyBackbone
from ablate.variants.model.transformer import LayerTrace

Share = Annotated[float, Field(gt=0, lt=1)]


class SinkShare(Probe):
    """`importance` by head, a mean over queries and sequences, and `sink_share` by head and eps, over sequences.

    `sink_sequences` by layer is the number of these sequences; with 0 there are no other rows.
    """

    rows: ClassVar[tuple[RowInfo, ...]] = tuple(
        row
        for prefix, unit in (("", "share of 1"), ("raw_", "weight, signed"))
        for row in (
            RowInfo(f"{prefix}sink_sequences", "sequences", "layer", ("position",)),
            RowInfo(f"{prefix}importance", unit, "layer and head", ("position",)),
            RowInfo(f"{prefix}sink_share", "share of 1", "layer and head", ("eps", "position")),
        )
    )

    kind: Literal["sink_share"] = "sink_share"
    eps: Annotated[tuple[Share, ...], INCREASING] = (0.3,)
    """Bounds of the importance, rising. A head has a sink above it."""
    positions: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1), INCREASING] = (1,)
    """Keys, counted from 1 and rising, sink tokens of the model first; 0 is the operator's learned key."""
    of: Literal["shares", "weights"] = "shares"
    """"weights" measures signed weights, and the name of every row begins with `raw_`."""

    def check(self, task: Task, model: AnyBackbone, operators: Sequence[Operator]) -> None:  # noqa: ARG002
        if 0 in self.positions and all(operator.extra.label == "none" for operator in operators):
            self.refuse("a learned key at position 0", operators, "key_bias()")

    def tokens(self, model: AnyBackbone) -> int:
        return max(1, max(self.positions) - model.sink_tokens)

    def records(self) -> Sequence[tuple[str, Mapping[str, float]]]:
        rows: list[tuple[str, Mapping[str, float]]] = []
        for position in self.positions:
            rows.append((f"{self._prefix}importance", {"position": position}))
            rows += [(f"{self._prefix}sink_share", {"eps": eps, "position": position}) for eps in self.eps]
        return rows

    @property
    def _prefix(self) -> str:
        return "" if self.of == "shares" else "raw_"

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        rows, prefix = AttentionRows(layer), self._prefix
        whole = rows.whole_sequence
        for position in self.positions:
            weight = rows.weight(position)
            if weight is None:
                continue
            counted, point = rows.visible(position) & whole[..., None], {"position": position}
            yield Probed(f"{prefix}sink_sequences", int(whole[:, 0].sum()), layer.layer, point=point)
            if self.of == "shares":
                empty = rows.whole == 0
                weight, counted = weight.abs() / rows.whole.masked_fill(empty, 1), counted & ~empty
            alpha, there = mean(weight, counted, (-1,))
            yield from by_head(f"{prefix}importance", layer.layer, mean(alpha, there, (0,)), point)
            for eps in self.eps:
                above = (alpha > eps).to(alpha.dtype)
                yield from by_head(f"{prefix}sink_share", layer.layer, mean(above, there, (0,)), {"eps": eps, **point})
