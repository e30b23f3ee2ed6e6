"""How much a key counts before normalisation."""

import math
from collections.abc import Callable, Mapping
from itertools import groupby
from math import gcd
from typing import Annotated, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor
from torch.nn import functional as F

from ablate.variants.axes import Map, Mask, Scalar
from ablate.variants.number import Number, PositiveNumber, require_link
from ablate.variants.score_map import Scores, block
from ablate.variants.stages.families import LogScore, PlainScore, Range, Score
from ablate.variants.stages.stage import Tends


class EluPlusOne(LogScore):
    """ELU plus one: the exponential below zero, a line above.

        f(a) = e^a  for a <= 0,  1 + a  for a > 0

    Under the sum it is softmax where no visible logit is above 0.

    Grows like the logit; slope 1 at 0.
    """

    source: ClassVar[str] = "When Attention Sink Emerges, table 4"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "It is taken of the logit; ELU plus one of queries and of keys is the product 'linear_elu'.",
    )

    kind: Literal["elu_plus_one"] = "elu_plus_one"

    def log_score(self, a: Float[Tensor, "*map"]) -> Float[Tensor, "*map"]:
        return torch.where(a > 0, torch.log1p(a.clamp(min=0)), a)

    def oracle(self, a: float) -> float:
        return math.exp(a) if a <= 0 else 1 + a


class Exponential(LogScore):
    """The exponential: f(a) = exp(a). With the sum as normaliser this is softmax."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["exponential"] = "exponential"

    def log_score(self, a: Float[Tensor, "*map"]) -> Float[Tensor, "*map"]:
        return a

    def oracle(self, a: float) -> float:
        return math.exp(a)


class HeadGroups(Score):
    """Different scores in different heads: equal blocks of heads, one score each, in order.

        f of head h is that of part  floor(h n / H)          n parts, H heads

    Parts have their own numbers, "0.n" for the number n of part 0, with values for the part's heads only. Where only
    some parts are known by their logarithm, each block keeps its own units, so that nothing overflows.
    """

    source: ClassVar[str] = "Scaled Signed Averaging, appendix C"

    kind: Literal["head_groups"] = "head_groups"
    parts: tuple[Score, ...]

    @model_validator(mode="after")
    def _meaning_is_unique(self) -> Self:
        if any(isinstance(part, HeadGroups) for part in self.parts):
            raise ValueError("a part of head groups is a score for its heads and not groups again; list all parts")
        runs = [len(list(run)) for _, run in groupby(self.parts)]
        repeated = gcd(*runs)
        if repeated > 1 and all("head" in number.per for number in self.numbers().values() if number.trained):
            self.set_normal_form(parts=self.parts[::repeated])
        if len(self.parts) < 2:
            got = ", ".join(part.label for part in self.parts) or "none"
            raise ValueError(f"head groups of {got} are no two or more different scores; use one score without groups")
        return self

    @classmethod
    def example(cls) -> Self:
        return cls.model_validate({"parts": [{"kind": "uniform"}, {"kind": "ssa"}]})

    @property
    def range(self) -> Range:  # type: ignore[override]
        """The widest of its parts'; positive only where every part is known by its logarithm."""
        ranges = {part.range for part in self.parts}
        order: tuple[Range, ...] = ("any", "as its logit", "nonnegative")
        return next((each for each in order if each in ranges), "positive")

    @property
    def homogeneous(self) -> bool:  # type: ignore[override]
        """Each part is, with an n of its own."""
        return all(part.homogeneous for part in self.parts)

    @property
    def breaks(self) -> Mapping[str, str]:
        return {"heads": "heads of different groups have different scores"}

    def numbers(self) -> dict[str, Number]:
        return {f"{at}.{name}": number for at, part in enumerate(self.parts) for name, number in part.numbers().items()}

    def check(self, heads: int) -> None:
        parts = len(self.parts)
        if heads % parts:
            nearest = max(parts, round(heads / parts) * parts)
            raise ValueError(
                f"score 'head_groups' gives its {parts} parts equal blocks of heads and needs heads divisible by "
                f"{parts}; got {heads}, nearest is {nearest}"
            )

    def heads_of(self, field: str, heads: int) -> slice:
        each, at = heads // len(self.parts), int(field.partition(".")[0])
        return slice(at * each, (at + 1) * each)

    def of_head(self, head: int, heads: int) -> tuple[Score, str]:
        at = head * len(self.parts) // heads
        return self.parts[at], f"{at}."

    def oracle(self, a: float) -> float:
        raise NotImplementedError("a head has the score of its part; ask of_head() for it")

    def scores(self, a: Map, mask: Mask, **numbers: Tensor) -> Scores:
        heads = a.shape[-3]
        self.check(heads)
        each = heads // len(self.parts)
        parts = [
            part.scores(block(a, at, each), block(mask, at, each), **_own(numbers, at, (heads, each)))
            for at, part in enumerate(self.parts)
        ]
        if not all(isinstance(part, LogScore) for part in self.parts):
            plain = torch.cat([one.values() for one in parts], -3)
            logs = any(isinstance(part, LogScore) for part in self.parts)
            return Scores(
                mask, plain=plain, score=_further(parts, heads, plain=True), parts=tuple(parts) if logs else ()
            )
        log = torch.cat([one.log for one in parts if one.log is not None], -3)
        signed = any(one.sign is not None for one in parts)
        signs = [torch.ones_like(_log(one)) if one.sign is None else one.sign for one in parts]
        return Scores(
            mask, log=log, sign=torch.cat(signs, -3) if signed else None, score=_further(parts, heads, plain=False)
        )


