"""The stages of an operator as families of choices: what every member must provide.

A member is a frozen spec with a pure tensor function and an independent `oracle` in plain floats. It holds no weights:
its `Number` fields are turned into parameters by `variants.parameters` and handed back as keyword tensors that
broadcast against [B, H, T, T] logits (scalars: [1|B, 1|H, 1|T, 1]) or [B, H, T, D] values (vectors). What a member
must declare is checked when its class is defined.
"""

import inspect
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self, get_args

from torch import Tensor

from grid.errors import SpecError
from grid.spec import Choice
from variants.number import Number

Rescore = Callable[[Tensor], Tensor]
"""The operator's own log score with its numbers filled in: what a normaliser asks about logits of its own."""


class Stage(Choice):
    """A stage of an operator."""

    source: ClassVar[str]
    """Where the formula is from, with the equation's number."""
    functions: ClassVar[tuple[str, ...]] = ("oracle",)
    """The methods that take all of the member's numbers as keywords, each under its field's name."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "kind" in cls.model_fields:
            _require_source(cls)
            _require_plain_numbers(cls)
            for name in cls.functions:
                _require_numbers(cls, name)

    @classmethod
    def example(cls) -> Self:
        """A member that fits a head of 8 channels: what laws are proved on."""
        return cls()


del Stage._members  # not a family of its own: a margin and a gate may have the same kind


class Tends(NamedTuple):
    """An identity: with these numbers the score is that of the member `to`, within a relative error."""

    numbers: dict[str, float]
    to: str
    within: float


class Margin(Stage):
    """How the margin of a logit over the relevance threshold grows with the number of visible keys."""

    functions: ClassVar[tuple[str, ...]] = ("factor", "oracle")

    @abstractmethod
    def factor(self, count: Tensor, *args: Any, **numbers: Any) -> Tensor | None:
        """c [..., T, 1] in  a = gamma + c (z - gamma);  None for c = 1.  `count` [..., T, 1]: visible keys K_i."""

    @abstractmethod
    def oracle(self, count: int, *args: Any, **numbers: Any) -> float:
        """c in plain floats."""


class Gate(Stage):
    """What is subtracted from a logit because of a second, gating product of query and key."""

    functions: ClassVar[tuple[str, ...]] = ("suppression", "oracle")

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


class Score(Stage):
    """How much a key counts, before normalisation: f(a) > 0, computed and handed on as its logarithm."""

    functions: ClassVar[tuple[str, ...]] = ("log_score", "oracle")
    identities: ClassVar[tuple[Tends, ...]] = ()

    @abstractmethod
    def log_score(self, a: Tensor, *args: Any, **numbers: Any) -> Tensor:
        """log f(a), the shape of `a`; finite wherever `a` is."""

    @abstractmethod
    def oracle(self, a: float, *args: Any, **numbers: Any) -> float:
        """f(a) itself, in plain floats."""


class Weights(NamedTuple):
    """Attention weights [B, H, T, T], and the weight [B, H, T, 1] of what is not a key, where there is such a thing.

    Together they sum to one for every query that sees a key.
    """

    keys: Tensor
    ground: Tensor | None


class Normaliser(Stage):
    """From scores to weights. Receives the mask; what is not visible gets weight 0 and leaves no trace."""

    functions: ClassVar[tuple[str, ...]] = ("weights", "oracle")
    has_ground: ClassVar[bool] = False
    """Whether `weights` leaves weight to a ground state."""

    def relevance(self, *args: Any, **numbers: Any) -> Tensor | None:  # noqa: ARG002  (the family's signature)
        """The relevance threshold gamma that a margin is measured from, in units of the logit; None for 0."""
        return None

    def relevance_oracle(self, *args: Any, **numbers: Any) -> float:  # noqa: ARG002  (the family's signature)
        """The same in plain floats."""
        return 0.0

    @abstractmethod
    def weights(self, log_f: Tensor, mask: Tensor, log_score: Rescore, *args: Any, **numbers: Any) -> Weights:
        """Weights from log scores [B, H, T, T] and the visibility mask; `log_score` scores further logits."""

    @abstractmethod
    def oracle(
        self, f: list[float], score: Callable[[float], float], *args: Any, **numbers: Any
    ) -> tuple[list[float], float]:
        """Weights of the visible keys and of the ground state (0 without one), in plain floats."""


class Readout(Stage):
    """From weights and values to the output of a head."""

    functions: ClassVar[tuple[str, ...]] = ("output", "oracle")
    needs_ground: ClassVar[bool] = False

    @abstractmethod
    def output(self, weights: Weights, v: Tensor, *args: Any, **numbers: Any) -> Tensor:
        """[B, H, T, D] from weights and values [B, H, T, D]."""

    @abstractmethod
    def oracle(
        self, weights: list[float], ground: float, v: list[list[float]], *args: Any, **numbers: Any
    ) -> list[float]:
        """The output of one query, in plain floats."""


def _require_source(cls: type[Stage]) -> None:
    if not getattr(cls, "source", ""):
        raise SpecError(f'{cls.__qualname__} does not say where its formula is from; add source: ClassVar[str] = "..."')


def _require_plain_numbers(cls: type[Stage]) -> None:
    for name, field in cls.model_fields.items():
        if any(isinstance(part, type) and issubclass(part, Number) for part in get_args(field.annotation)):
            raise SpecError(f"{cls.__qualname__}.{name} holds a Number inside another type; give each its own field")


def _require_numbers(cls: type[Stage], name: str) -> None:
    """A misspelt keyword is found here and not in the first step of training."""
    numbers = {
        field
        for field, info in cls.model_fields.items()
        if isinstance(info.annotation, type) and issubclass(info.annotation, Number)
    }
    parameters = inspect.signature(getattr(cls, name)).parameters.values()
    taken = {each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    if taken != numbers and not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        raise SpecError(
            f"{cls.__qualname__}.{name} takes the numbers of its spec by name, after *: {sorted(numbers)}; "
            f"it takes {sorted(taken)}"
        )
