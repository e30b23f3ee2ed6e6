"""A number: a learned or fixed quantity of an operator, and the axes it varies along.

Granularity is a set of axes. Coarse to fine, by their usual names:

    constant   ()                        a hyperparameter (or one trained scalar, learned=True)
    layer      (layer)                   one scalar per layer
    head       (layer, head)             one scalar per head
    query      (layer, head, query)      predicted from the head's query vector: u . q + the head's scalar
    token      (layer, head, token)      predicted from the layer's normalised input: u . x + the head's scalar

The projections u start at zero, so a finer granularity computes the same function as a coarser one at step 0. With
`projection_std` they start at random, as those of the released code of several papers do. Without `bias` the head's
scalar stays at its start, as in papers whose gates have no bias.
"""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import torch
from jaxtyping import Float
from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic_core import PydanticCustomError
from torch import Tensor

from ablate.grid.spec import Added, Spec
from ablate.variants.granularity import NAMED, Axis, Granularity
from ablate.variants.links import LINKS, Link
from ablate.variants.path_versions import path_versions


class HeadShape(NamedTuple):
    """Sizes of a layer's heads. All but `heads` count channels."""

    heads: int
    query: int
    """Channels of a query, the gate's included."""
    semantic: int
    """Channels of a query without the gate's."""
    signal: int
    """Channels of one signal of a query."""
    value: int
    width: int
    """Channels of the layer's input."""


class Number(Spec):
    """A scalar quantity of an operator: where it starts, along which axes it varies, and the range it stays in.

    `init` is the value the operator sees at step 0 (after the link). A granularity finer than constant is trained;
    `learned=True` also trains a constant, one scalar for all layers and heads. `bias=False` trains the projection from
    the query or token alone.
    """

    allowed: ClassVar[tuple[tuple[Axis, ...], ...]] = (*NAMED.values(), ("head",))
    noun: ClassVar[str] = "number"

    init: float
    per: Granularity = ()
    link: Link = "identity"
    learned: bool | None = None
    bias: Annotated[bool, Added()] = True
    projection_std: Annotated[NonNegativeFloat, Added()] = 0.0
    """Standard deviation of the projection u at the start; says nothing if the number is not predicted."""

    def other_versions(self) -> Mapping[str, str]:
        """Return the versions of its link and of all paths."""
        return {f"Link {self.link}": str(LINKS[self.link].version), **path_versions()}

    @classmethod
    def _admit(cls, value: object, validate: ValidatorFunctionWrapHandler) -> object:
        if isinstance(value, int | float) and not isinstance(value, bool):
            words = {"cls": cls.__name__, "got": value}
            raise PydanticCustomError("field", "a number says where it starts; write {cls}(init={got})", words)
        return super()._admit(value, validate)

    @model_validator(mode="after")
    def _meaning_is_unique(self) -> Self:
        if self.per not in self.allowed:
            known = ", ".join(repr(_label(per)) for per in self.allowed)
            raise ValueError(f"{self.label!r} is no granularity of a {self.noun}; it has {known}")
        if self.per and self.learned is False:
            axes = ", ".join(self.per)
            raise ValueError(f"what varies along {axes} is learned; use per='constant' for a fixed value")
        if not self.bias and not self.predicted:
            raise ValueError(
                f"bias=False does not fit per={self.label!r}; use per='query' or 'token', where it trains a projection "
                "alone"
            )
        if self.learned is bool(self.per):
            self.set_normal_form(learned=None)
        if self.projection_std and not self.predicted:
            self.set_normal_form(projection_std=0.0)
        link, what = LINKS[self.link], "trained" if self.trained else "fixed"
        for init in self._inits():
            if not link.holds(init, trained=self.trained):
                words = link.words(trained=self.trained)
                raise ValueError(f"a {what} number with link {self.link!r} has init in {words}; got {init}")
        return self

    def _inits(self) -> tuple[float, ...]:
        return (self.init,)

    @property
    def trained(self) -> bool:
        return bool(self.per) or bool(self.learned)

    @property
    def predicted(self) -> bool:
        """True if it is predicted from the query or the token."""
        return "query" in self.per or "token" in self.per

    @property
    def random(self) -> bool:
        """True if its table starts at random."""
        return False

    @property
    def label(self) -> str:
        return _label(self.per)

    def at(self, per: str | tuple[Axis, ...]) -> Self:
        return self.changed(per=per, learned=None, bias=True)

    def init_at(self, layer: int) -> float:  # noqa: ARG002  (a number may start differently by depth)
        """Return its start in `layer`, counted from 0."""
        return self.init

    def entries(self, shape: HeadShape) -> tuple[int, int]:  # noqa: ARG002  (a vector has one entry per channel)
        """Return the last two sizes of its value [1, H, rows, columns]."""
        return 1, 1

    def table(self, shape: HeadShape, layer: int) -> Float[Tensor, "1 heads rows columns"]:
        """Build its raw table at step 0, without noise."""
        return self._fill(shape, LINKS[self.link].inverse(self.init_at(layer)))

    def fixed_value(self, shape: HeadShape, layer: int) -> Float[Tensor, "1 heads rows columns"]:
        """Build the value of an untrained number."""
        return self._fill(shape, self.init_at(layer))

    def disturb(self, table: Float[Tensor, "1 heads rows columns"], made: torch.Generator | None) -> None:
        """Add the noise of the start to a raw table; a scalar has none."""

    def value(self, raw: Float[Tensor, "*heads rows columns"], layer: int) -> Float[Tensor, "*heads rows columns"]:  # noqa: ARG002  (a number may depend on depth)
        """Map a raw table to the operator's value."""
        return LINKS[self.link].value(raw)

    def _fill(self, shape: HeadShape, value: float) -> Float[Tensor, "1 heads rows columns"]:
        return torch.full((1, self.heads(shape), *self.entries(shape)), value, dtype=torch.float32)

    def heads(self, shape: HeadShape) -> int:
        return shape.heads if "head" in self.per else 1


