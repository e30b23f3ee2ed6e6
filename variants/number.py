"""A number: a learned or fixed quantity of an operator, and the axes it varies along.

Granularity is a set of axes. Coarse to fine, by their usual names:

    constant   ()                        a hyperparameter (or one trained scalar, learned=True)
    layer      (layer)                   one scalar per layer
    head       (layer, head)             one scalar per head
    query      (layer, head, query)      predicted from the head's query vector: u . q + the head's scalar
    token      (layer, head, token)      predicted from the layer's normalised input: u . x + the head's scalar

The projections u start at zero, so a finer granularity computes the same function as a coarser one at step 0.
"""

import math
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import BeforeValidator, NonNegativeFloat, PositiveFloat, model_validator
from torch import Tensor
from torch.nn import functional as F

from grid.spec import Spec

Axis = Literal["layer", "head", "query", "token"]

_ORDER: tuple[Axis, ...] = ("layer", "head", "query", "token")
_NAMED: dict[str, tuple[Axis, ...]] = {
    "constant": (),
    "layer": ("layer",),
    "head": ("layer", "head"),
    "query": ("layer", "head", "query"),
    "token": ("layer", "head", "token"),
}

granularities = ("constant", "layer", "head", "query")
"""The granularities of a scalar number that the papers compare, coarse to fine: values for an axis that ends in `.per`.

A scalar may also vary per "token": predicted from the layer's input and not from the query alone.
"""


class HeadShape(NamedTuple):
    """What a layer's heads look like to a number. All but `heads` count channels."""

    heads: int
    query: int
    """Of a query, the gate's included."""
    semantic: int
    """Of a query without the gate's."""
    signal: int
    """Of one signal of a query."""
    value: int
    width: int
    """Of the layer's input."""


class Range(NamedTuple):
    """A link: from the real line, where training moves, to the range the operator accepts."""

    value: Callable[[Tensor], Tensor]
    inverse: Callable[[float], float]
    low: float
    high: float
    closed: bool
    """Whether a fixed number may lie on the border; a trained one only approaches it."""

    def holds(self, value: float, *, trained: bool) -> bool:
        """Whether a number may be, or start, at `value`."""
        return self.low < value < self.high or (self.closed and not trained and value in (self.low, self.high))

    def words(self, *, trained: bool) -> str:
        """The range as an interval."""
        border = "[]" if self.closed and not trained else "()"
        return f"{border[0]}{self.low:g}, {self.high:g}{border[1]}"


def _softplus_inverse(value: float) -> float:
    return value + math.log(-math.expm1(-value))


Link = Literal["identity", "positive", "at_least_one", "unit", "clipped"]

LINKS: dict[Link, Range] = {
    "identity": Range(lambda raw: raw, lambda value: value, -math.inf, math.inf, closed=False),
    "positive": Range(torch.exp, math.log, 0, math.inf, closed=False),
    "at_least_one": Range(
        lambda raw: 1 + F.softplus(raw), lambda value: _softplus_inverse(value - 1), 1, math.inf, closed=True
    ),
    "unit": Range(torch.sigmoid, lambda value: math.log(value / (1 - value)), 0, 1, closed=True),
    "clipped": Range(
        lambda raw: (0.1 * raw + 0.5).clamp(0, 1), lambda value: (value - 0.5) / 0.1, 0, 1, closed=True
    ),  # linear clipping of Affine-Scaled Attention: slope 0.1, no gradient once it has reached a border
}


def _axes(per: object) -> object:
    if isinstance(per, str):
        if per not in _NAMED:
            raise ValueError(f"a granularity is one of {', '.join(_NAMED)} or a tuple of axes, got {per!r}")
        return _NAMED[per]
    if isinstance(per, list | tuple):
        return tuple(axis for axis in _ORDER if axis in per) + tuple(axis for axis in per if axis not in _ORDER)
    return per


Granularity = Annotated[tuple[Axis, ...], BeforeValidator(_axes)]


