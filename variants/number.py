"""A number: a learned or fixed quantity of an operator, and the axes it varies along.

Granularity is a set of axes. Coarse to fine, by their usual names:

    constant   ()                        a hyperparameter (or one trained scalar, learned=True)
    layer      (layer)                   one scalar per layer
    head       (layer, head)             one scalar per head
    query      (layer, head, query)      predicted from the query vector: u . q + the head's scalar, u starting at zero

A finer granularity therefore computes the same function as a coarser one at step 0.
"""

import math
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import BeforeValidator, model_validator
from torch import Tensor
from torch.nn import functional as F

from grid.spec import Spec

Axis = Literal["layer", "head", "query"]

_NAMED: dict[str, tuple[Axis, ...]] = {
    "constant": (),
    "layer": ("layer",),
    "head": ("layer", "head"),
    "query": ("layer", "head", "query"),
}

granularities = tuple(_NAMED)
"""Every granularity of a scalar number, coarse to fine: values for a grid axis that ends in `.per`."""


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


LINKS = {
    "identity": Range(lambda raw: raw, lambda value: value, -math.inf, math.inf, closed=False),
    "positive": Range(torch.exp, math.log, 0, math.inf, closed=False),
    "at_least_one": Range(
        lambda raw: 1 + F.softplus(raw), lambda value: _softplus_inverse(value - 1), 1, math.inf, closed=True
    ),
    "unit": Range(torch.sigmoid, lambda value: math.log(value / (1 - value)), 0, 1, closed=True),
}


def _axes(per: object) -> object:
    if isinstance(per, str):
        if per not in _NAMED:
            raise ValueError(f"a granularity is one of {', '.join(_NAMED)} or a tuple of axes, got {per!r}")
        return _NAMED[per]
    if isinstance(per, list | tuple):
        return tuple(axis for axis in ("layer", "head", "query") if axis in per) + tuple(
            axis for axis in per if axis not in ("layer", "head", "query")
        )
    return per


Granularity = Annotated[tuple[Axis, ...], BeforeValidator(_axes)]


class Number(Spec):
    """A scalar quantity of an operator: where it starts, along which axes it varies, and the range it stays in.

    `init` is the value the operator sees at step 0 (after the link). A granularity finer than constant is trained;
    `learned=True` also trains a constant, one scalar for all layers and heads.
    """

    allowed: ClassVar[tuple[tuple[Axis, ...], ...]] = (*_NAMED.values(), ("head",))

    init: float
    per: Granularity = ()
    link: Literal["identity", "positive", "at_least_one", "unit"] = "identity"
    learned: bool | None = None

    @model_validator(mode="after")
    def _meaning_is_unique(self) -> Self:
        if self.per not in self.allowed:
            names = {axes: repr(name) for name, axes in _NAMED.items()}
            known = ", ".join(names.get(per, repr(per)) for per in self.allowed)
            given = names.get(self.per, repr(self.per))
            raise ValueError(f"the granularity of a {type(self).__name__.lower()} is one of {known}; got {given}")
        if self.per and self.learned is False:
            raise ValueError(
                f"what varies along {', '.join(self.per)} is learned; use per='constant' for a fixed value"
            )
        if self.learned is bool(self.per):
            object.__setattr__(self, "learned", None)
        link = LINKS[self.link]
        if not link.holds(self.init, trained=self.trained):
            what = "trained" if self.trained else "fixed"
            words = link.words(trained=self.trained)
            raise ValueError(f"a {what} number with link {self.link!r} has init in {words}; got {self.init}")
        return self

    @property
    def trained(self) -> bool:
        """Whether an optimiser moves it."""
        return bool(self.per) or bool(self.learned)

    @property
    def label(self) -> str:
        """The usual name of the granularity."""
        names = {axes: name for name, axes in _NAMED.items()}
        return names.get(self.per, "+".join(self.per))

    def at(self, per: str | tuple[Axis, ...]) -> Self:
        """The same number at another granularity."""
        return self.changed(per=per, learned=None)

    def raw_init(self) -> float:
        """Where training starts, on the real line."""
        return LINKS[self.link].inverse(self.init)

    def linked(self, raw: Tensor) -> Tensor:
        """The operator's value for a raw one."""
        return LINKS[self.link].value(raw)


class Vector(Number):
    """A quantity with one entry per value channel, such as the ground value v0: [1, H, 1, D] to the operator.

    It is never predicted from the query.
    """

    allowed: ClassVar[tuple[tuple[Axis, ...], ...]] = ((), ("layer",), ("layer", "head"))
