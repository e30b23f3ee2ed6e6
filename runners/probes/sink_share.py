"""How many heads have a sink, and how much attention a position draws.

    alpha_k = mean over the queries i >= k of A_ik            importance score of position k
    Sink_k  = mean over sequences of 1[alpha_k > eps]         sink share, per head

A_ik is the share of key k in the row of query i (`runners.probes.rows`). "When Attention Sink Emerges", section 3 and
appendix D.6, with eps = 0.3; its number for a model is the mean of these rows over layers and heads. Position 0 is the
learned key of a key bias; the released code counts a row for the bias itself, too, which does not exist here. Uniform
causal attention has importance H_T / T at position 1, so values of different lengths are never comparable.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from runners.probes.probe import Found, Probe, Seen
from runners.probes.rows import Rows, by_head, mean
from runners.tasks.task import Task
from variants import Backbone, Operator
from variants.transformer import Watched

Share = Annotated[float, Field(gt=0, lt=1)]


class SinkShare(Probe):
    """`importance` by head, a mean over queries and sequences, and `sink_share` by head and eps, over sequences."""

    kind: Literal["sink_share"] = "sink_share"
    eps: tuple[Share, ...] = (0.3,)
    """Importance above which a head has a sink there."""
    positions: tuple[NonNegativeInt, ...] = (1,)
    """Keys, counted from 1, sink tokens of the model first; 0 is the operator's learned key."""
    of: Literal["shares", "weights"] = "shares"
    """"weights": as they are, signed, whatever they sum to; rows are named `raw_importance` and `raw_sink_share`."""

    def check(self, task: Task, model: Backbone, operators: Sequence[Operator]) -> None:
        keys = task.length + model.sink_tokens
        beyond = [position for position in self.positions if position > keys]
        if beyond:
            raise ValueError(
                f"a sink is looked for at a position that sequences have; got positions={beyond} and up to {keys} keys"
            )
        if 0 in self.positions and all(operator.extra.label == "none" for operator in operators):
            raise ValueError("position 0 is a learned key and no operator of the trial has one; leave it out")

    def of_layer(self, layer: Watched, seen: Seen) -> Found:  # noqa: ARG002
        rows, prefix = Rows(layer), "" if self.of == "shares" else "raw_"
        for position in self.positions:
            weight = rows.weight(position)
            if weight is None:
                continue
            counted, point = rows.shown(position), {"position": position}
            if self.of == "shares":
                empty = rows.whole == 0
                weight, counted = weight.abs() / rows.whole.masked_fill(empty, 1), counted & ~empty
            alpha, there = mean(weight, counted, (-1,))
            yield from by_head(f"{prefix}importance", layer.layer, mean(alpha, there, (0,)), point)
            for eps in self.eps:
                above = (alpha > eps).to(alpha.dtype)
                yield from by_head(f"{prefix}sink_share", layer.layer, mean(above, there, (0,)), {"eps": eps, **point})