class Number(Spec):
    """A scalar quantity of an operator: where it starts, along which axes it varies, and the range it stays in.

    `init` is the value the operator sees at step 0 (after the link). A granularity finer than constant is trained;
    `learned=True` also trains a constant, one scalar for all layers and heads.
    """

    allowed: ClassVar[tuple[tuple[Axis, ...], ...]] = (*_NAMED.values(), ("head",))
    noun: ClassVar[str] = "number"

    init: float
    per: Granularity = ()
    link: Link = "identity"
    learned: bool | None = None

    @model_validator(mode="after")
    def _meaning_is_unique(self) -> Self:
        if self.per not in self.allowed:
            names = {axes: repr(name) for name, axes in _NAMED.items()}
            known = ", ".join(names.get(per, repr(per)) for per in self.allowed)
            given = names.get(self.per, repr(self.per))
            raise ValueError(f"the granularity of a {self.noun} is one of {known}; got {given}")
        if self.per and self.learned is False:
            raise ValueError(
                f"what varies along {', '.join(self.per)} is learned; use per='constant' for a fixed value"
            )
        if self.learned is bool(self.per):
            object.__setattr__(self, "learned", None)
        link = LINKS[self.link]
        for init in self._inits():
            if not link.holds(init, trained=self.trained):
                what = "trained" if self.trained else "fixed"
                words = link.words(trained=self.trained)
                raise ValueError(f"a {what} number with link {self.link!r} has init in {words}; got {init}")
        return self

    def _inits(self) -> tuple[float, ...]:
        return (self.init,)

    @property
    def trained(self) -> bool:
        """Whether an optimiser moves it."""
        return bool(self.per) or bool(self.learned)

    @property
    def random(self) -> bool:
        """Whether its start is drawn, and not the same for every seed."""
        return False

    @property
    def label(self) -> str:
        """The usual name of the granularity."""
        names = {axes: name for name, axes in _NAMED.items()}
        return names.get(self.per, "+".join(self.per))

    def at(self, per: str | tuple[Axis, ...]) -> Self:
        """The same number at another granularity."""
        return self.changed(per=per, learned=None)

    def init_at(self, layer: int) -> float:  # noqa: ARG002  (a number may start differently by depth)
        """Where it starts in `layer`, counted from 0."""
        return self.init

    def entries(self, shape: HeadShape) -> tuple[int, int]:  # noqa: ARG002  (a vector has one entry per channel)
        """The last two sizes of its value, [1, H, rows, columns]."""
        return 1, 1

    def table(self, shape: HeadShape, layer: int) -> Tensor:
        """Its raw table [1, H or 1, rows, columns] where training starts, before anything random is added."""
        return self._filled(shape, LINKS[self.link].inverse(self.init_at(layer)))

    def fixed(self, shape: HeadShape, layer: int) -> Tensor:
        """Its value where it is not trained, [1, H or 1, rows, columns]."""
        return self._filled(shape, self.init_at(layer))

    def disturb(self, table: Tensor, made: torch.Generator) -> None:
        """Add to a raw table what is random about its start; nothing about a scalar's is."""

    def value(self, raw: Tensor, layer: int) -> Tensor:  # noqa: ARG002  (a number may depend on depth)
        """The operator's value for a raw one."""
        return LINKS[self.link].value(raw)

    def _filled(self, shape: HeadShape, value: float) -> Tensor:
        return torch.full((1, self.heads(shape), *self.entries(shape)), value, dtype=torch.float32)

    def heads(self, shape: HeadShape) -> int:
        """How many heads have a value of their own."""
        return shape.heads if "head" in self.per else 1


