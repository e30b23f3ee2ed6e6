"""Windows as the text has them."""

from typing import ClassVar, Literal, final

from torch import Tensor

from runners.tasks.counter_rng import Draws
from runners.tasks.text.encoder import Encoder
from runners.tasks.text.interventions.intervention import Intervention


@final
class NoIntervention(Intervention):
    """Replaces nothing."""

    source: ClassVar[str] = "none"

    kind: Literal["none"] = "none"

    @property
    def replaced(self) -> tuple[int, ...]:
        return ()

    def tokens(self, draws: Draws, windows: int, encoder: Encoder) -> Tensor | int:  # noqa: ARG002
        return encoder.end
