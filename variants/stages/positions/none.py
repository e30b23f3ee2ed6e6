"""No positions: the causal mask alone tells order (NoPE)."""

from typing import ClassVar, Literal

from variants.stages.positions.scheme import Positions


class NoPositions(Positions):
    """Nothing is added or rotated."""

    source: ClassVar[str] = "The Impact of Positional Encoding on Length Generalization in Transformers"

    kind: Literal["none"] = "none"