def _label(per: tuple[Axis, ...]) -> str:
    return next((name for name, axes in NAMED.items() if axes == per), "+".join(per))


def require_link(*links: Link) -> AfterValidator:
    """Mark a field of type `Number` whose range needs one of `links`."""

    def check(number: Number) -> Number:
        if number.link not in links:
            raise ValueError(f"link={number.link!r} does not fit its range; use link={links[0]!r}")
        return number

    return AfterValidator(check)


PositiveNumber = Annotated[Number, require_link("positive", "at_least_one")]


class Vector(Number):
    """A number with one entry per value channel, such as the ground value v0: [1, H, 1, D] to the operator.

    It is never predicted from the query. `init` is the value of every channel, or of the `first` alone, the others
    being 0. A trained one starts with noise of standard deviation `spread` on its raw entries.
    """

    allowed: ClassVar[tuple[tuple[Axis, ...], ...]] = ((), ("layer",), ("layer", "head"), NAMED["token"])
    noun: ClassVar[str] = "vector"

    spread: NonNegativeFloat = 0.0
    along: Literal["all", "first"] = "all"

    @model_validator(mode="after")
    def _every_field_counts(self) -> Self:
        if self.spread and not self.trained:
            raise ValueError(
                f"spread={self.spread} has no effect on a fixed vector, being noise on a trained one's start; leave it "
                "out"
            )
        if self.spread and not self.bias:
            raise ValueError(
                f"spread={self.spread} has no effect with bias=False, being noise on a trained constant; leave it out"
            )
        if self.along == "first" and self.link != "identity":
            raise ValueError(
                f"link={self.link!r} cannot be at 0, to which along='first' sets the other channels; use "
                "link='identity'"
            )
        if self.along == "first" and self.init == 0:
            self.set_normal_form(along="all")  # zero in every channel either way
        return self

    @property
    def random(self) -> bool:
        return self.spread > 0

    def at(self, per: str | tuple[Axis, ...]) -> Self:
        """Return the vector at another granularity; a fixed vector has no noise."""
        fixed = per in ("constant", ())
        return self.changed(per=per, learned=None, bias=True, spread=0.0 if fixed else self.spread)

    def entries(self, shape: HeadShape) -> tuple[int, int]:
        return 1, shape.value

    def disturb(self, table: Float[Tensor, "1 heads 1 columns"], made: torch.Generator | None) -> None:
        if self.spread:
            table.add_(noise(table, self.spread, made))

    def _fill(self, shape: HeadShape, value: float) -> Float[Tensor, "1 heads 1 columns"]:
        filled = super()._fill(shape, value)
        if self.along == "first":
            filled[..., 1:] = 0
        return filled


class KeyVector(Vector):
    """A vector with one entry per key channel without the gate's: [1, H, 1, D] to the operator."""

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

    @model_validator(mode="after")
    def _has_no_link(self) -> Self:
        if self.link != "identity":
            raise ValueError(
                f"link={self.link!r} has no effect on a matrix, whose entries are any real numbers; leave it out"
            )
        return self

    @property
    def random(self) -> bool:
        return True

    def entries(self, shape: HeadShape) -> tuple[int, int]:
        return shape.signal, shape.signal

    def table(self, shape: HeadShape, layer: int) -> Float[Tensor, "1 heads channels channels"]:  # noqa: ARG002
        return self._fill(shape, 0.0)

    def disturb(self, table: Float[Tensor, "1 heads channels channels"], made: torch.Generator | None) -> None:
        table.add_(noise(table, self.init / math.sqrt(table.shape[-1]), made))


