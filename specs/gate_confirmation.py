"""Does the gate of Principled Attention help where a flag forbids a match? At its best rate, beside its controls.

specs/paper_claims.py found a gain at four times the training length, with six seeds and one rate, and did not show it
to be beyond a wider feedforward. Here each cell has its own best of three rates, seeds are twelve others, which chose
nothing, and both are trained twice as long, too. Task, measure, band and controls are the same. A constant temperature
of 1/4 is no control of a gate; it is a variant here, since it came next to the gate there.
"""

from paper_claims import flagged_match as _flagged_match
from principled_components import gate

from ablate import Operator, over, softmax, temperature

grid = _flagged_match.changed(
    name="gate-confirmation",
    axes=[
        over(
            "operator",
            [softmax(), Operator(gate=gate()), temperature(0.25)],
            labels=["softmax", "gate", "temperature 1/4"],
        ),
        over("training.optimiser.lr", [1e-3, 2e-3, 4e-3], name="rate", tune=True),
    ],
    seeds=range(510, 522),
    longer=2,
)
