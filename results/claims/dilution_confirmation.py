"""Does margin amplification prevent dilution at its best rate, beside more controls, trained longer?

specs/dilution.py found a gain of 33 to 38 points for the margin at one rate, beyond every control. The first plan of
this file, after half of its seeds, was eight other seeds, three rates and training twice as long. A review of the
result added controls before any run here: colder temperatures, a learned one, and logits that are multiplied by a
constant beyond the training length alone. The last are softmax in training, to the bit. The margin multiplies the bias
of T5's positions, too, as they do; temperatures leave it alone.

The six seeds are others and chose nothing. Softmax and the best variant are trained twice as long, the controls are
not. If a best rate stands at an end of the three, one more level is added for all cells.
"""

from typing import ClassVar, Literal

import torch
from dilution import grid as _dilution
from jaxtyping import Float
from principled_components import margin
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from ablate import AskedLengths, Margin, Number, Operator, Temperature, over, softmax, ssmax
from ablate.grid.control import ControlChange


class BeyondTraining(Margin):
    """Multiply logits by a constant where more keys are visible than in training.

    a = c z if K > trained, else z
    """

    source: ClassVar[str] = "here"

    kind: Literal["specs_beyond_training"] = "specs_beyond_training"
    constant: PositiveFloat = 2.0
    """The constant c."""
    trained: PositiveInt = 32
    """Visible keys up to which logits stay as they are."""

    def factor(self, count: Float[Tensor, "*#maps queries 1"]) -> Float[Tensor, "*#maps queries 1"]:
        return torch.where(count > self.trained, self.constant, 1.0).to(count.dtype)

    def oracle(self, count: int) -> float:
        return self.constant if count > self.trained else 1.0


def _temperature(label: str, tau: Number) -> ControlChange:
    return ControlChange(label, "temperature", {"operator.transform": Temperature(tau=tau)})


grid = _dilution.changed(
    name="dilution-confirmation",
    base=_dilution.base.changed(
        task=_dilution.base.task.changed(evaluation=AskedLengths(lengths=(32, 256, 1024), sequences=64))
    ),
    axes=[
        over("operator", [softmax(), Operator(margin=margin()), ssmax()], labels=["softmax", "margin", "SSMax"]),
        over("training.optimiser.lr", [1e-3, 2e-3, 4e-3], name="rate", tune=True),
    ],
    seeds=range(510, 516),
    longer=2,
    controls=[
        *("a window of 32", "ALiBi", "no positions"),
        *(f"temperature {tau}" for tau in (0.25, 0.5, 2, 4)),
        _temperature("temperature 0.125", Number(init=0.125, link="positive")),
        _temperature("a learned temperature", Number(init=1.0, link="positive", per=("layer", "head"))),
        *(
            ControlChange(
                f"logits times {constant} beyond 32",
                "temperature",
                {"operator.margin": BeyondTraining(constant=constant)},
            )
            for constant in (1.5, 2.0, 3.0)
        ),
    ],
)
