"""Does margin amplification prevent dilution at its best rate, beside its controls, trained longer?

specs/dilution.py found a gain of 33 to 38 points for the margin at one rate, beyond every control. Among these, the
coldest temperature, 1/4, came next. Here each cell has its own best of three rates, and two colder temperatures are
variants. The six seeds are others and chose nothing. Softmax and the best variant are trained twice as long, too. Task,
measure, band and controls are the same.
"""

from dilution import grid as _dilution
from principled_components import margin

from ablate import AskedLengths, Operator, over, softmax, temperature

_operators = {
    "softmax": softmax(),
    "margin": Operator(margin=margin()),
    "temperature 1/8": temperature(1 / 8),
    "temperature 1/16": temperature(1 / 16),
}
grid = _dilution.changed(
    name="dilution-confirmation",
    base=_dilution.base.changed(
        task=_dilution.base.task.changed(evaluation=AskedLengths(lengths=(32, 256, 1024), sequences=64))
    ),
    axes=[
        over("operator", list(_operators.values()), labels=list(_operators)),
        over("training.optimiser.lr", [1e-3, 2e-3, 4e-3], name="rate", tune=True),
    ],
    seeds=range(510, 516),
    longer=2,
)
