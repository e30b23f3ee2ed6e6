"""Confirm what specs/principled_components.py suggested on the induction task, with new seeds and few comparisons.

There, margin amplification raised the accuracy at four times the training length, and gate, margin and threshold
together had the best mean. Eight seeds and 11 comparisons left the cells undecided. Here are four comparisons, 20 seeds
that chose nothing, and SSMax, which amplifies all logits by the logarithm of the number of keys, too.
"""

from ablate import Grid, Operator, Values, over, softmax, ssmax
from principled_components import ACCURACY, gate, ground, induction, margin

_operators = {
    "softmax": softmax(),
    "margin": Operator(margin=margin()),
    "gate + threshold": Operator(gate=gate(), normaliser=ground(), readout=Values()),
    "margin + gate + threshold": Operator(margin=margin(), gate=gate(), normaliser=ground(), readout=Values()),
    "SSMax": ssmax(),
}
grid = Grid(
    name="induction-confirmation",
    base=induction,
    axes=[over("operator", list(_operators.values()), labels=list(_operators))],
    seeds=range(100, 120),
    baseline={"operator": "softmax"},
    measure=ACCURACY,
)