class Vector(Number):
    """A quantity with one entry per value channel, such as the ground value v0: [1, H, 1, D] to the operator.

    It is never predicted from the query. `init` is the value of every channel, or of the `first` alone, the others
    being 0. A trained one starts with noise of standard deviation `spread` on its raw entries.
    """

    allowed: ClassVar[tuple[tuple[Axis, ...], ...]] = ((), ("layer",), ("layer", "head"), _NAMED["token"])
    noun: ClassVar[str] = "vector"

    spread: NonNegativeFloat = 0.0
    along: Literal["all", "first"] = "all"

    @model_validator(mode="after")
    def _every_field_counts(self) -> Self:
        if self.spread and not self.trained:
            raise ValueError(
                f"spread is noise on a trained vector's start; this one is fixed, got spread={self.spread}"
            )
        if self.along == "first" and self.link != "identity":
            raise ValueError(f"along='first' sets the other channels to 0 and needs link='identity'; got {self.link!r}")
        if self.along == "first" and self.init == 0:
            object.__setattr__(self, "along", "all")  # zero in every channel either way
        return self

    @property
    def random(self) -> bool:
        return self.spread > 0

    def entries(self, shape: HeadShape) -> tuple[int, int]:
        return 1, shape.value

    def disturb(self, table: Tensor, made: torch.Generator) -> None:
        if self.spread:
            table.add_(torch.empty(table.shape).normal_(0, self.spread, generator=made).to(table.device))

    def _filled(self, shape: HeadShape, value: float) -> Tensor:
        filled = super()._filled(shape, value)
        if self.along == "first":
            filled[..., 1:] = 0
        return filled


class KeyVector(Vector):
    """A quantity with one entry per channel of a key, the gate's not counted: [1, H, 1, D] to the operator."""

    allowed: ClassVar[tuple[tuple[Axis, ...], ...]] = ((), ("layer",), ("layer", "head"))
    noun: ClassVar[str] = "vector of key channels"

    def entries(self, shape: HeadShape) -> tuple[int, int]:
        return 1, shape.semantic


class Matrix(Number):
    """A square matrix over the channels of one signal, [1, H, D, D] to the operator, drawn at random.

    `init` is the gain: entries are drawn with standard deviation init / sqrt(D). Shared by the heads of a layer or not.
    """

    allowed: ClassVar[tuple[tuple[Axis, ...], ...]] = (("layer",), ("layer", "head"))
    noun: ClassVar[str] = "matrix"

    init: PositiveFloat = 1.0
    per: Granularity = ("layer",)

    @property
    def random(self) -> bool:
        return True

    def entries(self, shape: HeadShape) -> tuple[int, int]:
        return shape.signal, shape.signal

    def table(self, shape: HeadShape, layer: int) -> Tensor:  # noqa: ARG002
        return self._filled(shape, 0.0)

    def disturb(self, table: Tensor, made: torch.Generator) -> None:
        spread = self.init / math.sqrt(table.shape[-1])
        table.add_(torch.empty(table.shape).normal_(0, spread, generator=made).to(table.device))


class ByDepth(Number):
    """A number that starts at `init` in the lowest layer and at nearly `deep` far up.

    In layer l, counted from 0, it starts at  deep + (init - deep) e^(-rate l).
    """

    allowed: ClassVar[tuple[tuple[Axis, ...], ...]] = tuple(_NAMED.values())

    deep: float
    rate: PositiveFloat = 0.3

    @model_validator(mode="after")
    def _differs_by_layer(self) -> Self:
        if self.trained and not self.per:
            raise ValueError(
                "a number that starts differently by depth is not one scalar for all layers; use per='layer'"
            )
        return self

    def _inits(self) -> tuple[float, ...]:
        return self.init, self.deep

    def init_at(self, layer: int) -> float:
        return self.deep + (self.init - self.deep) * math.exp(-self.rate * layer)


class RunningMean(Number):
    """The exponential moving average of another number of the same stage, over batch and positions, per head.

        mean <- momentum mean + (1 - momentum) (mean of the batch)

    once per training step, before it is used; constant in evaluations; no gradient flows through it. It starts at
    `init`, without bias correction.
    """

    allowed: ClassVar[tuple[tuple[Axis, ...], ...]] = ((),)
    noun: ClassVar[str] = "running mean"

    init: float = 0.0
    of: str
    """The field it averages."""
    momentum: Annotated[float, NonNegativeFloat] = 0.9

    @model_validator(mode="after")
    def _is_a_mean(self) -> Self:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum is in [0, 1); got {self.momentum}")
        if self.learned or self.link != "identity":
            raise ValueError("a running mean is neither trained nor linked; leave `learned` and `link` out")
        return self

    def heads(self, shape: HeadShape) -> int:
        return shape.heads
