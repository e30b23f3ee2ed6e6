"""Constant, per layer, per head or per query, with numbers that move, on tasks where their component acts.

In the 192 cells of specs/principled_granularity.py all numbers stayed near their start, so constant, layer and head
were nearly one function. Here each component has the task of specs/paper_claims.py or specs/dilution.py that asks for
it. Numbers start at 0 and have ten times the learning rate of the weights, as have the gains of norms, in softmax too.
"constant" is one learned number for all layers and heads. The check *on* of a finer cell says whether its numbers vary.
The six seeds chose nothing. A pilot on grammar, seed 900, chose the factor: thirty made the losses worse by 0.4 nats.
"""

from typing import Literal

import torch
from dilution import grid as _dilution
from paper_claims import flagged_match as _flagged_match, missing_key as _missing_key
from principled_components import gate, ground, margin

from ablate import AdamW, Grid, Number, Operator, Values, granularities, over, softmax
from ablate.training.optimisers.optimiser import LR_SHARE, ParameterVectors


class FastNumbers(AdamW):
    """AdamW with a rate of its own for what has no weight decay: numbers of operators, gains of norms, biases."""

    kind: Literal["specs_fast_numbers"] = "specs_fast_numbers"
    share: float = 10.0
    """The rate of these as a multiple of `lr`."""

    def build(self, weights: ParameterVectors) -> torch.optim.Optimizer:
        groups = [{"params": weights.decayed}, {"params": weights.kept, LR_SHARE: self.share}]
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps, weight_decay=0.0, fused=True)


def moving(name: str, like: Grid, operators: dict[str, Operator]) -> Grid:
    """Compare granularities with the coarsest on the task of `like`; softmax is beside them."""
    training = like.base.training
    return like.changed(
        name=name,
        base=like.base.changed(training=training.changed(optimiser=FastNumbers(lr=training.optimiser.lr))),
        axes=[over("operator", [softmax(), *operators.values()], name="per", labels=["softmax", *operators])],
        seeds=range(700, 706),
        baseline={"per": "constant"},
        controls=(),
    )


_ONE = Number(init=0.0, learned=True)
margin_moving = moving(
    "margin-moving",
    _dilution,
    {
        "constant": Operator(margin=margin().changed(amplification=_ONE)),
        **{per: Operator(margin=margin(per)) for per in granularities[1:]},
    },
)
gate_moving = moving(
    "gate-moving",
    _flagged_match,
    {
        "constant": Operator(gate=gate().changed(strength=_ONE)),
        **{per: Operator(gate=gate(per)) for per in granularities[1:]},
    },
)
threshold_moving = moving(
    "threshold-moving",
    _missing_key,
    {
        "constant": Operator(normaliser=ground().changed(threshold=_ONE), readout=Values()),
        **{per: Operator(normaliser=ground(per), readout=Values()) for per in granularities[1:]},
    },
)