def _log(scores: Scores) -> Map:
    assert scores.log is not None
    return scores.log


def _own(numbers: dict[str, Tensor], at: int, heads: tuple[int, int]) -> dict[str, Tensor]:
    """The numbers of part `at` for its heads, from values for those or for all; `heads` are (all, one part's)."""
    start, (whole, each) = f"{at}.", heads
    return {
        name.removeprefix(start): block(value, at, each) if value.dim() > 2 and value.shape[-3] == whole else value
        for name, value in numbers.items()
        if name.startswith(start)
    }


def _further(parts: list[Scores], heads: int, *, plain: bool) -> Callable[[Tensor], Tensor]:
    """The score of further logits, each head's by its own part."""
    each = heads // len(parts)

    def score(logits: Tensor) -> Tensor:
        logits = logits[(None,) * (3 - logits.dim())]
        logits = logits.expand(*logits.shape[:-3], heads, *logits.shape[-2:])
        values = []
        for at, one in enumerate(parts):
            value = one.score(block(logits, at, each))
            values.append(value.exp() if plain and one.log is not None else value)
        return torch.cat(torch.broadcast_tensors(*values), -3)  # type: ignore[no-untyped-call]

    return score


class Identity(PlainScore):
    """The logit as it is:  f(a) = a.

    Not below 0 only where its logit is not: products of nonnegative features, which is linear attention.
    """

    source: ClassVar[str] = "When Attention Sink Emerges, table 4"
    range: ClassVar[Range] = "as its logit"
    homogeneous: ClassVar[bool] = True

    kind: Literal["identity"] = "identity"

    def score(self, a: Float[Tensor, "*map"]) -> Float[Tensor, "*map"]:
        return a

    def oracle(self, a: float) -> float:
        return a


class Relu(PlainScore):
    """The rectifier:  f(a) = max(a, 0).  At a = 0 its gradient is 0.

    Keys with a negative logit count for nothing.
    """

    source: ClassVar[str] = "Scaled Signed Averaging, appendix C"
    range: ClassVar[Range] = "nonnegative"
    homogeneous: ClassVar[bool] = True
    pitfalls: ClassVar[tuple[str, ...]] = (
        "With all logits 0, as where queries start at zero, all weights are 0 and nothing is learned.",
    )

    kind: Literal["relu"] = "relu"

    def score(self, a: Float[Tensor, "*map"]) -> Float[Tensor, "*map"]:
        return a.relu()

    def oracle(self, a: float) -> float:
        return max(a, 0.0)


class Sigmoid(LogScore):
    """The sigmoid: a key counts between 0 and 1, whatever the others are.

        f(a) = 1 / (1 + e^-(a + b))          b shift

    With b = -ln n the scores of n keys of logit 0 sum to about 1 and not to n / 2. Where n is the number of keys that
    each query sees, use the exponential with the normaliser "against_count". As b -> -inf it is e^(a + b): under the
    sum, softmax.
    """

    source: ClassVar[str] = "When Attention Sink Emerges, table 4; Sigmoid Self-Attention, section 2 (b)"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "Without a normaliser and with b = 0 the weights of a fresh model sum to K / 2: outputs grow with the length.",
    )

    kind: Literal["sigmoid"] = "sigmoid"
    shift: Number = Number(init=0.0)
    """b: 0 as in the paper on sinks; any granularity."""

    def log_score(self, a: Float[Tensor, "*#map"], *, shift: Scalar) -> Float[Tensor, "*#map"]:
        return F.logsigmoid(a + shift)

    def oracle(self, a: float, *, shift: float) -> float:
        x = a + shift
        return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


