"""What the dashboard asks of the operators themselves; whoever starts it hands it in, so nothing here needs torch."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Maths(Protocol):
    """Formulas and weights of operators."""

    def weights(
        self, operator: Mapping[str, Any], numbers: Mapping[str, float], logits: Sequence[float]
    ) -> Sequence[float]:
        """The weights of one query that sees keys with these logits; `operator` is a spec as data."""
        ...
