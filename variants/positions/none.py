"""No positions: the causal mask alone tells order (NoPE)."""

from typing import Literal

from variants.positions.scheme import Positions


class NoPositions(Positions):
    """Nothing is added or rotated."""

    kind: Literal["none"] = "none"

    @property
    def table(self) -> int:
        return 0