class SignedExponential(LogScore):
    """The signed exponential: a very negative logit counts as much as a very positive one, with the other sign.

        f(a) = sgn(a) e^|a|          f(0) = 0, of size e^0 = 1

    The sign has no gradient; the score jumps from -1 to 1 at a = 0. Under the normaliser "absolute" this is Cog
    attention, sgn(a) softmax(|a|): a logit of 0 has weight 0 and still adds its size to the sum.

    Odd: f(-a) = -f(a).
    """

    source: ClassVar[str] = "Integral Transformer, eq. 4 (Cog); More Expressive Attention with Negative Weights"
    range: ClassVar[Range] = "any"
    pitfalls: ClassVar[tuple[str, ...]] = (
        "A logit of exactly 0 has weight 0 and adds e^0 = 1 to the sum. With all logits 0, as if queries start at "
        "zero, all weights are 0 and no query or key has a gradient.",
        "Twice the keys, once with their sign turned, give sinh(a) / sum cosh(a), which is another operator.",
    )

    kind: Literal["signed_exponential"] = "signed_exponential"

    def log_score(self, a: Float[Tensor, "*map"]) -> Float[Tensor, "*map"]:
        return a.abs()

    def sign(self, a: Float[Tensor, "*map"]) -> Float[Tensor, "*map"]:
        return a.detach().sign()

    def oracle(self, a: float) -> float:
        return math.copysign(math.exp(abs(a)), a) if a else 0.0

    def size_oracle(self, a: float) -> float:  # type: ignore[override]
        return math.exp(abs(a))


class Square(PlainScore):
    """The square:  f(a) = a^2.  A very negative logit counts as much as a very positive one.

    Even and not negative.
    """

    source: ClassVar[str] = "Scaled Signed Averaging, appendix C"
    range: ClassVar[Range] = "nonnegative"
    homogeneous: ClassVar[bool] = True
    pitfalls: ClassVar[tuple[str, ...]] = ("At a = 0 its gradient is 0: with all logits 0 nothing is learned.",)

    kind: Literal["square"] = "square"

    def score(self, a: Float[Tensor, "*map"]) -> Float[Tensor, "*map"]:
        return a.square()

    def oracle(self, a: float) -> float:
        return a * a


class SSA(LogScore):
    """Scaled signed averaging: a power law in place of the exponential.

        f(a) = (1 + b |a|) ** (n sgn a)         b > 0 slope, n >= 1 exponent
             = exp(n sgn(a) log1p(b |a|))       the form computed here

    It concentrates polynomially, so one large logit does not silence all other keys.
    """

    source: ClassVar[str] = "Scaled Signed Averaging, eq. 5"
    identities: ClassVar[tuple[Tends, ...]] = (Tends({"b": 1e-6, "n": 1e6}, to="exponential", within=1e-4),)

    kind: Literal["ssa"] = "ssa"
    n: PositiveNumber = Number(init=1.5, per=("layer", "head"), link="at_least_one")
    """The exponent n, at least 1: how fast a large logit outgrows the others."""
    b: Annotated[Number, require_link("positive")] = Number(init=1.0, per=("layer", "head"), link="positive")
    """The slope b, above 0: how large a logit is before the exponent matters; n b is the slope of ln f at 0."""

    def log_score(self, a: Float[Tensor, "*#map"], *, n: Scalar, b: Scalar) -> Float[Tensor, "*#map"]:
        rising = torch.log1p(b * a.clamp(min=0))
        falling = torch.log1p(b * (-a).clamp(min=0))
        return n * torch.where(a >= 0, rising, -falling)  # this form keeps the slope n*b at a = 0

    def oracle(self, a: float, *, n: float, b: float) -> float:
        return math.pow(1 + b * abs(a), n if a >= 0 else -n)


class Tanh(PlainScore):
    """The hyperbolic tangent:  f(a) = tanh(a), between -1 and 1.

    Odd and bounded.
    """

    source: ClassVar[str] = "Scaled Signed Averaging, appendix C"

    kind: Literal["tanh"] = "tanh"

    def score(self, a: Float[Tensor, "*map"]) -> Float[Tensor, "*map"]:
        return a.tanh()

    def oracle(self, a: float) -> float:
        return math.tanh(a)


class Uniform(LogScore):
    """Every key counts the same:  f(a) = 1.  Under the sum this is the mean of the visible values.

    Queries and keys have no effect; their gradients are 0. Whatever else makes or thresholds logits is refused beside
    it, except in head groups, where other heads have other scores.
    """

    source: ClassVar[str] = "Scaled Signed Averaging, appendix C (uniform averaging)"
    range: ClassVar[Range] = "constant"
    homogeneous: ClassVar[bool] = True
    pitfalls: ClassVar[tuple[str, ...]] = (
        "The projections of queries and keys are parameters without a purpose: weight decay shrinks them.",
    )

    kind: Literal["uniform"] = "uniform"

    def log_score(self, a: Float[Tensor, "*map"]) -> Float[Tensor, "*map"]:
        return a * 0  # in the graph, so that gradients are 0 and not missing

    def oracle(self, a: float) -> float:
        return 1.0
