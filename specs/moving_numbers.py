"""Constant, per layer, per head or per query, with numbers that move: their learning rate is tenfold.

In the 192 cells of specs/principled_granularity.py all numbers stayed near their start, so constant, layer and head
were nearly one function. Here the numbers start at 0 and have ten times the learning rate of the weights, as have the
gains of the norms. The check *on* of a finer cell says whether its numbers vary. The six seeds chose nothing.
"""

from typing import Literal

import torch
from principled_components import LOSS, gate, grammar, ground, margin, value

from ablate import AdamW, Grid, Operator, Values, granularities, over
from ablate.training.optimisers.optimiser import LR_SHARE, ParameterVectors


class FastNumbers(AdamW):
    """AdamW with a rate of its own for what has no weight decay: numbers of operators and gains of norms."""

    kind: Literal["specs_fast_numbers"] = "specs_fast_numbers"
    share: float = 10.0
    """The rate of numbers and gains as a multiple of `lr`."""

    def build(self, weights: ParameterVectors) -> torch.optim.Optimizer:
        groups = [{"params": weights.decayed}, {"params": weights.kept, LR_SHARE: self.share}]
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps, weight_decay=0.0, fused=True)


_components = {
    "margin": lambda per: Operator(margin=margin(per)),
    "gate": lambda per: Operator(gate=gate(per)),
    "threshold": lambda per: Operator(normaliser=ground(per), readout=Values()),
    "all": lambda per: Operator(
        margin=margin(per), gate=gate(per), normaliser=ground(per), readout=value("head" if per == "query" else per)
    ),
}
_base = grammar.changed(training=grammar.training.changed(optimiser=FastNumbers(lr=grammar.training.optimiser.lr)))


def moving(component: str) -> Grid:
    """Compare the granularities of a component with the coarsest."""
    operators = [_components[component](per) for per in granularities]
    return Grid(
        name=f"{component}-moving",
        base=_base,
        axes=[over("operator", operators, name="per", labels=granularities)],
        seeds=range(700, 706),
        baseline={"per": "constant"},
        measure=LOSS,
    )


margin_moving = moving("margin")
gate_moving = moving("gate")
threshold_moving = moving("threshold")
all_moving = moving("all")
