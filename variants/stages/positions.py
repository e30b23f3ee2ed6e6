"""How a model knows order."""

import math
from abc import abstractmethod
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from ablate.grid.spec import Choice
from ablate.variants.axes import Distances
from ablate.variants.shared_tensors import shared_tensor


class Positions(Choice):
    """A position scheme. It acts on the embeddings, on queries and keys, on the logits, or not at all."""

    source: ClassVar[str]
    """Source of the formula."""
    rotates: ClassVar[bool] = False
    """True if the scheme rotates queries and keys."""
    adds_bias: ClassVar[bool] = False
    """True if the scheme adds a bias to the logits."""

    @property
    def table(self) -> int:
        """Number of learned position vectors added to the embeddings, and of tokens at most; 0 for none."""
        return 0

    def embedding(self, length: int, width: int, device: torch.device) -> Float[Tensor, "length width"] | None:
        """Return fixed vectors to add to the embeddings; None for none."""
        return None

    def rotate(
        self, x: Float[Tensor, "*heads tokens channels"], *, signals: int, start: int = 0
    ) -> Float[Tensor, "*heads tokens channels"]:
        """Rotate queries or keys by positions from `start` on, each of the `signals` slices of channels alike."""
        return x

    def check_width(self, width: int) -> None:
        """Raise ValueError if slices of `width` channels cannot be rotated."""

    @property
    def buckets(self) -> int:
        """Number of learned numbers per head that `bias` looks up; 0 for none. All layers share one table."""
        return 0

    def bias(
        self, distance: Distances, heads: int, learned: Float[Tensor, "buckets heads"] | None, *, causal: bool
    ) -> Float[Tensor, "#heads queries keys"] | None:
        """Return the bias of the logits or None. In a `causal` model that of later keys is arbitrary."""
        return None


class Bucketed(Positions):
    """Adds a number for each bucket of distances; at most `count` buckets up to `max_distance`."""

    adds_bias: ClassVar[bool] = True

    count: Annotated[int, Field(ge=4, multiple_of=2)] = 32
    max_distance: PositiveInt = 128

    @model_validator(mode="after")
    def _buckets_have_room(self) -> Self:
        if self.max_distance <= self.count // 2:
            raise ValueError(
                f"max_distance={self.max_distance} with count={self.count} lies within the first half of the buckets, "
                f"which hold one distance each; nearest is {self.count // 2 + 1}"
            )
        return self


def bucket(distance: Distances, count: int, max_distance: int) -> Distances:
    """Return T5's bucket of distances >= 0: half of them hold one each, others grow up to `max_distance`."""
    return torch.bucketize(distance, torch.tensor(_starts(count, max_distance), device=distance.device), right=True)


@lru_cache(maxsize=64)
def _starts(count: int, max_distance: int) -> tuple[int, ...]:
    """Return the smallest distance of every bucket but the first.

    With e exact buckets and s others, n is in bucket e + k or above if (n / e)^s >= (max_distance / e)^k. Whole numbers
    avoid rounding at a border.
    """
    exact, others = count // 2, count - count // 2
    starts, n = list(range(1, exact + 1)), exact
    for k in range(1, others):
        while n**others * exact**k < max_distance**k * exact**others:
            n += 1
        starts.append(n)
    return tuple(starts)


class Turning(Positions):
    """Turns channel pairs (i, i + R/2) of queries and keys by an angle for each position.

    R is the number of channels that turn: the first `share` of them, all by default (Pythia turns a quarter); the
    others are left as they are. Pairs are halves apart as in Llama. With S signals each slice of D/S channels turns by
    its own frequencies.
    """

    rotates: ClassVar[bool] = True

    share: Annotated[float, Field(gt=0, le=1)] = 1.0

    @property
    def scale(self) -> float:
        """Factor of cosine and sine; logits get its square."""
        return 1.0

    @abstractmethod
    def frequencies(self, turning: int) -> Float[Tensor, " pairs"]:
        """Radians per position, float64."""

    def check_width(self, width: int) -> None:
        turning = round(self.share * width, 9)
        if turning == 0 or turning % 2:
            part = "" if self.share == 1 else f"{self.share:g} of {width} channels is "
            raise ValueError(
                f"rotary positions turn an even number of channels per signal; {part or 'got '}{turning:g}"
            )

    def rotate(
        self, x: Float[Tensor, "*heads tokens channels"], *, signals: int, start: int = 0
    ) -> Float[Tensor, "*heads tokens channels"]:
        *front, length, channels = x.shape
        width = channels // signals
        turning = round(self.share * width)
        working = torch.promote_types(x.dtype, torch.float32)
        waves = _waves(self, _reach(start, length), turning, working, x.device)
        cos, sin = (each[start : start + length] for each in waves)
        slices = x.to(working).reshape(*front, length, signals, width).transpose(-2, -3)
        first, second = slices[..., :turning].chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin, slices[..., turning:]), dim=-1)
        return turned.transpose(-2, -3).reshape(x.shape).to(x.dtype)


