"""The family of optimisers, and what they get of a model: its parameters as a few long vectors."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, final

from pydantic import Field, PositiveFloat
from torch import Tensor

from grid.spec import Choice

Beta = Annotated[float, Field(ge=0, lt=1)]

LR_SHARE = "lr_share"
"""The entry of a parameter group that says what its rate is as a share of the optimiser's; where absent, 1."""


class ParameterVectors(NamedTuple):
    """The parameters of a model as vectors that have gradients; every one is in one of them."""

    decayed: list[Tensor]
    """Under weight decay: weight matrices and embeddings. One vector, or none."""
    kept: list[Tensor]
    """Not under weight decay: biases, norms and the operators' numbers, whose neutral point is not zero."""
    hidden: Tensor | None = None
    """The weight matrices of the layers, one after another, for an optimiser that asks for them (`by_matrix`); they
    are not in `decayed` then."""
    shapes: tuple[tuple[int, int], ...] = ()
    """Outputs and inputs of each matrix in `hidden`."""

    def vectors(self) -> list[Tensor]:
        """All of them."""
        return [*self.decayed, *self.kept, *([] if self.hidden is None else [self.hidden])]

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """`decayed` and `kept` as parameter groups of an optimiser that moves each number by itself."""
        groups = [
            {"params": list(self.decayed), "weight_decay": weight_decay},
            {"params": list(self.kept), "weight_decay": 0.0},
        ]
        return [group for group in groups if group["params"]]


class Stepping(Protocol):
    """What moves the parameters; `torch.optim.Optimizer` is one."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameters in groups; the `lr` of each is set before every step."""

    def step(self) -> Any:
        """Move the parameters by their gradients."""

    def state_dict(self) -> dict[str, Any]:
        """What the next step depends on besides parameters and gradients: tensors and plain data."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Go on from there."""


class Optimiser(Choice):
    """A rule that moves the parameters by their gradients."""

    by_matrix: ClassVar[bool] = False
    """Whether it treats the layers' weight matrices one by one, and not number by number."""

    lr: PositiveFloat
    """The peak learning rate."""

    @abstractmethod
    def build(self, weights: ParameterVectors) -> Stepping:
        """An optimiser over the vectors.

        Before every step the `lr` of each group is set to the rate of that step, times its `lr_share` where it has one.
        """


@final
class Together:
    """Several optimisers as one, each with parameters of its own."""

    def __init__(self, parts: Iterable[Stepping]) -> None:
        self._parts = list(parts)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of all parts."""
        return [group for part in self._parts for group in part.param_groups]

    def step(self) -> None:
        """A step of each."""
        for part in self._parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """That of each part."""
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Give each part its own."""
        for part, state in zip(self._parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
