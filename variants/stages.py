"""The stages of an operator as families of choices: what every member must provide.

A member is a frozen spec with a pure tensor function and an independent `oracle` in plain floats. It holds no weights:
its `Number` fields are turned into parameters by `variants.parameters` and handed back as keyword tensors that
broadcast against [B, H, T, T] logits (scalars: [1|B, 1|H, 1|T, 1]) or [B, H, T, D] values (vectors).
"""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from grid.spec import Choice


class Tends(NamedTuple):
    """An identity: with these numbers the member computes what the member `to` computes, within an absolute error."""

    numbers: dict[str, float]
    to: str
    within: float


class Margin(Choice):
    """How the margin of a logit over the relevance threshold grows with the number of visible keys."""

    @abstractmethod
    def factor(self, count: Tensor, *args: Any, **numbers: Any) -> Tensor | None:
        """c [..., T, 1] in  a = gamma + c (z - gamma);  None for c = 1.  `count` [..., T, 1]: visible keys K_i."""

    @abstractmethod
    def oracle(self, count: int, *args: Any, **numbers: Any) -> float:
        """c in plain floats."""


class Gate(Choice):
    """What is subtracted from a logit because of a second, gating product of query and key."""

    @property
    def takes_channels(self) -> bool:
        """Whether the gate's channels come out of the head's own width."""
        return False

    @property
    @abstractmethod
    def channels(self) -> int:
        """How many of the last channels of q and k carry the gate."""

    @abstractmethod
    def suppression(self, q: Tensor, k: Tensor, *args: Any, **numbers: Any) -> Tensor:
        """[B, H, T, T] from the gate channels [B, H, T, G] of queries and keys."""

    @abstractmethod
    def oracle(self, q: list[float], k: list[float], *args: Any, **numbers: Any) -> float:
        """The same for one query and one key, in plain floats."""


class Score(Choice):
    """How much a key counts, before normalisation: f(a) > 0, computed and handed on as its logarithm."""

    source: ClassVar[str]
    identities: ClassVar[tuple[Tends, ...]] = ()

    @abstractmethod
    def log_score(self, a: Tensor, *args: Any, **numbers: Any) -> Tensor:
        """log f(a), the shape of `a`; finite wherever `a` is."""

    @abstractmethod
    def oracle(self, a: float, *args: Any, **numbers: Any) -> float:
        """f(a) itself, in plain floats."""


class Weights(NamedTuple):
    """Attention weights [B, H, T, T], and the weight of the ground state [B, H, T, 1] where there is one."""

    keys: Tensor
    ground: Tensor | None


class Normaliser(Choice):
    """From scores to weights. Receives the mask; what is not visible gets weight 0 and leaves no trace."""

    source: ClassVar[str]
    has_ground: ClassVar[bool] = False

    def relevance(self, *args: Any, **numbers: Any) -> Tensor | None:  # noqa: ARG002  (the family's signature)
        """The relevance threshold gamma the margin is measured from, in units of the logit; None for 0."""
        return None

    @abstractmethod
    def weights(self, log_f: Tensor, log_f_threshold: Tensor | None, mask: Tensor) -> Weights:
        """Weights from log scores [B, H, T, T], the log score of the threshold, and the visibility mask."""

    @abstractmethod
    def oracle(self, f: list[float], f_threshold: float | None) -> tuple[list[float], float]:
        """Weights of the visible keys and of the ground state, in plain floats."""


class Readout(Choice):
    """From weights and values to the output of a head."""

    source: ClassVar[str]
    needs_ground: ClassVar[bool] = False

    @abstractmethod
    def output(self, weights: Weights, v: Tensor, *args: Any, **numbers: Any) -> Tensor:
        """[B, H, T, D] from weights and values [B, H, T, D]."""

    @abstractmethod
    def oracle(
        self, weights: list[float], ground: float, v: list[list[float]], *args: Any, **numbers: Any
    ) -> list[float]:
        """The output of one query, in plain floats."""