def _reach(start: int, length: int) -> int:
    """Return for how many positions waves are computed: few different numbers while a sequence grows."""
    return length if start == 0 else -(-(start + length) // 256) * 256


@shared_tensor
def _waves(
    positions: Turning, length: int, turning: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "length pairs"], Float[Tensor, "length pairs"]]:
    """Compute cosine and sine of the angles of positions from 0, times the scale."""
    angle = torch.arange(length, dtype=torch.float64)[:, None] * positions.frequencies(turning)
    return (positions.scale * angle.cos()).to(device, dtype), (positions.scale * angle.sin()).to(device, dtype)


class Alibi(Positions):
    """ALiBi: a penalty on the logit that is linear in the distance, without parameters.

        z_ij - s_h |i - j|,    s_h = 2^(-8h/H)        h from 1 to H

    For 8 heads the slopes are 1/2 ... 1/256. The formula serves any H; the authors' code interpolates between powers of
    2. An encoder uses the absolute distance.
    """

    source: ClassVar[str] = "Train Short, Test Long, section 3; When Attention Sink Emerges, eq. 8"
    adds_bias: ClassVar[bool] = True

    kind: Literal["alibi"] = "alibi"

    def bias(
        self, distance: Distances, heads: int, learned: Float[Tensor, "buckets heads"] | None, *, causal: bool
    ) -> Float[Tensor, "heads queries keys"]:
        h = torch.arange(1, heads + 1, device=distance.device)
        slopes = torch.exp2(-8 * h / heads)
        return -slopes[:, None, None] * distance.abs()


class Bucket(Bucketed):
    """Paper 004's relative positions: the index of T5's bucket itself is added to the logit; nothing is learned.

        z_ij + bucket(|i - j|)

    The index grows with distance, so far keys are preferred, and the paper's loss of 5.45 says nothing about T5, which
    learns a number per bucket (kind "t5"). The buckets are those of the paper's code; eq. 7 as printed rounds down
    before it multiplies, which leaves one bucket for all distances from half the buckets to `max_distance`.
    An encoder uses the absolute distance.
    """

    source: ClassVar[str] = "When Attention Sink Emerges, eq. 7, and its code"

    kind: Literal["bucket"] = "bucket"

    def bias(
        self, distance: Distances, heads: int, learned: Float[Tensor, "buckets heads"] | None, *, causal: bool
    ) -> Float[Tensor, "1 queries keys"]:
        return bucket(distance.abs(), self.count, self.max_distance).float()[None]


class Learned(Positions):
    """Learned absolute positions: one vector per position, added to the embeddings (GPT-2).

    `count` learned vectors; a longer sequence is an error.
    """

    source: ClassVar[str] = "GPT-2 (Language Models are Unsupervised Multitask Learners)"

    kind: Literal["learned"] = "learned"
    count: PositiveInt

    @property
    def table(self) -> int:
        return self.count


class NoPositions(Positions):
    """No positions: the causal mask alone tells order (NoPE).

    Nothing is added or rotated.
    """

    source: ClassVar[str] = "The Impact of Positional Encoding on Length Generalization in Transformers"

    kind: Literal["none"] = "none"


class Rotary(Turning):
    """Rotary positions: channel pairs of queries and keys turn by position * base^(-2i/R), R the channels that turn."""

    source: ClassVar[str] = "RoFormer, section 3.2"

    kind: Literal["rotary"] = "rotary"
    base: PositiveFloat = 10_000.0

    def frequencies(self, turning: int) -> Float[Tensor, " pairs"]:
        return self.base ** (-torch.arange(0, turning, 2, dtype=torch.float64) / turning)


class Sinusoidal(Positions):
    """Sinusoidal positions: fixed waves added to the embeddings.

    p_t,2i = sin(t base^(-2i/D)),    p_t,2i+1 = cos(t base^(-2i/D))        t from 0, D the model's width

    Added as they are; the embeddings are not scaled up.
    """

    source: ClassVar[str] = "Attention Is All You Need, section 3.5"

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: PositiveFloat = 10_000.0

    def embedding(self, length: int, width: int, device: torch.device) -> Float[Tensor, "length width"]:
        return _sines(self.base, length, width, device)


@shared_tensor
def _sines(base: float, length: int, width: int, device: torch.device) -> Float[Tensor, "length width"]:
    frequency = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1)[:, :width].float().to(device)


