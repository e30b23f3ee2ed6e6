"""A budget of hours, as it is written on a command line."""

import re
from typing import Final, Literal, NamedTuple

from grid.errors import SpecError

_BUDGET: Final = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(gpu|cpu)-?h\s*", re.IGNORECASE)

Unit = Literal["GPU-h", "CPU-h"]


class Budget(NamedTuple):
    """How many hours may be used."""

    hours: float
    unit: Unit

    def __str__(self) -> str:
        """`200 GPU-h`."""
        return f"{self.hours:g} {self.unit}"


def budget_hours(text: str) -> Budget:
    """The budget that `text` says, such as `200gpuh` or `40 cpuh`.

    Raises:
        SpecError: it says none.
    """
    found = _BUDGET.fullmatch(text)
    if found is None or float(found[1]) == 0:
        raise SpecError(
            f"a budget is a number of hours above 0 and their unit, such as 200gpuh or 40cpuh; got {text!r}"
        )
    return Budget(float(found[1]), "GPU-h" if found[2].lower() == "gpu" else "CPU-h")
