"""The family of optimisers, and the parameters of a model as a few long vectors."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, NamedTuple, final

from jaxtyping import Float
from pydantic import Field, PositiveFloat
from torch import Tensor
from torch.optim import Optimizer

from ablate.grid.spec import Choice

Beta = Annotated[float, Field(ge=0, lt=1)]

LR_SHARE = "lr_share"
"""Entry of a parameter group: its rate as a share of the optimiser's; by default 1."""


class ParameterVectors(NamedTuple):
    """The parameters of a model, each in one of these vectors with gradients."""

    decayed: list[Float[Tensor, " decayed"]]
    """Under weight decay: weight matrices and embeddings. One vector, or none."""
    kept: list[Float[Tensor, " kept"]]
    """Without weight decay: biases, norms and the operators' numbers, whose neutral point is not zero."""
    hidden: Float[Tensor, " hidden"] | None = None
    """The layers' weight matrices, one after another and not in `decayed`, for an optimiser with `by_matrix`."""
    shapes: tuple[tuple[int, int], ...] = ()
    """Outputs and inputs of each matrix in `hidden`."""

    def vectors(self) -> list[Float[Tensor, " _"]]:
        return [*self.decayed, *self.kept, *([] if self.hidden is None else [self.hidden])]

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        groups = [
            {"params": list(self.decayed), "weight_decay": weight_decay},
            {"params": list(self.kept), "weight_decay": 0.0},
        ]
        return [group for group in groups if group["params"]]


class Optimiser(Choice):
    """A rule that moves the parameters by their gradients."""

    by_matrix: ClassVar[bool] = False
    """True if it updates the layers' weight matrices as matrices."""

    lr: PositiveFloat
    """The peak learning rate."""

    @abstractmethod
    def build(self, weights: ParameterVectors) -> "Optimizer | Together":
        """Build an optimiser over the vectors.

        Before every step, the `lr` of each group is set to the rate of the step times the group's `lr_share`.
        """


@final
class Together:
    """Several optimisers as one, each with its own parameters."""

    def __init__(self, parts: Iterable[Optimizer]) -> None:
        self._parts = list(parts)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for part in self._parts for group in part.param_groups]

    def step(self) -> None:
        for part in self._parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        for part, state in zip(self._parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