class ByDepth(Number):
    """A number that starts at `init` in the lowest layer and tends to `deep` in high layers.

    In layer l, counted from 0, it starts at  deep + (init - deep) e^(-rate l).
    """

    allowed: ClassVar[tuple[tuple[Axis, ...], ...]] = tuple(NAMED.values())

    deep: float
    rate: PositiveFloat = 0.3

    @model_validator(mode="after")
    def _differs_by_layer(self) -> Self:
        if self.trained and not self.per:
            raise ValueError("a number that starts by depth is not one scalar for all layers; use per='layer'")
        if self.init == self.deep:
            self.set_normal_form(rate=0.3)  # the same in every layer, at any rate
        return self

    def _inits(self) -> tuple[float, ...]:
        return self.init, self.deep

    def init_at(self, layer: int) -> float:
        return self.deep + (self.init - self.deep) * math.exp(-self.rate * layer)


class Contrast(ByDepth):
    """A number by depth that is trained through four vectors of one signal's width, as Differential's lambda is.

        value = start of the layer + e^(q1 . k1) - e^(q2 . k2)

    The vectors start at random with standard deviation `spread`, so the value starts near the layer's start, and may
    become anything. `form="scalar"` trains the value itself, as every other number is.
    """

    noun: ClassVar[str] = "contrast"

    per: Granularity = ("layer",)
    form: Literal["vectors", "scalar"] = "vectors"
    spread: PositiveFloat = 0.1

    @model_validator(mode="after")
    def _vectors_make_it(self) -> Self:
        if not self.trained:
            self.set_normal_form(form="scalar")  # fixed: nothing is made of vectors
        if self.form == "scalar":
            self.set_normal_form(spread=0.1)  # there are no vectors to draw
        elif self.predicted:
            raise ValueError(
                f"per={self.label!r} has no four vectors, which make a number per layer or head; use form='scalar'"
            )
        elif self.link != "identity":
            raise ValueError(
                f"link={self.link!r} does not fit four vectors, which make any real number; use form='scalar'"
            )
        return self

    @property
    def random(self) -> bool:
        return self.form == "vectors"

    def table(self, shape: HeadShape, layer: int) -> Float[Tensor, "1 heads rows columns"]:
        if self.form == "scalar":
            return super().table(shape, layer)
        return torch.zeros((1, self.heads(shape), 4, shape.signal))

    def disturb(self, table: Float[Tensor, "1 heads rows columns"], made: torch.Generator | None) -> None:
        if self.form == "vectors":
            table.add_(noise(table, self.spread, made))

    def value(
        self, raw: Float[Tensor, "#batch #heads rows columns"], layer: int
    ) -> Float[Tensor, "#batch #heads #rows 1"]:
        if self.form == "scalar":
            return super().value(raw, layer)
        pairs: Tensor = (raw[..., 0::2, :] * raw[..., 1::2, :]).sum(-1, keepdim=True).exp()
        return self.init_at(layer) + pairs[..., :1, :] - pairs[..., 1:, :]


class RunningMean(Number):
    """The exponential moving average of another number of the same stage, over batch and positions, per head.

        mean <- momentum mean + (1 - momentum) (mean of the batch)

    once per forward pass in training, before it is used; constant in evaluations; no gradient flows through it. It
    starts at `init`, without bias correction.
    """

    allowed: ClassVar[tuple[tuple[Axis, ...], ...]] = ((),)
    noun: ClassVar[str] = "running mean"

    init: float = 0.0
    of: str
    """The field it averages: a scalar number of the same stage."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9

    @model_validator(mode="after")
    def _is_a_mean(self) -> Self:
        if self.learned or self.link != "identity":
            raise ValueError("a running mean is neither trained nor linked; leave `learned` and `link` out")
        return self

    def heads(self, shape: HeadShape) -> int:
        return shape.heads


def noise(table: Float[Tensor, "..."], spread: float, made: torch.Generator | None) -> Float[Tensor, "..."]:
    """Draw noise in the shape of a table on the CPU, so that it is the same on every device; None draws globally."""
    return torch.empty(table.shape, dtype=torch.float32).normal_(0, spread, generator=made).to(table)
