"""Does margin amplification help by the number of keys, or only because its logits are larger from the start?

At alpha = 0 the margin multiplies logits by 1 + ln(2) ln K: 2.8 on average over the 32 positions of a training sequence.
Temperature 1 / 2.8 multiplies all logits by that constant, whatever K is. SSMax has a factor without the 1.
"""

from ablate import Grid, Operator, over, softmax, temperature
from principled_components import ACCURACY, LOSS, grammar, induction, margin

_operators = {
    "temperature 1/2.8": temperature(1 / 2.8),
    "softmax": softmax(),
    "margin, alpha fixed": Operator(margin=margin("constant")),
    "margin": Operator(margin=margin()),
}


def _controls(name, base, measure, seeds):
    return Grid(
        name=name,
        base=base,
        axes=[over("operator", list(_operators.values()), labels=list(_operators))],
        seeds=seeds,
        baseline={"operator": "temperature 1/2.8"},
        measure=measure,
    )


grammar_controls = _controls("grammar-controls", grammar, LOSS, range(100, 116))
induction_controls = _controls("induction-controls", induction, ACCURACY, range(100, 116))
