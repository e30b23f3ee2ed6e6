"""Does the gate of Principled Attention help where a flag forbids a match? At its best rate, beside more controls.

specs/paper_claims.py found a gain at four times the training length, with six seeds and one rate, and did not show it
to be beyond a wider feedforward. At the training length softmax filters all. So the question is whether a filter that
was learned on 32 tokens works on 128. Positions may explain a gain, as gates have channels that do not turn. So rotary
positions on three quarters of the channels and T5's are controls here, and a temperature of 1/4, which came next. A
review of the result added these three to the first plan of this file, before any run.

Each cell has its own best of three rates. Twelve other seeds chose nothing. They show a gain over a wider feedforward
with 90 % power and one beyond the band of 5 points with 49 %, at the means and spreads of the six. Softmax and the gate
are trained twice as long, the controls are not. Task, measure and band are the same. If a best rate stands at an end of
the three, one more level is added for all cells. After a look at the 324 trials, 0.0005 was: 0.001 was softmax's best.
"""

from paper_claims import flagged_match as _flagged_match
from principled_components import gate

from ablate import T5, Number, Operator, Rotary, Temperature, over, softmax
from ablate.grid.control import ControlChange

grid = _flagged_match.changed(
    name="gate-confirmation",
    axes=[
        over("operator", [softmax(), Operator(gate=gate())], labels=["softmax", "gate"]),
        over("training.optimiser.lr", [5e-4, 1e-3, 2e-3, 4e-3], name="rate", tune=True),
    ],
    seeds=range(510, 522),
    longer=2,
    controls=[
        *("a window of 32", "ALiBi", "no positions", "a feedforward of 75"),
        ControlChange("rotary on three quarters", "distance", {"model.positions": Rotary(share=0.75)}),
        ControlChange("T5's positions", "distance", {"model.positions": T5()}),
        ControlChange(
            "temperature 0.25",
            "parameters",
            {"operator.transform": Temperature(tau=Number(init=0.25, link="positive"))},
        ),
    ],
)
