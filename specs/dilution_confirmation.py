"""Does margin amplification prevent dilution at its best rate, beside its controls, trained longer?

After half of its seeds, specs/dilution.py shows a gain of some 35 points for the margin and for SSMax at one rate. So
this was planned. Each cell has its own best of three rates. The eight seeds are others and chose nothing. Softmax and
the best variant are trained twice as long, too. Task, measure, band and controls are the same.
"""

from dilution import grid as _dilution
from principled_components import margin

from ablate import AskedLengths, Operator, over, softmax, ssmax

grid = _dilution.changed(
    name="dilution-confirmation",
    base=_dilution.base.changed(
        task=_dilution.base.task.changed(evaluation=AskedLengths(lengths=(32, 256, 1024), sequences=64))
    ),
    axes=[
        over("operator", [softmax(), Operator(margin=margin()), ssmax()], labels=["softmax", "margin", "SSMax"]),
        over("training.optimiser.lr", [1e-3, 2e-3, 4e-3], name="rate", tune=True),
    ],
    seeds=range(510, 518),
    longer=2,
)