class T5(Bucketed):
    """T5's relative positions: a learned number per head and bucket of distances, added to the logit.

        z_ij + r_h,bucket(i - j)

    Causal models have `count` buckets for the past; encoders half of them for each direction. One table serves all
    layers with the same number of heads. It starts at N(0, 0.02) and is under weight decay like every embedding, as in
    T5: its neutral point is zero.
    """

    source: ClassVar[str] = "Exploring the Limits of Transfer Learning, section 2.1"

    kind: Literal["t5"] = "t5"
    count: Annotated[int, Field(ge=4, multiple_of=4)] = 32

    @property
    def buckets(self) -> int:
        return self.count

    def bias(
        self, distance: Distances, heads: int, learned: Float[Tensor, "buckets heads"] | None, *, causal: bool
    ) -> Float[Tensor, "heads queries keys"]:
        assert learned is not None
        if causal:
            buckets = bucket(distance.clamp(min=0), self.count, self.max_distance)
        else:
            half = self.count // 2
            buckets = bucket(distance.abs(), half, self.max_distance) + half * (distance < 0)
        return learned[buckets].permute(2, 0, 1)


class Yarn(Turning):
    """YaRN: rotary positions stretched to `factor` times the length a model was trained at, without any training.

        w_i  = base^(-2i/R)                                  i from 0 to R/2 - 1, R the channels that turn
        w'_i = w_i (1 - g_i) + w_i / s  g_i                  g_i = (i - low) / (high - low), between 0 and 1
        low  = R ln(L / (2 pi beta_fast)) / (2 ln base)      rounded down, at least 0
        high = R ln(L / (2 pi beta_slow)) / (2 ln base)      rounded up
        cos and sin times 0.1 ln s + 1                       s the factor, L the original length

    Fast frequencies, which turn `beta_fast` times or more within L, stay; slow ones, with `beta_slow` turns or fewer,
    are interpolated; between them the ramp rises with i. Queries and keys are scaled alike, so a logit is multiplied by
    the square before any operator sees it: 1.2965 for s = 4. Channels that do not turn (`share`) are not scaled.

    The ramp is that of the released code, and of every library since. In the paper (section 3.2) it rises with the
    number of turns and not with i. The code also keeps `high` below R, which takes an L of 2 pi base^2 to matter.
    gpt-oss leaves the bounds unrounded (`rounded=False`).

    The frequencies of a `Rotary` of the same base and share, stretched; at factor 1 it is that one.
    """

    source: ClassVar[str] = "YaRN: Efficient Context Window Extension, sections 3.2 and 3.4, and its code"

    kind: Literal["yarn"] = "yarn"
    base: Annotated[float, Field(gt=1)] = 10_000.0
    factor: Annotated[float, Field(ge=1)]
    """How many times longer sequences become."""
    original: PositiveInt
    """The length, in tokens, that the frequencies were trained at."""
    beta_fast: PositiveFloat = 32.0
    """Turns within the original length from which on a frequency stays as it is."""
    beta_slow: PositiveFloat = 1.0
    """Turns within the original length up to which a frequency is interpolated in full."""
    rounded: bool = True
    """Whether the bounds of the ramp are whole numbers."""

    @model_validator(mode="after")
    def _ramp_rises(self) -> Self:
        if self.beta_slow >= self.beta_fast:
            raise ValueError(
                f"beta_slow={self.beta_slow:g} and beta_fast={self.beta_fast:g}: slow frequencies turn less often than "
                "fast ones; lower beta_slow"
            )
        if self.original <= 2 * math.pi * self.beta_slow:
            raise ValueError(
                f"the fastest frequency turns more than beta_slow={self.beta_slow:g} times within the original length, "
                f"one radian per token; got original={self.original}, nearest is "
                f"{math.floor(2 * math.pi * self.beta_slow) + 1}"
            )
        return self

    def bounds(self, turning: int) -> tuple[float, float]:
        """Below the first number frequencies stay, from the second on they are interpolated in full."""
        low, high = (
            turning * math.log(self.original / (2 * math.pi * beta)) / (2 * math.log(self.base))
            for beta in (self.beta_fast, self.beta_slow)
        )
        if self.rounded:
            low, high = math.floor(low), math.ceil(high)
        return max(low, 0), high

    def frequencies(self, turning: int) -> Float[Tensor, " pairs"]:
        i = torch.arange(turning // 2, dtype=torch.float64)
        low, high = self.bounds(turning)
        ramp = ((i - low) / (high - low)).clamp(0, 1)
        return self.base ** (-2 * i / turning) * (1 - ramp * (1 - 1 / self.factor))

    @property
    def scale(self) -> float:
        return 0.1 * math.log(self.factor) + 1
